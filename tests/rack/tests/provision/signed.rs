//! A machine that installs signed images only.
//!
//! ```text
//! unsigned image: refused, nothing is written ─▶ signed image ─▶ reset in the middle ─▶ goes on ─▶ the system runs ─▶ installed again
//!                                                                                      with the rest                  with what it has changed
//! ```

use std::time::Duration;

use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{image, images_of, record};
use rack::site::Site;
use rack::tenant::Tenant;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::{Workflow, WorkflowState};

use super::installed_again::await_workflows;
use super::*;

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Number of blocks of an image, by what was done with them.
#[derive(Debug, PartialEq, Eq)]
struct Blocks {
    fetched: u64,
    equal: u64,
    zero: u64,
}

/// Waits until the newest workflow of the hardware `id` fulfils a condition.
async fn workflow(site: &Site, id: &str, is_reached: impl Fn(&Workflow) -> bool) -> Workflow {
    let reached = async {
        loop {
            let workflow = site.operator.workflows(id).await.unwrap().pop();
            if let Some(workflow) = workflow.filter(|it| is_reached(it)) {
                return workflow;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(ACTIVE_TIMEOUT, reached).await.expect("the workflow gets there")
}

/// Waits until the newest installation has written its image. Returns what its log says of the blocks.
async fn installed(site: &Site, machine: &Machine, id: &str) -> Blocks {
    let content = image(&site.server.files, machine.firmware).unwrap();
    check_disk(site, machine, id, &content).await;
    let workflow = site.operator.workflows(id).await.unwrap().pop().unwrap();
    let log = output(site, &["workflow", "logs", &workflow.id]);
    let mut lines = log.lines().rev().filter_map(|line| line.split_once(": blocks fetched "));
    let (_, counts) = lines.next().unwrap_or_else(|| panic!("{log}"));
    let digits = |text: &str| text.parse().ok();
    let counts: Vec<u64> = counts.split([' ', ',']).filter_map(digits).collect();
    let [fetched, equal, zero] = counts[..] else { panic!("{log}") };
    Blocks { fetched, equal, zero }
}

/// Orders the machine with an image without a signature. Nothing is written. Returns the instance.
async fn refused(site: &Site, tenant: &Tenant, machine: &Machine, id: &str) -> Instance {
    let file = image(&site.server.files, machine.firmware).unwrap();
    let mut upload = tenant.cli(site);
    upload.args(["image", "upload", "--keep-data-source", "--name", "unsigned"]);
    setup::run(upload.arg(site.server.files.join(&file.name))).unwrap();
    let order = Instance { placement: Some(Box::new(tenant.placement())), ..Instance::default() };
    let instance = site.install(&tenant.operator, machine, "unsigned", order).await.unwrap();
    let failed = workflow(site, id, |it| it.state() == WorkflowState::Failed).await;
    assert!(failed.state_reason.contains("IMG_SIGNATURE is missing"), "{}", failed.state_reason);
    assert!(reads_as_zeroes(&machine.disk, file.raw_length).unwrap(), "nothing is written");
    instance
}

/// Installs `instance` with the signed image. The machine is reset while the image is written, and goes on.
async fn reset_in_the_middle(site: &Site, machine: &Machine, id: &str, instance: &Instance) {
    output(site, &["instance", "reinstall", &instance.id, "--image", &full_name(), "--yes"]);
    await_workflows(site, id, 2).await;
    // Half of the image is zeros, which take no time.
    let is_partly_written = |workflow: &Workflow| {
        let progress = workflow.actions.first().and_then(|action| action.progress.as_ref());
        progress.is_some_and(|it| it.bytes > it.total_bytes / 10 * 7)
    };
    workflow(site, id, is_partly_written).await;
    site.hypervisor.reset(machine).unwrap();
    let blocks = installed(site, machine, id).await;
    println!("after a reset in the middle: {blocks:?}");
    assert!(blocks.fetched > 0 && blocks.equal > 0, "the rest is fetched: {blocks:?}");
}

fn full_name() -> String {
    format!("acme/{IMAGE}")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "installs Debian three times"]
async fn a_machine_with_a_key_installs_signed_images_only_and_fetches_what_differs() {
    let images = images_of(System::Debian).unwrap();
    let imported = tempfile::tempdir().unwrap();
    let (site, tenant) = imported_site(imported.path(), &images, &BOOT_TIMEOUTS).await;
    let machine = Machine::new(&site.lab, 1, Firmware::Bios).unwrap();
    let location_id = tenant.create_location(&site).await.unwrap();
    let record = Hardware { location_id, ..record(&machine) };
    let id = site.add_machine_with(&machine, record).await.unwrap();
    let instance = refused(&site, &tenant, &machine, &id).await;
    reset_in_the_middle(&site, &machine, &id, &instance).await;
    let active = async |installations| {
        let active =
            site.operator.wait_for_state(&instance.id, State::Active, ACTIVE_TIMEOUT, |_| {});
        active.await.unwrap();
        block_in_place(|| check_cloud_init(&site, &machine, &instance, installations));
    };
    active(1).await;

    output(&site, &["instance", "reinstall", &instance.id, "--yes"]);
    await_workflows(&site, &id, 3).await;
    let blocks = installed(&site, &machine, &id).await;
    println!("after the system ran: {blocks:?}");
    assert!(blocks.fetched > 0 && blocks.fetched < blocks.equal, "{blocks:?}");
    active(2).await;
}
