//! One boot of one machine, whose clock is a year behind: what goes wrong in its work is told in one line, and a server that
//! is killed in the middle of an image leaves no mark on it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Output;
use std::time::Duration;

use rack::machines::{Firmware, Machine};
use rack::provision::{Image, image, images, sha256};
use rack::server::osie;
use rack::site::Site;
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

/// For a whole workflow, the machine's boot included.
const PATIENCE: Duration = Duration::from_secs(8 * 60);
/// How long the server stays away.
const ABSENCE: Duration = Duration::from_secs(20);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

struct Bench {
    site: Site,
    machine: Machine,
    hardware: String,
    image: Image,
    files: TempDir,
}

/// What one workflow is asked to write.
struct Order<'a> {
    disk: &'a str,
    url: &'a str,
    sha256: &'a str,
    minutes: &'a str,
}

impl Bench {
    /// A machine that is off, and a server that has the image, and half of it.
    async fn set_up() -> Self {
        let (osie, images) = (osie().unwrap(), images().unwrap());
        let image = image(&images, Firmware::Bios).unwrap();
        let files = tempfile::tempdir().unwrap();
        let whole = std::fs::read(images.join(&image.name)).unwrap();
        std::fs::write(files.path().join("half.raw.zst"), &whole[..whole.len() / 2]).unwrap();
        std::fs::write(files.path().join(&image.name), whole).unwrap();
        let site = Site::start(&osie, files.path()).await.unwrap();
        let machine = Machine::new(&site.lab, 1, Firmware::Bios).unwrap().behind(YEAR);
        let hardware = site.rack(&machine).await.unwrap();
        Self { site, machine, hardware, image, files }
    }

    /// What people would type, and what comes of it.
    fn tinwright(&self, line: &[&str]) -> Output {
        self.site.server.cli().args(line).output().unwrap()
    }

    fn template(&self, text: &str) -> Output {
        let file = self.site.lab.path("template.yaml");
        std::fs::write(&file, text).unwrap();
        self.tinwright(&["template", "create", "-f", file.to_str().unwrap()])
    }

    /// Asks for work. Answers the workflow's id.
    fn order(&self, order: &Order<'_>, more: &[&str]) -> String {
        let Order { disk, url, sha256, minutes } = order;
        let values = [("disk", disk), ("url", url), ("sha256", sha256), ("minutes", minutes)];
        let values = values.map(|(name, value)| format!("--value={name}={value}"));
        let mut line = vec!["workflow", "create", "--template=write", "-o=json"];
        let hardware = format!("--hardware={}", self.hardware);
        line.push(&hardware);
        line.extend(values.iter().map(String::as_str));
        line.extend(more);
        let made = self.tinwright(&line);
        assert!(made.status.success(), "{}", error(&made));
        let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
        let made = made.get(0).unwrap_or(&made);
        made["id"].as_str().unwrap().to_owned()
    }

