//! Idempotent requests: a repeated request returns the result of the first one.
//!
//! ```text
//! request/<scope>/<request id>      seconds since 1970 (u64) ‖ SHA-256 of the body ‖ id of the created object
//! ```
//!
//! All but the time is encrypted: with the digest of a body, guesses of its secrets could be checked. A result that was encrypted with a
//! key that is no longer accepted cannot be read: its request is refused.
//!
//! The scope is a digest of the caller and the call, so that callers need not know each other's request ids.
//!
//! The entry is written in the commit that carries out the request, and deleted after a week.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use sha2::{Digest as _, Sha256};

use super::{Change, Error};
use crate::{Commit, Expect, ScopedStore, Sealer, Store, Versioned, Write};

/// Retention time of a result.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Interval at which expired results are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The beginning of the keys.
const PREFIX: &str = "request/";
/// Results that are encrypted again in one commit.
const RESEALED_AT_ONCE: usize = 50;
/// Bytes of the digest of a scope.
const SCOPE_DIGEST_BYTES: usize = 16;

/// A request that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentRequest {
    scope: String,
    id: String,
    digest: [u8; 32],
}

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// Not carried out yet.
    New,
    /// Carried out; the id of the created object.
    Done(String),
    /// The id was used with another body, or with one that cannot be compared any more.
    Reused,
}

impl IdempotentRequest {
    /// Returns the request `id` with `body`; none if the id is empty, so that repeating is not safe.
    pub fn new(id: &str, body: &impl Message) -> Option<Self> {
        let digest = Sha256::digest(body.encode_to_vec()).into();
        (!id.is_empty()).then(|| Self { scope: String::new(), id: id.to_owned(), digest })
    }

    /// Sets the scope of the id, such as the caller and the call. Equal ids of two scopes are two requests.
    pub fn in_scope(self, scope: &str) -> Self {
        let digest = Sha256::digest(scope);
        let digest = digest.iter().take(SCOPE_DIGEST_BYTES);
        Self { scope: digest.map(|byte| format!("{byte:02x}")).collect(), ..self }
    }

    /// Returns the caller's request id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Reads the state of the request from `store`.
    pub async fn state(&self, store: &ScopedStore) -> Result<RequestState, Error> {
        let key = self.key();
        let Some(found) = store.get(&key).await? else { return Ok(RequestState::New) };
        let (_, content) = split(&key, &found)?;
        let opened = match store.sealer() {
            Some(sealer) => sealer.unseal(&store.full(&key), content),
            None => Some(content.to_vec()),
        };
        let Some(opened) = opened else { return Ok(RequestState::Reused) };
        let (digest, object) = parse(&opened).ok_or(crate::Error::Corrupt(key))?;
        Ok(if digest == self.digest { RequestState::Done(object) } else { RequestState::Reused })
    }

    /// Returns the change that records in `store` that the request created `object`.
    pub fn done(&self, object: &str, now: SystemTime, store: &ScopedStore) -> Change {
        let key = self.key();
        let content = [&self.digest, object.as_bytes()].concat();
        let content = match store.sealer() {
            Some(sealer) => sealer.seal(&store.full(&key), &content),
            None => Some(content),
        };
        let Some(content) = content else { return Change::unsealed() };
        let value = [&seconds(now).to_be_bytes()[..], &content].concat();
        let expect = vec![Expect::Absent(key.clone())];
        let writes = vec![Write::Put(key, value.into())];
        Change::from(Commit { expect, writes })
    }

    /// Returns the change that forgets the request: repeating it carries it out.
    pub fn undone(&self) -> Change {
        Change::from(Commit { expect: Vec::new(), writes: vec![Write::Delete(self.key())] })
    }

    fn key(&self) -> String {
        format!("{PREFIX}{}/{}", self.scope, self.id)
    }
}

