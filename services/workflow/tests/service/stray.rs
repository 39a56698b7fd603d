//! Machines that come up in the worker's environment with nothing to do, though their disk is installed.

use std::sync::Arc;

use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;

use crate::power::{Ends, Power};
use crate::site::{Site, TWO, soon};
use crate::worker::Worker;

/// Lets `worker` install the machine for an instance. Answers the workflow's id.
async fn install(site: &mut Site, machine: HardwareId, worker: &Worker) -> String {
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        instance_id: "i".into(),
        ..crate::site::request(machine)
    };
    let made = site.workflows().create_workflow(request).await.unwrap().into_inner();
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    let id = made.workflow.unwrap().id;
    site.ended(&id).await;
    id
}

/// A worker in another boot, and whether it is told to reboot; one that is told nothing is left while it waits.
async fn boot(site: &mut Site, worker: &Worker, boot: &str, last: &str) -> bool {
    let next = worker.again(boot, "p");
    tokio::select! {
        told = next.told() => told.reboot,
        idle = site.until(last, |found| found.idle_boot_id == boot) => {
            assert_eq!(idle.stray_boot_ids.len(), 3);
            false
        }
    }
}

const LEFT: &str = "the machine does not boot its disk: rebooted 3 times, now left";

#[tokio::test]
async fn three_boots_that_stray_are_told_to_reboot_and_the_fourth_is_left() {
    let store = Arc::new(MemoryStore::default());
    let mut site = Site::over(store.clone(), Power::default()).await;
    let machine = HardwareId::new();
    let worker = site.worker(machine);
    let last = install(&mut site, machine, &worker).await;
    assert!(worker.told().await.reboot, "the boot that installed");
    assert!(boot(&mut site, &worker, "b2", &last).await);
    assert!(boot(&mut site, &worker, "b2", &last).await, "asking again is asking once");
    assert!(boot(&mut site, &worker, "b3", &last).await);
    // The count outlives the server.
    drop(site);
    let mut site = Site::over(store, Power::default()).await;
    let worker = site.worker(machine);
    assert!(boot(&mut site, &worker, "b4", &last).await);
    assert_eq!(site.get(&last).await.state_reason, "");
    assert!(!boot(&mut site, &worker, "b5", &last).await);
    let left = site.get(&last).await;
    assert_eq!((left.state(), left.state_reason.as_str()), (pb::WorkflowState::Success, LEFT));
    assert!(!boot(&mut site, &worker, "b6", &last).await);
}

#[tokio::test]
async fn a_machine_that_was_left_takes_new_work_and_is_counted_anew_after_it() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let worker = site.worker(machine);
    let last = install(&mut site, machine, &worker).await;
    for stray in ["b2", "b3", "b4"] {
        assert!(boot(&mut site, &worker, stray, &last).await);
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
    for stray in ["b6", "b7", "b8"] {
        assert!(boot(&mut site, &worker, stray, &later.id).await);
    }
    assert!(!boot(&mut site, &worker, "b9", &later.id).await);
}

#[tokio::test]
async fn a_boot_that_came_while_its_workflow_was_ended_is_told_as_soon_as_it_has() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let netboot = pb::boot_options::Mode::Netboot.into();
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        instance_id: "i".into(),
        boot_options: Some(pb::BootOptions { mode: netboot, power_off_after: false }),
        ..crate::site::request(machine)
    };
    let made = site.workflows().create_workflow(request).await.unwrap().into_inner();
    let worker = site.worker(machine);
    let it = worker.begin().await;
    worker.succeed(&it).await;
    let it = worker.begin().await;
    site.power.end(Ends::Never);
    worker.succeed(&it).await;
    let next = worker.again("b2", "p2");
    let asks = async { while !next.told().await.reboot {} };
    let ends = async {
        // Its call is held by then, if the other side is quick.
        while site.power.jobs().len() < 2 {
            tokio::task::yield_now().await;
        }
        site.power.finish();
    };
    soon(Box::pin(async { tokio::join!(asks, ends) })).await;
    let ended = site.ended(&made.workflow.unwrap().id).await;
    assert_eq!(ended.stray_boot_ids, ["b2"]);
}

#[tokio::test]
async fn a_machine_without_an_installed_disk_is_never_told_to_reboot() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let worker = site.worker(machine);
    let first = site.workflow(machine, TWO).await;
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    site.ended(&first.id).await;
    let next = worker.again("b2", "p2");
    let (told, second) =
        soon(async { tokio::join!(next.told(), site.workflow(machine, TWO)) }).await;
    assert_eq!((told.reboot, told.assignment.unwrap().workflow_id), (false, second.id));
}
