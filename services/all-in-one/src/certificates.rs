//! The certificates of this process. They are renewed while it runs, because it may run longer than they are valid. The log warns of the end
//! of each that is not renewed.
//!
//! - `expiry`: the warnings.

mod expiry;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use runtime::Clock;
use runtime::authority::{Error, RenewableCertificate, SiteAuthority};
use tokio_util::sync::CancellationToken;

use self::expiry::ExpiryWarnings;
use crate::config::{Config, GatewayTransport, Service};
use crate::endpoints;

/// The longest time between two renewals. A certificate that was copied anew is presented after it at the latest.
const MAX_RENEWAL_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The shortest time between two renewals, also after the end of a certificate.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// The certificates that this process presents.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    /// The site, whose authority issues them.
    pub(crate) site: Arc<SiteAuthority>,
    /// The names of this server, if this process issues the site's certificates.
    issuer_names: Option<Vec<String>>,
    /// The server's; none without TLS.
    pub(crate) server: Option<Arc<RenewableCertificate>>,
    /// That for calls of other processes; none if they are not called with TLS.
    pub(crate) service: Option<Arc<RenewableCertificate>>,
    /// That for the gateway's calls of other processes.
    pub(crate) door: Option<Arc<RenewableCertificate>>,
    /// That for the builder's.
    pub(crate) builder: Option<Arc<RenewableCertificate>>,
    /// The operator's certificate of the gateway.
    pub(crate) gateway: Option<Arc<RenewableCertificate>>,
    /// The operator's certificate of boot HTTPS, which is read at the start only.
    boot_https: Option<Arc<RenewableCertificate>>,
}

impl Certificates {
    /// Issues or reads the certificates that `config` needs.
    pub(crate) fn open(config: &Config, site: &Arc<SiteAuthority>) -> anyhow::Result<Self> {
        let names = config.names();
        let server = || RenewableCertificate::server(site.clone(), names.clone());
        let transport = config.gateway.as_ref().map(|gateway| &gateway.transport);
        let has_server = config.tls || transport == Some(&GatewayTransport::Site);
        let server = has_server.then(server).transpose().context("issuing the certificate")?;
        let gateway = match transport {
            Some(GatewayTransport::KeyPair { certificate, key }) => {
                Some(RenewableCertificate::files(site.clone(), certificate, key)?)
            }
            Some(GatewayTransport::Site | GatewayTransport::Plaintext) | None => None,
        };
        let https = config.netboot.as_ref().and_then(|netboot| netboot.boot.https.as_ref());
        let boot_https = https
            .map(|own| RenewableCertificate::files(site.clone(), &own.certificate, &own.key))
            .transpose()?;
        let client = |caller| RenewableCertificate::service(site.clone(), caller);
        let has_peers = config.split.has_tls_peers();
        let services = config.split.served().filter(|it| !it.has_own_role());
        let service = endpoints::caller(services)?.filter(|_| has_peers).map(client).transpose();
        let door = endpoints::caller([Service::Gateway])?;
        let door = door.filter(|_| has_peers && config.gateway.is_some()).map(client).transpose();
        let builder = config.split.served().find(|it| *it == Service::Builder);
        let is_remote = !config.split.peers(Service::Image).is_empty();
        let builder = endpoints::caller(builder)?.filter(|_| has_peers && is_remote).map(client);
        Ok(Self {
            site: site.clone(),
            server,
            service: service.context("opening the certificate of this process")?,
            door: door.context("opening the certificate of this process as a door")?,
            builder: builder
                .transpose()
                .context("opening the certificate of this process as a builder")?,
            gateway,
            boot_https,
            issuer_names: config.split.owns_records().then_some(names),
        })
    }

    /// Returns the end of each certificate, with its use.
    pub(crate) fn ends(&self) -> Vec<(&'static str, SystemTime)> {
        let end = |own: &Option<Arc<RenewableCertificate>>| own.as_ref()?.expire_time();
        let ends = [
            ("authority", self.site.expire_time().ok()),
            ("server", end(&self.server)),
            ("service", end(&self.service)),
            ("door", end(&self.door)),
            ("builder", end(&self.builder)),
            ("gateway", end(&self.gateway)),
            ("boot_https", end(&self.boot_https)),
        ];
        ends.into_iter().filter_map(|(certificate, end)| Some((certificate, end?))).collect()
    }

    /// Renews the certificates until `stop`: every hour, and more often towards their end. Warns of those that end soon nevertheless.
    pub(crate) async fn keep_renewed(self, stop: CancellationToken) -> anyhow::Result<()> {
        let clock = Clock::system();
        let mut warnings = ExpiryWarnings::default();
        warnings.log(self.ends(), clock.wall());
        let pause = || tokio::time::sleep(renewal_interval(self.first_end(), clock.wall()));
        while stop.run_until_cancelled(pause()).await.is_some() {
            let own = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || own.renew()).await? {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(target: "tinwright", error, "certificates not renewed; trying again later");
            }
            warnings.log(self.ends(), clock.wall());
        }
        Ok(())
    }

    /// Returns the first end of the certificates that this process presents.
    fn first_end(&self) -> Option<SystemTime> {
        self.own().filter_map(|own| own.expire_time()).min()
    }

    /// Returns the certificates that this process presents.
    fn own(&self) -> impl Iterator<Item = &Arc<RenewableCertificate>> {
        let own = [&self.server, &self.service, &self.door, &self.builder, &self.gateway];
        own.into_iter().flatten()
    }

    /// Renews the certificates.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        if let Some(names) = &self.issuer_names {
            self.site.renew_stored_certificates(names)?;
        } else if self.site.needs_service_certificate() {
            tracing::warn!(
                target: "tinwright",
                is_edge = self.site.is_edge(),
                "the certificate of this process nears its end: copy service.pem anew, with its key, from a process that has ca-key.pem, or issue the edge again"
            );
        }
        self.own().try_for_each(|own| own.renew())
    }
}

/// Returns the time from `now` to the next renewal of a certificate that ends at `end`: several are tried before the end.
fn renewal_interval(end: Option<SystemTime>, now: SystemTime) -> Duration {
    let left = end.map(|end| end.duration_since(now).unwrap_or_default());
    let interval = left.map_or(MAX_RENEWAL_INTERVAL, |left| left / 4);
    interval.clamp(MIN_RENEWAL_INTERVAL, MAX_RENEWAL_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_renewed_every_hour_and_more_often_towards_their_end() {
        let now = SystemTime::UNIX_EPOCH;
        let interval = |seconds| renewal_interval(Some(now + Duration::from_secs(seconds)), now);
        assert_eq!(interval(398 * 24 * 3600), Duration::from_secs(3600));
        assert_eq!(interval(3600), Duration::from_secs(900));
        assert_eq!(interval(1), Duration::from_secs(10));
        let ended = renewal_interval(Some(now), now + Duration::from_secs(60));
        assert_eq!(ended, Duration::from_secs(10));
        assert_eq!(renewal_interval(None, now), Duration::from_secs(3600));
    }
}
