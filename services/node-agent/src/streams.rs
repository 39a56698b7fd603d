//! The node's streams to the control plane: one to each server. Calls and desired stacks come down, results and observations go up.
//!
//! ```text
//! hello ─▶            │ NodeCall ─▶ Node::call ─▶ NodeCallResult ─▶
//! observation ─▶      │ DesiredStack ─▶ StackPort
//! ```
//!
//! The same call may come by several streams, or again after one broke: the node carries it out once, and each stream gets the result. While
//! no server is reachable the node goes on as it is.

use std::time::Duration;

use machine::control_plane::ControlPlaneClient;
use runtime::retry::Backoff;
use tinwright::node::v1::connect_request::Message as Up;
use tinwright::node::v1::connect_response::Message as Down;
use tinwright::node::v1::node_service_client::NodeServiceClient;
use tinwright::node::v1::{AgentHello, ConnectRequest, NodeCall, NodeCallResult};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::http::uri::Authority;
use tonic::transport::Channel;

use crate::Node;
use crate::desired_stack::StackPort;

/// The delays after a stream that ended.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
/// The most messages that wait to be sent.
const MAX_WAITING: usize = 64;

/// The node behind the streams.
#[derive(Clone, Debug)]
pub struct ConnectedNode {
    /// Carries out calls.
    pub node: Node,
    /// Takes desired stacks, and has observations.
    pub stack: StackPort,
    /// The first message of each stream.
    pub hello: AgentHello,
}

impl ConnectedNode {
    /// Keeps a stream to each server of `control_plane`, until the future is dropped.
    pub async fn keep_connected(self, control_plane: &ControlPlaneClient) {
        let mut streams = JoinSet::new();
        for (server, _) in control_plane.all() {
            let (node, control_plane) = (self.clone(), control_plane.clone());
            streams.spawn(async move { node.keep_stream(&control_plane, &server).await });
        }
        while streams.join_next().await.is_some() {}
    }

    async fn keep_stream(&self, control_plane: &ControlPlaneClient, server: &Authority) {
        let mut backoff = BACKOFF;
        loop {
            // Renewed identities have new channels.
            let channels = control_plane.all();
            let channel = channels.into_iter().find(|(other, _)| other == server);
            let Some((_, channel)) = channel else { return };
            let mut is_open = false;
            let ended = self.stream(channel, &mut is_open).await;
            if is_open {
                backoff.reset();
            }
            log_end(server, &ended, backoff.failures());
            backoff.wait_after(&ended).await;
        }
    }

    /// Runs one stream, and sets `is_open` once the server answered. Returns the reason of its end.
    async fn stream(&self, channel: Channel, is_open: &mut bool) -> Status {
        match self.exchange(channel, is_open).await {
            Ok(()) => Status::unavailable("the server ended the stream"),
            Err(status) => status,
        }
    }

    async fn exchange(&self, channel: Channel, is_open: &mut bool) -> Result<(), Status> {
        let (up, waiting) = mpsc::channel(MAX_WAITING);
        send(&up, Up::Hello(self.hello.clone())).await?;
        let connect = NodeServiceClient::new(channel).connect(ReceiverStream::new(waiting)).await?;
        let mut down = connect.into_inner();
        tracing::info!("connected to the control plane");
        *is_open = true;
        let mut observations = self.stack.observations();
        // Dropped with the stream: the node finishes its calls, and has their results for the next stream.
        let mut calls = JoinSet::new();
        loop {
            tokio::select! {
                message = down.message() => match message?.map(|message| message.message) {
                    None => return Ok(()),
                    Some(Some(Down::Call(call))) => drop(calls.spawn(self.clone().carry_out(call))),
                    Some(Some(Down::DesiredStack(stack))) => self.stack.set_desired(stack),
                    // Of a later version.
                    Some(None) => {}
                },
                Some(result) = calls.join_next() => {
                    if let Ok(result) = result {
                        send(&up, Up::Result(result)).await?;
                    }
                }
                Ok(()) = observations.changed() => {
                    let observation = observations.borrow_and_update().clone();
                    send(&up, Up::Observation(observation)).await?;
                }
            }
        }
    }

    async fn carry_out(self, call: NodeCall) -> NodeCallResult {
        let NodeCall { call_id, timeout: _, call } = call;
        let result = self.node.call(Some(&call_id), call.unwrap_or_default()).await;
        NodeCallResult { call_id, result: Some(result), id_reused: false }
    }
}

/// Logs the end of a stream: the first after a stream that was open as a warning.
fn log_end(server: &Authority, status: &Status, failures: u32) {
    let error = status as &dyn std::error::Error;
    if failures == 0 {
        tracing::warn!(%server, error, "stream to the control plane ended; connecting again");
    } else {
        tracing::debug!(%server, error, failures, "no stream to the control plane; connecting again");
    }
}

async fn send(up: &mpsc::Sender<ConnectRequest>, message: Up) -> Result<(), Status> {
    let sent = up.send(ConnectRequest { message: Some(message) }).await;
    sent.map_err(|_| Status::unavailable("the stream is closed"))
}
