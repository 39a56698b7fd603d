//! The server is killed between any two writes; the next one reaches the same result.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use store::hosted;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tokio::sync::watch;
use tonic::Status;

use crate::power::FakePower;
use crate::site::{Site, TWO, request, soon};
use crate::worker::Worker;

/// A store that fails at a commit and stays unavailable: before the commit is applied, or after it and before the response.
struct FailingStore {
    store: Arc<MemoryStore>,
    made: AtomicUsize,
    at: usize,
    applied: bool,
    dead: watch::Sender<bool>,
}

impl FailingStore {
    fn alive(&self) -> Result<(), Error> {
        if *self.dead.borrow() { Err(Error::Unavailable("killed".into())) } else { Ok(()) }
    }

    async fn died(&self) {
        self.dead.subscribe().wait_for(|dead| *dead).await.unwrap();
    }
}

#[async_trait]
impl Store for FailingStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.alive()?;
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.alive()?;
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        self.alive()?;
        if self.made.fetch_add(1, Ordering::SeqCst) != self.at {
            return self.store.commit(commit).await;
        }
        if self.applied {
            let _lost_response = self.store.commit(commit).await;
        }
        self.dead.send_replace(true);
        self.alive().map(|()| Revision(0))
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.alive()?;
        tokio::select! {
            changes = self.store.changed(prefix, after) => changes,
            () = self.died() => self.alive().and(Ok(Changes::Lost { revision: after })),
        }
    }
}

/// A whole workflow; every step may be repeated.
async fn life(site: &mut Site, machine: HardwareId) -> Result<pb::Workflow, Status> {
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        request_id: "install".into(),
        boot_options: Some(pb::BootOptions {
            mode: pb::boot_options::Mode::Netboot.into(),
            power_off_after: true,
        }),
        ..request(machine)
    };
    let made = site.workflows().create_workflow(request).await?.into_inner().workflow.unwrap();
    let worker = site.booted(&made.id).await;
    tokio::select! {
        ended = site.ended(&made.id) => Ok(ended),
        Err(broken) = run_actions(&worker) => Err(broken),
    }
}

/// Runs actions until a call fails.
async fn run_actions(worker: &Worker) -> Result<Infallible, Status> {
    loop {
        let next = worker.client.clone().next_action(worker.request("")).await?.into_inner();
        let Some(it) = next.assignment else { continue };
        worker.start(&it, false).await?;
        worker.progress(&it, 7).await?;
        worker.log(&it, 0, b"done").await?;
        worker.finish(&it, pb::ActionState::Success, "", "tail").await?;
    }
}

/// Kills the server at the commit `at`, if there are as many. Returns a description of the result, and true if it was killed.
async fn killed(at: usize, applied: bool) -> (String, bool) {
    let (memory, power, machine) =
        (Arc::new(MemoryStore::default()), FakePower::default(), HardwareId::new());
    let (made, dead) = (AtomicUsize::new(0), watch::Sender::new(false));
    let failing = Arc::new(FailingStore { store: memory.clone(), made, at, applied, dead });
    let mut site = Site::over(failing.clone(), power.clone()).await;
    // The end comes first: calls of a dead server fail, and some must not.
    let first = tokio::select! {
        biased;
        () = failing.died() => None,
        ended = life(&mut site, machine) => ended.ok(),
    };
    let dead = *failing.dead.borrow();
    drop(site);
    let mut site = Site::over(memory, power.clone()).await;
    let ended = match first {
        Some(ended) => ended,
        None => Box::pin(soon(life(&mut site, machine))).await.unwrap(),
    };
    assert!(hosted::check(&site.api, false).await.unwrap().is_clean());
    let ended = site.get(&ended.id).await;
    let mut result = format!("{} {:?}", ended.state().as_str_name(), power.jobs());
    for (n, action) in ended.actions.iter().enumerate() {
        let log = site.log(&ended, n, false).await;
        let attempt = action.lease.as_ref().map(|lease| lease.attempt);
        let (log, state) = (String::from_utf8(log).unwrap(), action.state().as_str_name());
        result = format!("{result} {}:{state}:{attempt:?}:{}:{log}", action.name, action.tail);
    }
    (result, dead)
}

#[tokio::test]
async fn a_kill_between_any_two_writes_does_not_change_the_result() {
    let (expected, _) = Box::pin(killed(usize::MAX, false)).await;
    assert!(expected.starts_with("WORKFLOW_STATE_SUCCESS"), "{expected}");
    assert!(expected.contains("write:ACTION_STATE_SUCCESS:Some(1):tail:done"), "{expected}");
    for applied in [false, true] {
        let mut at = 0;
        loop {
            let (result, died) = Box::pin(killed(at, applied)).await;
            assert_eq!(result, expected, "killed at commit {at}, applied: {applied}");
            if !died {
                break;
            }
            at += 1;
        }
        assert!(at > 12, "only {at} commits");
    }
}
