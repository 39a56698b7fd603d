//! Hegel's gRPC: the hardware as one JSON document, once or whenever it changes.
//!
//! ```text
//! call ─▶ caller ─▶ machine ─▶ limit ─▶ neighbour ─▶ token, forwarded? ─┬─▶ Get: the document
//!                                                                       └─▶ Subscribe: the document, again and again
//! ```
//!
//! The guards are those of a GET for the JSON document, in the same order. A machine's hop limit has no part in it: that is
//! for answers that carry a session token, and none is given here. Every message of a subscription goes through the guards
//! anew, so that whatever closes the document to the caller ends the stream before another byte.

mod subscription;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use runtime::client_address::ClientAddress;
use tinwright::HardwareId;
use tinwright::hegel::hegel_server::{self, HegelServer};
use tinwright::hegel::{GetRequest, GetResponse, SubscribeRequest, SubscribeResponse};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::Service;
use super::refusal::Refusal;
use super::seen::Event;
use super::wire::Wire;
use crate::contents::{Asked, Family, document};
use crate::machine::Machine;
use subscription::{Subscription, Subscriptions};

/// How long a call's message may be, in bytes: an id, at most.
const LONGEST: usize = 1024;

/// Answers machines as Hegel does.
#[derive(Clone, Debug)]
pub struct Hegel {
    service: Arc<Service>,
    subscriptions: Arc<Subscriptions>,
    stop: CancellationToken,
}

/// Who calls, for as long as the call lasts.
#[derive(Clone, Debug)]
struct Asker {
    peer: SocketAddr,
    caller: ClientAddress,
    headers: HeaderMap,
}

impl Hegel {
    /// Answers as `service` does; streams end at `stop`.
    pub fn new(service: Arc<Service>, stop: CancellationToken) -> Self {
        let subscriptions = Arc::new(Subscriptions::new(service.metrics.clone()));
        Self { service, subscriptions, stop }
    }

    /// As a service for a tonic router, to be given each connection's peer as [`ConnectInfo<SocketAddr>`].
    pub fn into_service(self) -> HegelServer<Self> {
        HegelServer::new(self).max_decoding_message_size(LONGEST)
    }

    /// Who makes `request`, and which machine that is.
    fn caller<T>(&self, request: &Request<T>) -> Result<(Asker, Arc<Machine>), Refusal> {
        let extensions = request.extensions();
        let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>().copied() else {
            return Err(Refusal::Forbidden("no_peer"));
        };
        let headers = request.metadata().clone().into_headers();
        let caller = ClientAddress::of(peer.ip(), &headers, &self.service.config.trusted_proxies)?;
        let now = Instant::now();
        let found = self.service.index.lookup(caller.address, now);
        let Some(machine) = self.service.counted_in(caller, found, now)? else {
            let segment = extensions.get::<Wire>().map(Wire::listener);
            self.service.metrics.missed(segment.unwrap_or_default());
            return Err(Refusal::NotFound);
        };
        tracing::Span::current().record("machine.id", tracing::field::display(machine.id));
        Ok((Asker { peer, caller, headers }, machine))
    }

    async fn document(&self, request: &Request<GetRequest>) -> Result<String, Refusal> {
        let (asker, machine) = self.caller(request)?;
        self.service.export(&asker, &machine).await
    }

    async fn subscription(
        &self,
        request: &Request<SubscribeRequest>,
    ) -> Result<Subscription, Refusal> {
        let (asker, machine) = self.caller(request)?;
        let SubscribeRequest { id } = request.get_ref();
        if !id.is_empty() && id.parse::<HardwareId>() != Ok(machine.id) {
            return Err(Refusal::Forbidden("hardware_id"));
        }
        let place = self.subscriptions.place(machine.id)?;
        let (service, stop) = (self.service.clone(), self.stop.clone());
        let mut subscription = Subscription::new(service, asker, machine.id, place, stop);
        // Who is refused shall know it by the call, not by the stream.
        subscription.look().await?;
        Ok(subscription)
    }

    /// `outcome`, counted and in gRPC's words.
    fn told<T>(
        &self,
        route: &'static str,
        asked: Instant,
        outcome: Result<T, Refusal>,
    ) -> Result<Response<T>, Status> {
        let code = outcome.as_ref().map_or_else(|refusal| refusal.status().as_u16(), |_| 200);
        self.service.metrics.answered(route, code, asked.elapsed());
        if let Some(reason) = outcome.as_ref().err().and_then(|refusal| refusal.reason()) {
            self.service.metrics.denied(reason);
        }
        tracing::debug!(target: "metadata::access", status = code, "answered");
        outcome.map(Response::new).map_err(Status::from)
    }
}

#[tonic::async_trait]
impl hegel_server::Hegel for Hegel {
    type SubscribeStream = BoxStream<'static, Result<SubscribeResponse, Status>>;

    #[tracing::instrument(skip_all, fields(machine.id))]
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let asked = Instant::now();
        let document = self.document(&request).await;
        self.told("hegel_get", asked, document.map(|json| GetResponse { json }))
    }

    #[tracing::instrument(skip_all, fields(machine.id))]
    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let asked = Instant::now();
        let stream = self.subscription(&request).await.map(|subscription| {
            try_unfold(subscription, |mut subscription| async {
                let json = subscription.next().await.map_err(Status::from)?;
                Ok(json.map(|json| (SubscribeResponse { json }, subscription)))
            })
            .boxed()
        });
        self.told("hegel_subscribe", asked, stream)
    }
}

impl Service {
    /// The hardware that `machine` is, as `asker` may be told of it.
    async fn export(&self, asker: &Asker, machine: &Machine) -> Result<String, Refusal> {
        let Asker { peer, caller, headers } = asker;
        self.check_source(machine, *peer, *caller).await?;
        let now = SystemTime::now();
        self.check_policy(machine, *caller, headers, (Family::Json, true), now)?;
        let trusted = self.trusts(machine, *caller, headers, now);
        let told = self.told(machine, caller.address, Instant::now());
        let document = document::hardware(&told, Asked { host: None, trusted }).to_string();
        self.note(machine, Event::UserDataRead);
        Ok(document)
    }
}
