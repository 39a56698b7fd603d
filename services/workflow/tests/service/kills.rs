//! The server dies between any two writes, and the next one brings everything to the same end.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use runtime::Role;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tokio::sync::watch;
use tonic::Status;

use crate::power::Power;
use crate::site::{Site, TWO, request, soon};
use crate::worker::Worker;

/// A store that is gone at a commit, for good: before it is made, or after it is and before anybody hears of it.
struct Mortal {
    store: Arc<MemoryStore>,
    made: AtomicUsize,
    at: usize,
    applied: bool,
    dead: watch::Sender<bool>,
}

impl Mortal {
    fn alive(&self) -> Result<(), Error> {
        if *self.dead.borrow() { Err(Error::Unavailable("killed".into())) } else { Ok(()) }
    }

    async fn died(&self) {
        self.dead.subscribe().wait_for(|dead| *dead).await.unwrap();
    }
}

#[async_trait]
impl Store for Mortal {
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
            let _heard_by_nobody = self.store.commit(commit).await;
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

/// The whole of it, from the beginning; every step may be repeated.
async fn life(site: &mut Site, machine: HardwareId) -> Result<pb::Workflow, Status> {
    let asked = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        request_id: "install".into(),
        boot_options: Some(pb::BootOptions {
            mode: pb::boot_options::Mode::Netboot.into(),
            power_off_after: true,
        }),
        ..request(machine)
    };
    let made = site.workflows().create_workflow(asked).await?.into_inner().workflow.unwrap();
    let worker = Worker::new(site.channel(Some(Role::Machine(machine))), "b1", "p1");
    tokio::select! {
        ended = site.ended(&made.id) => Ok(ended),
        Err(broken) = toil(&worker) => Err(broken),
    }
}

/// Runs what there is to run, until a call fails.
async fn toil(worker: &Worker) -> Result<Infallible, Status> {
    loop {
        let told = worker.client.clone().next_action(worker.question("")).await?.into_inner();
        let Some(it) = told.assignment else { continue };
        worker.start(&it, false).await?;
        worker.progress(&it, 7).await?;
        worker.log(&it, 0, b"done").await?;
        worker.finish(&it, pb::ActionState::Success, "", "tail").await?;
    }
}

/// Dies at the commit `at`, if there are as many. Answers what there is at the end, and whether it died.
async fn killed(at: usize, applied: bool) -> (String, bool) {
    let (memory, power, machine) =
        (Arc::new(MemoryStore::default()), Power::default(), HardwareId::new());
    let (made, dead) = (AtomicUsize::new(0), watch::Sender::new(false));
    let mortal = Arc::new(Mortal { store: memory.clone(), made, at, applied, dead });
    let mut site = Site::over(mortal.clone(), power.clone()).await;
    let first = tokio::select! {
        ended = life(&mut site, machine) => ended.ok(),
        () = mortal.died() => None,
    };
    let dead = *mortal.dead.borrow();
    drop(site);
    let mut site = Site::over(memory, power.clone()).await;
    let ended = match first {
        Some(ended) => ended,
        None => soon(life(&mut site, machine)).await.unwrap(),
    };
    assert!(site.api.check(false).await.unwrap().is_clean());
    let mut told = format!("{} {:?}", ended.state().as_str_name(), power.jobs());
    for (n, action) in ended.actions.iter().enumerate() {
        let log = site.log(&ended, n, false).await;
        let attempt = action.lease.as_ref().map(|lease| lease.attempt);
        let (log, state) = (String::from_utf8(log).unwrap(), action.state().as_str_name());
        told = format!("{told} {}:{state}:{attempt:?}:{}:{log}", action.name, action.tail);
    }
    (told, dead)
}

#[tokio::test]
async fn dying_between_any_two_writes_changes_nothing_of_the_end() {
    let (expected, _) = killed(usize::MAX, false).await;
    assert!(expected.starts_with("WORKFLOW_STATE_SUCCESS"), "{expected}");
    assert!(expected.contains("write:ACTION_STATE_SUCCESS:Some(1):tail:done"), "{expected}");
    for applied in [false, true] {
        let mut at = 0;
        loop {
            let (told, died) = killed(at, applied).await;
            assert_eq!(told, expected, "killed at commit {at}, applied: {applied}");
            if !died {
                break;
            }
            at += 1;
        }
        assert!(at > 12, "only {at} commits");
    }
}
