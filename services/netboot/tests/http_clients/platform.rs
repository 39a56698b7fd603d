//! The boot gate of a platform's system, and the private files behind it.
//!
//! - `gate`: from the order of a machine to its return.

mod gate;

use std::path::Path;

use netboot::bootscripts::custom::ScriptReport;
use runtime::feed::FeedEvent;
use tinwright::instance::v1::{
    BootGate, Instance, PlatformBoot, ReportScriptRequest, State, instance,
};
use tinwright::workflow::v1::Workflow;

use super::site::{MAC, MACHINE, OTHER, Site, loader};

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const OTHER_UUID: &str = "00112233-4455-6677-8899-aabbccddeefe";
const SCRIPT: &str = "/02-00-00-00-00-01/auto.ipxe";
const START: &str = "#!ipxe\nkernel kernel\nboot\n";

/// A site with private files, whose machine has no workflow.
struct Lab {
    site: Site,
    _directory: tempfile::TempDir,
}

impl std::ops::Deref for Lab {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

/// Private files: a script, a kernel, a directory, and links to the outside.
fn private_files(root: &Path) {
    std::fs::create_dir_all(root.join("files/sub")).unwrap();
    std::fs::write(root.join("secret"), "secret").unwrap();
    let files = root.join("files");
    std::fs::write(files.join("start.ipxe"), START).unwrap();
    std::fs::write(files.join("kernel"), loader()).unwrap();
    std::fs::write(files.join("sub/module"), "module").unwrap();
    std::os::unix::fs::symlink("../secret", files.join("outside")).unwrap();
    std::os::unix::fs::symlink("/etc", files.join("etc")).unwrap();
}

async fn lab_with(rate_limits: bool) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    private_files(directory.path());
    let files = directory.path().join("files");
    let site = Site::with(|site| {
        site.rate_limits = rate_limits;
        site.serving.platform_files = Some(files);
    })
    .await;
    site.fleet.workflow(FeedEvent::Deleted("w".into()));
    Lab { site, _directory: directory }
}

async fn lab() -> Lab {
    lab_with(false).await
}

fn open_gate() -> BootGate {
    BootGate {
        open: true,
        uuid: UUID.into(),
        mac: MAC.to_string(),
        initial_ips: vec![MACHINE.into()],
        open_time: Some(prost_types::Timestamp::default()),
    }
}

impl Lab {
    /// Puts the system of a platform on the machine.
    fn put(&self, state: State, gate: Option<BootGate>, boot_url: &str) {
        let boot = PlatformBoot { boot_url: boot_url.into(), ..PlatformBoot::default() };
        self.fleet.instance(FeedEvent::Put(Instance {
            id: "i".into(),
            state: state.into(),
            hardware_id: self.id.to_string(),
            generation: 3,
            os: Some(instance::Os::Platform(boot)),
            boot_gate: gate,
            ..Instance::default()
        }));
    }

    fn open(&self) {
        self.put(State::Provisioning, Some(open_gate()), "/platform/start.ipxe");
    }

    /// Requests the script with `uuid` from `source`.
    async fn script(&self, source: &str, uuid: &str) -> (u16, String) {
        let script = self.curl(source, &[], &format!("{SCRIPT}?uuid={uuid}")).await;
        (script.status, script.text())
    }

    async fn status(&self, source: &str, path: &str) -> u16 {
        self.curl(source, &["--path-as-is"], path).await.status
    }

    /// Returns the path of the platform's script, with the token in it.
    async fn token_path(&self) -> String {
        let (status, script) = self.script(MACHINE, UUID).await;
        assert_eq!(status, 200, "{script}");
        let chain = script.lines().find_map(|line| line.strip_prefix("chain --autofree "));
        let path = chain.unwrap().split(' ').next().unwrap().strip_prefix(&self.base).unwrap();
        assert!(path.starts_with("/platform/t/") && path.ends_with("/start.ipxe"), "{path}");
        path.to_owned()
    }
}

const REFUSED: (u16, &str) = (403, "not allowed\n");

