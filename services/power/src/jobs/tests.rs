//! Jobs in a store: queued, begun, ended, forgotten.

use std::sync::Arc;

use super::*;
use crate::PlaintextHttp;
use prost::Message as _;
use runtime::seal::Seal;
use runtime::secret::SiteKey;
use store::Store as _;
use store::memory::MemoryStore;
use tinwright::power::v1::operation::{Power, What};

/// The jobs in `store`, as `process` sees them.
fn seen_by(process: &str, store: &Arc<MemoryStore>) -> Jobs {
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    Jobs::new(Bmcs::new(store.clone(), seal, PlaintextHttp::Refused), process.into())
}

async fn jobs() -> (Arc<MemoryStore>, Jobs, HardwareId, pb::Bmc) {
    let store = Arc::new(MemoryStore::default());
    let jobs = seen_by("a", &store);
    let hardware = HardwareId::new();
    let bmc = pb::Bmc {
        hardware_id: hardware.to_string(),
        redfish_url: "https://192.0.2.1".into(),
        ..pb::Bmc::default()
    };
    let bmc = jobs.bmcs().create(bmc, None).await.unwrap();
    (store, jobs, hardware, bmc)
}

fn on() -> Vec<pb::Operation> {
    vec![pb::Operation { what: Some(What::Power(Power::On.into())) }]
}

#[tokio::test]
async fn jobs_of_a_machine_are_carried_out_in_the_order_they_were_made() {
    let (_, jobs, hardware, _) = jobs().await;
    let first = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let second = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let head = jobs.head(&hardware.to_string()).await.unwrap().unwrap();
    assert_eq!(head.job, first);
    jobs.record(&head, Event::Fail("no".into()), None).await.unwrap();
    let head = jobs.head(&hardware.to_string()).await.unwrap().unwrap();
    assert_eq!((head.job, head.queue.progress), (second, None));
}

#[tokio::test]
async fn many_who_ask_at_once_all_get_their_place() {
    let (_, jobs, hardware, _) = jobs().await;
    let ask = || async { jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap().id };
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    let mut queue = jobs.head(&hardware.to_string()).await.unwrap().unwrap().queue.job_ids;
    let mut made = vec![a, b, c];
    made.sort();
    queue.sort();
    assert_eq!(queue, made);
}

#[tokio::test]
async fn a_request_asked_twice_makes_one_job_even_if_the_bmc_is_gone() {
    let (_, jobs, hardware, bmc) = jobs().await;
    let request = || {
        let body = pb::CreatePowerJobRequest { operations: on(), ..Default::default() };
        IdempotentRequest::new("r", &body)
    };
    let made = jobs.create(hardware, on(), BTreeMap::new(), request()).await.unwrap();
    let ended = jobs.cancel(made.id.parse().unwrap()).await.unwrap();
    jobs.bmcs().delete(bmc.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(jobs.create(hardware, on(), BTreeMap::new(), request()).await.unwrap(), ended);
}

#[tokio::test]
async fn a_bmc_with_a_job_stays_and_a_machine_without_bmc_gets_no_job() {
    let (_, jobs, hardware, bmc) = jobs().await;
    let made = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let id = bmc.id.parse().unwrap();
    assert!(matches!(jobs.bmcs().delete(id, 0).await, Err(Error::Busy(_))));
    jobs.cancel(made.id.parse().unwrap()).await.unwrap();
    jobs.bmcs().delete(id, 0).await.unwrap();
    let none = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap_err();
    assert_eq!(none.to_string(), format!("BMC {hardware} not found"));
}

#[tokio::test]
async fn a_cancelled_job_stays_so_and_the_step_that_comes_too_late_is_not_recorded() {
    let (_, jobs, hardware, _) = jobs().await;
    let made = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let head = jobs.head(&hardware.to_string()).await.unwrap().unwrap();
    let cancelled = jobs.cancel(made.id.parse().unwrap()).await.unwrap();
    assert_eq!(cancelled.state(), State::Cancelled);
    let late = jobs.record(&head, Event::Begin, Some(Progress::default())).await;
    assert!(matches!(late, Err(Error::Records(records::Error::Changed { .. }))));
    assert_eq!(jobs.cancel(made.id.parse().unwrap()).await.unwrap(), cancelled);
    assert_eq!(jobs.head(&hardware.to_string()).await.unwrap(), None);
}

#[tokio::test]
async fn cancelling_a_job_that_waits_leaves_the_first_as_far_as_it_is() {
    let (_, jobs, hardware, _) = jobs().await;
    jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let second = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let head = jobs.head(&hardware.to_string()).await.unwrap().unwrap();
    let progress = Progress { asked: "On".into(), ..Progress::default() };
    jobs.record(&head, Event::Begin, Some(progress.clone())).await.unwrap();
    jobs.cancel(second.id.parse().unwrap()).await.unwrap();
    let head = jobs.head(&hardware.to_string()).await.unwrap().unwrap();
    assert_eq!((head.queue.progress, head.queue.job_ids.len()), (Some(progress), 1));
}

#[tokio::test]
async fn an_ended_job_is_forgotten_after_a_week_and_an_open_one_never() {
    let (_, jobs, hardware, _) = jobs().await;
    let old = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let open = jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    jobs.cancel(old.id.parse().unwrap()).await.unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(jobs.sweep(SystemTime::now() + RETENTION - day).await.unwrap(), 0);
    assert_eq!(jobs.sweep(SystemTime::now() + RETENTION + day).await.unwrap(), 1);
    assert_eq!(jobs.list("", 10, None, &BTreeMap::new()).await.unwrap().records, [open]);
}

#[tokio::test]
async fn a_queue_is_bounded() {
    let (store, jobs, hardware, _) = jobs().await;
    for _ in 0..MAX_QUEUED_JOBS {
        jobs.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    }
    assert!(matches!(
        jobs.create(hardware, on(), BTreeMap::new(), None).await,
        Err(Error::Full(_))
    ));
    let queue = store.get(&format!("power/queue/{hardware}")).await.unwrap().unwrap();
    assert_eq!(Queue::decode(queue.value).unwrap().job_ids.len(), MAX_QUEUED_JOBS);
}

fn is_changed<T: std::fmt::Debug>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Records(records::Error::Changed { .. })))
}

