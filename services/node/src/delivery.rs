//! One call by a stream of this process.

use prost_types::Duration as WireDuration;
use std::time::Duration;
use tinwright::node::v1::{ImageCall, NodeCall, NodeCallResult};

use crate::streams::{SentCall, Streams};

/// The outcome of an attempt.
#[derive(Debug)]
pub enum Attempt {
    /// The node answered.
    Answered(Box<NodeCallResult>),
    /// The stream ended before: the node may have got the call.
    Ended,
    /// There is no stream: the node did not get the call.
    NoStream,
}

/// Sends the call `call_id` down a stream of `node`, and waits for the result. `timeout` is the time for which somebody waits.
pub async fn deliver(
    streams: &Streams,
    node: &str,
    call_id: &str,
    call: &ImageCall,
    timeout: Duration,
) -> Attempt {
    let message = NodeCall {
        call_id: call_id.to_owned(),
        timeout: WireDuration::try_from(timeout).ok(),
        call: Some(call.clone()),
    };
    let Some(sent) = streams.call(node, message) else { return Attempt::NoStream };
    let _forgotten = Forget { streams, node, call_id };
    result(sent).await.map_or(Attempt::Ended, |result| Attempt::Answered(Box::new(result)))
}

async fn result(sent: SentCall) -> Option<NodeCallResult> {
    let SentCall { result, ended } = sent;
    tokio::select! {
        // A result that came before the end counts.
        biased;
        result = result => result.ok(),
        () = ended.cancelled() => None,
    }
}

/// Removes those who wait no more, also if the call is given up.
struct Forget<'a> {
    streams: &'a Streams,
    node: &'a str,
    call_id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.streams.forget(self.node, self.call_id);
    }
}
