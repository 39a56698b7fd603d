//! Client of the control plane. It trusts only the site's certificate authority, and repeats calls until they succeed. After a
//! failure, the next server is called.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::retry::is_final;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::{
    AppendLogRequest, AppendLogResponse, FinishActionRequest, FinishActionResponse,
    NextActionRequest, NextActionResponse, RedeemRequest, RedeemResponse, RenewRequest,
    RenewResponse, ReportInventoryRequest, ReportInventoryResponse, ReportProgressRequest,
    ReportProgressResponse, StartActionRequest, StartActionResponse,
};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::uri::Authority;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};
use tonic::{Request, Response, Status};

use crate::retry_policy::until_final;

/// Timeout for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data before an HTTP/2 ping, and timeout of its response. A server that lost power closes no connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of a long poll: the server holds the call up to 50 s while there is no action, plus the timeout of a call.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(65);

type Client = WorkerServiceClient<Channel>;

/// Addresses and certificate authority of the control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// Host and port of each server. All have the same records.
    pub(crate) servers: Vec<Authority>,
    /// The site's certificate authority, in PEM.
    pub(crate) authority: String,
}

impl ControlPlane {
    /// Creates a client of `server` with this `identity`. It connects at the first call, and again after a disconnect.
    fn client(&self, server: &Authority, identity: Option<&Identity>) -> Result<Client, Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authority));
        let endpoint = Endpoint::from_shared(format!("https://{server}"))?
            .tls_config(identity.cloned().into_iter().fold(tls, ClientTlsConfig::identity))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(WorkerServiceClient::new(endpoint.connect_lazy()))
    }
}

/// The clients of all servers. The first one is used.
#[derive(Debug)]
struct Clients {
    all: VecDeque<(Authority, Client)>,
    /// The number of changes to the next server.
    changes: u64,
}

/// A client of the control plane. Each new certificate applies to all later calls.
///
/// Unless documented otherwise, a call is repeated until it succeeds, its error is final, or the certificate is expired.
#[derive(Clone, Debug)]
pub(crate) struct ControlPlaneClient {
    plane: Arc<ControlPlane>,
    clients: Arc<Mutex<Clients>>,
    expired: CancellationToken,
}

impl ControlPlaneClient {
    /// Creates a client without an identity.
    pub(crate) fn new(plane: ControlPlane) -> Result<Self, Error> {
        let client = |server: &Authority| Ok((server.clone(), plane.client(server, None)?));
        let all = plane.servers.iter().map(client).collect::<Result<_, Error>>()?;
        let clients = Arc::new(Mutex::new(Clients { all, changes: 0 }));
        Ok(Self { plane: Arc::new(plane), clients, expired: CancellationToken::new() })
    }

    /// Uses `identity` from now on.
    pub(crate) fn set_identity(&self, identity: Identity) -> Result<(), Error> {
        for (server, client) in &mut self.clients().all {
            *client = self.plane.client(server, Some(&identity))?;
        }
        Ok(())
    }

    /// Declares the certificate expired. It cannot be renewed: new connections are refused from now on.
    pub(crate) fn set_expired(&self) {
        self.expired.cancel();
    }

    /// True if the certificate is expired.
    pub(crate) fn is_expired(&self) -> bool {
        self.expired.is_cancelled()
    }

