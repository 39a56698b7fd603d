//! The whole service, from gRPC calls to a BMC with TLS and a password.

use std::sync::Arc;
use std::time::Duration;

use crate::directory::FakeHardware;
use crate::emulator::Emulator;
use crate::site::{self, TIMING, bmc, boot, power};
use power::Api;
use runtime::Channel;
use store::hosted::HostedService as _;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::power::v1::get_power_state_response::PowerState;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;

/// The running service and a client.
pub(crate) struct Service {
    pub(crate) client: PowerServiceClient<Channel>,
    tasks: JoinSet<()>,
    stop: DropGuard,
}

pub(crate) async fn service() -> Service {
    service_over(Arc::new(MemoryStore::default())).await
}

/// The service, with this service of machines.
pub(crate) async fn service_with(machines: &FakeHardware) -> Service {
    serve(Arc::new(MemoryStore::default()), |api| api.with_hardware(machines.directory())).await
}

async fn service_over(store: Arc<MemoryStore>) -> Service {
    serve(store, |api| api).await
}

async fn serve(store: Arc<MemoryStore>, with: impl FnOnce(Api) -> Api) -> Service {
    let stop = CancellationToken::new();
    let api = with(Api::new(site::jobs(store), TIMING, stop.clone()));
    let mut tasks = JoinSet::new();
    let (run, end) = (api.clone(), stop.clone());
    tasks.spawn(async move { run.run(end).await.unwrap() });
    api.ready().await;
    let channel = Channel::to(api.routes());
    Service { client: PowerServiceClient::new(channel), tasks, stop: stop.drop_guard() }
}

impl Service {
    /// Stops the service and waits for its reconciler.
    async fn end(mut self) {
        drop((self.stop, self.client));
        tokio::time::timeout(Duration::from_secs(30), self.tasks.join_next())
            .await
            .expect("the service stops");
    }

    pub(crate) async fn add(&mut self, bmc: pb::Bmc) -> pb::Bmc {
        let request = pb::CreateBmcRequest {
            bmc: Some(bmc),
            request_id: "add".into(),
            skip_login: true,
            ..Default::default()
        };
        self.client.create_bmc(request).await.unwrap().into_inner().bmc.unwrap()
    }

    async fn bmc(&mut self, hardware: HardwareId) -> pb::Bmc {
        let by = pb::get_bmc_request::By::HardwareId(hardware.to_string());
        let request = pb::GetBmcRequest { by: Some(by) };
        self.client.get_bmc(request).await.unwrap().into_inner().bmc.unwrap()
    }

    async fn update(&mut self, bmc: pb::Bmc, skip_login: bool) -> Result<pb::Bmc, tonic::Status> {
        let request = pb::UpdateBmcRequest { bmc: Some(bmc), skip_login, ..Default::default() };
        Ok(self.client.update_bmc(request).await?.into_inner().bmc.unwrap())
    }

    pub(crate) async fn job(
        &mut self,
        hardware: HardwareId,
        operations: Vec<pb::Operation>,
    ) -> pb::PowerJob {
        let hardware_id = hardware.to_string();
        let request = pb::CreatePowerJobRequest { hardware_id, operations, ..Default::default() };
        self.client.create_power_job(request).await.unwrap().into_inner().power_job.unwrap()
    }

    /// Waits until the job is as `wanted`.
    pub(crate) async fn until(
        &mut self,
        id: &str,
        wanted: impl Fn(&pb::PowerJob) -> bool,
    ) -> pb::PowerJob {
        let request = pb::WatchPowerJobsRequest { id: id.into(), ..Default::default() };
        let mut watch = self.client.watch_power_jobs(request).await.unwrap().into_inner();
        let found = async {
            while let Some(response) = watch.message().await.unwrap() {
                match response.event {
                    Some(pb::watch_power_jobs_response::Event::PowerJob(job)) if wanted(&job) => {
                        return job;
                    }
                    _ => {}
                }
            }
            panic!("the watch ended");
        };
        tokio::time::timeout(Duration::from_secs(60), found)
            .await
            .expect("the job reaches the state")
    }

    async fn power_state(
        &mut self,
        hardware: HardwareId,
    ) -> Result<pb::GetPowerStateResponse, tonic::Status> {
        let request = pb::GetPowerStateRequest { hardware_id: hardware.to_string() };
        self.client.get_power_state(request).await.map(|response| response.into_inner())
    }
}

/// `bmc` with the SHA-256 of its certificate.
fn pinned(mut bmc: pb::Bmc, digest: &str) -> pb::Bmc {
    certificate(&mut bmc).push_str(digest);
    bmc
}

fn certificate(bmc: &mut pb::Bmc) -> &mut String {
    match &mut bmc.protocol {
        Some(Protocol::Redfish(redfish)) => &mut redfish.certificate_sha256,
        other => panic!("{other:?}"),
    }
}