#[tokio::test]
async fn the_gate_opens_to_the_right_machine_only_from_provisioning_to_deletion() {
    let lab = lab().await;
    let private = format!("/platform/start.ipxe?uuid={UUID}");
    // Before: the machine is free, and then its instance is queued.
    assert_eq!(lab.status(MACHINE, &private).await, 403);
    lab.put(State::Queued, None, "");
    let (status, body) = lab.script(MACHINE, UUID).await;
    assert_eq!((status, &*body), REFUSED);
    assert_eq!(lab.status(MACHINE, &private).await, 403);
    for state in [State::Provisioning, State::Active, State::Failed] {
        lab.put(state, Some(open_gate()), "/platform/start.ipxe");
        let asked = lab.curl(MACHINE, &[], SCRIPT).await;
        assert!(asked.status == 200 && asked.text().contains("?uuid=${uuid}"), "{state:?}");
        assert!(!asked.text().contains("/platform/"), "{}", asked.text());
        for (source, uuid) in [(MACHINE, OTHER_UUID), (MACHINE, ""), (OTHER, UUID), (OTHER, "")] {
            let (status, body) = lab.script(source, uuid).await;
            assert_eq!((status, &*body), REFUSED, "{state:?} {source} {uuid}");
            let file = format!("/platform/start.ipxe?uuid={uuid}");
            let file = lab.curl(source, &[], &file).await;
            assert_eq!((file.status, &*file.text()), REFUSED, "{state:?} {source} {uuid}");
        }
        assert_eq!(lab.status(MACHINE, "/platform/start.ipxe").await, 403, "no UUID");
        assert_eq!(lab.script(MACHINE, &UUID.to_uppercase()).await.0, 200);
        let path = lab.token_path().await;
        for path in [&path, &private] {
            let start = lab.curl(MACHINE, &[], path).await;
            assert_eq!((start.status, &*start.text()), (200, START), "{state:?} {path}");
        }
    }
    let other_mac = BootGate { mac: "02:00:00:00:00:02".into(), ..open_gate() };
    let other_ip = BootGate { initial_ips: vec![OTHER.into()], ..open_gate() };
    for gate in [other_mac, other_ip, BootGate { open: false, ..open_gate() }] {
        lab.put(State::Active, Some(gate), "/platform/start.ipxe");
        let (status, body) = lab.script(MACHINE, UUID).await;
        assert_eq!((status, &*body), REFUSED);
        assert_eq!(lab.status(MACHINE, &private).await, 403);
    }
}

#[tokio::test]
async fn a_deletion_ends_a_download_at_its_next_request_and_the_clean_up_goes_on() {
    let lab = lab().await;
    lab.open();
    let path = lab.token_path().await;
    let kernel = path.replace("start.ipxe", "kernel");
    let part = lab.curl(MACHINE, &["-r", "0-9"], &kernel).await;
    assert_eq!((part.status, part.body), (206, loader()[..10].to_vec()));
    let closed = BootGate { open: false, ..open_gate() };
    lab.put(State::Deprovisioning, Some(closed.clone()), "/platform/start.ipxe");
    for path in [&kernel, &format!("/platform/kernel?uuid={UUID}")] {
        let refused = lab.curl(MACHINE, &["-r", "10-"], path).await;
        assert_eq!((refused.status, &*refused.text()), REFUSED, "{path}");
    }
    assert_eq!(lab.script(MACHINE, UUID).await.0, 503, "until the machine is prepared");
    let id = lab.id.to_string();
    let wipe =
        Workflow { id: "w".into(), hardware_id: id, wants_machine: true, ..Workflow::default() };
    lab.fleet.workflow(FeedEvent::Put(wipe));
    let (status, worker) = lab.script(MACHINE, UUID).await;
    assert!(status == 200 && worker.contains("boot_token="), "{worker}");
    lab.fleet.workflow(FeedEvent::Deleted("w".into()));
    lab.put(State::DeprovisionFailed, Some(closed), "/platform/start.ipxe");
    let (status, body) = lab.script(MACHINE, UUID).await;
    assert_eq!((status, &*body), REFUSED);
    lab.fleet.instance(FeedEvent::Deleted("i".into()));
    assert_eq!(lab.status(MACHINE, &kernel).await, 403, "the machine is free");
}

