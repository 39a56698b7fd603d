//! The processes that have streams of agents, so that the connections of one that is gone are removed.
//!
//! ```text
//! node/server/<name>      changes every ten seconds while the process runs; absent if no other process can have the store
//! ```
//!
//! Clocks of processes are not compared: a process counts as gone when its record did not change for half a minute since another process
//! first read it so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use store::ScopedStore;
use store::records::{self, Change, Records};
use tinwright::secret::Sealable;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::nodes::Nodes;
use crate::streams::Streams;

/// The time between two changes of a process's record.
const INTERVAL: Duration = Duration::from_secs(10);
/// The time without a change after which a process is gone.
const TERM: Duration = Duration::from_secs(30);

/// A process.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerRecord {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Incremented with each change.
    #[prost(uint64, tag = "3")]
    pub beats: u64,
}

impl Sealable for ServerRecord {}

tinwright::stored_record!(ServerRecord, "server of nodes", name);

store::kind!(
    /// The kind of these records.
    pub ServerKind: ServerRecord, String, "server"
);

/// The name of this process.
#[derive(Clone, Debug)]
pub struct ServerName {
    /// The name; that of an earlier process if `is_only`.
    pub name: String,
    /// True if no other process has the store at the same time.
    pub is_only: bool,
}

/// The processes as this one sees them.
#[derive(Debug, Default)]
struct Views(BTreeMap<String, (i64, Instant)>);

impl Views {
    /// Returns those of `servers`, each with the revision of its record or 0 without one, that did not change for [`TERM`] at `now`.
    fn gone(&mut self, servers: &BTreeMap<String, i64>, now: Instant) -> BTreeSet<String> {
        self.0.retain(|name, _| servers.contains_key(name));
        let mut gone = BTreeSet::new();
        for (name, revision) in servers {
            let view = self.0.entry(name.clone()).or_insert((*revision, now));
            if view.0 != *revision {
                *view = (*revision, now);
            } else if now.saturating_duration_since(view.1) >= TERM {
                gone.insert(name.clone());
            }
        }
        gone
    }
}

/// The processes, and the connections of nodes to them.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The underlying records.
    pub records: Records<ServerKind>,
    nodes: Nodes,
    streams: Streams,
    mailbox: Mailbox,
    own: String,
    is_only: bool,
}

impl Servers {
    /// The processes in `store`, of which `own` is this one.
    pub fn new(store: ScopedStore, nodes: Nodes, streams: Streams, own: ServerName) -> Self {
        let mailbox = Mailbox::new(store.clone());
        let ServerName { name: own, is_only } = own;
        Self { records: Records::new(store), nodes, streams, mailbox, own, is_only }
    }

    /// Shows that this process is there, and removes what others left, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut views = Views::default();
        loop {
            if let Err(error) = self.step(&mut views).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the connections of nodes were not compared; trying again");
            }
            let clock = &self.nodes.clock;
            let pause = clock.sleep_until(clock.wall() + INTERVAL);
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    async fn step(&self, views: &mut Views) -> Result<(), Error> {
        self.compare_own().await?;
        if self.is_only {
            return Ok(());
        }
        self.beat().await?;
        let connected = self.nodes.all(|node| !node.connections.is_empty()).await?;
        let listing = self.records.list("", 1000, |_| true).await?;
        let names = connected.iter().flat_map(|node| &node.connections).map(|it| it.server.clone());
        let mut servers: BTreeMap<_, _> = names.map(|name| (name, 0)).collect();
        servers.extend(listing.records.iter().map(|it| (it.name.clone(), it.revision)));
        servers.remove(&self.own);
        let gone = views.gone(&servers, self.nodes.clock.monotonic());
        for node in &connected {
            for connection in node.connections.iter().filter(|it| gone.contains(&it.server)) {
                self.nodes.disconnect(&node.id, &connection.server).await?;
            }
        }
        for record in listing.records.iter().filter(|it| gone.contains(&it.name)) {
            match self.records.commit(self.records.to_delete(record)).await {
                Ok(_) | Err(records::Error::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.mailbox.delete_old(self.nodes.clock.wall()).await
    }

    async fn beat(&self) -> Result<(), Error> {
        let stored = match self.records.get(&self.own).await? {
            Some(old) => {
                let new = ServerRecord { beats: old.beats.wrapping_add(1), ..old.clone() };
                self.records.replace(&old, new).await
            }
            None => {
                let new = ServerRecord { name: self.own.clone(), ..ServerRecord::default() };
                self.records.create(&new, Change::default(), None).await
            }
        };
        match stored {
            // Another process took it for gone: the next beat shows that it is not.
            Ok(_) | Err(records::Error::Changed { .. } | records::Error::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Compares the streams of this process with what is recorded of them: a process of this name before, or another one that took this
    /// one for gone, may have left something else.
    async fn compare_own(&self) -> Result<(), Error> {
        let is_ours = |server: &String| *server == self.own;
        let recorded = self.nodes.all(|node| node.connections.iter().any(|it| is_ours(&it.server)));
        let recorded: BTreeSet<_> = recorded.await?.into_iter().map(|node| node.id).collect();
        let here: BTreeMap<_, _> = self.streams.nodes().into_iter().collect();
        for node in recorded.iter().filter(|node| !here.contains_key(*node)) {
            let _lock = self.streams.lock(node).await;
            if !self.streams.has(node) {
                self.nodes.disconnect(node, &self.own).await?;
            }
        }
        for (node, boot) in here.iter().filter(|(node, _)| !recorded.contains(*node)) {
            let _lock = self.streams.lock(node).await;
            if self.streams.has(node) {
                self.nodes.reconnect(node, boot, &self.own).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_after_a_whole_term_without_a_change() {
        let (mut views, start) = (Views::default(), Instant::now());
        let at = |revision: i64| BTreeMap::from([("a".to_owned(), revision)]);
        for n in 0..5 {
            assert!(views.gone(&at(i64::from(n)), start + TERM * n).is_empty());
        }
        let last = start + TERM * 4;
        assert!(views.gone(&at(4), last + TERM - Duration::from_millis(1)).is_empty());
        assert_eq!(views.gone(&at(4), last + TERM), ["a".to_owned()].into());
        assert!(views.gone(&at(5), last + TERM * 2).is_empty(), "it is back");
        assert!(views.gone(&BTreeMap::new(), last + TERM * 9).is_empty());
    }
}