fn ended(job: &pb::PowerJob) -> bool {
    job.end_time.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_set_to_network_boot_and_switched_on() {
    let emulator = Emulator::guarded("node1");
    let mut service = service().await;
    let hardware = HardwareId::new();
    service.add(pinned(bmc(hardware, &emulator.url, "node1"), &emulator.fingerprint)).await;
    assert_eq!(service.power_state(hardware).await.unwrap().power_state(), PowerState::Off);

    let made = service.job(hardware, vec![boot(Device::Pxe), power(Power::On)]).await;
    let job = service.until(&made.id, ended).await;

    assert_eq!((job.state(), job.state_reason.as_str()), (State::Success, ""));
    assert_eq!((job.completed_operations, job.downgrades.len()), (2, 1));
    let state = service.power_state(hardware).await.unwrap();
    assert_eq!(state.power_state(), PowerState::On);
    assert_eq!(state.boot.unwrap().device(), Device::Pxe);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_login_pins_the_certificate_and_another_one_is_refused_until_it_is_accepted() {
    let (emulator, exchanged) = (Emulator::guarded("node1"), Emulator::guarded("node1"));
    let mut service = service().await;
    let hardware = HardwareId::new();
    let mut made = service.add(bmc(hardware, &emulator.url, "")).await;
    assert_eq!(certificate(&mut made), "");

    service.power_state(hardware).await.unwrap();

    let mut stored = service.bmc(hardware).await;
    assert_eq!(*certificate(&mut stored), emulator.fingerprint);
    // The digest of the other emulator stands for a BMC whose certificate has changed.
    certificate(&mut stored).clone_from(&exchanged.fingerprint);
    let stored = service.update(stored, true).await.unwrap();
    let refused = service.power_state(hardware).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let reason = format!(
        "the BMC's certificate has changed: expected SHA-256 {}, received {}",
        exchanged.fingerprint, emulator.fingerprint
    );
    assert!(refused.message().starts_with(&reason), "{}", refused.message());
    let made = service.job(hardware, vec![power(Power::On)]).await;
    let job = service.until(&made.id, ended).await;
    assert_eq!((job.state(), job.attempt), (State::Failed, 0));
    assert!(job.state_reason.contains(&reason), "{}", job.state_reason);

    let mut accepting = stored;
    certificate(&mut accepting).clear();
    let mut accepted = service.update(accepting, false).await.unwrap();
    assert_eq!(*certificate(&mut accepted), emulator.fingerprint);
    service.power_state(hardware).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_no_root_has_signed_is_refused_if_that_is_required() {
    let emulator = Emulator::guarded("node1");
    let mut service = service().await;
    let hardware = HardwareId::new();
    let mut record = bmc(hardware, &emulator.url, "");
    if let Some(Protocol::Redfish(redfish)) = &mut record.protocol {
        redfish.signed_by_root = true;
    }
    service.add(record).await;
    let refused = service.power_state(hardware).await.unwrap_err();
    assert!(refused.message().contains("certificate"), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_is_created_and_changed_only_after_a_login() {
    let emulator = Emulator::guarded("node1");
    let mut service = service().await;
    let hardware = HardwareId::new();
    let right = bmc(hardware, &emulator.url, "");
    let wrong = pb::Bmc { password: "wrong".into(), ..right.clone() };
    let create = |bmc| pb::CreateBmcRequest { bmc: Some(bmc), ..Default::default() };
    let refused = service.client.create_bmc(create(wrong)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = "the BMC refuses the user name or the password";
    assert!(refused.message().starts_with(text), "{}", refused.message());

    let made = service.client.create_bmc(create(right)).await.unwrap().into_inner();
    let mut made = made.bmc.unwrap();
    assert_eq!(*certificate(&mut made), emulator.fingerprint);

    let wrong = pb::Bmc { password: "wrong".into(), ..made.clone() };
    let refused = service.update(wrong, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(service.bmc(hardware).await, made);
    service.power_state(hardware).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_fails_the_job_at_once() {
    let emulator = Emulator::guarded("node1");
    let mut service = service().await;
    let hardware = HardwareId::new();
    let record = pinned(bmc(hardware, &emulator.url, ""), &emulator.fingerprint);
    service.add(pb::Bmc { password: "wrong".into(), ..record }).await;
    let refused = service.power_state(hardware).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);

    let made = service.job(hardware, vec![power(Power::On)]).await;
    let job = service.until(&made.id, ended).await;

    assert_eq!((job.state(), job.attempt), (State::Failed, 0));
    assert!(
        job.state_reason.contains("the BMC refuses the user name or the password: it answered 401"),
        "{}",
        job.state_reason
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_stops_before_its_next_step_and_the_next_job_begins() {
    let emulator = Emulator::open(&["node1".into()]);
    let mut service = service().await;
    let hardware = HardwareId::new();
    service.add(bmc(hardware, &emulator.url, "")).await;
    let first = service.job(hardware, vec![power(Power::On), boot(Device::Pxe)]).await;
    let second = service.job(hardware, vec![power(Power::Off)]).await;
    assert_eq!(second.state(), State::Pending);
    service.until(&first.id, |job| job.state() == State::Running).await;

    let cancel = pb::CancelPowerJobRequest { id: first.id.clone() };
    service.client.cancel_power_job(cancel).await.unwrap();

    let second = service.until(&second.id, ended).await;
    assert_eq!(second.state(), State::Success, "{}", second.state_reason);
    let first = service.until(&first.id, ended).await;
    assert_eq!(first.state(), State::Cancelled);
    assert_eq!(service.power_state(hardware).await.unwrap().boot.unwrap().device(), Device::Disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_creates_one_bmc_and_no_response_has_its_password() {
    let mut service = service().await;
    let record = bmc(HardwareId::new(), "https://127.0.0.1:1", "");
    let made = service.add(record.clone()).await;
    assert_eq!(made.password, "");
    assert_eq!(service.add(record).await, made);
    let listed = service.client.list_bmcs(pb::ListBmcsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().bmcs, [made]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_continues_after_a_restart() {
    let emulator = Emulator::open(&["node1".into()]);
    let store = Arc::new(MemoryStore::default());
    let mut service = service_over(store.clone()).await;
    let hardware = HardwareId::new();
    service.add(bmc(hardware, &emulator.url, "")).await;
    let made = service.job(hardware, vec![power(Power::On), power(Power::Off)]).await;
    service.until(&made.id, |job| job.attempt > 0).await;
    service.end().await;

    let mut service = service_over(store).await;
    let job = service.until(&made.id, ended).await;

    assert_eq!((job.state(), job.completed_operations), (State::Success, 2));
}
