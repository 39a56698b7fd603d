//! Idempotent requests: a repeated request returns the result of the first one.
//!
//! ```text
//! request/<scope>/<request id>      seconds since 1970 (u64) ‖ SHA-256 of the body ‖ id of the created object
//! ```
//!
//! The scope is a digest of the caller and the call, so that callers need not know each other's request ids.
//!
//! The entry is written in the commit that carries out the request, and deleted after a week.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use sha2::{Digest as _, Sha256};

use super::{Change, Error};
use crate::{Commit, Expect, ScopedStore, Store, Versioned, Write};

/// Time for which a result is stored.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

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
    /// The id was used with another body.
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
        let (_, digest, object) = split(&key, &found)?;
        Ok(if digest == self.digest { RequestState::Done(object) } else { RequestState::Reused })
    }

    /// Returns the change that records that the request created `object`.
    pub fn done(&self, object: &str, now: SystemTime) -> Change {
        let value = [&seconds(now).to_be_bytes()[..], &self.digest, object.as_bytes()].concat();
        let expect = vec![Expect::Absent(self.key())];
        let writes = vec![Write::Put(self.key(), value.into())];
        Change::from(Commit { expect, writes })
    }

    fn key(&self) -> String {
        format!("request/{}/{}", self.scope, self.id)
    }
}

/// Deletes the results in `store` that are older than [`RETENTION`]. Returns their number.
pub async fn delete_expired(store: &ScopedStore, now: SystemTime) -> Result<usize, Error> {
    let oldest = seconds(now).saturating_sub(RETENTION.as_secs());
    let is_old =
        |key: &str, at: &Versioned| split(key, at).is_ok_and(|(answered, ..)| answered < oldest);
    let (mut pages, mut deleted) = (store.pages("request/"), 0);
    while let Some(pairs) = pages.next().await? {
        let old = pairs.into_iter().filter(|(key, at)| is_old(key, at));
        let deletes: Vec<_> = old.map(|(key, _)| Write::Delete(key)).collect();
        store.write_all(&deletes).await?;
        deleted += deletes.len();
    }
    Ok(deleted)
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
