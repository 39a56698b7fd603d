//! A control plane for tests: with TLS and a certificate authority, but with its state in memory.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use runtime::Clock;
use runtime::authority::{RenewableCertificate, SiteAuthority};
use runtime::serve::{self, Transport};
use runtime::{Caller, Role};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tinwright::HardwareId;
use tinwright::workflow::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use tinwright::workflow::v1::*;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::STEP_TIMEOUT;

/// Configuration of the control plane, and the calls it received.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Assignments. NextAction returns the first one until its result arrives.
    pub(crate) queue: VecDeque<Assignment>,
    pub(crate) refuse_token: bool,
    pub(crate) refuse_start: bool,
    /// Returns the error for a result that is refused.
    pub(crate) refuse_result: Option<fn(&FinishActionRequest) -> Option<Status>>,
    pub(crate) stop: bool,
    pub(crate) reboot: bool,
    /// Lifetime of certificates; default: a day.
    pub(crate) lifetime: Option<Duration>,

    pub(crate) redeems: Vec<RedeemRequest>,
    pub(crate) renewals: Vec<Caller>,
    /// Inventories with the number of NextAction calls before them.
    pub(crate) inventories: Vec<(ReportInventoryRequest, usize)>,
    /// The machine has no record: its certificate is to enrol.
    pub(crate) enrols: bool,
    pub(crate) refuse_inventory: bool,
    pub(crate) polls: Vec<(NextActionRequest, Caller)>,
    pub(crate) starts: Vec<StartActionRequest>,
    pub(crate) progress: Vec<ReportProgressRequest>,
    /// All results received, and those accepted.
    pub(crate) sent: Vec<FinishActionRequest>,
    pub(crate) finishes: Vec<FinishActionRequest>,
    pub(crate) logs: HashMap<String, Vec<u8>>,
    pub(crate) resumptions: u32,
}

impl State {
    /// Returns the log of `lease`.
    pub(crate) fn log(&self, lease: &str) -> String {
        self.logs
            .get(lease)
            .map(|log| String::from_utf8_lossy(log).into_owned())
            .unwrap_or_default()
    }
}

/// A site with a server that can be killed and started again.
pub(crate) struct ControlPlane {
    secrets: Arc<TempDir>,
    pub(crate) hardware: HardwareId,
    /// Hardware id in renewed certificates. It differs from that in the first certificate, to distinguish them.
    pub(crate) renewed: HardwareId,
    state: Arc<watch::Sender<State>>,
    pub(crate) address: SocketAddr,
    server: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Starts a site with the assignments in `queue`.
    pub(crate) async fn serve(queue: impl IntoIterator<Item = Assignment>) -> Self {
        let queue = queue.into_iter().collect();
        let mut plane = Self {
            secrets: Arc::new(TempDir::new().unwrap()),
            hardware: HardwareId::new(),
            renewed: HardwareId::new(),
            state: Arc::new(watch::Sender::new(State { queue, ..State::default() })),
            address: ([127, 0, 0, 1], 0).into(),
            server: None,
        };
        plane.start().await;
        plane
    }

    /// Starts another server of the same site, with the same state.
    pub(crate) async fn replica(&self) -> Self {
        let (secrets, state) = (self.secrets.clone(), self.state.clone());
        let address = ([127, 0, 0, 1], 0).into();
        let mut replica = Self { secrets, state, address, server: None, ..*self };
        replica.start().await;
        replica
    }

    /// Starts the server at its previous address.
    pub(crate) async fn start(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let own = RenewableCertificate::server(Arc::new(self.site()), names).unwrap();
        let tls = own.server_config().unwrap();
        let service = Service {
            state: self.state.clone(),
            secrets: self.secrets.path().to_owned(),
            roles: [self.hardware, self.renewed],
        };
        let app = Routes::new(WorkerServiceServer::new(service)).into_axum_router();
        let never = CancellationToken::new();
        self.server = Some(tokio::spawn(async move {
            serve::tcp(listener, Transport::Tls(Arc::new(tls)), app, never).await.unwrap();
        }));
    }