/// Encrypts the results in `store` with the newest key, where they are in clear or encrypted with another one. Returns their number.
pub async fn reseal(store: &ScopedStore) -> Result<usize, Error> {
    let Some(sealer) = store.sealer() else { return Ok(0) };
    let mut resealed = 0;
    // Another process may delete or encrypt some of them meanwhile: then they are read again.
    while !reseal_all(store, &*sealer, &mut resealed).await? {}
    Ok(resealed)
}

/// Encrypts the results, and counts them in `resealed`. False if some were changed meanwhile.
async fn reseal_all(
    store: &ScopedStore,
    sealer: &dyn Sealer,
    resealed: &mut usize,
) -> Result<bool, Error> {
    let (mut pages, mut is_complete) = (store.pages(PREFIX), true);
    while let Some(pairs) = pages.next().await? {
        for pairs in pairs.chunks(RESEALED_AT_ONCE) {
            let mut commit = Commit::default();
            for (key, found) in pairs {
                if let Some(value) = resealed_value(store, sealer, key, found)? {
                    commit.expect.push(Expect::At(key.clone(), found.revision));
                    commit.writes.push(Write::Put(key.clone(), value.into()));
                }
            }
            let count = commit.writes.len();
            if count == 0 {
                continue;
            }
            match store.commit(commit).await {
                Ok(_) => *resealed += count,
                Err(crate::Error::Conflict(_)) => is_complete = false,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(is_complete)
}

/// Returns the value of `found` encrypted with the newest key; none if it is so already, or cannot be read.
fn resealed_value(
    store: &ScopedStore,
    sealer: &dyn Sealer,
    key: &str,
    found: &Versioned,
) -> Result<Option<Vec<u8>>, crate::Error> {
    let (time, content) = split(key, found)?;
    let owner = store.full(key);
    let plain = match sealer.unseal(&owner, content) {
        Some(_) if sealer.is_current(content) => return Ok(None),
        Some(plain) => plain,
        // In clear, as older programs wrote it, or encrypted with a key that is no longer accepted.
        None if parse(content).is_some() => content.to_vec(),
        None => return Ok(None),
    };
    let sealed =
        sealer.seal(&owner, &plain).ok_or_else(|| crate::Error::Corrupt(key.to_owned()))?;
    Ok(Some([&time.to_be_bytes()[..], &sealed].concat()))
}

/// Deletes the results in `store` that are older than [`RETENTION`]. Returns their number.
pub async fn delete_expired(store: &ScopedStore, now: SystemTime) -> Result<usize, Error> {
    let oldest = seconds(now).saturating_sub(RETENTION.as_secs());
    let is_old =
        |key: &str, at: &Versioned| split(key, at).is_ok_and(|(answered, _)| answered < oldest);
    let (mut pages, mut deleted) = (store.pages(PREFIX), 0);
    while let Some(pairs) = pages.next().await? {
        let old = pairs.into_iter().filter(|(key, at)| is_old(key, at));
        let deletes: Vec<_> = old.map(|(key, _)| Write::Delete(key)).collect();
        store.write_all(&deletes).await?;
        deleted += deletes.len();
    }
    Ok(deleted)
}

/// Deletes expired results in `store`, for ever.
pub(crate) async fn keep_deleting_expired(store: &ScopedStore) {
    let mut hourly = tokio::time::interval(EXPIRY_INTERVAL);
    loop {
        hourly.tick().await;
        if let Err(error) = delete_expired(store, crate::wall_time()).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "expired requests were not deleted; trying again in an hour"
            );
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the time of a result, and the rest.
fn split<'a>(key: &str, found: &'a Versioned) -> Result<(u64, &'a [u8]), crate::Error> {
    let parts = found.value.split_first_chunk();
    let (time, content) = parts.ok_or_else(|| crate::Error::Corrupt(key.to_owned()))?;
    Ok((u64::from_be_bytes(*time), content))
}

/// Returns the digest of the body and the id of the object.
fn parse(content: &[u8]) -> Option<([u8; 32], String)> {
    let (digest, object) = content.split_first_chunk()?;
    Some((*digest, String::from_utf8(object.to_vec()).ok()?))
}
