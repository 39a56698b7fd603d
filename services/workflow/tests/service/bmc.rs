//! Power jobs before and after the actions.

use std::time::{Duration, SystemTime};

use runtime::Clock;
use tinwright::HardwareId;
use tinwright::hardware::v1::Policy;
use tinwright::hardware::v1::policy::BootMethod;
use tinwright::workflow::v1 as pb;

use crate::power::{FakePower, JobEnd};
use crate::site::{Site, TWO};

use pb::WorkflowState as State;

pub(crate) fn netboot(power_off_after: bool) -> pb::BootOptions {
    pb::BootOptions { mode: pb::boot_options::Mode::Netboot.into(), power_off_after }
}

pub(crate) const PREPARED: &str = "prepare/1: POWER_OFF DEVICE_PXE POWER_ON STATE_SUCCESS";

#[tokio::test]
async fn a_machine_is_booted_from_the_network_before_and_its_boot_override_is_cleared_after() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, netboot(true)).await;
    let worker = site.booted(&made.id).await;
    let it = worker.begin().await;
    assert_eq!(site.power.jobs(), [PREPARED]);
    worker.succeed(&it).await;
    let it = worker.begin().await;
    worker.succeed(&it).await;
    assert_eq!(site.ended(&made.id).await.state(), State::Success);
    assert_eq!(site.power.jobs(), ["post/1: DEVICE_NONE POWER_OFF STATE_SUCCESS", PREPARED]);
}

#[tokio::test]
async fn a_preparation_names_the_boot_mode_of_the_firmware_in_the_inventory() {
    use tinwright::hardware::v1::FirmwareMode;
    for (firmware, device) in [
        (FirmwareMode::Unspecified, "DEVICE_PXE"),
        (FirmwareMode::Bios, "DEVICE_PXE/MODE_LEGACY"),
        (FirmwareMode::Uefi, "DEVICE_PXE/MODE_UEFI"),
    ] {
        let (mut site, machine) = (Site::new().await, HardwareId::new());
        site.hardware.set_firmware(machine, firmware);
        let made = site.workflow_with(machine, TWO, netboot(false)).await;
        assert_eq!(made.firmware_mode(), firmware);
        // A later inventory does not change a request that may be repeated.
        site.hardware.set_firmware(machine, FirmwareMode::Unspecified);
        site.booted(&made.id).await;
        assert_eq!(site.power.jobs(), [PREPARED.replace("DEVICE_PXE", device)]);
    }
}

/// Boots from an image at this URL.
fn virtual_media(url: &str) -> Policy {
    let boot_method = BootMethod::VirtualMedia.into();
    Policy { boot_method, boot_image_url: url.to_owned(), ..Policy::default() }
}

#[tokio::test]
async fn a_machine_is_booted_from_virtual_media_and_its_cd_is_ejected_after() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_policy(machine, virtual_media("http://192.0.2.1/{mac}/osie.iso"));
    let made = site.workflow_with(machine, TWO, netboot(true)).await;
    // The clean-up follows what was prepared, not what the policy says meanwhile.
    site.hardware.set_policy(machine, Policy::default());
    let worker = site.booted(&made.id).await;
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    assert_eq!(site.ended(&made.id).await.state(), State::Success);
    let insert = "INSERT http://192.0.2.1/02-00-00-00-00-01/osie.iso";
    let jobs = [
        "eject/1: EJECT DRIVE_CD STATE_SUCCESS".to_owned(),
        "post/1: DEVICE_NONE POWER_OFF STATE_SUCCESS".to_owned(),
        format!("prepare/1: POWER_OFF {insert} DEVICE_CDROM POWER_ON STATE_SUCCESS"),
    ];
    assert_eq!(site.power.jobs(), jobs);
}

#[tokio::test]
async fn a_cd_that_is_not_ejected_changes_nothing_else() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_policy(machine, virtual_media("http://192.0.2.1/osie.iso"));
    site.power.set_end(JobEnd::EjectFails);
    let made = site.workflow_with(machine, TWO, netboot(true)).await;
    let worker = site.booted(&made.id).await;
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    assert_eq!(site.ended(&made.id).await.state(), State::Success);
    let jobs = site.power.jobs();
    assert_eq!(jobs[0], "eject/1: EJECT DRIVE_CD STATE_FAILED");
    assert_eq!(jobs[1], "post/1: DEVICE_NONE POWER_OFF STATE_SUCCESS");
}

#[tokio::test]
async fn after_a_cancelled_preparation_from_virtual_media_the_cd_is_ejected() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_policy(machine, virtual_media("http://192.0.2.1/osie.iso"));
    site.power.set_end(JobEnd::Never);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    while site.power.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    site.power.set_end(JobEnd::Success);
    let cancel = pb::CancelWorkflowRequest { id: made.id.clone() };
    site.workflows().cancel_workflow(cancel).await.unwrap();
    assert_eq!(site.ended(&made.id).await.state(), State::Cancelled);
    let jobs = site.power.jobs();
    assert_eq!(
        jobs[..2],
        ["eject/1: EJECT DRIVE_CD STATE_SUCCESS", "post/1: DEVICE_NONE STATE_SUCCESS"]
    );
    assert!(jobs[2].ends_with("DEVICE_CDROM POWER_ON STATE_CANCELLED"), "{jobs:?}");
}

#[tokio::test]
async fn a_refused_preparation_is_cleaned_up_after_and_both_failures_are_shown() {
    let power = FakePower::default();
    power.set_end(JobEnd::Failure("no such device".into()));
    let store = std::sync::Arc::new(store::memory::MemoryStore::default());
    let (mut site, machine) = (Site::over(store, power).await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    let ended = site.ended(&made.id).await;
    assert_eq!(ended.state(), State::Failed);
    let reason = "power job failed: no such device";
    assert_eq!((ended.state_reason.as_str(), ended.warning.as_str()), (reason, reason));
    let jobs = ["post-disk/1: DEVICE_DISK STATE_FAILED", "post/1: DEVICE_NONE STATE_FAILED"];
    assert_eq!(site.power.jobs()[..2], jobs);
}

#[tokio::test]
async fn a_workflow_that_is_cancelled_while_preparing_cancels_the_job_and_cleans_up() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.power.set_end(JobEnd::Never);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    site.until(&made.id, |found| found.state() == State::Preparing).await;
    while site.power.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    site.power.set_end(JobEnd::Success);
    site.workflows()
        .cancel_workflow(pb::CancelWorkflowRequest { id: made.id.clone() })
        .await
        .unwrap();
    assert_eq!(site.ended(&made.id).await.state(), State::Cancelled);
    let cancelled = PREPARED.replace("SUCCESS", "CANCELLED");
    assert_eq!(site.power.jobs(), ["post/1: DEVICE_NONE STATE_SUCCESS".to_owned(), cancelled]);
}

#[tokio::test]
async fn a_preparation_ends_after_thirty_minutes_of_the_given_clock() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let (mut site, machine) = (Site::with_clock(clock.clone()).await, HardwareId::new());
    site.power.set_end(JobEnd::Never);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    while site.power.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    site.power.set_end(JobEnd::Success);
    clock.advance(Duration::from_secs(30 * 60));
    let ended = site.ended(&made.id).await;
    assert_eq!(ended.state(), State::Failed);
    assert_eq!(ended.state_reason, "preparing the machine took longer than 30 minutes");
}
