//! The machine's identity: a private key, and the certificate that the site issues for the boot token.
//!
//! ```text
//! key ──journal──▶ Redeem(token, CSR) ──journal──▶ certificate ──half its life──▶ Renew(CSR) ──journal──▶ certificate …
//! ```
//!
//! The token can be redeemed for one key only. Therefore the key is written to the journal before the token is redeemed: if
//! the response is lost, the request is repeated with the same key, and a restarted worker has the same identity. Each boot
//! has its own key.

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
use crate::link::ControlPlaneClient;
use crate::retry_policy::REFUSED_RETRY_DELAY;

/// The minimum time between two renewals.
const MIN_RENEWAL_DELAY: Duration = Duration::from_secs(1);

/// The identity in the journal.
#[derive(Deserialize, Serialize)]
struct IdentityRecord {
    boot_id: String,
    key: String,
    certificate: Option<IssuedCertificate>,
}

/// The certificate that the site issued.
#[derive(Clone, Deserialize, Serialize)]
struct IssuedCertificate {
    pem: String,
    hardware_id: String,
    expires: SystemTime,
}

/// The key of one boot.
struct Key {
    boot_id: String,
    pair: KeyPair,
}

/// The key and its certificate.
pub(crate) struct WorkerIdentity {
    key: Key,
    certificate: IssuedCertificate,
}

impl WorkerIdentity {
    /// Returns the identity of this boot, from the journal or by redeeming `token`, and sets it in `link`. If the token is
    /// refused, this function logs an error every minute and never returns: somebody has to reboot the machine.
    pub(crate) async fn establish(
        link: &ControlPlaneClient,
        journal: &Journal,
        token: &Secret<String>,
        holder: &Holder,
    ) -> anyhow::Result<Self> {
        let (key, certificate) = Key::open(journal, &holder.boot_id).await?;
        let now = Clock::system().wall();
        let certificate = match certificate.filter(|certificate| certificate.expires > now) {
            Some(certificate) => certificate,
            None => redeem(link, token, holder, key.csr()?).await?,
        };
        key.store(journal, Some(&certificate)).await?;
        let identity = Self { key, certificate };
        identity.apply(link)?;
        Ok(identity)
    }

    /// Returns the id of the machine's hardware record.
    pub(crate) fn hardware_id(&self) -> &str {
        &self.certificate.hardware_id
    }

    /// Renews the certificate each time half of its lifetime has passed. A failure is logged and retried after a minute.
    /// Running actions continue.
    pub(crate) async fn renew_forever(
        &mut self,
        link: &ControlPlaneClient,
        journal: &Journal,
    ) -> Infallible {
        loop {
            tokio::time::sleep(renewal_delay(Clock::system().wall(), self.certificate.expires))
                .await;
            match self.renew(link, journal).await {
                Ok(()) => tracing::info!("certificate renewed"),
                Err(error) => {
                    let error: &dyn std::error::Error = error.as_ref();
                    tracing::error!(error, "certificate renewal failed");
                    tokio::time::sleep(REFUSED_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn renew(&mut self, link: &ControlPlaneClient, journal: &Journal) -> anyhow::Result<()> {
        let RenewResponse { certificate, expire_time } =
            link.renew(RenewRequest { csr: self.key.csr()? }).await?;
        (self.certificate.pem, self.certificate.expires) = (certificate, time(expire_time)?);
        self.apply(link)?;
        Ok(self.key.store(journal, Some(&self.certificate)).await?)
    }

    fn apply(&self, link: &ControlPlaneClient) -> Result<(), transport::Error> {
        let key = self.key.pair.serialize_pem();
        link.set_identity(transport::Identity::from_pem(&self.certificate.pem, key))
    }
}

impl Key {
    /// Returns key and certificate of this boot from the journal. If there is no key, writes a new one to the journal first.
    async fn open(
        journal: &Journal,
        boot_id: &str,
    ) -> anyhow::Result<(Self, Option<IssuedCertificate>)> {
        let record: Option<IdentityRecord> = journal.read(Page::Identity).await?;
        let record = record.filter(|record| record.boot_id == boot_id);
        if let Some(IdentityRecord { boot_id, key, certificate }) = record {
            let pair = KeyPair::from_pem(&key).context("the journal's key")?;
            return Ok((Self { boot_id, pair }, certificate));
        }
        let pair = KeyPair::generate().context("generating a key")?;
        let key = Self { boot_id: boot_id.to_owned(), pair };
        key.store(journal, None).await?;
        Ok((key, None))
    }

    async fn store(
        &self,
        journal: &Journal,
        certificate: Option<&IssuedCertificate>,
    ) -> Result<(), journal::Error> {
        let (boot_id, key) = (self.boot_id.clone(), self.pair.serialize_pem());
        let record = IdentityRecord { boot_id, key, certificate: certificate.cloned() };
        journal.write(Page::Identity, &record).await
    }

    /// Returns a PKCS#10 request in DER. It contains no names: the site sets the subject of the certificate.
    fn csr(&self) -> Result<Vec<u8>, rcgen::Error> {
        Ok(CertificateParams::default().serialize_request(&self.pair)?.der().to_vec())
    }
}

async fn redeem(
    link: &ControlPlaneClient,
    token: &Secret<String>,
    holder: &Holder,
    csr: Vec<u8>,
) -> anyhow::Result<IssuedCertificate> {
    let (boot_token, holder) = (token.expose().clone(), Some(holder.clone()));
    let redeemed = link.redeem(RedeemRequest { boot_token, csr, holder }).await;
    let RedeemResponse { certificate, hardware_id, expire_time } = match redeemed {
        Ok(response) => response,
        Err(status) => report_refusal(&status).await,
    };
    Ok(IssuedCertificate { pem: certificate, hardware_id, expires: time(expire_time)? })
}

fn time(stamp: Option<prost_types::Timestamp>) -> anyhow::Result<SystemTime> {
    let stamp = stamp.context("a certificate without expire_time")?;
    stamp.try_into().context("a certificate's expire_time")
}

/// Returns the delay before a certificate that expires at `expires` is renewed: half of the remaining time. So with a
/// lifetime of one day, the server may be unreachable for half a day.
fn renewal_delay(now: SystemTime, expires: SystemTime) -> Duration {
    let left = expires.duration_since(now).unwrap_or_default();
    (left / 2).max(MIN_RENEWAL_DELAY)
}

async fn report_refusal<T>(status: &Status) -> T {
    loop {
        let error: &dyn std::error::Error = status;
        tracing::error!(error, "boot token refused: reboot this machine");
        tokio::time::sleep(REFUSED_RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_half_of_its_lifetime() {
        let hour = Duration::from_secs(3600);
        assert_eq!(renewal_delay(UNIX_EPOCH, UNIX_EPOCH + 24 * hour), 12 * hour);
    }

    #[test]
    fn an_expired_certificate_is_renewed_after_the_minimum_delay() {
        assert_eq!(renewal_delay(UNIX_EPOCH + MIN_RENEWAL_DELAY, UNIX_EPOCH), MIN_RENEWAL_DELAY);
    }

    #[tokio::test]
    async fn a_restarted_worker_has_the_same_key_only_within_one_boot() {
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
