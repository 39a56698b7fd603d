//! Certificates for workers and for agents of nodes: first for the token of a boot script, later for a certificate that has not expired.
//!
//! ```text
//! workflow/spent/<nonce, hex>      SHA-256 of the key that the token was used with, and the boot that used it
//! ```
//!
//! - `node_boots`: the tokens of nodes, each of which begins a boot epoch.
//!
//! The commit that spends a token stores the key and the boot. The same boot may redeem the token again with the same key, because a
//! response may have been lost; another key or another boot with the same token means that somebody read the token, which is
//! logged as an error.

mod node_boots;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use runtime::Caller;
use runtime::boot_token::{
    BootTokens, EnrolmentClaims, InvalidToken, LIFETIME, Purpose, VerifiedToken,
};
use sha2::{Digest as _, Sha256};
use store::records::{self, Kind as _, Records};
use store::{Commit, ScopedStore, Store as _, Write};
use tinwright::secret::Sealable;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::boot_options::Mode;
use tinwright::{BootId, HardwareId};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use crate::boot_epochs::{BootEpoch, BootEpochs};
use crate::machine_enrolments::MachineEnrolments;
use crate::workflows::WorkflowKind;

/// The time that a spent token is stored after its expiry, as clocks differ.
const SPENT_TOKEN_MARGIN: Duration = Duration::from_secs(60 * 60);
/// The number of tokens that are read and deleted at a time.
const TOKENS_PER_PAGE: usize = 100;

/// Issues certificates: the site's authority, in the process that has its key.
pub trait Issuer: Send + Sync + 'static {
    /// Issues a certificate for `caller` and the key of `csr` (PKCS#10, DER). Verifies the signature of the request, which proves
    /// that the caller has the key.
    fn issue(&self, caller: &Caller, csr: &[u8]) -> Result<IssuedCertificate, IssueError>;
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// PEM.
    pub certificate: String,
    /// Time of expiry.
    pub expires: SystemTime,
}

/// The reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The request is malformed, or not signed with its key.
    #[error("the certificate request is not usable")]
    Request,
    /// The authority cannot sign now.
    #[error("no certificate can be issued")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The reason why a token was not redeemed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is invalid or has expired.
    #[error("invalid boot token: {0}")]
    InvalidToken(InvalidToken),
    /// It was issued to another address.
    #[error("the boot token was issued to another address than {0}")]
    WrongAddress(IpAddr),
    /// The machine is not prepared for the workflow that holds it, or the token is older than the workflow.
    #[error("the boot token is from before the machine was prepared for its workflow")]
    NotPrepared,
    /// It was made in an earlier boot epoch.
    #[error("the boot token is from before the machine was restarted")]
    OtherEpoch,
    /// It was used with another key.
    #[error("the boot token was used with another key")]
    Spent,
    /// Too many machines without a record wait for their reports.
    #[error("too many machines enrol at once")]
    TooManyEnrolments,
    /// It was used by another boot of the machine.
    #[error("the boot token was used by another boot")]
    OtherBoot,
    /// The boot of a node has an identity already, by another token.
    #[error("this boot of the node has its identity already")]
    SecondToken,
    /// A node did not name its boot.
    #[error("a node's boot has to be named by holder.boot_id")]
    UnnamedBoot,
    /// No certificate was issued.
    #[error(transparent)]
    NotIssued(#[from] IssueError),
    /// The store failed.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// A token that was redeemed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpentToken {
    /// Its nonce, in hex.
    #[prost(string, tag = "1")]
    pub nonce: String,
    /// The store's revision.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// SHA-256 of the public key it was used with (SubjectPublicKeyInfo, DER).
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// The machine it was issued to.
    #[prost(string, tag = "4")]
    pub hardware_id: String,
    /// Time of its expiry.
    #[prost(message, optional, tag = "5")]
    pub expire_time: Option<Timestamp>,
    /// The id of the boot that used it; empty if it named none.
    #[prost(string, tag = "6")]
    pub boot_id: String,
    /// The boot epoch that began with it, if it is of a node; else 0.
    #[prost(uint64, tag = "7")]
    pub boot_epoch: u64,
}

/// A valid token of a machine with a record.
#[derive(Clone, Copy, Debug)]
pub struct MachineToken {
    token: VerifiedToken,
    /// True if it is good for an identity of the purpose node, false for one of the purpose work.
    is_node: bool,
}

