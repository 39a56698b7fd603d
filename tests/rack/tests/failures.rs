//! One boot of one machine with four disks, whose clock is a year behind: its inventory is what the hypervisor gave it, each failure of an action is
//! reported in one line, and an image is complete, on the disk that a hint finds, although the server is killed while it is written.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{Image, image, images, sha256};
use rack::server::osie;
use rack::site::Site;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};
use tempfile::TempDir;
use tinwright::workflow::v1::{ActionState, Workflow, WorkflowState};

/// Writes an image, and leaves the machine as it is.
const TEMPLATE: &str = r#"
version: "0.1"
name: write
global_timeout: 1800
tasks:
  - name: disk
    worker: "{{.device_1}}"
    actions:
      - name: write
        image: quay.io/tinkerbell/actions/image2disk:latest
        timeout: 900
        environment:
          DEST_DISK: "{{.disk}}"
          IMG_URL: "{{.url}}"
          IMG_SHA256: "{{.sha256}}"
          RETRY_DURATION_MINUTES: "{{.minutes}}"
"#;

/// Maximum duration of a workflow, including the machine's boot.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(8 * 60);
/// Time between the server's end and its restart.
const SERVER_DOWNTIME: Duration = Duration::from_secs(20);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An image that is written in a moment.
const SMALL: &str = "small.raw.zst";
const SMALL_BYTES: usize = 16 << 20;
/// The first half of the small image.
const HALF: &str = "half.raw.zst";

/// Writes a small image, and its half, into `folder`.
fn make_small_images(folder: &Path) {
    let (raw, small) = (folder.join("small.raw"), folder.join(SMALL));
    let mut bytes = vec![0; SMALL_BYTES];
    Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut bytes);
    // A boot sector without partitions: other contents are refused.
    bytes[446..510].fill(0);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(&raw, bytes).unwrap();
    setup::run(Command::new("zstd").args(["--quiet", "--rm", "-o"]).args([&small, &raw])).unwrap();
    let whole = std::fs::read(small).unwrap();
    std::fs::write(folder.join(HALF), &whole[..whole.len() / 2]).unwrap();
}

struct Fixture {
    site: Site,
    machine: Machine,
    hardware: String,
    image: Image,
    files: TempDir,
}

/// Template values of a workflow.
struct Values<'a> {
    /// Empty for the disk that the machine's hint finds.
    disk: &'a str,
    url: &'a str,
    sha256: &'a str,
    minutes: &'a str,
}

impl Fixture {
    /// Starts a server with images, and defines a machine.
    async fn set_up() -> Self {
        let (osie, images) = (osie().unwrap(), images().unwrap());
        let image = image(&images, Firmware::Bios).unwrap();
        let files = tempfile::tempdir().unwrap();
        std::fs::copy(images.join(&image.name), files.path().join(&image.name)).unwrap();
        make_small_images(files.path());
        let site = Site::start(&osie, files.path()).await.unwrap();
        let mut machine = Machine::new(&site.lab, 1, Firmware::Bios).unwrap();
        for (gib, is_ssd) in [(4, true), (3, false), (5, true)] {
            machine = machine.with_scsi_disk(&site.lab, gib, is_ssd).unwrap();
        }
        let machine = machine.with_clock_behind(YEAR);
        let hardware = site.add_machine(&machine).await.unwrap();
        Self { site, machine, hardware, image, files }
    }

    /// Runs the `tinwright` command.
    fn tinwright(&self, line: &[&str]) -> Output {
        self.site.server.cli().args(line).output().unwrap()
    }

    fn template(&self, text: &str) -> Output {
        let file = self.site.lab.path("template.yaml");
        std::fs::write(&file, text).unwrap();
        self.tinwright(&["template", "create", "-f", file.to_str().unwrap()])
    }

