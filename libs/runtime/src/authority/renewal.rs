//! Certificates that are renewed while the process runs. Each handshake presents the current one; open connections keep theirs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};

use super::trust::{PeerVerifier, provider};
use super::{Error, SiteAuthority, certificate, end, read};
use crate::clock::Clock;
use crate::identity::Caller;
use crate::secret::Secret;

/// A certificate of this process, with its key.
#[derive(Debug)]
pub struct RenewableCertificate {
    site: Arc<SiteAuthority>,
    holder: Holder,
    current: RwLock<Arc<CertifiedKey>>,
}

/// The use of a certificate.
#[derive(Debug)]
enum Holder {
    /// A server with these names.
    Server(Vec<String>),
    /// A client of other processes, which is this caller.
    Service(Caller),
    /// A server with the operator's certificate chain and key, in these files.
    Files(PathBuf, PathBuf),
}

impl Holder {
    /// Issues the certificate, or reads it from the site's secrets.
    fn certificate(&self, site: &SiteAuthority) -> Result<Arc<CertifiedKey>, Error> {
        let own = match self {
            Self::Server(names) => site.server(names)?,
            Self::Service(caller) => site.client_of_others(caller)?,
            Self::Files(certificate, key) => return key_pair(certificate, key),
        };
        let chain = site.trust().chain(certificate(&own.certificate, &site.folder)?);
        let key = PrivateKeyDer::from_pem_slice(own.key.expose().as_bytes());
        let key = key.map_err(|_| Error::Damaged(site.folder.clone()))?;
        Ok(Arc::new(CertifiedKey::from_der(chain, key, &provider())?))
    }
}

