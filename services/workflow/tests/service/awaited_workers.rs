//! Machines that were prepared and whose worker does not come.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::Clock;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tonic::Code;

use crate::power::FakePower;
use crate::site::{Site, TWO};

use pb::WorkflowState as State;

const NETBOOT: pb::BootOptions =
    pb::BootOptions { mode: pb::boot_options::Mode::Netboot as i32, power_off_after: false };

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

async fn site() -> (Site, Clock) {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    (Site::with_clock(clock.clone()).await, clock)
}

impl Site {
    /// Waits until the machine of the workflow `id` was prepared `count` times.
    pub(crate) async fn prepared(&mut self, id: &str, count: i32) {
        let is_prepared = |found: &pb::Workflow| found.state() == State::Pending && found.prepared;
        self.until(id, |found| is_prepared(found) && found.preparations == count).await;
    }

    /// Reports that a boot of the machine was refused.
    async fn note_refused_boot(&mut self, machine: HardwareId) {
        self.note_refused_boot_at(machine, None).await;
    }

    /// Reports that a boot of the machine was refused at `time`.
    async fn note_refused_boot_at(&mut self, machine: HardwareId, time: Option<SystemTime>) {
        let (hardware_id, time) = (machine.to_string(), time.map(Into::into));
        let request = pb::NoteBootRequest { hardware_id, time, refused: true, step: String::new() };
        self.workflows().note_boot(request).await.unwrap();
    }

    async fn note_step(&mut self, machine: HardwareId, step: &str) {
        let (hardware_id, step) = (machine.to_string(), step.into());
        let request = pb::NoteBootRequest { hardware_id, step, ..Default::default() };
        self.workflows().note_boot(request).await.unwrap();
    }
}

#[tokio::test]
async fn a_machine_of_models_with_times_of_their_own_is_prepared_again_after_the_longest_of_them() {
    let ((mut site, clock), machine) = (site().await, HardwareId::new());
    site.hardware.set_boot_minutes(machine, &[(0, 3), (45, 2), (40, 0)]);
    let made = site.workflow_with(machine, TWO, NETBOOT).await;
    assert_eq!((made.boot_silent_minutes, made.boot_step_minutes), (45, 3));
    site.prepared(&made.id, 1).await;
    clock.advance(minutes(45));
    site.prepared(&made.id, 2).await;
    site.note_step(machine, "kernel").await;
    clock.advance(minutes(3));
    site.prepared(&made.id, 3).await;
}

#[tokio::test]
async fn a_machine_is_prepared_four_times_and_then_its_workflow_fails_with_the_last_boot_step() {
    let ((mut site, clock), machine) = (site().await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&made.id, 1).await;
    site.note_step(machine, "kernel:\nvmlinuz").await;
    clock.advance(minutes(10));
    for count in 2..=4 {
        site.prepared(&made.id, count).await;
        clock.advance(minutes(30));
    }
    let ended = site.ended(&made.id).await;
    assert_eq!(ended.state(), State::Failed);
    let reason = "the machine's worker requests no action, after 4 preparations; \
                  last boot step, 100 minutes ago: kernel: vmlinuz";
    assert_eq!(ended.state_reason, reason);
    let prepared = |count| format!("prepare/{count}: POWER_OFF DEVICE_PXE POWER_ON STATE_SUCCESS");
    let mut jobs = vec!["post/1: DEVICE_NONE STATE_SUCCESS".to_owned()];
    jobs.extend((1..=4).map(prepared));
    assert_eq!(site.power.jobs(), jobs);
}

