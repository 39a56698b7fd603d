//! Machines without a record that have an identity of purpose `enrol`.
//!
//! ```text
//! workflow/enrolment/<id>     who asked for the boot, the key and the boot that have redeemed its token
//! ```
//!
//! The commit that creates it spends the token: the id is in the token, and no other token has it. The record says for which MAC and UUID
//! the identity may report an inventory. It is deleted an hour after the token's expiry; after that the identity is good for nothing.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use prost_types::Timestamp;
use runtime::boot_token::EnrolmentClaims;
use store::records::{self, Kind as _, Records};
use store::{Commit, ScopedStore, Store as _, Write};
use tinwright::secret::Sealable;
use tinwright::{BootId, HardwareId};

use crate::worker_enrollment::Error;

/// The time that an enrolment is stored after the expiry of its token.
const MARGIN: Duration = Duration::from_secs(60 * 60);
/// The number of enrolments that are read and deleted at a time.
const PAGE_RECORDS: usize = 100;
/// The most enrolments that are stored: a flood of forged MACs must not fill the store.
const MAX_ENROLMENTS: usize = 4096;

/// An enrolment that has begun.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MachineEnrolment {
    /// Its id, that of the identity.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The store's revision.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// SHA-256 of the public key that the token was used with (SubjectPublicKeyInfo, DER).
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// The id of the boot that used it; empty if it named none.
    #[prost(string, tag = "4")]
    pub boot_id: String,
    /// The SMBIOS UUID that the machine presented.
    #[prost(string, tag = "5")]
    pub uuid: String,
    /// The MAC that asked.
    #[prost(string, tag = "6")]
    pub mac: String,
    /// The network that it asked in, as address/bits.
    #[prost(string, tag = "7")]
    pub network: String,
    /// Time of the token's expiry.
    #[prost(message, optional, tag = "8")]
    pub expire_time: Option<Timestamp>,
}

impl Sealable for MachineEnrolment {}

tinwright::stored_record!(MachineEnrolment, "enrolment", id);

store::kind!(
    /// The kind of these records.
    pub MachineEnrolmentKind: MachineEnrolment, HardwareId, "enrolment"
);

/// The enrolments in the store.
#[derive(Clone, Debug)]
pub struct MachineEnrolments {
    /// The underlying records.
    pub records: Records<MachineEnrolmentKind>,
}

impl MachineEnrolments {
    /// The enrolments in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// Spends the token with these claims for `boot` and the key with this hash. The same boot may do so again with the same key.
    pub(crate) async fn begin(
        &self,
        claims: &EnrolmentClaims,
        key: Vec<u8>,
        boot: &BootId,
    ) -> Result<(), Error> {
        let begun = MachineEnrolment {
            id: claims.id.to_string(),
            revision: 0,
            key,
            boot_id: boot.0.clone(),
            uuid: HardwareId::from_bytes(claims.uuid).to_string(),
            mac: claims.mac.to_string(),
            network: network(claims.address, claims.prefix_length),
            expire_time: Some((SystemTime::UNIX_EPOCH + Duration::from_secs(claims.expiry)).into()),
        };
        if self.records.get(&begun.id).await?.is_none() && self.is_full().await? {
            return Err(Error::TooManyEnrolments);
        }
        let first = match self.records.commit(self.records.to_create(&begun)).await {
            Ok(_) => return Ok(()),
            Err(records::Error::Exists { .. }) => self.records.require(&begun.id).await?,
            Err(error) => return Err(error.into()),
        };
        let error = if first.key != begun.key {
            Error::Spent
        } else if !first.boot_id.is_empty() && first.boot_id != begun.boot_id {
            Error::OtherBoot
        } else {
            return Ok(());
        };
        tracing::error!(mac = begun.mac, %error, "token for enrolment redeemed twice: somebody read it");
        Err(error)
    }

    async fn is_full(&self) -> Result<bool, records::Error> {
        Ok(self.records.page("", "", MAX_ENROLMENTS).await?.0.len() >= MAX_ENROLMENTS)
    }

    /// Returns the enrolment of the identity `id`, unless it has ended at `now`.
    pub async fn current(
        &self,
        id: HardwareId,
        now: SystemTime,
    ) -> Result<Option<MachineEnrolment>, records::Error> {
        Ok(self.records.get(&id.to_string()).await?.filter(|begun| !has_ended(begun, now)))
    }

    /// Deletes the enrolments that have ended.
    pub async fn delete_ended(&self, now: SystemTime) -> Result<(), records::Error> {
        let mut after = String::new();
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or(after, |last| last.id.clone());
            let ended = page.iter().filter(|begun| has_ended(begun, now));
            let key =
                |begun: &MachineEnrolment| format!("{}/{}", MachineEnrolmentKind::KIND, begun.id);
            let writes: Vec<_> = ended.map(|begun| Write::Delete(key(begun))).collect();
            if !writes.is_empty() {
                self.records.store().commit(Commit { writes, ..Commit::default() }).await?;
            }
            if !more {
                return Ok(());
            }
        }
    }
}

fn has_ended(begun: &MachineEnrolment, now: SystemTime) -> bool {
    let end = begun.expire_time.and_then(|end| SystemTime::try_from(end).ok());
    end.is_none_or(|end| end + MARGIN < now)
}

/// Returns the network of `address` with a prefix of this length.
fn network(address: IpAddr, prefix_length: u8) -> String {
    IpNet::new(address, prefix_length).map_or_else(|_| String::new(), |it| it.trunc().to_string())
}
