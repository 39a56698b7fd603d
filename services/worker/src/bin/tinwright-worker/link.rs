//! Client of the control plane. It trusts only the site's certificate authority, and repeats calls until they succeed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::{
    AppendLogRequest, AppendLogResponse, FinishActionRequest, FinishActionResponse,
    NextActionRequest, NextActionResponse, RedeemRequest, RedeemResponse, RenewRequest,
    RenewResponse, ReportProgressRequest, ReportProgressResponse, StartActionRequest,
    StartActionResponse,
};
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

/// Address and certificate authority of the control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// Host and port.
    pub(crate) address: Authority,
    /// The site's certificate authority, in PEM.
    pub(crate) authority: String,
}

impl ControlPlane {
    /// Creates a client with this `identity`. It connects at the first call, and again after a disconnect.
    fn client(&self, identity: Option<Identity>) -> Result<Client, Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authority));
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address))?
            .tls_config(identity.into_iter().fold(tls, ClientTlsConfig::identity))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(WorkerServiceClient::new(endpoint.connect_lazy()))
    }
}

/// A client of the control plane. Each new certificate applies to all later calls.
///
/// Unless documented otherwise, a call is repeated until it succeeds or its error is final.
#[derive(Clone, Debug)]
pub(crate) struct ControlPlaneClient {
    plane: Arc<ControlPlane>,
    client: Arc<Mutex<Client>>,
}

impl ControlPlaneClient {
    /// Creates a client without an identity.
    pub(crate) fn new(plane: ControlPlane) -> Result<Self, Error> {
        let client = Arc::new(Mutex::new(plane.client(None)?));
        Ok(Self { plane: Arc::new(plane), client })
    }

    /// Uses `identity` from now on.
    pub(crate) fn set_identity(&self, identity: Identity) -> Result<(), Error> {
        let client = self.plane.client(Some(identity))?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls without retries.
    async fn once<Q, A>(
        &self,
        request: Q,
        limit: Duration,
        call: impl AsyncFnOnce(Client, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        let mut request = Request::new(request);
        request.set_timeout(limit);
        // The timeout in the request is only effective if the server is reachable.
        let response = tokio::time::timeout(limit, call(self.client(), request)).await;
        let timed_out = |_| Status::deadline_exceeded(format!("no response within {limit:?}"));
        response.map_err(timed_out)?.map(Response::into_inner)
    }

    /// Calls `name` until the call succeeds or its error is final.
    async fn repeat<Q: Clone, A>(
        &self,
        name: &str,
        request: Q,
        call: impl AsyncFn(Client, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        until_final(name, async || self.once(request.clone(), CALL_TIMEOUT, &call).await).await
    }

    /// `Redeem`.
    pub(crate) async fn redeem(&self, request: RedeemRequest) -> Result<RedeemResponse, Status> {
        let call = async |mut client: Client, request| client.redeem(request).await;
        self.repeat("Redeem", request, call).await
    }

    /// `Renew`.
    pub(crate) async fn renew(&self, request: RenewRequest) -> Result<RenewResponse, Status> {
        let call = async |mut client: Client, request| client.renew(request).await;
        self.repeat("Renew", request, call).await
    }

    /// `NextAction`, which the server holds while there is no action.
    pub(crate) async fn next_action(
        &self,
        request: NextActionRequest,
    ) -> Result<NextActionResponse, Status> {
        let call = async |mut client: Client, request| client.next_action(request).await;
        until_final("NextAction", async || {
            self.once(request.clone(), LONG_POLL_TIMEOUT, call).await
        })
        .await
    }

    /// `StartAction`.
    pub(crate) async fn start_action(
        &self,
        request: StartActionRequest,
    ) -> Result<StartActionResponse, Status> {
        let call = async |mut client: Client, request| client.start_action(request).await;
        self.repeat("StartAction", request, call).await
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
        self.repeat("AppendLog", request, call).await
    }

    /// `FinishAction`.
    pub(crate) async fn finish_action(
        &self,
        request: FinishActionRequest,
    ) -> Result<FinishActionResponse, Status> {
        let call = async |mut client: Client, request| client.finish_action(request).await;
        self.repeat("FinishAction", request, call).await
    }
}
