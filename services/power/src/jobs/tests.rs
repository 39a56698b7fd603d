//! Jobs in a store: queued, begun, ended and deleted.

mod overdue;

use std::sync::Arc;

use super::*;
use crate::test_store::{FlakyStore, redfish};
use crate::{Login, PlaintextHttp};
use prost::Message as _;
use runtime::seal::Seal;
use runtime::secret::SiteKey;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use store::Store as _;
use tinwright::power::v1::operation::{Power, What};

/// The jobs in `store`, as the process of this name uses them.
fn jobs_of(process: &str, store: &Arc<FlakyStore>) -> Jobs {
    jobs_with(process, store, Clock::system())
}

fn jobs_with(process: &str, store: &Arc<FlakyStore>, clock: Clock) -> Jobs {
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    Jobs::new(Bmcs::new(store.clone(), seal, PlaintextHttp::Refused, clock), process.into())
}

async fn head_of(jobs: &Jobs, hardware: HardwareId) -> Option<Head> {
    jobs.first(jobs.queue(&hardware.to_string()).await.unwrap()?).await.unwrap()
}

async fn jobs() -> (Arc<FlakyStore>, Jobs, HardwareId, pb::Bmc) {
    let store = Arc::new(FlakyStore::default());
    let jobs = jobs_of("a", &store);
    let hardware = HardwareId::new();
    let bmc = pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(redfish("https://192.0.2.1")),
        ..pb::Bmc::default()
    };
    let bmc = jobs.bmcs.create(bmc, Login::Skip, None).await.unwrap();
    (store, jobs, hardware, bmc)
}

fn on() -> Vec<pb::Operation> {
    vec![pb::Operation { what: Some(What::Power(Power::On.into())), ..Default::default() }]
}

fn new_job(hardware: HardwareId) -> pb::PowerJob {
    pb::PowerJob { hardware_id: hardware.to_string(), operations: on(), ..pb::PowerJob::default() }
}

#[tokio::test]
async fn jobs_of_a_machine_are_carried_out_in_the_order_of_creation() {
    let (_, jobs, hardware, _) = jobs().await;
    let first = jobs.create(new_job(hardware), None).await.unwrap();
    let second = jobs.create(new_job(hardware), None).await.unwrap();
    let head = head_of(&jobs, hardware).await.unwrap();
    assert_eq!(head.job, first);
    jobs.record(&head, Event::Fail("no".into()), None).await.unwrap();
    let head = head_of(&jobs, hardware).await.unwrap();
    assert_eq!((head.job, head.queue.progress), (second, None));
}

#[tokio::test]
async fn concurrent_jobs_are_all_queued() {
    let (_, jobs, hardware, _) = jobs().await;
    let create = || async { jobs.create(new_job(hardware), None).await.unwrap().id };
    let (a, b, c) = tokio::join!(create(), create(), create());
    let mut queue = head_of(&jobs, hardware).await.unwrap().queue.job_ids;
    let mut created = vec![a, b, c];
    created.sort();
    queue.sort();
    assert_eq!(queue, created);
}