impl MachineToken {
    /// The machine that it was given to.
    pub fn machine(&self) -> HardwareId {
        self.token.claims.hardware
    }

    /// True if it is good for an identity of the purpose node.
    pub fn is_node(&self) -> bool {
        self.is_node
    }

    /// Time at which it was made, in seconds since 1970.
    fn made_at(&self) -> u64 {
        self.token.claims.expiry.saturating_sub(LIFETIME.as_secs())
    }

    /// The record of its use by `boot`, with the key of this hash.
    fn spent_with(self, key: Vec<u8>, boot: &BootId) -> SpentToken {
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(self.token.claims.expiry);
        SpentToken {
            nonce: self.token.nonce.iter().map(|byte| format!("{byte:02x}")).collect(),
            revision: 0,
            key,
            hardware_id: self.machine().to_string(),
            expire_time: Some(expires.into()),
            boot_id: boot.0.clone(),
            boot_epoch: 0,
        }
    }
}

impl Sealable for SpentToken {}

tinwright::stored_record!(SpentToken, "boot token", nonce);

store::kind!(
    /// The kind of these records.
    pub SpentTokenKind: SpentToken, String, "spent"
);

/// Issues certificates to workers and to agents of nodes.
#[derive(Clone)]
pub struct WorkerEnrollment {
    /// The underlying records.
    pub records: Records<SpentTokenKind>,
    workflows: Records<WorkflowKind>,
    epochs: BootEpochs,
    /// The machines without a record that have an identity.
    pub enrolments: MachineEnrolments,
    tokens: Arc<BootTokens>,
    issuer: Arc<dyn Issuer>,
}

impl std::fmt::Debug for WorkerEnrollment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerEnrollment").field("records", &self.records).finish_non_exhaustive()
    }
}

impl WorkerEnrollment {
    /// Enrols workers, with the spent tokens and the workflows in `store`.
    pub fn new(store: ScopedStore, tokens: Arc<BootTokens>, issuer: Arc<dyn Issuer>) -> Self {
        let (records, workflows) = (Records::new(store.clone()), Records::new(store.clone()));
        let enrolments = MachineEnrolments::new(store.clone());
        Self { records, workflows, epochs: BootEpochs::new(store), enrolments, tokens, issuer }
    }