    /// Kills the server.
    pub(crate) async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _aborted = server.await;
        }
    }

    fn site(&self) -> SiteAuthority {
        SiteAuthority::open(self.secrets.path()).unwrap()
    }

    pub(crate) fn ca(&self) -> String {
        self.site().authority().to_owned()
    }

    /// Returns the fingerprint for `ca_sha256=`.
    pub(crate) fn ca_sha256(&self) -> String {
        let ca = CertificateDer::from_pem_slice(self.ca().as_bytes()).unwrap();
        Sha256::digest(ca).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Changes the configuration.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until the state satisfies `condition`.
    pub(crate) async fn until(&self, condition: impl FnMut(&State) -> bool) -> State {
        let mut state = self.state.subscribe();
        let reached = tokio::time::timeout(STEP_TIMEOUT, state.wait_for(condition)).await;
        let reached = reached.ok().and_then(Result::ok).map(|state| state.clone());
        reached.unwrap_or_else(|| panic!("not reached: {:?}", self.state()))
    }

    /// Waits for the accepted result of `lease`.
    pub(crate) async fn result(&self, lease: &str) -> FinishActionRequest {
        let of = |state: &State| state.finishes.iter().find(|it| it.lease_id == lease).cloned();
        of(&self.until(|state| of(state).is_some()).await).unwrap()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.server.iter().for_each(JoinHandle::abort);
    }
}

struct Service {
    state: Arc<watch::Sender<State>>,
    secrets: std::path::PathBuf,
    roles: [HardwareId; 2],
}

type ServiceResult<T> = Result<Response<T>, Status>;

fn caller<T>(request: &Request<T>) -> Caller {
    request.extensions().get::<Caller>().cloned().unwrap()
}

impl Service {
    fn issue(&self, csr: Vec<u8>, hardware: HardwareId) -> String {
        let key = std::fs::read_to_string(self.secrets.join("ca-key.pem")).unwrap();
        let ca = std::fs::read_to_string(self.secrets.join("ca.pem")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&key).unwrap()).unwrap();
        let mut csr = CertificateSigningRequestParams::from_der(&csr.into()).unwrap();
        let role = Caller::from(Role::worker(hardware)).to_string();
        csr.params.subject_alt_names = vec![SanType::URI(role.try_into().unwrap())];
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        csr.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        csr.params.use_authority_key_identifier_extension = true;
        csr.signed_by(&issuer).unwrap().pem()
    }

    fn expire_time(&self) -> Option<prost_types::Timestamp> {
        let lifetime = self.state.borrow().lifetime.unwrap_or(Duration::from_secs(86_400));
        Some((Clock::system().wall() + lifetime).into())
    }

    /// The end of each lease id that the worker gets. Like all leases, those of two tests that run at once differ: a worker
    /// kills what it finds under its lease.
    fn lease_suffix(&self) -> String {
        format!("-{}", self.roles[0])
    }

    /// Returns the lease id in the state for `sent`, that of a request.
    fn lease(&self, sent: &str) -> String {
        sent.strip_suffix(&self.lease_suffix()).expect("a lease of this control plane").to_owned()
    }

    /// Records a call in the state. Returns the result of `change`.
    fn record<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut result = None;
        self.state.send_modify(|state| result = Some(change(state)));
        result.unwrap()
    }

    /// Returns an error for a caller without a machine's certificate.
    fn machine<T>(request: &Request<T>) -> Result<(), Status> {
        match Caller::role_in(request.extensions()) {
            Some(Role::Machine(..)) => Ok(()),
            _ => Err(Status::permission_denied("machines only")),
        }
    }
}