#[tokio::test]
async fn a_repeated_request_creates_one_job_even_if_the_bmc_is_deleted() {
    let (_, jobs, hardware, bmc) = jobs().await;
    let request = || {
        let body = pb::CreatePowerJobRequest { operations: on(), ..Default::default() };
        IdempotentRequest::new("r", &body)
    };
    let made = jobs.create(new_job(hardware), request()).await.unwrap();
    let ended = jobs.cancel(made.id.parse().unwrap()).await.unwrap();
    jobs.bmcs.delete(bmc.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(jobs.create(new_job(hardware), request()).await.unwrap(), ended);
}

#[tokio::test]
async fn a_bmc_with_a_job_cannot_be_deleted_and_a_job_requires_a_bmc() {
    let (_, jobs, hardware, bmc) = jobs().await;
    let made = jobs.create(new_job(hardware), None).await.unwrap();
    let id = bmc.id.parse().unwrap();
    let busy = jobs.bmcs.delete(id, 0).await.unwrap_err().to_string();
    let job = &made.id;
    let wanted = format!(
        "power job {job} of the BMC has not ended: wait for it, or: tinwright power cancel {job}"
    );
    assert_eq!(busy, wanted);
    jobs.cancel(made.id.parse().unwrap()).await.unwrap();
    jobs.bmcs.delete(id, 0).await.unwrap();
    let none = jobs.create(new_job(hardware), None).await.unwrap_err();
    assert_eq!(
        none.to_string(),
        format!("{hardware} has no BMC: tinwright power bmc create --hardware {hardware}")
    );
}

#[tokio::test]
async fn a_late_step_of_a_cancelled_job_is_not_recorded() {
    let (_, jobs, hardware, _) = jobs().await;
    let made = jobs.create(new_job(hardware), None).await.unwrap();
    let head = head_of(&jobs, hardware).await.unwrap();
    let cancelled = jobs.cancel(made.id.parse().unwrap()).await.unwrap();
    assert_eq!(cancelled.state(), State::Cancelled);
    let late = jobs.record(&head, Event::Begin, Some(Progress::default())).await;
    assert!(matches!(late, Err(Error::Records(records::Error::Changed { .. }))));
    assert_eq!(jobs.cancel(made.id.parse().unwrap()).await.unwrap(), cancelled);
    assert_eq!(head_of(&jobs, hardware).await, None);
}

#[tokio::test]
async fn cancelling_a_pending_job_keeps_the_progress_of_the_first() {
    let (_, jobs, hardware, _) = jobs().await;
    jobs.create(new_job(hardware), None).await.unwrap();
    let second = jobs.create(new_job(hardware), None).await.unwrap();
    let head = head_of(&jobs, hardware).await.unwrap();
    let progress = Progress { request: "On".into(), ..Progress::default() };
    jobs.record(&head, Event::Begin, Some(progress.clone())).await.unwrap();
    jobs.cancel(second.id.parse().unwrap()).await.unwrap();
    let head = head_of(&jobs, hardware).await.unwrap();
    assert_eq!((head.queue.progress, head.queue.job_ids.len()), (Some(progress), 1));
}

#[tokio::test]
async fn jobs_are_listed_by_their_state() {
    let (_, jobs, hardware, _) = jobs().await;
    let open = jobs.create(new_job(hardware), None).await.unwrap();
    let other = jobs.create(new_job(hardware), None).await.unwrap();
    let cancelled = jobs.cancel(other.id.parse().unwrap()).await.unwrap();
    for (state, expected) in [
        (State::Unspecified, vec![open.clone(), cancelled.clone()]),
        (State::Pending, vec![open]),
        (State::Cancelled, vec![cancelled]),
        (State::Running, Vec::new()),
    ] {
        let filter = JobFilter { state, ..JobFilter::default() };
        assert_eq!(jobs.list("", 10, &filter).await.unwrap().records, expected, "{state:?}");
    }
}

#[tokio::test]
async fn only_ended_jobs_are_deleted_after_a_week() {
    let (store, _, hardware, _) = jobs().await;
    let clock = Clock::manual(SystemTime::now());
    let jobs = jobs_with("a", &store, clock.clone());
    let old = jobs.create(new_job(hardware), None).await.unwrap();
    let open = jobs.create(new_job(hardware), None).await.unwrap();
    jobs.cancel(old.id.parse().unwrap()).await.unwrap();
    clock.advance(RETENTION);
    assert_eq!(jobs.delete_expired().await.unwrap(), 0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(jobs.delete_expired().await.unwrap(), 1);
    assert_eq!(jobs.list("", 10, &JobFilter::default()).await.unwrap().records, [open]);
}

#[tokio::test]
async fn a_queue_is_bounded() {
    let (store, jobs, hardware, _) = jobs().await;
    for _ in 0..MAX_QUEUED_JOBS {
        jobs.create(new_job(hardware), None).await.unwrap();
    }
    assert!(matches!(jobs.create(new_job(hardware), None).await, Err(Error::Full(_))));
    let queue = store.get(&format!("power/queue/{hardware}")).await.unwrap().unwrap();
    assert_eq!(Queue::decode(queue.value).unwrap().job_ids.len(), MAX_QUEUED_JOBS);
}

fn is_changed<T: std::fmt::Debug>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Records(records::Error::Changed { .. })))
}

