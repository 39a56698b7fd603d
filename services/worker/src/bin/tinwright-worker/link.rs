//! The way to the control plane: TLS under the site's one authority, and calls that outlive its absences.

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

use crate::retry::answered;

/// How long the server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a silent server is left alone before it is asked whether it is there, and then for its answer: one that was
/// cut off from power says nothing.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a call may take.
const CALL: Duration = Duration::from_secs(15);
/// How long a call may take that is held while there is nothing to do: the server's 50 s, and a call.
const HELD: Duration = Duration::from_secs(65);

type Client = WorkerServiceClient<Channel>;

/// Where the control plane is, and whom to believe there.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// Host and port.
    pub(crate) address: Authority,
    /// The site's certificate authority, in PEM.
    pub(crate) authority: String,
}

impl ControlPlane {
    /// A way there, for whoever `identity` shows us to be; connects when it is first used, and again when it breaks.
    fn client(&self, identity: Option<Identity>) -> Result<Client, Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authority));
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address))?
            .tls_config(identity.into_iter().fold(tls, ClientTlsConfig::identity))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(WorkerServiceClient::new(endpoint.connect_lazy()))
    }
}

/// A way to the control plane that is changed over to each new certificate, calls under way excepted.
///
/// Unless it says otherwise, a call is made until it is answered or refused for good.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    plane: Arc<ControlPlane>,
    client: Arc<Mutex<Client>>,
}

impl Link {
    /// The way of somebody who is nobody yet.
    pub(crate) fn new(plane: ControlPlane) -> Result<Self, Error> {
        let client = Arc::new(Mutex::new(plane.client(None)?));
        Ok(Self { plane: Arc::new(plane), client })
    }

    /// From now on shows `identity`.
    pub(crate) fn show(&self, identity: Identity) -> Result<(), Error> {
        let client = self.plane.client(Some(identity))?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn once<Q, A>(
        &self,
        request: Q,
        limit: Duration,
        call: impl AsyncFnOnce(Client, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        let mut request = Request::new(request);
        request.set_timeout(limit);
        // The limit in the request is kept by a server that is there.
        let answer = tokio::time::timeout(limit, call(self.client(), request)).await;
        let late = |_| Status::deadline_exceeded(format!("no answer in {limit:?}"));
        answer.map_err(late)?.map(Response::into_inner)
    }

    /// `Redeem`.
    pub(crate) async fn redeem(&self, request: RedeemRequest) -> Result<RedeemResponse, Status> {
        let call = async |mut client: Client, request| client.redeem(request).await;
        answered("Redeem", async || self.once(request.clone(), CALL, call).await).await
    }

    /// `Renew`.
    pub(crate) async fn renew(&self, request: RenewRequest) -> Result<RenewResponse, Status> {
        let call = async |mut client: Client, request| client.renew(request).await;
        answered("Renew", async || self.once(request.clone(), CALL, call).await).await
    }

    /// `NextAction`, which is held while there is nothing to do.
    pub(crate) async fn next_action(
        &self,
        request: NextActionRequest,
    ) -> Result<NextActionResponse, Status> {
        let call = async |mut client: Client, request| client.next_action(request).await;
        answered("NextAction", async || self.once(request.clone(), HELD, call).await).await
    }

    /// `StartAction`.
    pub(crate) async fn start_action(
        &self,
        request: StartActionRequest,
    ) -> Result<StartActionResponse, Status> {
        let call = async |mut client: Client, request| client.start_action(request).await;
        answered("StartAction", async || self.once(request.clone(), CALL, call).await).await
    }

    /// `ReportProgress`, once: the next try should say what is true then.
    pub(crate) async fn report_progress(
        &self,
        request: ReportProgressRequest,
    ) -> Result<ReportProgressResponse, Status> {
        self.once(request, CALL, async |mut client: Client, request| {
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
        answered("AppendLog", async || self.once(request.clone(), CALL, call).await).await
    }

    /// `FinishAction`.
    pub(crate) async fn finish_action(
        &self,
        request: FinishActionRequest,
    ) -> Result<FinishActionResponse, Status> {
        let call = async |mut client: Client, request| client.finish_action(request).await;
        answered("FinishAction", async || self.once(request.clone(), CALL, call).await).await
    }
}