    /// The workflow `id`, once it is as `wanted`.
    async fn until(&self, id: &str, wanted: impl Fn(&Workflow) -> bool) -> Workflow {
        let asking = async {
            loop {
                // While the server is away nobody answers.
                if let Ok(workflow) = self.site.operator.workflow(id).await
                    && wanted(&workflow)
                {
                    return workflow;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let done = tokio::time::timeout(PATIENCE, asking).await;
        done.unwrap_or_else(|_| panic!("{}", self.machine.console(&self.site.lab)))
    }

    /// Asks for work that fails. Answers the reason, as `tinwright workflow get` tells it.
    async fn reason(&self, order: &Order<'_>, more: &[&str]) -> String {
        let id = self.order(order, more);
        let ended = self.until(&id, has_ended).await;
        assert_eq!(ended.state(), WorkflowState::Failed, "{}", ended.state_reason);
        let told = self.tinwright(&["workflow", "get", &id]);
        let told = String::from_utf8(told.stdout).unwrap();
        let reason = told.lines().find_map(|line| line.strip_prefix("reason"));
        reason.unwrap_or_else(|| panic!("{told}")).trim().to_owned()
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}:7080/files/{name}", rack::SERVER)
    }

    /// Every way to fail, one after another.
    async fn fails_in_words(&self) {
        let (whole, half) = (self.url(&self.image.name), self.url("half.raw.zst"));
        let good = Order {
            disk: "/dev/vda",
            url: &whole,
            sha256: &self.image.packed_sha256,
            minutes: "5",
        };
        let cut = self.reason(&Order { url: &half, ..good }, &["--netboot"]).await;
        let damaged = format!(
            "action \"write\": image2disk: GET {half}: the file is damaged or incomplete (zstd): "
        );
        assert!(cut.starts_with(&damaged), "{cut}");

        let absent = self.reason(&Order { disk: "/dev/vdz", ..good }, &[]).await;
        let disk =
            "action \"write\": image2disk: /dev/vdz: no such disk; this machine has /dev/vda";
        assert_eq!(absent, disk);

        let nobody = "http://198.51.100.250:7080/files/debian.raw.zst";
        let away = self.reason(&Order { url: nobody, minutes: "0", ..good }, &[]).await;
        let unreachable = format!("action \"write\": image2disk: GET {nobody}: ");
        assert!(away.starts_with(&unreachable) && away.len() > unreachable.len(), "{away}");

        let zeroes = "0".repeat(64);
        let other = self.reason(&Order { sha256: &zeroes, ..good }, &[]).await;
        let has = &self.image.packed_sha256;
        assert_eq!(
            other,
            format!(
                "action \"write\": image2disk: GET {whole}: the bytes downloaded have sha256:{has}, not sha256:{zeroes}"
            )
        );
    }

    /// Kills the server, which the image comes from, while it is written, and starts it again.
    async fn outlives_its_server(&mut self) {
        let url = self.url(&self.image.name);
        let id = self.order(
            &Order { disk: "/dev/vda", url: &url, sha256: &self.image.packed_sha256, minutes: "5" },
            &[],
        );
        self.until(&id, is_a_fifth_written).await;
        self.site.lab.kill("tinwright").unwrap();
        tokio::time::sleep(ABSENCE).await;
        self.site.server.start(&mut self.site.lab).unwrap();
        let done = self.until(&id, has_ended).await;
        assert_eq!(done.state(), WorkflowState::Success, "{}", done.state_reason);
        let write = done.actions.first().unwrap();
        let attempt = write.lease.as_ref().map(|lease| lease.attempt);
        assert_eq!((attempt, write.failed_attempts, write.lost_attempts), (Some(1), 0, 0));
        self.the_log_is_whole(&id);
        let disk = sha256(&self.machine.disk, Some(self.image.raw_length)).unwrap();
        assert_eq!(disk, self.image.raw_sha256);
    }

    /// What the action said before, during and after the server's absence is there, in this order.
    fn the_log_is_whole(&self, id: &str) {
        let log = self.tinwright(&["workflow", "logs", id]);
        let log = String::from_utf8(log.stdout).unwrap();
        let (waits, others): (Vec<_>, Vec<_>) =
            log.lines().partition(|line| line.starts_with("waiting at byte "));
        let packed = std::fs::metadata(self.files.path().join(&self.image.name)).unwrap();
        let wrote =
            format!("wrote {} bytes from {} downloaded bytes", self.image.raw_length, packed.len());
        assert_eq!(others, ["writing", "writing", &wrote, "verifying"], "{log}");
        let first = log.lines().position(|line| line.starts_with("waiting")).unwrap();
        assert_eq!(first, 1, "{log}");
        let place = |line: &&str| line.split_once(": ").unwrap().0.to_owned();
        assert!(waits.iter().map(place).all(|at| at == place(&waits[0])), "one cut: {log}");
    }

    /// The store, which nobody uses any more, agrees with itself.
    fn the_store_is_sound(&mut self) {
        self.site.lab.kill("tinwright").unwrap();
        let data = self.site.server.data.to_str().unwrap().to_owned();
        let checked = self.tinwright(&["store", "check", "--data", &data]);
        let told = String::from_utf8(checked.stdout.clone()).unwrap();
        assert!(checked.status.success(), "{told}{}", error(&checked));
        assert_eq!(told.trim().lines().count(), 1, "{told}");
    }
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
async fn failures_have_reasons_and_a_killed_server_leaves_no_mark() {
    let mut bench = Bench::set_up().await;
    let typo = bench.template(&TEMPLATE.replace("timeout: 900", "timeuot: 900"));
    assert!(!typo.status.success());
    let told = error(&typo);
    assert!(told.contains("timeuot") && told.trim().lines().count() == 1, "{told}");
    assert!(bench.template(TEMPLATE).status.success());

    bench.fails_in_words().await;
    bench.outlives_its_server().await;
    let console = bench.machine.console(&bench.site.lab);
    let boots = console.matches("Linux version ").count();
    assert_eq!(boots, 1, "all of it in one boot: {console}");
    assert!(console.contains("clock set to the server's time"), "{console}");
    bench.the_store_is_sound();
}