#[tokio::test]
async fn only_one_of_two_processes_can_claim_a_machine_and_renew_the_claim() {
    let (store, a, hardware, _) = jobs().await;
    let (b, machine) = (jobs_of("b", &store), hardware.to_string());
    a.create(new_job(hardware), None).await.unwrap();
    let queue = a.queue(&machine).await.unwrap().unwrap();
    a.claim(&queue).await.unwrap();
    assert!(is_changed(b.claim(&queue).await));
    assert!(is_changed(b.renew(&machine).await));
    b.release(&machine).await.unwrap();
    let taken = a.queue(&machine).await.unwrap().unwrap().claim;
    assert_ne!(a.renew(&machine).await.unwrap().claim, taken);
    a.release(&machine).await.unwrap();
    b.claim(&b.queue(&machine).await.unwrap().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_renewal_without_a_claim_is_refused_after_one_reading() {
    let (store, a, hardware, _) = jobs().await;
    let (b, machine) = (jobs_of("b", &store), hardware.to_string());
    a.create(new_job(hardware), None).await.unwrap();
    a.claim(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    let before = store.gets.load(Ordering::SeqCst);
    assert!(is_changed(b.renew(&machine).await));
    assert_eq!(store.gets.load(Ordering::SeqCst) - before, 1);
}

#[tokio::test]
async fn an_event_of_a_holder_whose_queue_is_gone_was_preceded_by_a_change() {
    let (store, a, hardware, bmc) = jobs().await;
    let (b, machine) = (jobs_of("b", &store), hardware.to_string());
    let made = a.create(new_job(hardware), None).await.unwrap();
    let queue = a.claim(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    let head = a.first(queue).await.unwrap().unwrap();
    b.cancel(made.id.parse().unwrap()).await.unwrap();
    b.bmcs.delete(bmc.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(b.queue(&machine).await.unwrap(), None);
    assert!(is_changed(a.record_as_holder(&head, &Event::Begin, None).await));
    assert!(is_changed(a.renew(&machine).await));
}

#[tokio::test]
async fn a_record_of_the_holder_renews_its_claim_and_one_of_another_process_does_not() {
    let (store, a, hardware, _) = jobs().await;
    let (b, machine) = (jobs_of("b", &store), hardware.to_string());
    a.create(new_job(hardware), None).await.unwrap();
    let second = a.create(new_job(hardware), None).await.unwrap();
    let queue = a.claim(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    let taken = queue.claim.clone();
    let head = a.first(queue).await.unwrap().unwrap();
    let head = a.record(&head, Event::Begin, Some(Progress::default())).await.unwrap();
    assert_ne!(head.queue.claim, taken);
    b.cancel(second.id.parse().unwrap()).await.unwrap();
    assert_eq!(b.queue(&machine).await.unwrap().unwrap().claim, head.queue.claim);
    // The first job is unchanged, so its holder can record events with the older queue.
    let note = Event::Note("waiting".into());
    let noted = a.record_as_holder(&head, &note, None).await.unwrap();
    assert_eq!((noted.job.state_reason.as_str(), noted.queue.job_ids.len()), ("waiting", 1));
    assert!(is_changed(b.record_as_holder(&head, &note, None).await));
}

#[tokio::test]
async fn after_its_only_job_is_cancelled_a_machine_stays_claimed_until_the_release() {
    let (store, a, hardware, bmc) = jobs().await;
    let (b, machine) = (jobs_of("b", &store), hardware.to_string());
    let made = a.create(new_job(hardware), None).await.unwrap();
    a.claim(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    b.cancel(made.id.parse().unwrap()).await.unwrap();
    b.create(new_job(hardware), None).await.unwrap();
    let queue = b.queue(&machine).await.unwrap().unwrap();
    assert_eq!((queue.claim.unwrap().holder.as_str(), queue.job_ids.len()), ("a", 1));

    b.cancel(queue.job_ids[0].parse().unwrap()).await.unwrap();
    a.release(&machine).await.unwrap();
    assert_eq!(a.queue(&machine).await.unwrap(), None);
    a.bmcs.delete(bmc.id.parse().unwrap(), 0).await.unwrap();
}

#[tokio::test]
async fn deleting_a_bmc_deletes_the_empty_queue_of_a_dead_process() {
    let (store, a, hardware, bmc) = jobs().await;
    let machine = hardware.to_string();
    let made = a.create(new_job(hardware), None).await.unwrap();
    a.claim(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    let b = jobs_of("b", &store);
    b.cancel(made.id.parse().unwrap()).await.unwrap();
    b.bmcs.delete(bmc.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(b.queue(&machine).await.unwrap(), None);
}

#[tokio::test]
async fn a_bmc_is_deleted_although_the_queue_is_released_meanwhile() {
    let (store, a, hardware, bmc) = jobs().await;
    let machine = hardware.to_string();
    let made = a.create(new_job(hardware), None).await.unwrap();
    a.claim(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    a.cancel(made.id.parse().unwrap()).await.unwrap();
    store.precede(format!("power/queue/{machine}"));
    a.bmcs.delete(bmc.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(a.queue(&machine).await.unwrap(), None);
}

#[tokio::test]
async fn a_job_whose_queue_is_gone_is_read_again_before_it_is_cancelled() {
    let (store, a, hardware, _) = jobs().await;
    let made = a.create(new_job(hardware), None).await.unwrap();
    store.delete(&format!("power/queue/{hardware}")).await;
    // The missing queue counts as a change, not as a missing job.
    assert!(is_changed(a.cancel(made.id.parse().unwrap()).await));
}

#[tokio::test]
async fn a_job_that_is_held_back_is_in_no_queue_until_its_release() {
    let (_, jobs, hardware, _) = jobs().await;
    let held = pb::PowerJob { held: true, ..new_job(hardware) };
    let made = jobs.create(held, None).await.unwrap();
    assert_eq!(jobs.queue(&hardware.to_string()).await.unwrap(), None);
    let id = made.id.parse().unwrap();
    let released = jobs.release_held(id).await.unwrap();
    assert_eq!(head_of(&jobs, hardware).await.unwrap().job, released);
    assert_eq!(jobs.release_held(id).await.unwrap(), released);
    assert_eq!(jobs.queue(&hardware.to_string()).await.unwrap().unwrap().job_ids, [made.id]);
}

#[tokio::test]
async fn a_job_that_was_cancelled_while_it_was_held_back_is_never_queued() {
    let (_, jobs, hardware, bmc) = jobs().await;
    let held = pb::PowerJob { held: true, ..new_job(hardware) };
    let id = jobs.create(held, None).await.unwrap().id.parse().unwrap();
    let cancelled = jobs.cancel(id).await.unwrap();
    assert_eq!((cancelled.state(), cancelled.held), (State::Cancelled, true));
    assert_eq!(jobs.release_held(id).await.unwrap(), cancelled);
    assert_eq!(jobs.queue(&hardware.to_string()).await.unwrap(), None);
    jobs.bmcs.delete(bmc.id.parse().unwrap(), 0).await.unwrap();
}

#[tokio::test]
async fn a_job_that_nobody_releases_is_cancelled_after_ten_minutes() {
    let (store, _, hardware, _) = jobs().await;
    let clock = Clock::manual(SystemTime::now());
    let jobs = jobs_with("a", &store, clock.clone());
    let held = pb::PowerJob { held: true, ..new_job(hardware) };
    let id = jobs.create(held.clone(), None).await.unwrap().id.parse().unwrap();
    let released = jobs.create(held, None).await.unwrap().id.parse().unwrap();
    jobs.release_held(released).await.unwrap();
    clock.advance(MAX_HOLD);
    assert_eq!(jobs.delete_expired().await.unwrap(), 0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(jobs.delete_expired().await.unwrap(), 1);
    assert_eq!(jobs.get(id).await.unwrap().state(), State::Cancelled);
    assert_eq!(jobs.get(released).await.unwrap().state(), State::Pending);
}
