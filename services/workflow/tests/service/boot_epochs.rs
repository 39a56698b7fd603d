//! Boot epochs: what a machine's tenant got hold of is good for nothing once the machine was switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use runtime::Clock;
use store::hosted;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tonic::{Code, Status};

use crate::bmc::netboot;
use crate::machines::NO_MACHINE;
use crate::power::{FakePower, JobEnd};
use crate::site::{Site, TWO, soon};
use crate::worker::Worker;

use pb::WorkflowState as State;

/// Makes every call that needs an identity, for the assignment `it`. Returns the codes of the results.
async fn all_calls(worker: &Worker, it: &pb::Assignment) -> [Code; 6] {
    let renew = worker.client.clone().renew(pb::RenewRequest::default()).await.map(drop);
    let next = worker.client.clone().next_action(worker.request(&it.lease_id)).await.map(drop);
    let results: [Result<(), Status>; 6] = [
        renew,
        next,
        worker.start(it, false).await,
        worker.progress(it, 1).await.map(drop),
        worker.log(it, 0, b"x").await.map(drop),
        worker.finish(it, pb::ActionState::Success, "", "").await,
    ];
    results.map(|result| result.map_or_else(|status| status.code(), |()| Code::Ok))
}

#[tokio::test]
async fn a_boot_epoch_begins_when_the_machine_is_off_and_is_the_next_one_in_each_preparation() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.power.set_end(JobEnd::Never);
    let first = site.workflow_with(machine, TWO, netboot(true)).await;
    let preparing = site.until(&first.id, |found| found.state() == State::Preparing).await;
    assert_eq!(preparing.boot_epoch, 0);
    while site.power.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    site.power.complete_first_operation();
    let off = site.until(&first.id, |found| found.boot_epoch != 0).await;
    assert_eq!((off.state(), off.boot_epoch), (State::Preparing, 1));
    site.power.set_end(JobEnd::Success);
    site.power.finish();
    let worker = site.booted(&first.id).await;
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    assert_eq!(site.ended(&first.id).await.actions[0].lease.as_ref().unwrap().boot_epoch, 1);
    let second = site.workflow_with(machine, TWO, netboot(false)).await;
    let prepared = site.until(&second.id, |found| found.prepared).await;
    assert_eq!(prepared.boot_epoch, 2);
    assert!(hosted::check(&site.api, false).await.unwrap().is_clean());
}

#[tokio::test]
async fn an_identity_of_another_boot_epoch_makes_no_call_and_changes_nothing() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let tenant = site.worker(machine);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    let worker = site.booted(&made.id).await;
    let it = worker.begin().await;
    let before = site.get(&made.id).await;
    assert_eq!(all_calls(&tenant, &it).await, [Code::PermissionDenied; 6]);
    let ahead = site.channel_of(Some(runtime::Caller::worker(machine, 2)));
    let ahead = Worker::new(ahead, "b1", "p1");
    assert_eq!(all_calls(&ahead, &it).await, [Code::PermissionDenied; 6]);
    assert_eq!(site.get(&made.id).await, before);
    worker.succeed(&it).await;
}

/// Counts the reads of boot epochs.
#[derive(Default)]
struct EpochReads {
    store: MemoryStore,
    count: AtomicUsize,
}

#[async_trait]
impl Store for EpochReads {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        let found = self.store.get(key).await;
        if key.contains("/epoch/") {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }
}

#[tokio::test]
async fn a_request_that_is_held_while_the_machine_is_prepared_gets_no_action() {
    let (store, machine) = (Arc::new(EpochReads::default()), HardwareId::new());
    let mut site = Site::over(store.clone(), FakePower::default()).await;
    site.power.set_end(JobEnd::Never);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    while site.power.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.count.load(Ordering::Relaxed), 0);
    let tenant = site.worker(machine);
    let held = tokio::spawn(async move {
        tenant.client.clone().next_action(tenant.request("")).await.map(drop)
    });
    // The identity is of the present epoch when the call arrives. From here on only the lifecycle refuses it.
    while store.count.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    site.power.finish();
    assert_eq!(soon(held).await.unwrap().unwrap_err().code(), Code::PermissionDenied);
    let worker = site.booted(&made.id).await;
    assert_eq!(worker.begin().await.workflow_id, made.id);
}

#[tokio::test]
async fn two_boots_at_once_are_refused_until_a_restart_is_confirmed() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    let second = worker.again("b2", "p2");
    let held = tokio::spawn(async move {
        second.client.clone().next_action(second.request("")).await.map(drop)
    });
    site.until(&made.id, |found| found.boots.as_ref().is_some_and(|it| it.other.is_some())).await;
    let before = site.get(&made.id).await.actions;
    let refused = worker.finish(&it, pb::ActionState::Success, "", "").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(soon(held).await.unwrap().unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(worker.progress(&it, 1).await.unwrap_err().code(), Code::PermissionDenied);
    let waiting = site.get(&made.id).await;
    assert_eq!(waiting.actions, before);
    assert!(waiting.state_reason.starts_with("two boots"), "{}", waiting.state_reason);
    assert_eq!(site.alarms(&made.id).await, [waiting.warning]);
    let request = pb::ConfirmRestartRequest { hardware_id: machine.to_string() };
    let confirmed = site.workflows().confirm_restart(request).await.unwrap().into_inner();
    assert_eq!((confirmed.boot_epoch, confirmed.workflow.unwrap().id), (1, made.id.clone()));
    assert_eq!(all_calls(&worker, &it).await, [Code::PermissionDenied; 6]);
    assert_eq!(site.get(&made.id).await.warning, "");
    let restarted = site.channel_of(Some(runtime::Caller::worker(machine, 1)));
    let restarted = Worker::new(restarted, "b3", "p1");
    let again = restarted.next().await;
    assert_eq!((again.workflow_id, again.action.unwrap().name), (made.id, it.action.unwrap().name));
}

#[tokio::test]
async fn a_boot_that_waits_gets_the_action_when_the_one_before_it_is_silent() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let (mut site, machine) = (Site::with_clock(clock.clone()).await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    worker.begin().await;
    let second = worker.again("b2", "p2");
    let waits = tokio::spawn(async move {
        loop {
            if let Some(next) = second.instruction().await.assignment {
                return next;
            }
        }
    });
    site.until(&made.id, |found| found.boots.as_ref().is_some_and(|it| it.other.is_some())).await;
    clock.advance(Duration::from_secs(90));
    site.until(&made.id, |found| found.actions[0].lost_attempts == 1).await;
    clock.advance(Duration::from_secs(5));
    assert_eq!(soon(waits).await.unwrap().action.unwrap().name, "write");
}

#[tokio::test]
async fn a_restart_of_a_machine_without_a_workflow_or_a_bmc_begins_a_boot_epoch() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let old = site.worker(machine);
    let request = pb::ConfirmRestartRequest { hardware_id: machine.to_string() };
    let confirmed = site.workflows().confirm_restart(request).await.unwrap().into_inner();
    assert_eq!((confirmed.boot_epoch, confirmed.workflow), (1, None));
    let refused = old.client.clone().next_action(old.request("")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let unknown = pb::ConfirmRestartRequest { hardware_id: NO_MACHINE.into() };
    let missing = site.workflows().confirm_restart(unknown).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test]
async fn a_machine_that_was_deleted_makes_no_call() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    let before = site.get(&made.id).await;
    site.hardware.delete(machine);
    assert_eq!(all_calls(&worker, &it).await, [Code::PermissionDenied; 6]);
    assert_eq!(site.get(&made.id).await, before);
}