impl WorkerService for Service {
    async fn redeem(&self, request: Request<RedeemRequest>) -> ServiceResult<RedeemResponse> {
        let request = request.into_inner();
        let csr = request.csr.clone();
        let accepted = self.record(|state| {
            let mut earlier = state.redeems.iter();
            // The API allows a repeated request with the same key, but not with another one.
            let same_key = earlier.all(|it| key(&it.csr) == key(&csr));
            state.redeems.push(request);
            same_key && !state.refuse_token
        });
        if !accepted {
            return Err(Status::permission_denied("the boot token was used with another key"));
        }
        let [hardware, _] = self.roles;
        Ok(Response::new(RedeemResponse {
            certificate: self.issue(csr, hardware),
            hardware_id: hardware.to_string(),
            expire_time: self.expire_time(),
            enrols: self.record(|state| state.enrols),
        }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> ServiceResult<RenewResponse> {
        Self::machine(&request)?;
        self.record(|state| state.renewals.push(caller(&request)));
        let [_, renewed] = self.roles;
        let certificate = self.issue(request.into_inner().csr, renewed);
        Ok(Response::new(RenewResponse { certificate, expire_time: self.expire_time() }))
    }

    async fn next_action(
        &self,
        request: Request<NextActionRequest>,
    ) -> ServiceResult<NextActionResponse> {
        Self::machine(&request)?;
        let caller = caller(&request);
        self.record(|state| state.polls.push((request.into_inner(), caller)));
        let mut state = self.state.subscribe();
        let some = state.wait_for(|state| !state.queue.is_empty() || state.reboot);
        let _held = tokio::time::timeout(Duration::from_millis(500), some).await;
        let state = self.state.borrow();
        let (mut assignment, reboot) = (state.queue.front().cloned(), state.reboot);
        assignment.iter_mut().for_each(|it| it.lease_id += &self.lease_suffix());
        Ok(Response::new(NextActionResponse { assignment, reboot }))
    }

    async fn start_action(
        &self,
        request: Request<StartActionRequest>,
    ) -> ServiceResult<StartActionResponse> {
        Self::machine(&request)?;
        let mut start = request.into_inner();
        start.lease_id = self.lease(&start.lease_id);
        let refuse = self.record(|state| {
            state.starts.push(start);
            if state.refuse_start {
                state.queue.pop_front();
            }
            state.refuse_start
        });
        match refuse {
            true => Err(Status::failed_precondition("the lease is not current")),
            false => Ok(Response::new(StartActionResponse {})),
        }
    }

    async fn report_progress(
        &self,
        request: Request<ReportProgressRequest>,
    ) -> ServiceResult<ReportProgressResponse> {
        Self::machine(&request)?;
        let mut progress = request.into_inner();
        progress.lease_id = self.lease(&progress.lease_id);
        let stop = self.record(|state| {
            state.progress.push(progress);
            state.stop
        });
        Ok(Response::new(ReportProgressResponse { stop }))
    }

    async fn append_log(
        &self,
        request: Request<AppendLogRequest>,
    ) -> ServiceResult<AppendLogResponse> {
        Self::machine(&request)?;
        let AppendLogRequest { lease_id, offset, data, .. } = request.into_inner();
        assert!(data.len() <= 16 << 10);
        let lease_id = self.lease(&lease_id);
        self.record(|state| {
            let log = state.logs.entry(lease_id).or_default();
            let Some(overlap) = log.len().checked_sub(usize::try_from(offset).unwrap()) else {
                state.resumptions += 1;
                return Ok(Response::new(AppendLogResponse { next_offset: log.len() as u64 }));
            };
            log.extend(data.iter().skip(overlap));
            Ok(Response::new(AppendLogResponse { next_offset: log.len() as u64 }))
        })
    }

    async fn report_inventory(
        &self,
        request: Request<ReportInventoryRequest>,
    ) -> ServiceResult<ReportInventoryResponse> {
        Self::machine(&request)?;
        let refuse = self.record(|state| {
            state.inventories.push((request.into_inner(), state.polls.len()));
            state.refuse_inventory
        });
        match refuse {
            true => Err(Status::invalid_argument("inventory is too large")),
            false => Ok(Response::new(ReportInventoryResponse::default())),
        }
    }

    async fn finish_action(
        &self,
        request: Request<FinishActionRequest>,
    ) -> ServiceResult<FinishActionResponse> {
        Self::machine(&request)?;
        let mut finish = request.into_inner();
        finish.lease_id = self.lease(&finish.lease_id);
        self.record(|state| {
            state.sent.push(finish.clone());
            if let Some(status) = state.refuse_result.and_then(|refuse| refuse(&finish)) {
                return Err(status);
            }
            state.queue.retain(|it| it.lease_id != finish.lease_id);
            state.finishes.push(finish);
            Ok(Response::new(FinishActionResponse {}))
        })
    }
}

/// Returns the public key in `csr`.
fn key(csr: &[u8]) -> Vec<u8> {
    let csr = CertificateSigningRequestParams::from_der(&csr.to_vec().into()).unwrap();
    rcgen::PublicKeyData::der_bytes(&csr.public_key).to_vec()
}
