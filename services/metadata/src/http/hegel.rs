//! Hegel's gRPC service: the hardware as one JSON document, once or with each change.
//!
//! ```text
//! call ─▶ client ─▶ machine ─▶ rate limit ─▶ source ─▶ token, forwarded? ─┬─▶ Get: the document
//!                                                                        └─▶ Subscribe: a stream of documents
//! ```
//!
//! The checks are those of a GET for the JSON document, in the same order. A machine's hop limit is not applied: it is for
//! responses that carry a session token. All checks are repeated before each message of a subscription. The stream ends when
//! a check fails.

mod subscription;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{Extensions, HeaderMap, StatusCode};
use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use runtime::serve::ConnectionAddresses;
use tinwright::HardwareId;
use tinwright::hegel::hegel_server::{self, HegelServer};
use tinwright::hegel::{GetRequest, GetResponse, SubscribeRequest, SubscribeResponse};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::Service;
use super::first_access::AccessEvent;
use super::refusal::Refusal;
use super::request::Client;
use crate::contents::{Family, RequestContext, document};
use crate::machine::Machine;
use subscription::{Subscription, Subscriptions};

/// Maximum size of a request, which contains at most one id.
const MAX_REQUEST_BYTES: usize = 1024;

/// Hegel's gRPC service.
#[derive(Clone, Debug)]
pub struct Hegel {
    service: Arc<Service>,
    subscriptions: Arc<Subscriptions>,
    stop: CancellationToken,
}

/// Address and headers of the caller, kept for the duration of the call.
#[derive(Clone, Debug)]
struct Caller {
    peer: SocketAddr,
    headers: HeaderMap,
}

impl Caller {
    fn client(&self, service: &Service) -> Result<Client<'_>, Refusal> {
        service.client(self.peer, &self.headers, &Extensions::new(), None)
    }
}

impl Hegel {
    /// Serves the documents of `service`. Streams end at `stop`.
    pub fn new(service: Arc<Service>, stop: CancellationToken) -> Self {
        let subscriptions = Arc::new(Subscriptions::new(service.metrics.clone()));
        Self { service, subscriptions, stop }
    }

    /// Returns the service for a tonic router. Requests need the connection's [`ConnectionAddresses`] among their extensions.
    pub fn into_service(self) -> HegelServer<Self> {
        HegelServer::new(self).max_decoding_message_size(MAX_REQUEST_BYTES)
    }

    /// Returns the caller, and the machine that has its address.
    fn caller<T>(&self, request: &Request<T>) -> Result<(Caller, Arc<Machine>), Refusal> {
        let extensions = request.extensions();
        let peers = extensions.get::<ConnectionAddresses>().ok_or(Refusal::Forbidden("no_peer"))?;
        let caller =
            Caller { peer: peers.remote, headers: request.metadata().clone().into_headers() };
        let client = self.service.client(caller.peer, &caller.headers, extensions, None)?;
        let machine = self.service.find_machine(&client, None)?.ok_or(Refusal::NotFound)?;
        tracing::Span::current().record("machine.id", tracing::field::display(machine.id));
        Ok((caller, machine))
    }

    async fn document(&self, request: &Request<GetRequest>) -> Result<GetResponse, Refusal> {
        let (caller, machine) = self.caller(request)?;
        let json = self.service.export(&machine, &caller.client(&self.service)?).await?;
        Ok(GetResponse { json })
    }

    async fn subscription(
        &self,
        request: &Request<SubscribeRequest>,
    ) -> Result<Subscription, Refusal> {
        let (caller, machine) = self.caller(request)?;
        let SubscribeRequest { id } = request.get_ref();
        if !id.is_empty() && id.parse::<HardwareId>() != Ok(machine.id) {
            return Err(Refusal::Forbidden("hardware_id"));
        }
        let slot = self.subscriptions.open(machine.id)?;
        let (service, stop) = (self.service.clone(), self.stop.clone());
        let mut subscription = Subscription::new(service, caller, machine.id, slot, stop);
        // Checks the caller now, so that a refusal is the status of the call and not an error in the stream.
        subscription.refresh().await?;
        Ok(subscription)
    }

    /// Counts the outcome of a call, and converts it into a gRPC response.
    fn finish<T>(
        &self,
        route: &'static str,
        started: Instant,
        result: Result<T, Refusal>,
    ) -> Result<Response<T>, Status> {
        let refusal = result.as_ref().err().copied();
        let status = refusal.map_or(StatusCode::OK, Refusal::status);
        self.service.record_outcome(route, started, status, refusal);
        Ok(Response::new(result?))
    }
}

impl hegel_server::Hegel for Hegel {
    type SubscribeStream = BoxStream<'static, Result<SubscribeResponse, Status>>;

    #[tracing::instrument(skip_all, fields(machine.id))]
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let started = self.service.clock.monotonic();
        self.finish("hegel_get", started, self.document(&request).await)
    }

    #[tracing::instrument(skip_all, fields(machine.id))]
    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let started = self.service.clock.monotonic();
        let stream = self.subscription(&request).await.map(|subscription| {
            try_unfold(subscription, |mut subscription| async {
                let json = subscription.next().await?;
                Ok(json.map(|json| (SubscribeResponse { json }, subscription)))
            })
            .boxed()
        });
        self.finish("hegel_subscribe", started, stream)
    }
}

impl Service {
    /// Returns the document of the hardware, if `client` may read it.
    async fn export(&self, machine: &Machine, client: &Client<'_>) -> Result<String, Refusal> {
        self.check_source(machine, client).await?;
        self.check_policy(machine, client, Family::Json, true)?;
        let context = RequestContext { host: None, trusted: self.is_trusted(machine, client) };
        let document = document::hardware(&self.visible(machine, client), context).to_string();
        self.record_access(machine, AccessEvent::UserDataRead, client);
        Ok(document)
    }
}
