//! The certificates of the site's authority: one, or two while a new one replaces a former one.
//!
//! ```text
//! <secrets>/ca.pem            the certificates that are trusted
//! <secrets>/ca-cross.pem      from a rotation on: the certificate of the new authority, signed by the former one
//! ```
//!
//! The authority that issues is the one whose key is there; without a key it is the first one. Servers present `ca-cross.pem` along with
//! a certificate of the new authority, so that clients which know the former one only trust them.

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::KeyPair;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

use super::{Error, SiteAuthority, read};
use crate::secret::Secret;

const END: &str = "-----END CERTIFICATE-----";

/// The trusted certificates.
#[derive(Debug)]
pub(super) struct Trust {
    /// At least one.
    pub(super) all: Vec<CertificateDer<'static>>,
    /// The index of the one that issues.
    pub(super) issuer: usize,
    /// Its key in PEM, if this process has it.
    pub(super) key: Option<Secret<String>>,
    /// The new authority's certificate, signed by the former one.
    cross: Option<CertificateDer<'static>>,
    pem: String,
    /// The fingerprint of the certificate that issues. Each boot script has it.
    fingerprint: String,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

impl Trust {
    /// Reads the certificates in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("ca.pem");
        let pem = read(&path)?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let all = all.ok().filter(|all| !all.is_empty());
        let all = all.ok_or_else(|| Error::Damaged(path))?;
        let key = folder.join("ca-key.pem");
        let key = key.exists().then(|| read(&key).map(Secret::new)).transpose()?;
        let issuer = match &key {
            Some(key) => {
                let key = KeyPair::from_pem(key.expose())?;
                all.iter().position(|own| is_of_key(own, &key)).unwrap_or_default()
            }
            None => 0,
        };
        let cross = CertificateDer::from_pem_file(folder.join("ca-cross.pem")).ok();
        let mut roots = RootCertStore::empty();
        for own in &all {
            roots.add(own.clone())?;
        }
        let roots = Arc::new(roots);
        let general = |error: rustls::client::VerifierBuilderError| {
            Error::Tls(rustls::Error::General(error.to_string()))
        };
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
        let clients = clients.allow_unauthenticated().build().map_err(general)?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        let (fingerprint, servers) = (fingerprint(&all[issuer]), servers.map_err(general)?);
        Ok(Self { all, issuer, key, cross, pem, fingerprint, clients, servers })
    }

    /// Returns the certificate of the authority that issues.
    pub(super) fn issuer(&self) -> &CertificateDer<'static> {
        &self.all[self.issuer]
    }

    /// Returns the certificates in PEM, beginning with the one that issues.
    pub(super) fn pems(&self) -> Vec<String> {
        let parts = self.pem.split_inclusive(END).filter(|part| part.contains(END));
        let mut pems: Vec<String> = parts.map(|part| format!("{}\n", part.trim())).collect();
        if self.issuer < pems.len() {
            pems[..=self.issuer].rotate_right(1);
        }
        pems
    }

    /// Returns the chain of `leaf`: with the certificate that the former authority signed, if the new one issued `leaf`.
    pub(super) fn chain(&self, leaf: CertificateDer<'static>) -> Vec<CertificateDer<'static>> {
        let cross = self.cross.iter().filter(|cross| names_of(&leaf).1 == names_of(cross).0);
        let cross: Vec<_> = cross.cloned().collect();
        std::iter::once(leaf).chain(cross).collect()
    }

    /// True if the authority that issues has issued the certificate `der`.
    pub(super) fn has_issued(&self, der: &[u8]) -> bool {
        names_of(der).1 == names_of(self.issuer()).0
    }

    /// True if the authority that issues is the one that replaced the former one.
    pub(super) fn issues_by_new_key(&self) -> bool {
        self.cross.as_ref().is_some_and(|cross| names_of(cross).0 == names_of(self.issuer()).0)
    }

    /// True if the authority named `issuer` is trusted.
    fn has_authority(&self, issuer: &[u8]) -> bool {
        self.all.iter().any(|own| names_of(own).0 == issuer)
    }

    fn differs(&self, other: &Self) -> bool {
        let parts = |trust: &Self| (trust.all.clone(), trust.issuer, trust.cross.clone());
        let key = |trust: &Self| trust.key.as_ref().map(|key| key.expose().clone());
        parts(self) != parts(other) || key(self) != key(other)
    }
}

