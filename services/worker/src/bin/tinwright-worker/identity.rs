//! Who this machine is to the site: a key of its own, and the certificate it was given for the boot script's token.
//!
//! ```text
//! key ──journal──▶ Redeem(token, CSR) ──journal──▶ certificate ──half its life──▶ Renew(CSR) ──journal──▶ certificate …
//! ```
//!
//! The token is good for one key. So the key is in the journal before the token is spent: a lost answer is asked for
//! again with the same key, and a worker that crashed goes on as who it was. Another boot makes another key.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair};
use runtime::{Clock, Secret};
use serde::{Deserialize, Serialize};
use tinwright::workflow::v1::{Holder, RedeemRequest, RedeemResponse, RenewRequest, RenewResponse};
use tonic::Status;
use tonic::transport;

use crate::journal::{self, Journal, Page};
use crate::link::Link;
use crate::retry::REFUSED_RETRY_DELAY;

/// The shortest time between two certificates.
const SHORTEST: Duration = Duration::from_secs(1);

/// As the journal keeps it.
#[derive(Deserialize, Serialize)]
struct Kept {
    boot_id: String,
    key: String,
    proof: Option<Proof>,
}

/// What the site says of our key.
#[derive(Clone, Deserialize, Serialize)]
struct Proof {
    certificate: String,
    hardware_id: String,
    expires: SystemTime,
}

/// The key of one boot.
struct Key {
    boot_id: String,
    pair: KeyPair,
}

/// The key, and what it proves.
pub(crate) struct Identity {
    key: Key,
    proof: Proof,
}

impl Identity {
    /// The identity of this boot that is in the journal, else one for `token`, which is in the journal then; `link` shows
    /// it from now on. A refused token is refused for good: that is said every minute, until somebody boots the machine
    /// again.
    pub(crate) async fn establish(
        link: &Link,
        journal: &Journal,
        token: &Secret<String>,
        holder: &Holder,
    ) -> anyhow::Result<Self> {
        let (key, proof) = Key::open(journal, &holder.boot_id).await?;
        let now = Clock::system().wall();
        let proof = match proof.filter(|proof| proof.expires > now) {
            Some(proof) => proof,
            None => redeem(link, token, holder, key.csr()?).await?,
        };
        key.keep(journal, Some(&proof)).await?;
        let identity = Self { key, proof };
        identity.show(link)?;
        Ok(identity)
    }

    /// What the site knows the machine as.
    pub(crate) fn hardware_id(&self) -> &str {
        &self.proof.hardware_id
    }

    /// Renews the certificate whenever half of its life is over. What fails is said, and tried again in a minute: an
    /// action under way goes on.
    pub(crate) async fn keep_renewed(&mut self, link: &Link, journal: &Journal) -> Infallible {
        loop {
            tokio::time::sleep(renewal(Clock::system().wall(), self.proof.expires)).await;
            match self.renew(link, journal).await {
                Ok(()) => tracing::info!("certificate renewed"),
                Err(error) => {
                    let error: &dyn std::error::Error = error.as_ref();
                    tracing::error!(error, "the certificate is not renewed");
                    tokio::time::sleep(REFUSED_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn renew(&mut self, link: &Link, journal: &Journal) -> anyhow::Result<()> {
        let RenewResponse { certificate, expire_time } =
            link.renew(RenewRequest { csr: self.key.csr()? }).await?;
        (self.proof.certificate, self.proof.expires) = (certificate, time(expire_time)?);
        self.show(link)?;
        Ok(self.key.keep(journal, Some(&self.proof)).await?)
    }

    fn show(&self, link: &Link) -> Result<(), transport::Error> {
        let key = self.key.pair.serialize_pem();
        link.show(transport::Identity::from_pem(&self.proof.certificate, key))
    }
}

impl Key {
    /// The key of this boot that is in the journal, with its proof, else a new one, which is in the journal then.
    async fn open(journal: &Journal, boot_id: &str) -> anyhow::Result<(Self, Option<Proof>)> {
        let kept: Option<Kept> = journal.read(Page::Identity).await?;
        if let Some(Kept { boot_id, key, proof }) = kept.filter(|kept| kept.boot_id == boot_id) {
            let pair = KeyPair::from_pem(&key).context("the journal's key")?;
            return Ok((Self { boot_id, pair }, proof));
        }
        let pair = KeyPair::generate().context("making a key")?;
        let key = Self { boot_id: boot_id.to_owned(), pair };
        key.keep(journal, None).await?;
        Ok((key, None))
    }

    async fn keep(&self, journal: &Journal, proof: Option<&Proof>) -> Result<(), journal::Error> {
        let (boot_id, key) = (self.boot_id.clone(), self.pair.serialize_pem());
        journal.write(Page::Identity, &Kept { boot_id, key, proof: proof.cloned() }).await
    }

    /// PKCS#10, DER. It asks for nothing: what the certificate says is the site's to decide.
    fn csr(&self) -> Result<Vec<u8>, rcgen::Error> {
        Ok(CertificateParams::default().serialize_request(&self.pair)?.der().to_vec())
    }
}

async fn redeem(
    link: &Link,
    token: &Secret<String>,
    holder: &Holder,
    csr: Vec<u8>,
) -> anyhow::Result<Proof> {
    let (boot_token, holder) = (token.expose().clone(), Some(holder.clone()));
    let redeemed = link.redeem(RedeemRequest { boot_token, csr, holder }).await;
    let RedeemResponse { certificate, hardware_id, expire_time } = match redeemed {
        Ok(response) => response,
        Err(status) => refused(&status).await,
    };
    Ok(Proof { certificate, hardware_id, expires: time(expire_time)? })
}

fn time(stamp: Option<prost_types::Timestamp>) -> anyhow::Result<SystemTime> {
    let stamp = stamp.context("a certificate without expire_time")?;
    stamp.try_into().context("a certificate's expire_time")
}

/// How long to wait before a certificate is renewed that ends at `expires`: half of what is left, so that a day's leaves
/// half a day for the server to be away.
fn renewal(now: SystemTime, expires: SystemTime) -> Duration {
    let left = expires.duration_since(now).unwrap_or_default();
    (left / 2).max(SHORTEST)
}

async fn refused<T>(status: &Status) -> T {
    loop {
        let error: &dyn std::error::Error = status;
        tracing::error!(error, "the boot token is refused: this machine must be booted again");
        tokio::time::sleep(REFUSED_RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn half_of_a_certificates_life_is_left_to_renew_it_in() {
        let hour = Duration::from_secs(3600);
        assert_eq!(renewal(UNIX_EPOCH, UNIX_EPOCH + 24 * hour), 12 * hour);
    }

    #[test]
    fn an_ended_certificate_is_renewed_soon_but_not_in_a_frenzy() {
        assert_eq!(renewal(UNIX_EPOCH + SHORTEST, UNIX_EPOCH), SHORTEST);
    }

    #[tokio::test]
    async fn a_restarted_worker_has_the_same_key_in_the_same_boot_and_in_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).await.unwrap();
        let key = async |boot: &str| {
            let (key, _) = Key::open(&journal, boot).await.unwrap();
            key.pair.serialize_der()
        };
        let first = key("b1").await;
        assert_eq!(key("b1").await, first);
        assert_ne!(key("b2").await, first);
    }
}