#[tokio::test]
async fn a_token_is_valid_for_its_machine_its_generation_and_its_site() {
    let lab = lab().await;
    lab.open();
    let path = lab.token_path().await;
    assert_eq!(lab.status(MACHINE, &path).await, 200);
    for source in [OTHER, "127.0.0.12"] {
        let forged = format!("X-Forwarded-For: {MACHINE}");
        let stolen = lab.curl(source, &["-H", &forged], &path).await;
        assert_eq!((stolen.status, &*stolen.text()), REFUSED, "{source}");
    }
    let foreign = path.replace("/platform/t/", "/platform/t/A");
    let script = lab.script(MACHINE, UUID).await.1;
    let boot_url = script.split_once(".started").unwrap().0;
    let boot_token = boot_url.rsplit('/').nth(1).unwrap();
    for path in [
        &*foreign,
        &format!("/platform/t/{boot_token}/start.ipxe"),
        "/platform/t/x",
        "/platform/t/",
        "/platform/t//start.ipxe",
    ] {
        assert_eq!(lab.status(MACHINE, path).await, 403, "{path}");
    }
    let boot = PlatformBoot { boot_url: "/platform/start.ipxe".into(), ..PlatformBoot::default() };
    let next = |id: &str, generation| Instance {
        id: id.into(),
        state: State::Active.into(),
        hardware_id: lab.id.to_string(),
        generation,
        os: Some(instance::Os::Platform(boot.clone())),
        boot_gate: Some(open_gate()),
        ..Instance::default()
    };
    lab.fleet.instance(FeedEvent::Put(next("i", 3)));
    assert_eq!(lab.status(MACHINE, &path).await, 200, "a restart of the machine changes nothing");
    lab.fleet.instance(FeedEvent::Put(next("i", 4)));
    assert_eq!(lab.status(MACHINE, &path).await, 403, "another generation");
    lab.fleet.instance(FeedEvent::Deleted("i".into()));
    lab.fleet.instance(FeedEvent::Put(next("other", 3)));
    assert_eq!(lab.status(MACHINE, &path).await, 403, "another instance");
}

#[tokio::test]
async fn files_are_served_in_parts_and_nothing_outside_the_folder_is() {
    let lab = lab().await;
    lab.open();
    let base = lab.token_path().await.replace("start.ipxe", "");
    let kernel = format!("{base}kernel");
    let head = lab.curl(MACHINE, &["-I"], &kernel).await;
    assert_eq!((head.status, head.header("content-length")), (200, loader().len().to_string()));
    assert_eq!(
        (head.header("accept-ranges"), head.header("cache-control")),
        ("bytes".into(), "no-store".into())
    );
    let part = lab.curl(MACHINE, &["-r", "1000-"], &kernel).await;
    assert_eq!((part.status, part.body == loader()[1000..]), (206, true));
    assert_eq!(lab.status(MACHINE, &format!("{base}sub/module")).await, 200);
    for none in [
        "none",
        "",
        "sub",
        "sub/",
        "outside",
        "etc/passwd",
        "../secret",
        "sub/../../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "/etc/passwd",
        "%2fetc/passwd",
    ] {
        // What is not a file beside the script, written in one way only, is refused before it is looked for.
        let status = lab.status(MACHINE, &format!("{base}{none}")).await;
        let is_plain = ["none", "sub", "outside", "etc/passwd"].contains(&none);
        assert_eq!(status, if is_plain { 404 } else { 403 }, "{none}");
        let denied = format!("/platform/{none}?uuid={OTHER_UUID}");
        assert_eq!(lab.status(MACHINE, &denied).await, 403, "{none}");
    }
    for folder in ["/platform", "/platform/"] {
        let status = lab.status(MACHINE, &format!("{folder}?uuid={UUID}")).await;
        assert!([403, 404].contains(&status), "{folder}: {status}");
        assert_eq!(lab.status(OTHER, &format!("{folder}?uuid={UUID}")).await, 403, "{folder}");
    }
    for elsewhere in [
        "/files/kernel",
        "/files/platform/kernel",
        "/tftp/kernel",
        "/tftp/platform/kernel",
        "/ipxe/kernel",
        "/iso/02-00-00-00-00-01/kernel",
    ] {
        assert_eq!(lab.status(MACHINE, elsewhere).await, 404, "{elsewhere}");
    }
    assert_eq!(lab.curl(MACHINE, &["-X", "PUT"], &kernel).await.status, 405);
}

