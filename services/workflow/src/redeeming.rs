//! Certificates for workers: once for the token of a boot script, then for a certificate that has not ended.
//!
//! ```text
//! workflow/spent/<nonce, hex>      SHA-256 of the key it was used with
//! ```
//!
//! A token is spent in the commit that notes the key. The same key may ask again, because an answer may have been lost;
//! another key with the same token means that somebody read the token, and is an alarm.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use runtime::Role;
use runtime::boot_token::{BootTokens, InvalidToken, Purpose};
use sha2::{Digest as _, Sha256};
use store::records::{self, Index, Kind, Records};
use store::{Commit, ScopedStore, Store as _, Write};
use tinwright::HardwareId;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

/// How long a spent token is remembered beyond its end, against clocks that differ.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
/// How many are forgotten at a time.
const STEP: usize = 100;

/// Who makes certificates: the site's authority, where its key is at hand.
pub trait Issuer: Send + Sync + 'static {
    /// A certificate for the key of `csr` (PKCS#10, DER) that makes its holder `role`. The request's own signature is
    /// to be verified: it proves that whoever asks has the key.
    fn issue(&self, role: Role, csr: &[u8]) -> Result<Issued, NotIssued>;
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// PEM.
    pub certificate: String,
    /// Its end.
    pub expires: SystemTime,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum NotIssued {
    /// The request is none, or is not signed with its key.
    #[error("the certificate request is not usable")]
    Request,
    /// The authority cannot sign now.
    #[error("no certificate can be issued")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a token opens nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not good.
    #[error("the boot token is not good: {0}")]
    InvalidToken(InvalidToken),
    /// It was given to another address.
    #[error("the boot token was given to another address than {0}")]
    Elsewhere(IpAddr),
    /// It was used with another key.
    #[error("the boot token was used with another key")]
    Spent,
    /// No certificate.
    #[error(transparent)]
    NotIssued(#[from] NotIssued),
    /// The store.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// A token that was used.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Spent {
    /// Its nonce, in hex.
    #[prost(string, tag = "1")]
    pub nonce: String,
    /// The store's.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// SHA-256 of the public key it was used with (SubjectPublicKeyInfo, DER).
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// Its machine.
    #[prost(string, tag = "4")]
    pub hardware_id: String,
    /// When it ends by itself.
    #[prost(message, optional, tag = "5")]
    pub expire_time: Option<Timestamp>,
}

/// The kind of these records.
#[derive(Debug)]
pub enum SpentKind {}

impl Kind for SpentKind {
    type Record = Spent;
    const NOUN: &'static str = "boot token";
    const KIND: &'static str = "spent";
    const INDEXES: &'static [&'static str] = &[];

    fn id(spent: &Spent) -> &str {
        &spent.nonce
    }

    fn revision_mut(spent: &mut Spent) -> &mut i64 {
        &mut spent.revision
    }

    fn indexes(_: &Spent) -> Vec<Index> {
        Vec::new()
    }
}

/// Gives certificates to workers.
#[derive(Clone)]
pub struct Redeeming {
    records: Records<SpentKind>,
    tokens: Arc<BootTokens>,
    issuer: Arc<dyn Issuer>,
}

impl std::fmt::Debug for Redeeming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redeeming").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Redeeming {
    /// With tokens spent in `store`.
    pub fn new(store: ScopedStore, tokens: Arc<BootTokens>, issuer: Arc<dyn Issuer>) -> Self {
        Self { records: Records::new(store), tokens, issuer }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<SpentKind> {
        &self.records
    }

    /// A certificate for the machine that `token` was given to, if the caller is at its address (where that is known).
    pub async fn redeem(
        &self,
        token: &str,
        csr: &[u8],
        from: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<(HardwareId, Issued), Error> {
        let key = key(csr)?;
        let opened =
            self.tokens.open(Purpose::Identity, token, now).map_err(Error::InvalidToken)?;
        let claims = opened.claims;
        if let Some(from) =
            from.map(|from| from.to_canonical()).filter(|from| *from != claims.address)
        {
            return Err(Error::Elsewhere(from));
        }
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(claims.expiry);
        self.spend(Spent {
            nonce: opened.nonce.iter().map(|byte| format!("{byte:02x}")).collect(),
            revision: 0,
            key,
            hardware_id: claims.hardware.to_string(),
            expire_time: Some(expires.into()),
        })
        .await?;
        Ok((claims.hardware, self.issue(claims.hardware, csr)?))
    }

    /// A certificate for `machine`, which has shown one.
    pub fn issue(&self, machine: HardwareId, csr: &[u8]) -> Result<Issued, NotIssued> {
        self.issuer.issue(Role::Machine(machine), csr)
    }

    async fn spend(&self, spent: Spent) -> Result<(), Error> {
        let first = match self.records.commit(self.records.to_create(&spent)).await {
            Ok(_) => return Ok(()),
            Err(records::Error::Exists { .. }) => self.records.require(&spent.nonce).await?,
            Err(error) => return Err(error.into()),
        };
        if first.key == spent.key {
            return Ok(());
        }
        tracing::error!(
            hardware.id = spent.hardware_id,
            "a boot token was used twice, with different keys: somebody read it"
        );
        Err(Error::Spent)
    }

    /// Forgets tokens that have ended by themselves. Answers how many.
    pub async fn forget(&self, now: SystemTime) -> Result<usize, records::Error> {
        let (mut after, mut gone) = (String::new(), 0);
        loop {
            let (spent, more) = self.records.page("", &after, STEP).await?;
            after = spent.last().map_or(after, |last| last.nonce.clone());
            let over = |spent: &&Spent| {
                let end = spent.expire_time.and_then(|end| SystemTime::try_from(end).ok());
                end.is_none_or(|end| end + REMEMBERED < now)
            };
            let key = |spent: &Spent| Write::Delete(format!("{}/{}", SpentKind::KIND, spent.nonce));
            let writes: Vec<_> = spent.iter().filter(over).map(key).collect();
            if !writes.is_empty() {
                gone += writes.len();
                self.records.store().commit(Commit { writes, ..Commit::default() }).await?;
            }
            if !more {
                return Ok(gone);
            }
        }
    }
}

/// What names the key that a request is for.
fn key(csr: &[u8]) -> Result<Vec<u8>, NotIssued> {
    let (_, request) = X509CertificationRequest::from_der(csr).map_err(|_| NotIssued::Request)?;
    Ok(Sha256::digest(request.certification_request_info.subject_pki.raw).to_vec())
}

#[cfg(test)]
mod tests;
