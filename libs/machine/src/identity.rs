//! The machine's identity: a private key, and the certificate that the site issues for the boot token.
//!
//! ```text
//! key ──journal──▶ Redeem(token, CSR) ──journal──▶ certificate ──half its life──▶ Renew(CSR) ──journal──▶ certificate …
//! ```
//!
//! A certificate that was not renewed in time is lost, since Renew needs a valid one. Another boot gets a new token.
//!
//! The token can be redeemed for one key only. Therefore the key is written to the journal before the token is redeemed: if
//! the response is lost, the request is repeated with the same key, and a restarted program has the same identity. Each boot
//! has its own key.

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair};
use runtime::{Clock, Secret};
use serde::{Deserialize, Serialize};
use tinwright::workflow::v1::{Holder, RedeemRequest, RedeemResponse, RenewRequest, RenewResponse};
use tonic::{Status, transport};

use crate::journal::{self, Journal, Page};
use crate::retry_policy::{REFUSED_RETRY_DELAY, until_given_up};

/// The minimum time between two renewals.
const MIN_RENEWAL_DELAY: Duration = Duration::from_secs(1);

/// The control plane, as far as an identity needs it.
pub trait IdentityIssuer {
    /// Calls `Redeem` of the worker service, until it succeeds or its error is final.
    fn redeem(
        &self,
        request: RedeemRequest,
    ) -> impl Future<Output = Result<RedeemResponse, Status>>;

    /// Calls `Renew` of the worker service with the present identity, until it succeeds or its error is final.
    fn renew(&self, request: RenewRequest) -> impl Future<Output = Result<RenewResponse, Status>>;

    /// Presents `certificate` with its private `key`, both in PEM, in all later calls.
    ///
    /// # Errors
    /// A certificate or a key that TLS cannot read.
    fn set_identity(&self, certificate: &str, key: &str) -> Result<(), transport::Error>;
}

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
    enrols: bool,
}

/// The key of one boot.
struct Key {
    boot_id: String,
    pair: KeyPair,
}

/// The key and its certificate.
pub struct MachineIdentity {
    key: Key,
    certificate: IssuedCertificate,
    clock: Clock,
}

impl std::fmt::Debug for MachineIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, certificate, clock: _ } = self;
        f.debug_struct("MachineIdentity")
            .field("hardware_id", &certificate.hardware_id)
            .finish_non_exhaustive()
    }
}

impl MachineIdentity {
    /// Returns the identity of this boot, from the journal or by redeeming `token`, and sets it in `link`. Returns `None` after
    /// the token was refused for ten minutes. `clock` says when certificates expire and are renewed.
    pub async fn establish(
        link: &impl IdentityIssuer,
        journal: &Journal,
        token: &Secret<String>,
        holder: &Holder,
        clock: Clock,
    ) -> anyhow::Result<Option<Self>> {
        let (key, certificate) = Key::open(journal, &holder.boot_id).await?;
        let now = clock.wall();
        let certificate = match certificate.filter(|certificate| certificate.expires > now) {
            None => redeem(link, token, holder, key.csr()?).await?,
            valid => valid,
        };
        let Some(certificate) = certificate else { return Ok(None) };
        key.store(journal, Some(&certificate)).await?;
        let identity = Self { key, certificate, clock };
        identity.apply(link)?;
        Ok(Some(identity))
    }

    /// Returns the id of the machine's hardware record.
    pub fn hardware_id(&self) -> &str {
        &self.certificate.hardware_id
    }

    /// True if the machine has no record yet: it may report its inventory, and nothing else.
    pub fn enrols(&self) -> bool {
        self.certificate.enrols
    }

    /// Renews the certificate each time half of its lifetime has passed. Running actions continue. Returns when the certificate
    /// is expired.
    pub async fn renew_until_expired(&mut self, link: &impl IdentityIssuer, journal: &Journal) {
        let clock = self.clock.clone();
        loop {
            let left = lifetime_left(clock.wall(), self.certificate.expires);
            sleep(&clock, renewal_delay(left)).await;
            let renewal = self.renew_with_retries(link, journal);
            if left.is_zero() {
                // The certificate was just issued: this machine's clock is ahead, and does not tell when it expires.
                renewal.await;
                continue;
            }
            tokio::select! {
                biased;
                () = renewal => {}
                () = sleep(&clock, left / 2) => return,
            }
        }
    }

