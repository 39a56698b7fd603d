//! The stream of one agent, from its hello to its end.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use runtime::rate_limit::{Rate, TokenBucket};
use tinwright::HardwareId;
use tinwright::node::v1::connect_request::Message;
use tinwright::node::v1::{AgentHello, ConnectRequest};
use tinwright::status::Violations;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use crate::desired::Desired;
use crate::directory::Directory;
use crate::error::Error;
use crate::nodes::Nodes;
use crate::peers::OtherServices;
use crate::streams::{Opened, Response, Streams};

/// The longest time until the hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Observations of one agent. Faster ones wait, and so does what the agent sends after them.
const OBSERVATIONS: Rate = Rate::per_second(4).with_burst(20);
/// The pause of an agent above that rate.
const OBSERVATION_PAUSE: Duration = Duration::from_millis(250);
/// The longest boot id.
const MAX_BOOT_ID_BYTES: usize = 64;

/// What goes down to an agent.
pub type Responses = Pin<Box<dyn Stream<Item = Response> + Send>>;

/// Opens streams.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    nodes: Nodes,
    streams: Streams,
    desired: Desired,
    directory: Directory,
    peers: OtherServices,
    /// The name of this process.
    own: String,
    stop: CancellationToken,
}

impl Connector {
    /// Opens streams of `nodes` to the process `own`, until `stop`.
    pub(crate) fn new(
        nodes: Nodes,
        streams: Streams,
        desired: Desired,
        directory: Directory,
        peers: OtherServices,
        own: String,
        stop: CancellationToken,
    ) -> Self {
        Self { nodes, streams, desired, directory, peers, own, stop }
    }

    /// Opens the stream of the node on the machine `id`, whose identity is of the boot epoch `epoch`.
    pub(crate) async fn open(
        &self,
        id: HardwareId,
        epoch: u64,
        mut requests: impl Stream<Item = Result<ConnectRequest, Status>> + Send + Unpin + 'static,
    ) -> Result<Responses, Status> {
        let hello = hello(&mut requests).await?;
        let machine = self.directory.machine(id).await?;
        let machine = machine.ok_or_else(|| Error::NoMachine(id.to_string()))?;
        self.check_epoch(id, epoch).await?;
        let node = id.to_string();
        let opened = {
            let _lock = self.streams.lock(&node).await;
            let connected = self.nodes.connect(&node, &machine, &hello, epoch, &self.own).await?;
            let opened = self.streams.add(&node, &hello.boot_id);
            self.desired.send(&connected).await?;
            opened
        };
        tracing::info!(
            node.id = node,
            boot = hello.boot_id,
            agent = hello.agent_version,
            "node connected"
        );
        let Opened { number, down, end } = opened;
        let reader = Reader { connector: self.clone(), node, boot: hello.boot_id, number };
        tokio::spawn(reader.run(requests, end.clone()));
        Ok(responses(down, end))
    }

    /// Passes if `epoch` is the present boot epoch of the machine `id`: an identity of another one belongs to a boot that has ended.
    async fn check_epoch(&self, id: HardwareId, epoch: u64) -> Result<(), Error> {
        let present = self.peers.boot_epoch(id).await?;
        match present.ok_or_else(|| Error::NoMachine(id.to_string()))? {
            present if present == epoch => Ok(()),
            present => Err(Error::Replaced(format!(
                "the identity is of boot epoch {epoch}, and the machine is in boot epoch {present}"
            ))),
        }
    }
}

/// Waits for the first message, which is a hello.
async fn hello(
    requests: &mut (impl Stream<Item = Result<ConnectRequest, Status>> + Unpin),
) -> Result<AgentHello, Status> {
    let first = tokio::time::timeout(HELLO_TIMEOUT, requests.next()).await;
    let first = first.map_err(|_| Error::Protocol("there was no hello in time"))?;
    let first = first.ok_or(Error::Protocol("the stream ended before its hello"))??;
    let Some(Message::Hello(hello)) = first.message else {
        return Err(Error::Protocol("the first message is not a hello").into());
    };
    let is_id = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let boot = &hello.boot_id;
    if boot.is_empty() || boot.len() > MAX_BOOT_ID_BYTES || !boot.bytes().all(is_id) {
        return Err(Violations::single("hello.boot_id", "is missing, or no UUID").into());
    }
    Ok(hello)
}

/// Returns what is sent down, until `end`. If nobody reads it any more, the stream ends.
fn responses(down: mpsc::Receiver<Response>, end: CancellationToken) -> Responses {
    let guard = end.clone().drop_guard();
    let next = |open: Option<(mpsc::Receiver<Response>, CancellationToken, DropGuard)>| async move {
        let (mut down, end, guard) = open?;
        let message = end.run_until_cancelled(down.recv()).await.flatten();
        match message {
            Some(message) => Some((message, Some((down, end, guard)))),
            None => Some((Err(Status::unavailable("the stream ended: connect again")), None)),
        }
    };
    Box::pin(stream::unfold(Some((down, end, guard)), next))
}

/// Reads what an agent sends.
struct Reader {
    connector: Connector,
    node: String,
    boot: String,
    number: u64,
}

impl Reader {
    async fn run(
        self,
        requests: impl Stream<Item = Result<ConnectRequest, Status>> + Send + Unpin,
        end: CancellationToken,
    ) {
        let outcome = tokio::select! {
            outcome = self.read(requests) => outcome,
            () = end.cancelled() => Ok(()),
            () = self.connector.stop.cancelled() => Ok(()),
        };
        end.cancel();
        let Connector { nodes, streams, own, .. } = &self.connector;
        let _lock = streams.lock(&self.node).await;
        let is_last = streams.remove(&self.node, self.number);
        let reason = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        tracing::info!(node.id = self.node, boot = self.boot, reason, "stream of a node ended");
        if is_last && let Err(error) = nodes.disconnect(&self.node, own).await {
            // The comparison of all connections corrects it.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, node.id = self.node, "the end of a stream was not recorded");
        }
    }

    async fn read(
        &self,
        mut requests: impl Stream<Item = Result<ConnectRequest, Status>> + Unpin,
    ) -> Result<(), Error> {
        let mut bucket = TokenBucket::new(OBSERVATIONS);
        let Connector { nodes, streams, .. } = &self.connector;
        while let Some(request) = requests.next().await {
            let Ok(request) = request else { break };
            match request.message {
                None => {}
                Some(Message::Hello(_)) => return Err(Error::Protocol("there was a second hello")),
                Some(Message::Result(result)) => streams.answer(&self.node, &result),
                Some(Message::Observation(observation)) => {
                    while bucket.take(nodes.clock.monotonic()).is_err() {
                        let until = nodes.clock.wall() + OBSERVATION_PAUSE;
                        nodes.clock.sleep_until(until).await;
                    }
                    nodes.observe(&self.node, &self.boot, &observation).await?;
                }
            }
        }
        Ok(())
    }
}