#[tokio::test]
async fn a_refused_boot_is_an_alarm_until_the_machine_is_prepared_again() {
    let ((mut site, clock), machine) = (site().await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&made.id, 1).await;
    for _ in 0..2 {
        site.note_refused_boot(machine).await;
    }
    let waiting = site.get(&made.id).await;
    assert!(waiting.warning.starts_with("a boot was refused"), "{}", waiting.warning);
    assert_eq!(waiting.state_reason, waiting.warning);
    assert_eq!(site.alarms(&made.id).await, [waiting.warning.as_str()]);
    site.note_step(machine, "kernel").await;
    assert_eq!(site.get(&made.id).await.warning, waiting.warning);
    clock.advance(minutes(30));
    site.prepared(&made.id, 2).await;
    assert_eq!(site.get(&made.id).await.warning, "");
    site.note_refused_boot(machine).await;
    assert_eq!(site.alarms(&made.id).await.len(), 2);
    site.booted(&made.id).await.begin().await;
    assert_eq!(site.get(&made.id).await.warning, "");
    site.note_refused_boot(machine).await;
    assert_eq!(site.get(&made.id).await.warning, "", "the worker has come");
}

#[tokio::test]
async fn a_late_report_of_a_refused_boot_is_no_alarm_in_the_next_preparation() {
    let ((mut site, clock), machine) = (site().await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&made.id, 1).await;
    let refused_at = clock.wall();
    clock.advance(minutes(30));
    site.prepared(&made.id, 2).await;
    site.note_refused_boot_at(machine, Some(refused_at)).await;
    assert_eq!(site.get(&made.id).await.warning, "");
    assert_eq!(site.alarms(&made.id).await, [""; 0]);
    // The clock of the boot server may be behind.
    site.note_refused_boot_at(machine, Some(clock.wall() - minutes(1))).await;
    assert_eq!(site.alarms(&made.id).await.len(), 1);
}

#[tokio::test]
async fn a_boot_step_gives_the_worker_ten_minutes_more() {
    let ((mut site, clock), machine) = (site().await, HardwareId::new());
    let booting = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&booting.id, 1).await;
    clock.advance(minutes(5));
    let silent = site.workflow_with(HardwareId::new(), TWO, NETBOOT).await;
    site.prepared(&silent.id, 1).await;
    clock.advance(minutes(21));
    site.note_step(machine, "initramfs: initrd").await;
    clock.advance(minutes(9));
    // Half an hour after the other's preparation, and 35 minutes after this one's.
    site.prepared(&silent.id, 2).await;
    let waiting = site.get(&booting.id).await;
    assert_eq!((waiting.state(), waiting.preparations), (State::Pending, 1));
    assert_eq!(waiting.boot_step, "initramfs: initrd");
    clock.advance(minutes(1));
    site.prepared(&booting.id, 2).await;
}

#[tokio::test]
async fn after_a_stop_of_the_server_the_worker_has_a_minute_before_its_machine_is_prepared_again() {
    let (store, power) = (Arc::new(MemoryStore::default()), FakePower::default());
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let mut site = Site::start(store.clone(), power.clone(), clock.clone()).await;
    let machine = HardwareId::new();
    let made = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&made.id, 1).await;
    drop(site);
    clock.advance(minutes(120));
    let mut site = Site::start(store, power, clock.clone()).await;
    let other = site.workflow_with(HardwareId::new(), TWO, NETBOOT).await;
    // The reconciler has seen both by now.
    site.prepared(&other.id, 1).await;
    assert_eq!(site.get(&made.id).await.preparations, 1);
    clock.advance(minutes(1));
    site.prepared(&made.id, 2).await;
}

#[tokio::test]
async fn a_lease_that_is_not_used_is_taken_back_and_the_next_boot_gets_the_action() {
    let ((mut site, clock), machine) = (site().await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, NETBOOT).await;
    let worker = site.booted(&made.id).await;
    let it = worker.next().await;
    clock.advance(minutes(30));
    site.prepared(&made.id, 2).await;
    assert_eq!(worker.start(&it, false).await.unwrap_err().code(), Code::PermissionDenied);
    let next = site.booted(&made.id).await.again("b2", "p1");
    assert_eq!(next.begin().await.action.unwrap().name, "write");
}