    /// Verifies that `csr` can be read, and that `token` is valid and was issued to the caller's address, if that is known.
    pub fn verify(
        &self,
        token: &str,
        csr: &[u8],
        from: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<MachineToken, Error> {
        key_hash(csr)?;
        let open = |purpose| self.tokens.open(purpose, token, now);
        let (is_node, opened) = match open(Purpose::Identity) {
            Err(InvalidToken::Foreign) => (true, open(Purpose::Node)),
            opened => (false, opened),
        };
        let token = opened.map_err(Error::InvalidToken)?;
        let elsewhere = from.filter(|from| from.to_canonical() != token.claims.address);
        match elsewhere {
            Some(from) => Err(Error::WrongAddress(from.to_canonical())),
            None => Ok(MachineToken { token, is_node }),
        }
    }

    /// Issues a certificate to `boot` of the machine of `token`, in the present boot epoch, or in the one that begins if it is a node's. A
    /// workflow that holds the machine must have switched it off and started it since: until then, the caller may be its tenant's system.
    pub async fn redeem(
        &self,
        token: &MachineToken,
        csr: &[u8],
        boot: &BootId,
        now: SystemTime,
    ) -> Result<IssuedCertificate, Error> {
        let key = key_hash(csr)?;
        if token.is_node {
            let epoch = self.begin_node_boot(token, key, boot, now).await?;
            return Ok(self.issuer.issue(&Caller::node(token.machine(), epoch), csr)?);
        }
        let epoch = self.check_epoch(token).await?;
        self.spend(token.spent_with(key, boot)).await?;
        Ok(self.issuer.issue(&Caller::worker(token.machine(), epoch.number), csr)?)
    }

    /// Returns the present boot epoch of the machine of `token`, if the token is of it and the machine is prepared for the workflow that holds
    /// it.
    async fn check_epoch(&self, token: &MachineToken) -> Result<BootEpoch, Error> {
        let (machine, made_at) = (token.machine().to_string(), token.made_at());
        let epoch = self.epochs.present(&machine).await?;
        if let Some(holder) = self.workflows.find("holder", &machine).await?
            && !is_prepared(&holder, made_at)
        {
            return Err(Error::NotPrepared);
        }
        match epoch.has_token(token.token.claims.boot_epoch, made_at) {
            true => Ok(epoch),
            false => Err(Error::OtherEpoch),
        }
    }

    /// Issues another certificate of `caller`, a machine that has authenticated itself.
    pub fn renew(&self, caller: &Caller, csr: &[u8]) -> Result<IssuedCertificate, IssueError> {
        self.issuer.issue(caller, csr)
    }

    /// Returns the claims of `token` if it is one of a machine without a record, and was issued to the caller's address, if that is known.
    pub fn verify_for_enrolment(
        &self,
        token: &str,
        csr: &[u8],
        from: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<EnrolmentClaims, Error> {
        key_hash(csr)?;
        let opened = self.tokens.open_for_enrolment(token, now).map_err(Error::InvalidToken)?;
        let elsewhere = from.filter(|from| from.to_canonical() != opened.claims.address);
        elsewhere.map_or(Ok(opened.claims), |from| Err(Error::WrongAddress(from.to_canonical())))
    }

    /// Issues a certificate of purpose `enrol` to `boot` of the machine without a record that `claims` names.
    pub async fn redeem_for_enrolment(
        &self,
        claims: &EnrolmentClaims,
        csr: &[u8],
        boot: &BootId,
    ) -> Result<IssuedCertificate, Error> {
        self.enrolments.begin(claims, key_hash(csr)?, boot).await?;
        Ok(self.issuer.issue(&Caller::enrolling(claims.id), csr)?)
    }

    async fn spend(&self, spent: SpentToken) -> Result<(), Error> {
        match self.records.commit(self.records.to_create(&spent)).await {
            Ok(_) => Ok(()),
            Err(records::Error::Exists { .. }) => {
                check_same_use(&self.records.require(&spent.nonce).await?, &spent)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes spent tokens that have expired. Returns their number.
    pub async fn delete_expired(&self, now: SystemTime) -> Result<usize, records::Error> {
        let (mut after, mut deleted) = (String::new(), 0);
        loop {
            let (spent, more) = self.records.page("", &after, TOKENS_PER_PAGE).await?;
            after = spent.last().map_or(after, |last| last.nonce.clone());
            let expired = |spent: &&SpentToken| {
                let end = spent.expire_time.and_then(|end| SystemTime::try_from(end).ok());
                end.is_none_or(|end| end + SPENT_TOKEN_MARGIN < now)
            };
            let delete = |spent: &SpentToken| {
                Write::Delete(format!("{}/{}", SpentTokenKind::KIND, spent.nonce))
            };
            let writes: Vec<_> = spent.iter().filter(expired).map(delete).collect();
            if !writes.is_empty() {
                deleted += writes.len();
                self.records.store().commit(Commit { writes, ..Commit::default() }).await?;
            }
            if !more {
                return Ok(deleted);
            }
        }
    }
}

/// True if the machine of the workflow `holder` needs no preparation, or is prepared, and the workflow was created before a
/// token was made at `made_at` (in seconds since 1970).
///
/// No token is made from the creation of the workflow until the machine is prepared. Its creation is compared and not the end
/// of the preparation, which a token may follow at once: clocks of processes differ a little.
fn is_prepared(holder: &pb::Workflow, made_at: u64) -> bool {
    let prepares = holder.boot_options.is_some_and(|options| options.mode() == Mode::Netboot);
    let created = holder.create_time.map_or(0, |created| created.seconds);
    !prepares || (holder.prepared && i64::try_from(made_at).is_ok_and(|made_at| made_at >= created))
}

/// Passes if `again` is the use of a token that `first` recorded.
fn check_same_use(first: &SpentToken, again: &SpentToken) -> Result<(), Error> {
    let error = if first.key != again.key {
        Error::Spent
    } else if !first.boot_id.is_empty() && first.boot_id != again.boot_id {
        Error::OtherBoot
    } else {
        return Ok(());
    };
    tracing::error!(
        hardware.id = again.hardware_id,
        %error,
        "boot token redeemed twice: somebody read it"
    );
    Err(error)
}

/// The hash of the public key in a certificate request.
pub(crate) fn key_hash(csr: &[u8]) -> Result<Vec<u8>, IssueError> {
    let (_, request) = X509CertificationRequest::from_der(csr).map_err(|_| IssueError::Request)?;
    Ok(Sha256::digest(request.certification_request_info.subject_pki.raw).to_vec())
}

#[cfg(test)]
mod tests;