#[tokio::test]
async fn instances_of_other_kinds_get_no_private_file_even_with_an_open_gate() {
    let lab = lab().await;
    let gate = Some(open_gate());
    let custom =
        instance::CustomIpxe { url: "http://t/".into(), always_pxe: true, ..Default::default() };
    lab.fleet.instance(FeedEvent::Put(Instance {
        id: "i".into(),
        state: State::Active.into(),
        hardware_id: lab.id.to_string(),
        os: Some(instance::Os::CustomIpxe(custom)),
        boot_gate: gate,
        ..Instance::default()
    }));
    assert_eq!(lab.script(MACHINE, UUID).await.0, 200);
    assert_eq!(lab.status(MACHINE, &format!("/platform/kernel?uuid={UUID}")).await, 403);
}

#[tokio::test]
async fn the_platforms_own_server_is_chained_to_and_the_start_is_reported() {
    let lab = lab().await;
    let url = "https://boot.example/start.ipxe?u=${uuid}&m=${mac:hexhyp}";
    lab.put(State::Active, Some(open_gate()), url);
    let (status, script) = lab.script(MACHINE, UUID).await;
    assert!(status == 200 && script.contains(&format!("chain --autofree {url} ")), "{script}");
    let started =
        script.split_whitespace().find(|word| word.ends_with("/instance.started")).unwrap();
    assert_eq!(lab.curl_url(MACHINE, &[], started).await.status, 200);
    let report = lab.reports.lock().await.recv().await.unwrap();
    let expected = ReportScriptRequest {
        hardware_id: lab.id.to_string(),
        instance_id: "i".into(),
        generation: 3,
        started: true,
    };
    assert_eq!(report, ScriptReport::Instance(expected));
    lab.put(State::Active, Some(open_gate()), "https://boot.example/${password}");
    assert_eq!(lab.script(MACHINE, UUID).await.0, 500);
}

#[tokio::test]
async fn while_a_feed_is_disconnected_private_files_are_to_be_requested_again() {
    let lab = lab().await;
    lab.open();
    let path = lab.token_path().await;
    lab.fleet.instance(FeedEvent::Disconnected);
    for (source, path) in
        [(MACHINE, &*path), (MACHINE, SCRIPT), (OTHER, &*path), (OTHER, "/platform/kernel")]
    {
        let later = lab.curl(source, &[], path).await;
        assert_eq!(
            (later.status, later.header("retry-after")),
            (503, "5".into()),
            "{source} {path}"
        );
    }
    lab.put(State::Queued, None, "");
    assert_eq!(lab.script(MACHINE, UUID).await.0, 503, "the gate may have been opened meanwhile");
}

#[tokio::test]
async fn more_than_30_refusals_in_a_minute_are_429_and_another_source_is_served() {
    let lab = lab_with(true).await;
    lab.open();
    let path = lab.token_path().await;
    let many = format!("{}/platform/kernel?[1-40]", lab.base);
    let options = ["-o", "/dev/null", "-w", "%{http_code} "];
    let codes = lab.curl_url(OTHER, &options, &many).await.text();
    let count = |code: &str| codes.split(' ').filter(|one| *one == code).count();
    assert!(count("403") >= 30 && count("429") >= 1, "{codes}");
    assert_eq!(lab.status(OTHER, "/platform/kernel").await, 429);
    assert_eq!(lab.status(MACHINE, &path).await, 200);
}