/// Reads the operator's certificate chain and key.
fn key_pair(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, Error> {
    let damaged = |path: &Path| Error::Damaged(path.to_owned());
    let pem = read(certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let pem = Secret::new(read(key)?);
    let der = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|_| damaged(key))?;
    let chain = chain.ok_or_else(|| damaged(certificate))?;
    Ok(Arc::new(CertifiedKey::from_der(chain, der, &provider())?))
}

impl RenewableCertificate {
    /// Issues the certificate of a server with these `names`, host names or addresses. Without the authority's key it is the
    /// service's certificate, with the names that it was issued for.
    pub fn server(site: Arc<SiteAuthority>, names: Vec<String>) -> Result<Arc<Self>, Error> {
        Self::new(site, Holder::Server(names))
    }

    /// Issues the certificate of this process as a client of others, to `caller`. Without the authority's key it is the stored
    /// certificate, whose caller is all services.
    pub fn service(site: Arc<SiteAuthority>, caller: Caller) -> Result<Arc<Self>, Error> {
        Self::new(site, Holder::Service(caller))
    }

    /// Reads the operator's certificate chain and key (PEM) out of these files. A renewal reads them again.
    pub fn files(
        site: Arc<SiteAuthority>,
        certificate: &Path,
        key: &Path,
    ) -> Result<Arc<Self>, Error> {
        Self::new(site, Holder::Files(certificate.to_owned(), key.to_owned()))
    }

    fn new(site: Arc<SiteAuthority>, holder: Holder) -> Result<Arc<Self>, Error> {
        let current = RwLock::new(holder.certificate(&site)?);
        Ok(Arc::new(Self { site, holder, current }))
    }

    /// Issues or reads the certificate again, for later handshakes. After an error the present one stays.
    pub fn renew(&self) -> Result<(), Error> {
        let renewed = self.holder.certificate(&self.site)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }

    /// Returns the end of the present certificate.
    pub fn expire_time(&self) -> Option<SystemTime> {
        end(self.current().cert.first()?)
    }

    /// Returns the TLS settings of a server that presents this certificate. Clients may present a certificate of the site; any
    /// other certificate is refused. Sessions are not resumed, because a resumed one would not be verified again.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, Error> {
        let clients = Arc::new(PeerVerifier(self.site.clone()));
        let config = ServerConfig::builder_with_details(provider(), self.time());
        let config = config.with_safe_default_protocol_versions()?;
        let mut config = config.with_client_cert_verifier(clients).with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Returns the TLS settings of an HTTP/2 client that presents this certificate, and trusts servers of the site only. Sessions
    /// are not resumed here, either.
    pub fn client_config(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        let config = ClientConfig::builder_with_details(provider(), self.time());
        let config = config.with_safe_default_protocol_versions()?;
        // What verifies is webpki, as without this; only its roots change.
        let servers = Arc::new(PeerVerifier(self.site.clone()));
        let config = config.dangerous().with_custom_certificate_verifier(servers);
        let mut config = config.with_client_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn time(&self) -> Arc<dyn TimeProvider> {
        Arc::new(TlsTime(self.site.clock.clone()))
    }
}

impl ResolvesServerCert for RenewableCertificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for RenewableCertificate {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The time at which the peer's certificate has to be valid.
#[derive(Debug)]
struct TlsTime(Clock);

impl TimeProvider for TlsTime {
    fn current_time(&self) -> Option<UnixTime> {
        self.0.wall().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rustls::HandshakeKind;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::identity::Role;

    const NAME: &str = "rack.lab";
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    struct Site {
        _folder: tempfile::TempDir,
        clock: Clock,
        authority: Arc<SiteAuthority>,
        server: Arc<RenewableCertificate>,
        service: Arc<RenewableCertificate>,
    }

    fn site() -> Site {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(SystemTime::now()));
        let authority = SiteAuthority::open_at(folder.path(), clock.clone()).unwrap();
        authority.ensure_service_certificate(&[NAME.into()]).unwrap();
        let authority = Arc::new(authority);
        let server = RenewableCertificate::server(authority.clone(), vec![NAME.into()]).unwrap();
        let service =
            RenewableCertificate::service(authority.clone(), Role::Service.into()).unwrap();
        Site { _folder: folder, clock, authority, server, service }
    }

    impl Site {
        /// Returns the role that the server sees in a handshake, or the client's or the server's error.
        async fn handshake(&self) -> Result<Option<Role>, String> {
            let acceptor = TlsAcceptor::from(Arc::new(self.server.server_config().unwrap()));
            let connector = TlsConnector::from(Arc::new(self.service.client_config().unwrap()));
            let (near, far) = tokio::io::duplex(1 << 16);
            let name = ServerName::try_from(NAME).unwrap();
            let (accepted, connected) =
                tokio::join!(acceptor.accept(near), connector.connect(name, far));
            connected.map_err(|error| format!("client: {error}"))?;
            let accepted = accepted.map_err(|error| format!("server: {error}"))?;
            let shown = accepted.get_ref().1.peer_certificates().and_then(<[_]>::first);
            Ok(shown.and_then(|leaf| Caller::in_certificate(leaf)).map(|caller| caller.role()))
        }
    }

    #[tokio::test]
    async fn renewed_certificates_are_accepted_after_the_end_of_the_first_ones() {
        let site = site();
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
        site.clock.advance(399 * DAY);
        let error = site.handshake().await.unwrap_err();
        assert!(error.starts_with("client: ") && error.contains("expired"), "{error}");
        let first_end = site.server.expire_time().unwrap();
        site.server.renew().unwrap();
        assert!(site.server.expire_time().unwrap() >= first_end + 398 * DAY);
        let error = site.handshake().await.unwrap_err();
        assert!(error.starts_with("server: ") && error.contains("expired"), "{error}");
        site.service.renew().unwrap();
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
    }

    /// A process with a copy of the secrets of `site`, as they are now.
    fn copy(site: &Site) -> Site {
        let folder = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&site.authority.folder).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        let authority = SiteAuthority::open_at(folder.path(), site.clock.clone()).unwrap();
        let authority = Arc::new(authority);
        let server = RenewableCertificate::server(authority.clone(), vec![NAME.into()]).unwrap();
        let service =
            RenewableCertificate::service(authority.clone(), Role::Service.into()).unwrap();
        Site { _folder: folder, clock: site.clock.clone(), authority, server, service }
    }

    #[tokio::test]
    async fn peers_of_both_authorities_meet_during_a_rotation_and_those_of_the_former_one_end_with_it()
     {
        let mut site = site();
        let former = copy(&site);
        let own = site.service.clone();
        site.authority.prepare_authority().unwrap();
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
        site.authority.use_next_authority().unwrap();
        site.server.renew().unwrap();
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)), "a certificate of before");
        // A client that knows the former authority only.
        site.service = former.service.clone();
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
        own.renew().unwrap();
        site.authority.drop_old_authority().unwrap();
        let error = site.handshake().await.unwrap_err();
        assert!(error.contains("UnknownIssuer") || error.contains("UnknownCA"), "{error}");
        site.service = own;
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
        site.server = former.server.clone();
        let error = site.handshake().await.unwrap_err();
        assert!(error.starts_with("client: ") && error.contains("UnknownIssuer"), "{error}");
    }

    #[tokio::test]
    async fn no_session_is_resumed() {
        let site = site();
        let stored = site.authority.service().unwrap();
        let leaf = CertificateDer::from_pem_slice(stored.certificate.as_bytes()).unwrap();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            // This client stores what resumes a session, if it is given that.
            let client = ClientConfig::builder_with_provider(provider());
            let client = client.with_protocol_versions(&[version]).unwrap();
            let servers = Arc::new(PeerVerifier(site.authority.clone()));
            let client = client.dangerous().with_custom_certificate_verifier(servers);
            let key = PrivateKeyDer::from_pem_slice(stored.key.expose().as_bytes()).unwrap();
            let client = client.with_client_auth_cert(vec![leaf.clone()], key);
            let client = Arc::new(client.unwrap());
            let server = Arc::new(site.server.server_config().unwrap());
            for _ in 0..2 {
                let (near, far) = tokio::io::duplex(1 << 16);
                let name = ServerName::try_from(NAME).unwrap();
                let (accepted, connected) = tokio::join!(
                    TlsAcceptor::from(server.clone()).accept(near),
                    TlsConnector::from(client.clone()).connect(name, far)
                );
                let (mut accepted, mut connected) = (accepted.unwrap(), connected.unwrap());
                // A ticket would be read before this byte.
                accepted.write_all(b"a").await.unwrap();
                assert_eq!(connected.read_u8().await.unwrap(), b'a');
                let kind = accepted.get_ref().1.handshake_kind();
                assert_eq!(kind, Some(HandshakeKind::Full), "{version:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_certificate_that_cannot_be_renewed_stays() {
        let site = site();
        for name in ["ca-key.pem", "service.pem"] {
            std::fs::remove_file(site.authority.folder.join(name)).unwrap();
        }
        assert!(matches!(site.service.renew(), Err(Error::File { .. })));
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
    }

    #[tokio::test]
    async fn a_server_without_the_authoritys_key_presents_a_copied_certificate_after_the_renewal() {
        let site = site();
        let names = [NAME.to_owned(), "other.lab".to_owned()];
        site.authority.ensure_service_certificate(&names).unwrap();
        std::fs::remove_file(site.authority.folder.join("ca-key.pem")).unwrap();
        site.server.renew().unwrap();
        assert_eq!(site.server.current().cert, {
            site.service.renew().unwrap();
            site.service.current().cert.clone()
        });
        assert_eq!(site.handshake().await, Ok(Some(Role::Service)));
    }
}
