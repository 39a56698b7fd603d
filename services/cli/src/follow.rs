//! Watching objects: printing their changes, or waiting for a state.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::Context as _;
use prost::Message;
use runtime::Channel;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tinwright::Object;
use tinwright::client::Call;
use tinwright::requests::{HasWatch, WatchRequest as _};
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tonic::{Code, Status, Streaming};

use crate::connect::{Io, View, stream};

/// Delay before a stream is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Consecutive failures that are tolerated: enough for a restart of the server.
const MAX_FAILURES: u32 = 60;

/// The stream of a watch.
pub type Watch<W> = Streaming<<<W as HasWatch>::Watch as Call>::Response>;

/// Objects that can be watched.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait Watchable: Object + HasWatch + Message + Default {
    /// Opens the watch of the object with `id`, or of all objects if it is empty.
    async fn watch(channel: &Channel, id: String, view: View) -> Result<Watch<Self>, Status> {
        stream(channel, Self::Watch::of(id, view.into())).await
    }
}

impl<W: Object + HasWatch + Message + Default> Watchable for W {}

/// Prints each event as one line of JSON. After a disconnect the watch is opened again, and what has changed meanwhile is printed.
pub async fn events<W: Watchable>(id: String, view: View, io: &mut Io<'_>) -> anyhow::Result<()> {
    let mut printed = Printed::default();
    while_unavailable(true, async |failures| {
        let mut responses = W::watch(io.channel, id.clone(), view).await?;
        printed.begin();
        loop {
            let event = next_event::<W>(&mut responses).await?;
            *failures = 0;
            let lines = match event {
                Some(WatchEvent::Put(object)) => printed.put(&object)?,
                Some(WatchEvent::Deleted(id)) => printed.delete(id),
                Some(WatchEvent::Synced) => printed.sync(),
                None => continue, // a kind that only a newer server knows
            };
            for (event, object) in lines {
                io.print(&json!({ "event": event, "object": object }).to_string())?;
            }
        }
    })
    .await
}

/// The objects that were printed. A watch that is opened again sends all of them.
#[derive(Debug, Default)]
struct Printed {
    /// The digest of each object, by id.
    objects: HashMap<String, [u8; 32]>,
    /// The objects that the present watch has not sent before synced.
    missing: HashSet<String>,
    is_synced: bool,
}

/// Events with their objects.
type Lines = Vec<(&'static str, Value)>;

impl Printed {
    /// Prepares for the objects of a watch that was opened.
    fn begin(&mut self) {
        self.missing = self.objects.keys().cloned().collect();
    }

    fn put<W: Watchable>(&mut self, object: &W) -> anyhow::Result<Lines> {
        let (id, object) = (object.id().to_owned(), tinwright::json::write(object)?);
        self.missing.remove(&id);
        let digest = Sha256::digest(object.to_string()).into();
        let is_new = self.objects.insert(id, digest) != Some(digest);
        Ok(if is_new { vec![("put", object)] } else { Lines::new() })
    }

    fn delete(&mut self, id: String) -> Lines {
        self.missing.remove(&id);
        self.objects.remove(&id);
        vec![("deleted", json!({ "id": id }))]
    }

    /// Everything was sent: what is missing was deleted between two watches.
    fn sync(&mut self) -> Lines {
        let mut missing: Vec<_> = self.missing.drain().collect();
        missing.sort();
        let mut lines: Lines = missing.into_iter().flat_map(|id| self.delete(id)).collect();
        if !std::mem::replace(&mut self.is_synced, true) {
            lines.push(("synced", Value::Null));
        }
        lines
    }
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
        loop {
            let object = match next_event::<W>(&mut responses).await? {
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
    };
    let result = while_unavailable(true, watch).await.with_context(|| format!("watching {id}"))?;
    result.map_err(anyhow::Error::msg)
}

/// Returns the next event of a watch; none for a kind that only a newer server knows. The end of the watch is an error.
pub async fn next_event<W: Watchable>(
    responses: &mut Watch<W>,
) -> Result<Option<WatchEvent<W>>, Status> {
    let response = responses.message().await?.ok_or_else(watch_ended)?;
    Ok(response.into_event())
}

/// Returns the error of a watch that the server has ended: it may be opened again.
pub fn watch_ended() -> Status {
    Status::unavailable("the watch ended")
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
