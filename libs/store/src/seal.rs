//! Encryption of the secret fields of records.
//!
//! ```text
//! value = sealed part ‖ record without its secret fields      (one protobuf message: the sealed part is field 1000)
//! sealed part = Sealer::seal( store key, SecretPart )
//! ```
//!
//! The store's key is sealed along with the secrets: a part that is copied to another record cannot be opened. A record without
//! secrets has no sealed part. Records that were stored before there was a sealer are read as they are, until a migration seals
//! them (`records::Records::reseal`).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use prost::Message;
use tinwright::secret::{Sealable, SecretPart};

use crate::{Changes, Commit, Error, Frozen, Page, Revision, ScopedStore, Store, Versioned};

/// Encrypts stored values, each bound to the name of its owner.
pub trait Sealer: fmt::Debug + Send + Sync + 'static {
    /// Encrypts `plain` of `owner`; none if that fails.
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>>;

    /// Decrypts `sealed` of `owner`; none if it belongs to another owner or another site.
    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>>;

    /// True if `sealed` was made with the key that [`seal`](Self::seal) uses now.
    fn is_current(&self, _sealed: &[u8]) -> bool {
        true
    }
}

/// The first bytes of a value with a sealed part: the number and the type of its field. Every other field of a record has a lower
/// number, and comes later here.
const MARK: [u8; 2] = [0xc2, 0x3e];

/// The sealed part of a record.
#[derive(Clone, PartialEq, Message)]
struct SealedPart {
    #[prost(bytes = "bytes", tag = "1000")]
    sealed: Bytes,
}

/// The sealed part of a value; none if it has none.
fn sealed_part(value: &Bytes) -> Option<Bytes> {
    let part = value.starts_with(&MARK).then(|| SealedPart::decode(value.clone()))?;
    Some(part.ok()?.sealed)
}

/// Returns the value of `record` under `key`, its secret fields sealed by `sealer`; none if that fails.
pub(crate) fn encode<R: Message + Sealable>(
    mut record: R,
    key: &str,
    sealer: Option<&dyn Sealer>,
) -> Option<Bytes> {
    let Some(sealer) = sealer else { return Some(record.encode_to_vec().into()) };
    let part = record.take_secrets();
    // Records of other messages are not encrypted with a new key.
    debug_assert!(R::HAS_SECRETS || part.is_empty(), "{key}: a secret without HAS_SECRETS");
    if part.is_empty() {
        return Some(record.encode_to_vec().into());
    }
    let sealed = sealer.seal(key, &part.encode_to_vec())?.into();
    let mut value = SealedPart { sealed }.encode_to_vec();
    value.reserve_exact(record.encoded_len());
    // Not an error: the buffer grows.
    record.encode(&mut value).ok()?;
    Some(value.into())
}

/// Returns the record in `value` under `key` of `store`; none if it cannot be decoded, or its secrets cannot be opened.
pub(crate) fn decode<R: Message + Sealable + Default>(
    value: &Bytes,
    key: &str,
    store: &ScopedStore,
) -> Option<R> {
    let mut record = R::decode(value.clone()).ok()?;
    if value.starts_with(&MARK) {
        let part = store.sealer()?.unseal(&store.full(key), &sealed_part(value)?)?;
        record.put_secrets(&SecretPart::decode(part.as_slice()).ok()?).ok()?;
    }
    Some(record)
}

/// True if the secrets of `record`, which was read from `value`, are sealed with the present key, or there are none.
pub(crate) fn is_current<R: Sealable>(mut record: R, value: &Bytes, sealer: &dyn Sealer) -> bool {
    match sealed_part(value) {
        Some(sealed) => sealer.is_current(&sealed),
        None => record.take_secrets().is_empty(),
    }
}

/// A store of records that seals their secret fields.
#[derive(Debug)]
pub struct SealedStore {
    store: Arc<dyn Store>,
    sealer: Arc<dyn Sealer>,
}

impl SealedStore {
    /// The records in `store` are sealed by `sealer`.
    pub fn new(store: Arc<dyn Store>, sealer: Arc<dyn Sealer>) -> Self {
        Self { store, sealer }
    }
}

#[async_trait]
impl Store for SealedStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.store.is_unchanged(prefix, revision)
    }

    async fn frozen(&self, after: Revision, keys: BTreeSet<String>) -> Result<Frozen, Error> {
        self.store.frozen(after, keys).await
    }

    async fn failed(&self) -> Error {
        self.store.failed().await
    }

    fn sealer(&self) -> Option<Arc<dyn Sealer>> {
        Some(self.sealer.clone())
    }
}

#[cfg(test)]
mod tests;
