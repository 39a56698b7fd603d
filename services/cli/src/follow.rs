//! Watching objects: printing their changes, or waiting for a state.

use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use prost::{Message, Name};
use serde_json::json;
use tinwright::watch::{WatchEvent, WatchResponse};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::connect::View;
use crate::output::print_line;

/// Delay before a stream is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Consecutive failures that are tolerated: enough for a restart of the server.
const MAX_FAILURES: u32 = 60;

/// The stream of a watch.
pub type Watch<W> = Result<Streaming<<W as Watchable>::Response>, Status>;

/// Objects that can be watched.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait Watchable: Message + Name + Default {
    /// The response message of the watch.
    type Response: WatchResponse<Object = Self>;

    /// Returns the object's id.
    fn id(&self) -> &str;

    /// Opens the watch of the object with `id`, or of all objects if it is empty.
    async fn watch(channel: &Channel, id: String, view: View) -> Watch<Self>;
}

/// Prints each event as one line of JSON, until the server ends the stream.
pub async fn events<W: Watchable>(
    channel: &Channel,
    id: String,
    view: View,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut responses = W::watch(channel, id, view).await?;
    while let Some(response) = responses.next().await {
        let (event, object) = match response?.into_event() {
            Some(WatchEvent::Put(object)) => ("put", tinwright::json::write(&object)?),
            Some(WatchEvent::Deleted(id)) => ("deleted", json!({ "id": id })),
            Some(WatchEvent::Synced) => ("synced", serde_json::Value::Null),
            None => continue, // a kind that only a newer server knows
        };
        print_line(out, &json!({ "event": event, "object": object }).to_string())?;
    }
    Ok(())
}

/// Watches the object with `id` until `result` returns something. It gets the object after each change, or `None` if the
/// object does not exist. After a disconnect the watch is opened again, which sends the present object.
pub async fn until<W: Watchable, T>(
    channel: &Channel,
    id: &str,
    mut result: impl FnMut(Option<W>) -> Option<Result<T, String>>,
) -> anyhow::Result<T> {
    let watch = async |failures: &mut u32| {
        let mut responses = W::watch(channel, id.to_owned(), View::Basic).await?;
        let mut exists = false;
        while let Some(response) = responses.next().await {
            let object = match response?.into_event() {
                Some(WatchEvent::Put(object)) if object.id() == id => Some(object),
                Some(WatchEvent::Deleted(deleted)) if deleted == id => None,
                Some(WatchEvent::Synced) if !exists => None,
                Some(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) | None => {
                    continue;
                }
            };
            (exists, *failures) = (true, 0);
            if let Some(result) = result(object) {
                return Ok(result);
            }
        }
        Err(Status::unavailable("the watch ended").into())
    };
    let result = while_unavailable(true, watch).await.with_context(|| format!("watching {id}"))?;
    result.map_err(anyhow::Error::msg)
}

/// Repeats `attempt` while the server is unavailable, if `repeat`. `attempt` sets its argument, the number of consecutive
/// failures, to 0 when it receives something.
pub async fn while_unavailable<T>(
    repeat: bool,
    mut attempt: impl AsyncFnMut(&mut u32) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut failures = 0;
    loop {
        match attempt(&mut failures).await {
            Err(error) if repeat && failures < MAX_FAILURES && is_unavailable(&error) => {
                failures += 1;
            }
            result => return result,
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref().map(Status::code);
    matches!(code, Some(Code::Unavailable | Code::OutOfRange | Code::Unknown))
}
