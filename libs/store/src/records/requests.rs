//! What was already answered: a request asked twice is answered as the first time.
//!
//! ```text
//! request/<request id>      seconds since 1970 (u64) ‖ SHA-256 of the body ‖ id of what it made
//! ```
//!
//! The entry is written in the commit that does what was asked, and kept for a week.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use sha2::{Digest as _, Sha256};

use super::{Change, Error};
use crate::{Commit, Expect, ScopedStore, Store, Versioned, Write};

/// How long an answer is kept.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How many are forgotten in one commit.
const STEP: usize = 100;

/// A request that may come again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentRequest {
    id: String,
    digest: [u8; 32],
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// Nothing: do it.
    New,
    /// It was done, and made this object.
    Done(String),
    /// Its id was used for another body.
    Reused,
}

impl IdempotentRequest {
    /// The request `id` with `body`; nothing where the caller gave no id and repeating is not safe.
    pub fn new(id: &str, body: &impl Message) -> Option<Self> {
        let digest = Sha256::digest(body.encode_to_vec()).into();
        (!id.is_empty()).then(|| Self { id: id.to_owned(), digest })
    }

    /// The caller's id for it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What `store` knows of it.
    pub async fn state(&self, store: &ScopedStore) -> Result<RequestState, Error> {
        let key = self.key();
        let Some(found) = store.get(&key).await? else { return Ok(RequestState::New) };
        let (_, digest, object) = split(&key, &found)?;
        Ok(if digest == self.digest { RequestState::Done(object) } else { RequestState::Reused })
    }

    /// Notes, with the change that does it, that it made `object`.
    pub fn done(&self, object: &str, now: SystemTime) -> Change {
        let value = [&seconds(now).to_be_bytes()[..], &self.digest, object.as_bytes()].concat();
        let expect = vec![Expect::Absent(self.key())];
        let writes = vec![Write::Put(self.key(), value.into())];
        Change::from(Commit { expect, writes })
    }

    fn key(&self) -> String {
        format!("request/{}", self.id)
    }
}

/// Forgets what `store` has kept long enough. Answers how many.
pub async fn delete_expired(store: &ScopedStore, now: SystemTime) -> Result<usize, Error> {
    let oldest = seconds(now).saturating_sub(RETENTION.as_secs());
    let (mut after, mut gone) = (String::new(), 0);
    loop {
        let page = store.list("request/", &after, STEP).await?;
        let old = page
            .pairs
            .iter()
            .filter(|(key, at)| split(key, at).is_ok_and(|(answered, ..)| answered < oldest));
        let writes: Vec<_> = old.map(|(key, _)| Write::Delete(key.clone())).collect();
        if !writes.is_empty() {
            gone += writes.len();
            store.commit(Commit { writes, ..Commit::default() }).await?;
        }
        after = page.pairs.last().map_or(after, |(key, _)| key.clone());
        if !page.more {
            return Ok(gone);
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn split(key: &str, found: &Versioned) -> Result<(u64, [u8; 32], String), crate::Error> {
    let parts = || {
        let (answered, rest) = found.value.split_first_chunk()?;
        let (digest, object) = rest.split_first_chunk()?;
        Some((u64::from_be_bytes(*answered), *digest, String::from_utf8(object.to_vec()).ok()?))
    };
    parts().ok_or_else(|| crate::Error::Corrupt(key.to_owned()))
}