    /// Waits until the certificate is expired.
    pub(crate) async fn expired(&self) {
        self.expired.cancelled().await;
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the next server, unless another call that failed did so since `changes` was read.
    fn change_server(&self, changes: u64) {
        let mut clients = self.clients();
        if clients.changes == changes && clients.all.len() > 1 {
            clients.changes += 1;
            clients.all.rotate_left(1);
            let server = clients.all.front().map(|(server, _)| server);
            tracing::debug!(server = server.map(Authority::as_str), "calling the next server");
        }
    }

    /// Calls without retries. After a failure that is not final, the next call is made to the next server.
    async fn once<Q, A>(
        &self,
        request: Q,
        limit: Duration,
        call: impl AsyncFnOnce(Client, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        let mut request = Request::new(request);
        request.set_timeout(limit);
        let (client, changes) = {
            let clients = self.clients();
            (clients.all.front().map(|(_, client)| client.clone()), clients.changes)
        };
        let client = client.ok_or_else(|| Status::failed_precondition("no server"))?;
        // The timeout in the request is only effective if the server is reachable.
        let response = tokio::time::timeout(limit, call(client, request)).await;
        let timed_out = |_| Status::deadline_exceeded(format!("no response within {limit:?}"));
        let response = response.map_err(timed_out).flatten();
        if response.as_ref().is_err_and(|status| !is_final(status.code())) {
            self.change_server(changes);
        }
        response.map(Response::into_inner)
    }

    /// Calls `name` until the call succeeds, its error is final, or the certificate is expired.
    async fn repeat<Q: Clone, A>(
        &self,
        name: &str,
        request: Q,
        limit: Duration,
        call: impl AsyncFn(Client, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        let call = async || {
            let result = self.once(request.clone(), limit, &call).await;
            result.map_err(|status| match self.is_expired() {
                // The code is final.
                true => Status::unauthenticated(format!("certificate expired: {status}")),
                false => status,
            })
        };
        until_final(name, call).await
    }

    /// `Redeem`.
    pub(crate) async fn redeem(&self, request: RedeemRequest) -> Result<RedeemResponse, Status> {
        let call = async |mut client: Client, request| client.redeem(request).await;
        self.repeat("Redeem", request, CALL_TIMEOUT, call).await
    }

    /// `Renew`.
    pub(crate) async fn renew(&self, request: RenewRequest) -> Result<RenewResponse, Status> {
        let call = async |mut client: Client, request| client.renew(request).await;
        self.repeat("Renew", request, CALL_TIMEOUT, call).await
    }

    /// `NextAction`, which the server holds while there is no action.
    pub(crate) async fn next_action(
        &self,
        request: NextActionRequest,
    ) -> Result<NextActionResponse, Status> {
        let call = async |mut client: Client, request| client.next_action(request).await;
        self.repeat("NextAction", request, LONG_POLL_TIMEOUT, call).await
    }

    /// `StartAction`.
    pub(crate) async fn start_action(
        &self,
        request: StartActionRequest,
    ) -> Result<StartActionResponse, Status> {
        let call = async |mut client: Client, request| client.start_action(request).await;
        self.repeat("StartAction", request, CALL_TIMEOUT, call).await
    }

    /// `ReportInventory`, without retries.
    pub(crate) async fn report_inventory(
        &self,
        request: ReportInventoryRequest,
    ) -> Result<ReportInventoryResponse, Status> {
        self.once(request, CALL_TIMEOUT, async |mut client: Client, request| {
            client.report_inventory(request).await
        })
        .await
    }

    /// `ReportProgress`, without retries: the caller retries with newer progress.
    pub(crate) async fn report_progress(
        &self,
        request: ReportProgressRequest,
    ) -> Result<ReportProgressResponse, Status> {
        self.once(request, CALL_TIMEOUT, async |mut client: Client, request| {
            client.report_progress(request).await
        })
        .await
    }

    /// `AppendLog`.
    pub(crate) async fn append_log(
        &self,
        request: AppendLogRequest,
    ) -> Result<AppendLogResponse, Status> {
        let call = async |mut client: Client, request| client.append_log(request).await;
        self.repeat("AppendLog", request, CALL_TIMEOUT, call).await
    }

    /// `FinishAction`.
    pub(crate) async fn finish_action(
        &self,
        request: FinishActionRequest,
    ) -> Result<FinishActionResponse, Status> {
        let call = async |mut client: Client, request| client.finish_action(request).await;
        self.repeat("FinishAction", request, CALL_TIMEOUT, call).await
    }
}
