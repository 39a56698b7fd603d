//! Boots in the worker's environment with no action to run, though the disk is installed.

use std::sync::Arc;

use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;

use crate::power::{FakePower, JobEnd};
use crate::site::{Site, TWO, soon};
use crate::worker::Worker;

/// Lets `worker` install the machine for an instance. Returns the workflow's id.
async fn install(site: &mut Site, machine: HardwareId, worker: &Worker) -> String {
    site.instances.occupy(machine, "i");
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        instance_id: "i".into(),
        ..crate::site::request(machine)
    };
    let made = site.workflows_of_instances().create_workflow(request).await.unwrap().into_inner();
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    let id = made.workflow.unwrap().id;
    site.ended(&id).await;
    id
}

/// Requests an action until the worker is told to reboot. An unexpected boot is told to request again, if its request comes before the
/// dispatcher has seen the end of the workflow.
async fn told_to_reboot(worker: &Worker) {
    while !worker.instruction().await.reboot {}
}

/// Requests an action in another boot. Returns true if the worker is told to reboot, false if it is left waiting.
async fn boot(site: &mut Site, worker: &Worker, boot: &str, last: &str) -> bool {
    let next = worker.again(boot, "p");
    tokio::select! {
        () = told_to_reboot(&next) => true,
        idle = site.until(last, |found| found.idle_boot_id == boot) => {
            assert_eq!(idle.unexpected_boot_ids.len(), 3);
            false
        }
    }
}

const WARNING: &str = "the machine does not boot its disk: rebooted 3 times, now left waiting";

#[tokio::test]
async fn three_unexpected_boots_are_told_to_reboot_and_the_fourth_is_left_waiting() {
    let store = Arc::new(MemoryStore::default());
    let mut site = Site::over(store.clone(), FakePower::default()).await;
    let machine = HardwareId::new();
    let worker = site.worker(machine);
    let last = install(&mut site, machine, &worker).await;
    assert!(worker.instruction().await.reboot, "the boot that installed");
    assert!(boot(&mut site, &worker, "b2", &last).await);
    assert!(boot(&mut site, &worker, "b2", &last).await, "a repeated request is not counted");
    assert!(boot(&mut site, &worker, "b3", &last).await);
    // The count survives a restart of the server.
    drop(site);
    let mut site = Site::over(store, FakePower::default()).await;
    let worker = site.worker(machine);
    assert!(boot(&mut site, &worker, "b4", &last).await);
    assert_eq!(site.get(&last).await.warning, "");
    assert!(!boot(&mut site, &worker, "b5", &last).await);
    let left = site.get(&last).await;
    assert_eq!((left.state(), left.warning.as_str()), (pb::WorkflowState::Success, WARNING));
    assert!(!boot(&mut site, &worker, "b6", &last).await);
}

#[tokio::test]
async fn a_machine_that_was_left_waiting_takes_new_work_and_is_counted_again_after_it() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let worker = site.worker(machine);
    let last = install(&mut site, machine, &worker).await;
    for unexpected in ["b2", "b3", "b4"] {
        assert!(boot(&mut site, &worker, unexpected, &last).await);
    }
    assert!(!boot(&mut site, &worker, "b5", &last).await);
    let left = worker.again("b5", "p5");
    let (it, later) = tokio::join!(left.next(), site.workflow(machine, TWO));
    assert_eq!(it.workflow_id, later.id, "held until there was work");
    left.start(&it, false).await.unwrap();
    left.succeed(&it).await;
    let it = left.begin().await;
    left.succeed(&it).await;
    site.ended(&later.id).await;
    for unexpected in ["b6", "b7", "b8"] {
        assert!(boot(&mut site, &worker, unexpected, &later.id).await);
    }
    assert!(!boot(&mut site, &worker, "b9", &later.id).await);
}

#[tokio::test]
async fn a_held_request_of_an_unexpected_boot_is_told_to_reboot_when_the_workflow_has_ended() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.instances.occupy(machine, "i");
    let netboot = pb::boot_options::Mode::Netboot.into();
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        instance_id: "i".into(),
        boot_options: Some(pb::BootOptions { mode: netboot, power_off_after: false }),
        ..crate::site::request(machine)
    };
    let made = site.workflows_of_instances().create_workflow(request).await.unwrap().into_inner();
    let worker = site.booted(&made.workflow.as_ref().unwrap().id).await;
    let it = worker.begin().await;
    worker.succeed(&it).await;
    let it = worker.begin().await;
    site.power.set_end(JobEnd::Never);
    worker.succeed(&it).await;
    let next = worker.again("b2", "p2");
    let ends = async {
        // By then its request is held, if the server is quick.
        while site.power.jobs().len() < 2 {
            tokio::task::yield_now().await;
        }
        site.power.finish();
    };
    soon(Box::pin(async { tokio::join!(told_to_reboot(&next), ends) })).await;
    let ended = site.get(&made.workflow.unwrap().id).await;
    assert!(ended.end_time.is_some());
    assert_eq!(ended.unexpected_boot_ids, ["b2"]);
}

#[tokio::test]
async fn a_machine_without_an_installed_disk_is_not_told_to_reboot() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let worker = site.worker(machine);
    let first = site.workflow(machine, TWO).await;
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    site.ended(&first.id).await;
    let next = worker.again("b2", "p2");
    let (next, second) =
        soon(async { tokio::join!(next.instruction(), site.workflow(machine, TWO)) }).await;
    assert_eq!((next.reboot, next.assignment.unwrap().workflow_id), (false, second.id));
}