#[tokio::test]
async fn of_two_processes_that_take_a_machine_one_has_it_and_only_that_one_renews() {
    let (store, a, hardware, _) = jobs().await;
    let (b, machine) = (seen_by("b", &store), hardware.to_string());
    a.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let queue = a.queue(&machine).await.unwrap().unwrap();
    a.take(&queue).await.unwrap();
    assert!(is_changed(b.take(&queue).await));
    assert!(is_changed(b.renew(&machine).await));
    b.leave(&machine).await.unwrap();
    let taken = a.queue(&machine).await.unwrap().unwrap().claim;
    assert_ne!(a.renew(&machine).await.unwrap().claim, taken);
    a.leave(&machine).await.unwrap();
    b.take(&b.queue(&machine).await.unwrap().unwrap()).await.unwrap();
}

#[tokio::test]
async fn what_a_process_recorded_renews_its_claim_and_what_another_did_does_not() {
    let (store, a, hardware, _) = jobs().await;
    let (b, machine) = (seen_by("b", &store), hardware.to_string());
    a.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let second = a.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let queue = a.take(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    let taken = queue.claim.clone();
    let head = a.first(queue).await.unwrap().unwrap();
    let head = a.record(&head, Event::Begin, Some(Progress::default())).await.unwrap();
    assert_ne!(head.queue.claim, taken);
    b.cancel(second.id.parse().unwrap()).await.unwrap();
    assert_eq!(b.queue(&machine).await.unwrap().unwrap().claim, head.queue.claim);
    // The first job is as it was: its holder goes on.
    let still = a.still(&head).await.unwrap();
    assert_eq!((still.job, still.queue.job_ids.len()), (head.job.clone(), 1));
    assert!(is_changed(b.still(&head).await));
}

#[tokio::test]
async fn a_machine_whose_only_job_is_called_off_stays_with_its_holder_until_that_lets_go() {
    let (store, a, hardware, bmc) = jobs().await;
    let (b, machine) = (seen_by("b", &store), hardware.to_string());
    let made = a.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    a.take(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    b.cancel(made.id.parse().unwrap()).await.unwrap();
    b.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    let queue = b.queue(&machine).await.unwrap().unwrap();
    assert_eq!((queue.claim.unwrap().holder.as_str(), queue.job_ids.len()), ("a", 1));

    b.cancel(queue.job_ids[0].parse().unwrap()).await.unwrap();
    a.leave(&machine).await.unwrap();
    assert_eq!(a.queue(&machine).await.unwrap(), None);
    a.bmcs().delete(bmc.id.parse().unwrap(), 0).await.unwrap();
}

#[tokio::test]
async fn a_bmc_goes_with_the_empty_queue_of_a_process_that_died() {
    let (store, a, hardware, bmc) = jobs().await;
    let machine = hardware.to_string();
    let made = a.create(hardware, on(), BTreeMap::new(), None).await.unwrap();
    a.take(&a.queue(&machine).await.unwrap().unwrap()).await.unwrap();
    let b = seen_by("b", &store);
    b.cancel(made.id.parse().unwrap()).await.unwrap();
    b.bmcs().delete(bmc.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(b.queue(&machine).await.unwrap(), None);
}
