//! Follows another service's watch until the process stops.
//!
//! The stream may end at any time: the server restarts, the reader was too slow, the network broke. Then it is opened again
//! after a backoff, and begins with all objects; the reader's old state stays valid until it is replaced in one step.

use std::time::Duration;

use tinwright::client::{self, Call, Grpc};
pub use tinwright::watch::FeedEvent;
use tinwright::watch::{SERVER_STOPS, WatchEvent, WatchResponse};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use crate::Channel;
use crate::retry::{Backoff, describe_broken};

/// The delays between two attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Opens the watch with `open` and passes its events to `handle`, again and again until `stop`. `noun` is for the log.
pub async fn follow<W: WatchResponse, F: Future<Output = Result<Streaming<W>, Status>>>(
    noun: &'static str,
    open: impl Fn() -> F,
    handle: impl FnMut(FeedEvent<W::Object>),
    stop: CancellationToken,
) {
    follow_with_backoff(noun, BACKOFF, open, handle, stop).await;
}

/// Does the same as [`follow`] for the watch that `request` opens at the service behind `channel`.
pub async fn follow_at<R: Call<Response: WatchResponse> + Clone>(
    noun: &'static str,
    channel: &Channel,
    request: R,
    handle: impl FnMut(FeedEvent<<R::Response as WatchResponse>::Object>),
    stop: CancellationToken,
) {
    follow(noun, || open(channel, request.clone()), handle, stop).await;
}

/// Opens the stream of a call.
pub(crate) async fn open<R: Call>(
    channel: &Channel,
    request: R,
) -> Result<Streaming<R::Response>, Status> {
    let opened = client::server_streaming(&mut Grpc::new(channel.clone()), request).await?;
    Ok(opened.into_inner())
}

/// Does the same as [`follow`], with the delays of `backoff` between two attempts.
pub async fn follow_with_backoff<
    W: WatchResponse,
    F: Future<Output = Result<Streaming<W>, Status>>,
>(
    noun: &'static str,
    mut backoff: Backoff,
    open: impl Fn() -> F,
    mut handle: impl FnMut(FeedEvent<W::Object>),
    stop: CancellationToken,
) {
    let endless = async {
        loop {
            let mut live = false;
            let Err(status) = once(open(), &mut handle, &mut live).await;
            let status = describe_broken(status);
            log_end(noun, &status);
            handle(FeedEvent::Disconnected);
            if live {
                backoff.reset();
            }
            backoff.wait_after(&status).await;
        }
    };
    stop.run_until_cancelled(endless).await;
}

/// Logs the end of a stream. A server that stops says so: this one too, whose feeds end a moment before it does.
fn log_end(noun: &str, status: &Status) {
    if status.code() == Code::Unavailable && status.message() == SERVER_STOPS {
        tracing::debug!(noun, "feed ended: its server stops");
    } else {
        tracing::warn!(noun, code = ?status.code(), reason = status.message(), "feed cut");
    }
}

/// Reads one stream, from its opening to its end.
async fn once<W: WatchResponse>(
    open: impl Future<Output = Result<Streaming<W>, Status>>,
    handle: &mut impl FnMut(FeedEvent<W::Object>),
    live: &mut bool,
) -> Result<std::convert::Infallible, Status> {
    let mut stream = open.await?;
    let mut gathered = Vec::new();
    loop {
        let message = stream.message().await?;
        let message = message.ok_or_else(|| Status::unavailable("the stream ended"))?;
        match (message.into_event(), *live) {
            (Some(WatchEvent::Synced), _) => {
                *live = true;
                handle(FeedEvent::Snapshot(std::mem::take(&mut gathered)));
            }
            (Some(WatchEvent::Put(object)), false) => gathered.push(object),
            (Some(WatchEvent::Put(object)), true) => handle(FeedEvent::Put(object)),
            (Some(WatchEvent::Deleted(id)), true) => handle(FeedEvent::Deleted(id)),
            // Before `synced` the server sends existing objects only.
            (Some(WatchEvent::Deleted(_)), false) | (None, _) => {}
        }
    }
}
