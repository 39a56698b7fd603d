//! The revocations in the store.
//!
//! ```text
//! identity/revocation/certificate:<serial number>      refused until the certificate has expired
//! identity/revocation/credential:<id>                  refused until the calls of its holder have ended
//! ```

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use store::ScopedStore;
use store::records::{Change, Error, Kind, Records};
use tinwright::identity::v1 as pb;

/// The time for which a deleted credential is refused: no call of a door for its holder lasts longer.
pub const CREDENTIAL_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The name of a revoked identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationId(String);

impl FromStr for RevocationId {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RevocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

store::kind!(
    /// The kind of these records.
    pub RevocationKind: pb::Revocation, RevocationId, "revocation"
);

/// The revocations.
#[derive(Clone, Debug)]
pub struct Revocations {
    /// The underlying records.
    pub records: Records<RevocationKind>,
}

impl Revocations {
    /// The revocations in `store`, whose keys are the identity service's.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// Returns the change that revokes `identity`, which expires at `expires`. It fails if it is revoked already.
    pub fn to_revoke(&self, identity: String, now: SystemTime, expires: SystemTime) -> Change {
        let (create_time, expire_time) = (Some(now.into()), Some(expires.into()));
        let revocation = pb::Revocation { id: identity, create_time, expire_time, revision: 0 };
        self.records.to_create(&revocation)
    }

    /// Deletes the revocations of identities that have expired.
    pub async fn delete_expired(&self, now: SystemTime) -> Result<(), Error> {
        delete_expired(&self.records, now, |revocation| revocation.expire_time).await
    }
}

/// Deletes the `records` that have expired.
pub(crate) async fn delete_expired<K: Kind>(
    records: &Records<K>,
    now: SystemTime,
    expire_time: impl Fn(&K::Record) -> Option<Timestamp>,
) -> Result<(), Error> {
    let has_expired = |record: &K::Record| {
        let end = expire_time(record).and_then(|end| SystemTime::try_from(end).ok());
        end.is_some_and(|end| end <= now)
    };
    let mut after = String::new();
    loop {
        let listing = records.list(&after, 100, has_expired).await?;
        for record in &listing.records {
            match records.commit(records.to_delete(record)).await {
                // Another process was faster, or the record was changed: the next run sees it.
                Ok(_) | Err(Error::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match listing.next {
            Some(next) => after = next,
            None => return Ok(()),
        }
    }
}
