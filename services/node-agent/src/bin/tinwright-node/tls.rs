//! TLS of the https listener: version 1.2 or newer, with ECDHE and AES-GCM or ChaCha20 only, as rustls has it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::arguments::TlsArguments;

/// Returns the settings of the listener.
pub(crate) fn server_config(arguments: &TlsArguments) -> anyhow::Result<Arc<ServerConfig>> {
    let certificate = arguments.tls_certificate.as_deref();
    let certificate = certificate.context("the scheme https needs --tls-certificate")?;
    let key = arguments.tls_key.as_deref().context("the scheme https needs --tls-key")?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match &arguments.tls_ca {
        Some(authorities) => {
            let names = arguments.tls_client_names.clone();
            builder.with_client_cert_verifier(client_verifier(authorities, names, provider)?)
        }
        None => builder.with_no_client_auth(),
    };
    let chain = certificates(certificate)?;
    let private_key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("reading a private key in {}", key.display()))?;
    let both = || format!("{} with {}", certificate.display(), key.display());
    let mut config = builder.with_single_cert(chain, private_key).with_context(both)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.with_context(|| format!("reading certificates in {}", file.display()))?;
    anyhow::ensure!(!read.is_empty(), "{} has no certificate", file.display());
    Ok(read)
}

fn client_verifier(
    authorities: &Path,
    names: Vec<String>,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority).with_context(|| authorities.display().to_string())?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
    match names.is_empty() {
        true => Ok(verifier),
        false => Ok(Arc::new(NamedClients { verifier, names })),
    }
}

/// Accepts certificates that `verifier` accepts and that have one of `names`.
#[derive(Debug)]
struct NamedClients {
    verifier: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(leaf, intermediates, now)?;
        let found = names_of(leaf);
        if found.iter().any(|name| self.names.contains(name)) {
            return Ok(verified);
        }
        tracing::warn!(names = ?found, "client refused: its certificate has none of the accepted names");
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Returns the common names and DNS names of a certificate.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<_> = common.map(str::to_owned).collect();
    if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
        for name in &alternative.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push((*name).to_owned());
            }
        }
    }
    names
}