/// Returns the encoded subject and issuer of the certificate `der`; empty if it cannot be parsed. Each authority has a name of its own.
fn names_of(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(der) else {
        return Default::default();
    };
    (parsed.subject().as_raw().to_vec(), parsed.issuer().as_raw().to_vec())
}

/// Returns the name of the authority that issued the certificate `der`; empty if it cannot be parsed.
pub(super) fn issuer_name(der: &[u8]) -> String {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(der) else { return String::new() };
    parsed.issuer().to_string()
}

/// True if the certificate `der` is of `key`.
pub(super) fn is_of_key(der: &[u8], key: &KeyPair) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(der) else { return false };
    *parsed.public_key().subject_public_key.data == *key.public_key_raw()
}

impl SiteAuthority {
    pub(super) fn trust(&self) -> Arc<Trust> {
        self.trust.borrow().clone()
    }

    /// Reads the authority's certificates again. Returns true if they have changed.
    pub fn reload_authority(&self) -> Result<bool, Error> {
        let found = Arc::new(Trust::read(&self.folder)?);
        Ok(self.trust.send_if_modified(|current| {
            let differs = found.differs(current);
            if differs {
                *current = found;
            }
            differs
        }))
    }

    /// Resolves once the authority that issued the certificate `leaf` is not trusted any more.
    pub async fn dropped_issuer_of(&self, leaf: &CertificateDer<'_>) {
        let issuer = names_of(leaf).1;
        let mut trust = self.trust.subscribe();
        if trust.wait_for(|trust| !trust.has_authority(&issuer)).await.is_err() {
            // Not reached: the sender lives as long as this value.
            std::future::pending().await
        }
    }

    /// Returns the certificates in PEM that all clients trust: the authority's, and during a rotation those of both.
    pub fn authority(&self) -> String {
        self.trust().pem.clone()
    }

    /// Returns the names of the authorities that are trusted.
    pub fn authority_names(&self) -> Vec<String> {
        // Each has signed its own certificate.
        self.trust().all.iter().map(|own| issuer_name(own)).collect()
    }

    /// Returns the SHA-256 of the authority's certificate (DER) in hex. A machine trusts the certificate with it only.
    pub fn fingerprint(&self) -> String {
        self.trust().fingerprint.clone()
    }

    /// Returns the fingerprints of all trusted certificates, beginning with that of the authority that issues.
    pub fn fingerprints(&self) -> Vec<String> {
        let trust = self.trust();
        let others = trust.all.iter().filter(|own| *own != trust.issuer());
        std::iter::once(trust.issuer()).chain(others).map(|own| fingerprint(own)).collect()
    }
}

/// Returns the algorithms of TLS.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn fingerprint(der: &[u8]) -> String {
    digest(&SHA256, der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Verifies the certificates of peers with those that are trusted at the time of the handshake.
#[derive(Debug)]
pub(super) struct PeerVerifier(pub(super) Arc<SiteAuthority>);

/// Checks signatures by the verifier of the peers, with the certificates that are trusted now.
macro_rules! check_signatures {
    ($peers:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.0.trust().$peers.verify_tls12_signature(message, leaf, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.0.trust().$peers.verify_tls13_signature(message, leaf, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.trust().$peers.supported_verify_schemes()
        }
    };
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // They change while the server runs, and no client of ours chooses by them.
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.trust().clients.verify_client_cert(leaf, chain, now)
    }

    check_signatures!(clients);
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.trust().servers.verify_server_cert(leaf, chain, name, ocsp, now)
    }

    check_signatures!(servers);
}
