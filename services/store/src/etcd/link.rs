//! Reaching some member of the cluster, and saying so when none answers.
//!
//! One connection serves every call and the watch. A call that its member cannot answer gives the connection up, and
//! the next call connects to the next endpoint. Calls that were sent on the old one end by themselves.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::wire::pb::kv_client::KvClient;
use super::wire::pb::watch_client::WatchClient;
use super::wire::pb::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use super::wire::pb::{WatchCreateRequest, WatchRequest, WatchResponse, watch_request};
use crate::Error;

/// How long a call may take, connecting and trying elsewhere included.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// How long one endpoint may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// A watch says nothing while nothing changes, so a member that stopped is noticed by its missing answer to a ping.
/// Etcd hangs up on whoever pings more often than every five seconds (`--grpc-keepalive-min-time`).
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(4));
/// The longest answer taken: a listing asks for at most [`page::ASK`](crate::page::ASK) values at a time.
const ANSWER: usize = 64 * 1024 * 1024;

/// Why no member answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// It is not an address.
    #[error("no etcd endpoint is {0}")]
    Address(String, #[source] tonic::transport::Error),
    /// There is none to ask.
    #[error("no etcd endpoint is given")]
    Nowhere,
    /// It takes no connection.
    #[error("connecting to etcd at {0}")]
    Connect(String, #[source] tonic::transport::Error),
    /// It answered that it cannot, or the connection broke.
    #[error("etcd at {0}")]
    Refused(String, #[source] Box<Status>),
    /// It did not answer in time.
    #[error("no answer from etcd at {0}")]
    Silent(String),
}

impl Fault {
    /// Whether another member may do better.
    fn elsewhere(&self) -> bool {
        match self {
            Self::Connect(..) | Self::Silent(_) => true,
            Self::Address(..) | Self::Nowhere => false,
            Self::Refused(_, status) => matches!(
                status.code(),
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
                    | Code::Internal
                    | Code::Unknown
            ),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::unavailable(fault)
    }
}

/// The cluster's endpoints, and the connection to one of them.
#[derive(Debug)]
pub(super) struct Link {
    endpoints: Vec<Endpoint>,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    /// Which endpoint is, or is tried, next; counted on without end.
    turn: usize,
    channel: Option<Channel>,
}

impl Link {
    /// Connects on the first call.
    pub(super) fn new(addresses: &[String]) -> Result<Self, Fault> {
        let endpoints = addresses.iter().map(|address| endpoint(address));
        Ok(Self { endpoints: endpoints.collect::<Result<_, _>>()?, current: Mutex::default() })
    }

    /// Reads; of whichever member answers.
    pub(super) async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Fault> {
        let until = Instant::now() + DEADLINE;
        let share = DEADLINE / u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX).max(1);
        let mut left = self.endpoints.len(); // and one more: a connection may have died since it was last used
        loop {
            let by = until.min(Instant::now() + share);
            let call = |mut kv: KvClient<Channel>| {
                let range = range.clone();
                async move { kv.range(led(range)).await }
            };
            match self.call(by, call).await {
                Err(fault) if fault.elsewhere() && left > 0 && Instant::now() < until => left -= 1,
                outcome => return outcome,
            }
        }
    }

    /// Writes; sent at most once.
    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Fault> {
        let by = Instant::now() + DEADLINE;
        self.call(by, |mut kv| async move { kv.txn(led(txn)).await }).await
    }

    /// Follows what changes, until the connection breaks.
    pub(super) async fn watch(
        &self,
        create: WatchCreateRequest,
    ) -> Result<Streaming<WatchResponse>, Fault> {
        let union = Some(watch_request::RequestUnion::CreateRequest(create));
        // Etcd ends a watch whose client has nothing left to say.
        let requests = tokio_stream::once(WatchRequest { request_union: union });
        let requests = led(requests.chain(tokio_stream::pending()));
        let by = Instant::now() + DEADLINE;
        let watch = |channel| async move { watch_client(channel).watch(requests).await };
        self.call_on(by, watch).await
    }

    async fn call<T, F>(
        &self,
        by: Instant,
        call: impl FnOnce(KvClient<Channel>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_on(by, |channel| call(kv_client(channel))).await
    }

    /// One call on the current connection, which it gives up if another endpoint may do better.
    async fn call_on<T, F>(&self, by: Instant, call: impl FnOnce(Channel) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (turn, channel) = self.connected(by).await?;
        let outcome = match timeout_at(by, call(channel)).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => Fault::Refused(self.name(turn), Box::new(status)),
            Err(_elapsed) => Fault::Silent(self.name(turn)),
        };
        if outcome.elsewhere() {
            self.give_up(turn).await;
        }
        Err(outcome)
    }

    /// The current connection, or one to the first endpoint that accepts it.
    async fn connected(&self, by: Instant) -> Result<(usize, Channel), Fault> {
        let mut fault = Fault::Nowhere;
        for _ in &self.endpoints {
            let Ok(mut current) = timeout_at(by, self.current.lock()).await else { break };
            if let Some(channel) = &current.channel {
                return Ok((current.turn, channel.clone()));
            }
            let Some(endpoint) = self.at(current.turn) else { break };
            match timeout_at(by, endpoint.connect()).await {
                Ok(Ok(channel)) => {
                    current.channel = Some(channel.clone());
                    return Ok((current.turn, channel));
                }
                Ok(Err(error)) => fault = Fault::Connect(self.name(current.turn), error),
                Err(_elapsed) => fault = Fault::Silent(self.name(current.turn)),
            }
            current.turn = current.turn.wrapping_add(1);
        }
        Err(fault)
    }

    /// Forgets the connection made at `turn`, if it still is the current one.
    async fn give_up(&self, turn: usize) {
        let mut current = self.current.lock().await;
        if current.turn == turn {
            *current = Current { turn: turn.wrapping_add(1), channel: None };
        }
    }

    fn at(&self, turn: usize) -> Option<&Endpoint> {
        self.endpoints.get(turn.checked_rem(self.endpoints.len())?)
    }

    fn name(&self, turn: usize) -> String {
        self.at(turn).map_or_else(String::new, |endpoint| endpoint.uri().to_string())
    }
}

/// How a member is reached. A cluster that asks for certificates gets them here.
fn endpoint(address: &str) -> Result<Endpoint, Fault> {
    let endpoint = Endpoint::from_shared(address.to_owned());
    let endpoint = endpoint.map_err(|error| Fault::Address(address.to_owned(), error))?;
    let (interval, patience) = PING;
    Ok(endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(interval)
        .keep_alive_timeout(patience)
        .tcp_nodelay(true))
}

fn kv_client(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(ANSWER)
}

fn watch_client(channel: Channel) -> WatchClient<Channel> {
    WatchClient::new(channel).max_decoding_message_size(ANSWER)
}

/// Asks the member to refuse, rather than to wait, once it has lost its leader.
fn led<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}
