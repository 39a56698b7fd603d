//! The replicated store: one etcd cluster, any number of our processes.
//!
//! ```text
//! commit ─▶ one Txn: compares, puts, deletes ─▶ committed by a majority, then the response
//! get, list ─▶ linearizable Ranges ───────────▶ response
//! changed ◀─ feed ◀─ one Watch per process, resumed where it broke
//! ```
//!
//! The `link` module connects to a member of the cluster, `wire` converts values, `watch` follows changes.
//!
//! **Revisions** are etcd's: that of a value is its `mod_revision`, that of a commit is in its response. They are shared with all
//! other content of the cluster, so they may jump; and a commit that only deletes absent keys takes none.
//!
//! **Crash safety.** Etcd responds once a majority has synced. Every call ends within [`REQUEST_TIMEOUT`]; without a response, or
//! without a leader, it is `Unavailable`. A read is repeated at the next endpoint. A commit is sent once: if its response is lost
//! it may have been applied, and a second one would conflict with the first.
//!
//! **Login.** A client certificate if the cluster requires one, and a user with a password if authentication is enabled. Each
//! connection requests a token for them, and another one once etcd no longer accepts it.
//!
//! **Following.** `changed` returns a process's own commits at once, and those of others as soon as etcd reports them. While
//! etcd is unreachable it waits. After a gap that etcd has compacted, or if the cluster was restored from an older copy, every
//! reader lists.

mod link;
mod options;
mod watch;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::JoinSet;

use self::link::Link;
use self::watch::Watcher;
use self::wire::{Root, pb::RangeRequest};
use crate::change_feed::{ChangeFeed, ChangeFollower, Changes};
use crate::page::PageBuilder;
use crate::{Commit, Error, Frozen, FrozenPairs, Page, Revision, Store, Versioned, Write};

pub use self::link::REQUEST_TIMEOUT;
pub use self::options::{Identity, Login, Options, Tls};

/// Bytes of the longest prefix.
pub const MAX_PREFIX_BYTES: usize = 256;
/// A key without a value that every backup writes, outside of the keys of services.
const BACKUP_KEY: &str = "backup";

/// A store in a cluster, below one prefix.
#[derive(Debug)]
pub struct Etcd {
    link: Arc<Link>,
    root: Root,
    feed: ChangeFollower,
    /// The newest revision that a commit of this process took. Reads of changes wait until the feed has reached it.
    written: Arc<AtomicU64>,
    _watch: JoinSet<()>,
}

impl Etcd {
    /// Connects to the cluster and begins to watch it. Fails if no member answers within [`REQUEST_TIMEOUT`].
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let link = Arc::new(Link::new(&options)?);
        let root = Root::new(options.prefix, options.followed);
        let revision = wire::revision(link.range(root.glance()).await?.header);
        let feed = ChangeFeed::new(revision);
        let follower = feed.follow();
        let written = Arc::new(AtomicU64::new(0));
        let watcher =
            Watcher { link: link.clone(), root: root.clone(), feed, written: written.clone() };
        let mut watch = JoinSet::new();
        watch.spawn(watcher.run());
        Ok(Self { link, root, feed: follower, written, _watch: watch })
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        let found = self.link.range(self.root.one(key)).await?;
        Ok(found.kvs.into_iter().next().map(wire::versioned))
    }

    /// All calls for one page read the same revision.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let (mut page, mut range) = (PageBuilder::new(limit), self.root.under(prefix, after));
        loop {
            range.limit = page.next_request_pairs() as i64;
            let part = self.link.range(range.clone()).await?;
            range.revision = wire::signed(wire::revision(part.header));
            for pair in part.kvs {
                if page.full() {
                    return Ok(page.end(true));
                }
                range.key = wire::next(&pair.key);
                let key =
                    self.root.strip(&pair.key).ok_or_else(|| Error::Corrupt(prefix.into()))?;
                page.push(key.to_owned(), wire::versioned(pair));
            }
            if page.full() || !part.more {
                return Ok(page.end(part.more));
            }
        }
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        commit.check()?;
        let answer = self.link.txn(self.root.txn(&commit)).await?;
        let (revision, wrote) = wire::outcome(&commit, answer)?;
        if wrote {
            self.written.fetch_max(revision.0, Ordering::AcqRel);
        }
        Ok(revision)
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        let written = || Revision(self.written.load(Ordering::Acquire));
        self.feed.clone().reached(written).await?;
        if after > self.feed.revision() {
            // `after` is from a process whose watch is faster, or ahead of the cluster itself: the cluster decides.
            let newest = wire::revision(self.link.range(self.root.glance()).await?.header);
            if after > newest {
                return Ok(Changes::Lost { revision: self.feed.revision() });
            }
        }
        self.feed.clone().newer(prefix, after).await
    }

    /// Etcd has earlier revisions, so nobody waits. The feed follows our keys only, and late: a write of our own shows that it has
    /// reached all that was read before.
    async fn frozen(&self, after: Revision, mut keys: BTreeSet<String>) -> Result<Frozen, Error> {
        let writes = vec![Write::Put(BACKUP_KEY.into(), Bytes::new())];
        let revision = self.commit(Commit { writes, ..Commit::default() }).await?;
        self.feed.clone().reached(|| revision).await?;
        let Some(changed) = self.feed.keys_since(after) else { return Ok(None) };
        keys.extend(changed);
        let mut pairs = Vec::with_capacity(keys.len());
        for key in keys {
            let range = RangeRequest { revision: wire::signed(revision), ..self.root.one(&key) };
            let found = self.link.range(range).await?.kvs.into_iter().next();
            pairs.push((key, found.map(wire::versioned)));
        }
        Ok(Some(FrozenPairs { pairs, revision }))
    }
}
