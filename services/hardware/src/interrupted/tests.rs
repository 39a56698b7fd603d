//! Machines that were left in the state deleting.

use std::sync::Arc;

use runtime::Clock;
use store::memory::MemoryStore;
use tinwright::hardware::v1::{Hardware, Interface};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::*;
use crate::fake_peers::{self, Call};

/// A machine in the state deleting that no call is deleting, and the running service.
struct Rig {
    records: HardwareRecords,
    machine: Hardware,
    /// The calls of the instance service.
    calls: UnboundedReceiver<Call>,
    start: Instant,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

impl Rig {
    async fn new() -> Self {
        let records = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
        let interface = Interface { mac: "02:00:00:00:00:01".into(), ..Interface::default() };
        let new = Hardware { interfaces: vec![interface], ..Hardware::default() };
        let made = records.create(new, None).await.unwrap();
        let marked = Hardware { state: State::Deleting.into(), ..made.clone() };
        let machine = records.records.replace(&made, marked).await.unwrap();
        let (peers, calls) = fake_peers::start();
        let (stop, mirror) = (CancellationToken::new(), Mirror::new(records.records.clone()));
        let mut tasks = JoinSet::new();
        let (following, end) = (mirror.clone(), stop.clone());
        tasks.spawn(async move { following.run(end).await });
        tasks.spawn(run(records.clone(), mirror, peers, stop.clone()));
        let (start, stop) = (Instant::now(), stop.drop_guard());
        Self { records, machine, calls, start, _tasks: tasks, _stop: stop }
    }

    /// Waits until the service asks for the machine's occupant. Returns the time since the start and the call.
    async fn call(&mut self) -> (Duration, Call) {
        let call = tokio::time::timeout(10 * INTERRUPTED_AFTER, self.calls.recv()).await;
        (self.start.elapsed(), call.expect("a call").unwrap())
    }

    /// The machine after all that is running has been done.
    async fn settled(&self) -> Option<Hardware> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.records.records.get(&self.machine.id).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_marked_for_a_minute_is_deleted() {
    let mut rig = Rig::new().await;
    let (after, call) = rig.call().await;
    assert!(after >= INTERRUPTED_AFTER, "{after:?}");
    call.send(None).unwrap();
    assert_eq!(rig.settled().await, None);
}

#[tokio::test(start_paused = true)]
async fn an_occupied_machine_goes_to_maintenance_and_the_reason_names_the_instance() {
    let mut rig = Rig::new().await;
    rig.call().await.1.send(Some("i1".into())).unwrap();
    let machine = rig.settled().await.unwrap();
    assert_eq!(machine.state(), State::Maintenance);
    assert!(machine.state_reason.contains("instance i1"), "{}", machine.state_reason);
}

#[tokio::test(start_paused = true)]
async fn while_the_instance_service_does_not_respond_the_machine_stays_marked() {
    let mut rig = Rig::new().await;
    drop(rig.call().await.1);
    assert_eq!(rig.settled().await.unwrap(), rig.machine);
    rig.call().await.1.send(None).unwrap();
    assert_eq!(rig.settled().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_changed_meanwhile_is_left_for_another_minute() {
    let mut rig = Rig::new().await;
    tokio::time::sleep(INTERRUPTED_AFTER / 2).await;
    let update = Hardware { plan: "big".into(), ..rig.machine.clone() };
    rig.records.update(update, &["plan".into()]).await.unwrap();
    let (after, call) = rig.call().await;
    assert!(after >= INTERRUPTED_AFTER + INTERRUPTED_AFTER / 2, "{after:?}");
    call.send(None).unwrap();
    assert_eq!(rig.settled().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_protected_meanwhile_goes_to_maintenance() {
    let rig = Rig::new().await;
    let update = Hardware { protect: true, ..rig.machine.clone() };
    rig.records.update(update, &["protect".into()]).await.unwrap();
    tokio::time::sleep(2 * INTERRUPTED_AFTER).await;
    let machine = rig.settled().await.unwrap();
    assert_eq!(machine.state(), State::Maintenance);
    assert!(machine.state_reason.ends_with("is protected: remove its protection first"));
}