    /// Creates a workflow. Returns its id.
    fn create_workflow(&self, values: &Values<'_>, flags: &[&str]) -> String {
        let Values { disk, url, sha256, minutes } = values;
        let values = [("disk", disk), ("url", url), ("sha256", sha256), ("minutes", minutes)];
        let given = values.iter().filter(|(_, value)| !value.is_empty());
        let values: Vec<_> = given.map(|(name, value)| format!("--value={name}={value}")).collect();
        let mut line = vec!["workflow", "create", "--template=write", "-o=json"];
        let hardware = format!("--hardware={}", self.hardware);
        line.push(&hardware);
        line.extend(values.iter().map(String::as_str));
        line.extend(flags);
        let output = self.tinwright(&line);
        assert!(output.status.success(), "{}", error(&output));
        let created: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let workflow = created.get(0).unwrap_or(&created);
        workflow["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the workflow `id` fulfils `condition`.
    async fn wait_until(&self, id: &str, condition: impl Fn(&Workflow) -> bool) -> Workflow {
        let polling = async {
            loop {
                // Calls fail while the server is down.
                if let Ok(workflow) = self.site.operator.workflow(id).await
                    && condition(&workflow)
                {
                    return workflow;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let done = tokio::time::timeout(WORKFLOW_TIMEOUT, polling).await;
        done.unwrap_or_else(|_| panic!("{}", self.machine.console(&self.site.lab)))
    }

    /// Runs a workflow that fails. Returns the reason printed by `tinwright workflow get`.
    async fn failure_reason(&self, values: &Values<'_>, flags: &[&str]) -> String {
        let id = self.create_workflow(values, flags);
        let ended = self.wait_until(&id, has_ended).await;
        assert_eq!(ended.state(), WorkflowState::Failed, "{}", ended.state_reason);
        let output = self.tinwright(&["workflow", "get", &id]);
        let text = String::from_utf8(output.stdout).unwrap();
        let reason = text.lines().find_map(|line| line.strip_prefix("reason"));
        reason.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}:7080/files/{name}", rack::SERVER)
    }

    /// Runs failing workflows one after another, and compares the reasons.
    async fn check_failure_reasons(&self) {
        let (whole, half) = (self.url(SMALL), self.url(HALF));
        let sha256 = sha256(&self.files.path().join(SMALL), None).unwrap();
        let good = Values { disk: "/dev/vda", url: &whole, sha256: &sha256, minutes: "5" };
        let cut = self.failure_reason(&Values { url: &half, ..good }, &["--netboot"]).await;
        let damaged = format!(
            "action \"write\": image2disk: GET {half}: the file is damaged or incomplete (zstd): "
        );
        assert!(cut.starts_with(&damaged), "{cut}");
        let hardware = self.site.operator.hardware(&self.hardware).await.unwrap();
        self.machine.assert_inventory(hardware.inventory.as_deref().unwrap());

        let absent = self.failure_reason(&Values { disk: "/dev/vdz", ..good }, &[]).await;
        let disk = "action \"write\": image2disk: /dev/vdz: no such disk; this machine has /dev/sda, /dev/sdb, /dev/sdc, /dev/vda";
        assert_eq!(absent, disk);

        let unused_address = "http://198.51.100.250:7080/files/debian.raw.zst";
        let away =
            self.failure_reason(&Values { url: unused_address, minutes: "0", ..good }, &[]).await;
        let unreachable = format!("action \"write\": image2disk: GET {unused_address}: ");
        assert!(away.starts_with(&unreachable) && away.len() > unreachable.len(), "{away}");

        self.set_root_disk("medium=ssd,choose=smallest");
        let zeroes = "0".repeat(64);
        let hinted = Values { disk: "", sha256: &zeroes, ..good };
        let other = self.failure_reason(&hinted, &[]).await;
        assert_eq!(
            other,
            format!(
                "action \"write\": image2disk: GET {whole}: checksum mismatch: the bytes downloaded have sha256:{sha256}, expected sha256:{zeroes}"
            )
        );
        let written = self.machine.scsi_disks.iter().map(|disk| !is_empty(&disk.file));
        assert_eq!(written.collect::<Vec<_>>(), [true, false, false], "the smaller SSD");
    }

    fn set_root_disk(&self, hint: &str) {
        let output = self.tinwright(&["hardware", "update", &self.hardware, "--root-disk", hint]);
        assert!(output.status.success(), "{}", error(&output));
    }

    /// Kills the server, which also serves the image, while the image is written, and starts it again.
    async fn check_server_restart(&mut self) {
        let hinted = self.machine.scsi_disks[1].clone();
        self.set_root_disk(&format!("wwn=0x{}", hinted.wwn));
        let url = self.url(&self.image.name);
        let id = self.create_workflow(
            &Values { disk: "", url: &url, sha256: &self.image.compressed_sha256, minutes: "5" },
            &[],
        );
        self.wait_until(&id, is_a_fifth_written).await;
        self.site.lab.kill("tinwright").unwrap();
        tokio::time::sleep(SERVER_DOWNTIME).await;
        self.site.server.start(&mut self.site.lab).unwrap();
        let done = self.wait_until(&id, has_ended).await;
        assert_eq!(done.state(), WorkflowState::Success, "{}", done.state_reason);
        let write = done.actions.first().unwrap();
        let attempt = write.lease.as_ref().map(|lease| lease.attempt);
        assert_eq!((attempt, write.failed_attempts, write.lost_attempts), (Some(1), 0, 0));
        self.check_log(&id);
        let disk = sha256(&hinted.file, Some(self.image.raw_length)).unwrap();
        assert_eq!(disk, self.image.raw_sha256);
        assert!(is_empty(&self.machine.scsi_disks[2].file), "the disk that no hint named");
    }

    /// Checks that the log holds the action's lines from before, during and after the server's downtime, in order.
    fn check_log(&self, id: &str) {
        let log = self.tinwright(&["workflow", "logs", id]);
        let log = String::from_utf8(log.stdout).unwrap();
        let (waits, others): (Vec<_>, Vec<_>) =
            log.lines().partition(|line| line.starts_with("waiting at byte "));
        let compressed = std::fs::metadata(self.files.path().join(&self.image.name)).unwrap();
        let wrote = format!(
            "wrote {} bytes from {} downloaded bytes",
            self.image.raw_length,
            compressed.len()
        );
        assert_eq!(others, ["writing", "writing", &wrote, "verifying"], "{log}");
        let first = log.lines().position(|line| line.starts_with("waiting")).unwrap();
        assert_eq!(first, 1, "{log}");
        let position = |line: &&str| line.split_once(": ").unwrap().0.to_owned();
        assert!(
            waits.iter().map(position).all(|at| at == position(&waits[0])),
            "one interruption: {log}"
        );
    }

    /// Stops the server and runs `tinwright store check`.
    fn check_store(&mut self) {
        self.site.lab.kill("tinwright").unwrap();
        let data = self.site.server.data.to_str().unwrap().to_owned();
        let output = self.tinwright(&["store", "check", "--data", &data]);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(output.status.success(), "{text}{}", error(&output));
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    }
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// True if nothing was written to the disk in `file`.
fn is_empty(file: &Path) -> bool {
    reads_as_zeroes(file, u64::MAX).unwrap()
}

fn has_ended(workflow: &Workflow) -> bool {
    matches!(workflow.state(), WorkflowState::Success | WorkflowState::Failed)
}

fn is_a_fifth_written(workflow: &Workflow) -> bool {
    let action = workflow.actions.first().cloned().unwrap_or_default();
    let progress = action.progress.unwrap_or_default();
    action.state() == ActionState::Running && progress.bytes * 5 > progress.total_bytes.max(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_reasons_and_an_image_is_complete_after_a_server_restart() {
    let mut fixture = Fixture::set_up().await;
    let typo = fixture.template(&TEMPLATE.replace("timeout: 900", "timeuot: 900"));
    assert!(!typo.status.success());
    let message = error(&typo);
    assert!(message.contains("timeuot") && message.trim().lines().count() == 1, "{message}");
    assert!(fixture.template(TEMPLATE).status.success());

    fixture.check_failure_reasons().await;
    fixture.check_server_restart().await;
    let console = fixture.machine.console(&fixture.site.lab);
    let boots = console.matches("Linux version ").count();
    assert_eq!(boots, 1, "expected one boot: {console}");
    assert!(console.contains("clock set to the server's time"), "{console}");
    fixture.check_store();
}