    /// Renews the certificate. A failure is logged and retried after a minute.
    async fn renew_with_retries(&mut self, link: &impl IdentityIssuer, journal: &Journal) {
        while let Err(error) = self.renew(link, journal).await {
            tracing::error!(
                error = error.as_ref() as &dyn std::error::Error,
                "certificate renewal failed"
            );
            drop(error);
            sleep(&self.clock, REFUSED_RETRY_DELAY).await;
        }
        tracing::info!("certificate renewed");
    }

    async fn renew(&mut self, link: &impl IdentityIssuer, journal: &Journal) -> anyhow::Result<()> {
        let RenewResponse { certificate, expire_time } =
            link.renew(RenewRequest { csr: self.key.csr()? }).await?;
        (self.certificate.pem, self.certificate.expires) = (certificate, time(expire_time)?);
        self.apply(link)?;
        Ok(self.key.store(journal, Some(&self.certificate)).await?)
    }

    fn apply(&self, link: &impl IdentityIssuer) -> Result<(), transport::Error> {
        link.set_identity(&self.certificate.pem, &self.key.pair.serialize_pem())
    }
}

impl Key {
    /// Returns key and certificate of this boot from the journal. If there is no key, writes a new one to the journal first.
    async fn open(
        journal: &Journal,
        boot_id: &str,
    ) -> anyhow::Result<(Self, Option<IssuedCertificate>)> {
        let record: Option<IdentityRecord> = journal.read(Page::IDENTITY).await?;
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
        journal.write(Page::IDENTITY, &record).await
    }

    /// Returns a PKCS#10 request in DER. It contains no names: the site sets the subject of the certificate.
    fn csr(&self) -> Result<Vec<u8>, rcgen::Error> {
        Ok(CertificateParams::default().serialize_request(&self.pair)?.der().to_vec())
    }
}

async fn redeem(
    link: &impl IdentityIssuer,
    token: &Secret<String>,
    holder: &Holder,
    csr: Vec<u8>,
) -> anyhow::Result<Option<IssuedCertificate>> {
    let (boot_token, holder) = (token.expose().clone(), Some(holder.clone()));
    let request = RedeemRequest { boot_token, csr, holder };
    let redeem = async || link.redeem(request.clone()).await;
    let redeemed = until_given_up("boot token refused", redeem).await;
    let Some(RedeemResponse { certificate: pem, hardware_id, expire_time, enrols }) = redeemed
    else {
        return Ok(None);
    };
    Ok(Some(IssuedCertificate { pem, hardware_id, expires: time(expire_time)?, enrols }))
}

fn time(stamp: Option<prost_types::Timestamp>) -> anyhow::Result<SystemTime> {
    let stamp = stamp.context("a certificate without expire_time")?;
    stamp.try_into().context("a certificate's expire_time")
}

async fn sleep(clock: &Clock, delay: Duration) {
    clock.sleep_until(clock.wall() + delay).await;
}

/// Returns the time until `expires`; zero if it is over.
fn lifetime_left(now: SystemTime, expires: SystemTime) -> Duration {
    expires.duration_since(now).unwrap_or_default()
}

/// Returns the delay before a certificate with the lifetime `left` is renewed: half of it. So with a lifetime of one day, the
/// server may be unreachable for half a day.
fn renewal_delay(left: Duration) -> Duration {
    (left / 2).max(MIN_RENEWAL_DELAY)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_half_of_its_lifetime() {
        let hour = Duration::from_secs(3600);
        let left = lifetime_left(UNIX_EPOCH, UNIX_EPOCH + 24 * hour);
        assert_eq!(renewal_delay(left), 12 * hour);
    }

    #[test]
    fn an_expired_certificate_is_renewed_after_the_minimum_delay() {
        let left = lifetime_left(UNIX_EPOCH + Duration::from_secs(1), UNIX_EPOCH);
        assert_eq!((left, renewal_delay(left)), (Duration::ZERO, MIN_RENEWAL_DELAY));
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
