//! Following objects as they change: as events for programs, or until something has come true.

use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use prost::{Message, Name};
use tinwright::json;
use tinwright::watch::{WatchEvent, WatchResponse};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::connect::View;
use crate::output::{self, say};

/// How long a server that went away is left alone before it is asked again.
pub const PAUSE: Duration = Duration::from_secs(1);
/// How often in a row it may not be there: a restart is sat out, an end is told.
pub const PATIENCE: u32 = 60;

/// Objects that a server tells the changes of.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and nobody spawns them")]
pub trait Watchable: Message + Name + Default {
    /// What their watch answers with.
    type Told: WatchResponse<Object = Self>;

    /// What it goes by.
    fn id(&self) -> &str;

    /// The watch of the one with `id`; of all if that is empty.
    async fn watch(
        channel: &Channel,
        id: String,
        view: View,
    ) -> Result<Streaming<Self::Told>, Status>;
}

/// Prints each event on a line of its own, for as long as the server tells.
pub async fn events<W: Watchable>(
    channel: &Channel,
    id: String,
    view: View,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut told = W::watch(channel, id, view).await?;
    while let Some(told) = told.next().await {
        let line = match told?.into_event() {
            Some(WatchEvent::Put(object)) => output::event("put", &json::write(&object)?),
            Some(WatchEvent::Deleted(id)) => {
                output::event("deleted", &serde_json::json!({ "id": id }))
            }
            Some(WatchEvent::Synced) => output::event("synced", &serde_json::Value::Null),
            None => continue, // of a kind that only a newer server knows
        };
        say(out, &line)?;
    }
    Ok(())
}

/// Watches the object with `id` until `judge`, asked at each change, has an answer. It is given nothing once the object is
/// gone. A server that goes away is waited for, and the watch begun again: the object as it is then says all.
pub async fn until<W: Watchable, T>(
    channel: &Channel,
    id: &str,
    mut judge: impl FnMut(Option<W>) -> Option<T>,
) -> anyhow::Result<T> {
    let mut failures = 0;
    loop {
        match watched(channel, id, &mut judge, &mut failures).await {
            Ok(verdict) => return Ok(verdict),
            Err(status) if is_passing(&status) && failures < PATIENCE => failures += 1,
            Err(status) => return Err(status).with_context(|| format!("watching {id}")),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn watched<W: Watchable, T>(
    channel: &Channel,
    id: &str,
    judge: &mut impl FnMut(Option<W>) -> Option<T>,
    failures: &mut u32,
) -> Result<T, Status> {
    let mut told = W::watch(channel, id.to_owned(), View::Basic).await?;
    let mut there = false;
    while let Some(told) = told.next().await {
        let seen = match told?.into_event() {
            Some(WatchEvent::Put(object)) if object.id() == id => Some(object),
            Some(WatchEvent::Deleted(gone)) if gone == id => None,
            Some(WatchEvent::Synced) if !there => None,
            Some(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) | None => {
                continue;
            }
        };
        (there, *failures) = (true, 0);
        if let Some(verdict) = judge(seen) {
            return Ok(verdict);
        }
    }
    Err(Status::unavailable("the watch ended"))
}

/// Whether what ended so is worth beginning again: the server, or the way to it, is away.
pub fn is_passing(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::OutOfRange | Code::Unknown)
}
