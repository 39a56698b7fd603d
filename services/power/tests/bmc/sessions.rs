//! Sessions with BMCs that have few, the search for a system, and errors of logins.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use power::Login;
use power::bmc_client::{self, BmcAddress, BmcClient};
use power::reconcile::Worker;
use power::redfish::{Sessions, Target};
use runtime::secret::Secret;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;

use crate::emulator::{PASSWORD, USER};
use crate::quirky::{Quirk, QuirkyBmc};
use crate::site::{self, TIMING, boot, power, work};

async fn with(quirks: &[Quirk]) -> (QuirkyBmc, Target) {
    let bmc = QuirkyBmc::start(quirks.iter().copied().collect::<BTreeSet<_>>()).await;
    let (username, password) = (USER.to_owned(), Secret::new(PASSWORD.to_owned()));
    let system = bmc.system().to_owned();
    let target = Target { username, password, system, ..site::target(bmc.url.clone()) };
    (bmc, target)
}

async fn read(target: &Target) -> Result<bmc_client::Reading, bmc_client::Error> {
    bmc_client::read_system(BmcAddress::Redfish(target.clone())).await
}

/// The text of a failed reading.
async fn refusal(target: &Target) -> String {
    read(target).await.unwrap_err().in_full()
}

/// The paths of the requests by GET.
fn read_paths(bmc: &QuirkyBmc) -> Vec<String> {
    let exchanges = bmc.exchanges();
    let reads = exchanges.iter().filter_map(|one| one.request.strip_prefix("GET "));
    reads.filter_map(|request| request.split(' ').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_bmc_with_few_sessions_and_no_location_is_read_as_often_as_wanted() {
    let (bmc, target) = with(&[Quirk::NoLocation, Quirk::FewSessions]).await;
    for reading in 1..=6 {
        read(&target).await.unwrap();
        assert_eq!((bmc.opened_sessions(), bmc.open_sessions()), (reading, 0));
    }
}

#[tokio::test]
async fn a_job_and_readings_share_one_session() {
    let (bmc, _) = with(&[]).await;
    let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
    let record = site::bmc(hardware, &bmc.url, "");
    let record = jobs.bmcs.create(record, Login::Skip, None).await.unwrap();
    jobs.create(site::job(hardware, vec![power(Power::On)]), None).await.unwrap();
    let mut worker = Worker::new(jobs.clone(), hardware.to_string(), TIMING);
    while bmc.open_sessions() == 0 {
        worker.step().await.unwrap().expect("the job is not done");
    }
    bmc_client::read_system(jobs.bmcs.target(&record).await.unwrap()).await.unwrap();
    assert_eq!((bmc.opened_sessions(), bmc.open_sessions()), (1, 1));
    worker.close().await;
    assert_eq!(bmc.open_sessions(), 0);
}

#[tokio::test]
async fn a_cancelled_job_leaves_no_session() {
    let (bmc, _) = with(&[]).await;
    let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
    jobs.bmcs.create(site::bmc(hardware, &bmc.url, ""), Login::Skip, None).await.unwrap();
    let job = jobs.create(site::job(hardware, vec![power(Power::On)]), None).await.unwrap();
    let mut worker = Worker::new(jobs.clone(), hardware.to_string(), TIMING);
    while bmc.open_sessions() == 0 {
        worker.step().await.unwrap().expect("the job is not done");
    }
    jobs.cancel(job.id.parse().unwrap()).await.unwrap();
    worker.run().await;
    worker.close().await;
    assert_eq!((bmc.opened_sessions(), bmc.open_sessions()), (1, 0));
}

#[tokio::test]
async fn a_client_that_is_dropped_leaves_no_session() {
    let (bmc, target) = with(&[]).await;
    let sessions = target.sessions.clone();
    let mut client = BmcClient::new(BmcAddress::Redfish(target)).unwrap();
    client.system_within(TIMING.operation_timeout, None).await.unwrap();
    assert_eq!(bmc.open_sessions(), 1);
    drop(client);
    sessions.drain().await;
    assert_eq!(bmc.open_sessions(), 0);
}

#[tokio::test]
async fn a_login_that_nobody_waits_for_any_more_leaves_no_session() {
    let (bmc, target) = with(&[]).await;
    let sessions = target.sessions.clone();
    let mut client = BmcClient::new(BmcAddress::Redfish(target)).unwrap();
    // The first poll begins the login, which is a task of its own.
    let reading = client.system_within(TIMING.operation_timeout, None);
    tokio::select! {
        biased;
        _ = reading => panic!("the login is not over at once"),
        () = tokio::task::yield_now() => {}
    }
    drop(client);
    sessions.drain().await;
    assert_eq!((bmc.opened_sessions(), bmc.open_sessions()), (1, 0));
}

#[tokio::test]
async fn a_session_that_expired_is_replaced_once() {
    let (bmc, target) = with(&[]).await;
    let mut client = BmcClient::new(BmcAddress::Redfish(target)).unwrap();
    for sessions in [1, 2] {
        client.system_within(TIMING.operation_timeout, None).await.unwrap();
        assert_eq!(bmc.opened_sessions(), sessions);
        bmc.restart();
    }
    client.close().await;
    assert_eq!(bmc.open_sessions(), 0);
}

#[tokio::test]
async fn sessions_that_cannot_be_ended_are_opened_once() {
    let (bmc, target) = with(&[Quirk::NoLinkToSession]).await;
    let (_other, other) = (read(&target).await.unwrap(), Sessions::default());
    assert_eq!(bmc.open_sessions(), 0, "the only session in the collection is its own");
    // A second session of the user: which one is its own is not known.
    let second = Target { sessions: other, ..target.clone() };
    let mut second = BmcClient::new(BmcAddress::Redfish(second)).unwrap();
    second.system_within(TIMING.operation_timeout, None).await.unwrap();
    for _ in 0..3 {
        let learnt = read(&target).await.unwrap().learnt;
        assert_eq!(bmc.opened_sessions(), 3, "{learnt:?}");
    }
    let learnt = read(&target).await.unwrap().learnt;
    assert_eq!(learnt.accepted.get(), Some(power::forms::Login::Basic));
    second.close().await;
}

#[tokio::test]
async fn only_a_password_that_was_judged_is_blamed() {
    let (bmc, target) = with(&[]).await;
    let wrong = Target { password: Secret::new("wrong".into()), ..target };
    let text = refusal(&wrong).await;
    assert!(
        text.starts_with("the BMC refuses the user name or the password: it answered 401"),
        "{text}"
    );
    let logins = bmc.exchanges().iter().filter(|one| one.status == 401).count();
    assert_eq!(logins, 1, "the password is sent once: {:#?}", bmc.exchanges());

    for (quirks, status) in [
        (&[Quirk::SessionsDisabled, Quirk::NoBasic][..], "403 Forbidden"),
        (&[Quirk::FewSessions, Quirk::NoBasic], "503 Service Unavailable"),
    ] {
        let (bmc, target) = with(quirks).await;
        bmc.fill_sessions();
        let text = refusal(&target).await;
        assert!(text.contains(status) && !text.contains("password"), "{text}");
    }
}

#[tokio::test]
async fn a_system_that_is_given_by_its_path_or_id_is_found_without_reading_others() {
    let (bmc, target) = with(&[Quirk::ManySystems]).await;
    read(&target).await.unwrap();
    let others = read_paths(&bmc).into_iter().filter(|path| path.contains("/Systems/"));
    assert!(others.into_iter().all(|path| path.contains("/Systems/64")));

    let (bmc, target) = with(&[Quirk::SecondSystemBroken]).await;
    let by_path = Target { system: "/redfish/v1/Systems/64".into(), ..target };
    read(&by_path).await.unwrap();
    let path = "/redfish/v1/Systems/64";
    let systems: BTreeSet<_> =
        read_paths(&bmc).into_iter().filter(|path| path.contains("/Systems/")).collect();
    assert_eq!(systems, [path.to_owned()].into());
}

#[tokio::test]
async fn another_system_that_hangs_or_is_forbidden_does_not_matter() {
    let begin = Instant::now();
    let (_hanging, target) = with(&[Quirk::SecondSystemHangs]).await;
    read(&target).await.unwrap();
    // A response has 30 seconds.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());

    let (bmc, target) = with(&[Quirk::SecondSystemUnauthorized]).await;
    read(&target).await.unwrap();
    assert_eq!(bmc.open_sessions(), 0);
    let text = refusal(&Target { system: "node8".into(), ..target }).await;
    let wanted =
        "the BMC has no system \"node8\"; one was not read: HGX_Baseboard_0: the BMC answered 401";
    assert!(text.starts_with(wanted), "{text}");
}

#[tokio::test]
async fn the_systems_of_a_slow_bmc_are_not_all_read_twice() {
    let (bmc, target) = with(&[Quirk::SystemsSlow]).await;
    read(&target).await.unwrap();
    // One for each: the machine's is found before the first slow one is read again.
    assert_eq!(bmc.slow_readings(), 2, "{:#?}", bmc.exchanges());
}

#[tokio::test]
async fn a_bmc_whose_connection_breaks_in_the_search_is_not_one_without_the_system() {
    let (_bmc, target) = with(&[Quirk::SecondSystemBreaks]).await;
    read(&target).await.unwrap();
    let error = read(&Target { system: "node8".into(), ..target }).await.unwrap_err();
    let text = error.in_full();
    assert!(text.starts_with("the BMC cannot be reached: "), "{text}");
    assert!(error.is_transient(), "{text}");
}

#[tokio::test]
async fn several_systems_without_a_choice_are_named_with_the_option_that_chooses() {
    let (_bmc, target) = with(&[Quirk::SecondSystemBroken]).await;
    let text = refusal(&Target { system: String::new(), ..target.clone() }).await;
    let wanted = "the BMC has 2 systems (HGX_Baseboard_0, 64): choose one with --system";
    assert_eq!(text, wanted);
    let missing = Target { system: "node8".into(), ..target };
    let text = refusal(&missing).await;
    let wanted =
        "the BMC has no system \"node8\"; one was not read: HGX_Baseboard_0: the BMC answered 503";
    assert!(text.starts_with(wanted), "{text}");
}

#[tokio::test]
async fn what_a_bmc_accepted_is_stored_in_its_record_and_a_new_address_forgets_it() {
    let (bmc, _) = with(&[Quirk::ModeRequired, Quirk::LoginNeedsSlash]).await;
    let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
    jobs.bmcs.create(site::bmc(hardware, &bmc.url, ""), Login::Try, None).await.unwrap();
    jobs.create(site::job(hardware, vec![boot(Device::Pxe)]), None).await.unwrap();
    work(&jobs, hardware, TIMING).await.unwrap();
    let record = jobs.bmcs.get_by_hardware(&hardware.to_string()).await.unwrap();
    let wanted = [("boot-mode", "named"), ("login", "root-link-slash")];
    let wanted = wanted.map(|(part, form)| (part.to_owned(), form.to_owned()));
    assert_eq!(record.accepted_forms, wanted.into());

    let mut moved = site::bmc(hardware, "http://127.0.0.1:1", "");
    (moved.id, moved.revision) = (record.id.clone(), record.revision);
    let moved = jobs.bmcs.update(moved, &[], Login::Skip).await.unwrap();
    assert!(moved.accepted_forms.is_empty());
}

#[tokio::test]
async fn a_resource_without_a_version_is_changed_without_a_condition() {
    let (bmc, _) = with(&[Quirk::NoETags]).await;
    let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
    jobs.bmcs.create(site::bmc(hardware, &bmc.url, ""), Login::Try, None).await.unwrap();
    jobs.create(site::job(hardware, vec![boot(Device::Pxe)]), None).await.unwrap();
    work(&jobs, hardware, TIMING).await.unwrap();
    let exchanges = bmc.exchanges();
    let changes = exchanges.iter().filter(|one| one.request.starts_with("PATCH "));
    let conditions: Vec<_> = changes.map(|one| one.request.split(' ').nth(2)).collect();
    assert_eq!(conditions, [Some("-")], "{exchanges:#?}");
    let record = jobs.bmcs.get_by_hardware(&hardware.to_string()).await.unwrap();
    assert!(record.accepted_forms.is_empty(), "{:?}", record.accepted_forms);
}

#[tokio::test]
async fn the_reason_of_a_refused_insertion_names_what_is_missing() {
    use tinwright::power::v1::operation::{InsertMedia, What};
    use tinwright::power::v1::{Operation, power_job::State};
    let (bmc, _) = with(&[Quirk::InsertNeedsUnknown]).await;
    let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
    jobs.bmcs.create(site::bmc(hardware, &bmc.url, ""), Login::Skip, None).await.unwrap();
    let media = InsertMedia { image_url: "http://127.0.0.1:9/a.iso".into(), ..Default::default() };
    let insert = Operation { what: Some(What::InsertMedia(media)), ..Default::default() };
    let job = jobs.create(site::job(hardware, vec![insert]), None).await.unwrap();
    work(&jobs, hardware, TIMING).await.unwrap();
    let job = jobs.get(job.id.parse().unwrap()).await.unwrap();
    assert_eq!(job.state(), State::Failed);
    let text = "; insert: the BMC answered 400 Bad Request: ActionParameterMissing VirtualMedia.InsertMedia OemTicket";
    assert!(job.state_reason.ends_with(text), "{}", job.state_reason);
}
