//! Whom this machine believes: the one authority whose fingerprint its boot script carries.
//!
//! ```text
//! ca_sha256= ──▶ is it <boot_url>/ca.pem? ──▶ the only root for gRPC
//!                                        └──▶ with Debian's bundle, the roots for image servers
//! ```
//!
//! The file comes in clear from whoever answers; only its digest makes it ours.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use reqwest::{Client, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::retry::{Backoff, REFUSED_RETRY_DELAY};

/// The most that is read of a file that should hold one certificate.
const LARGEST: usize = 64 << 10;
/// How long the boot server may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The SHA-256 of a certificate's DER.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// The text is no fingerprint.
#[derive(Debug, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits")]
pub(crate) struct NoFingerprint;

impl Fingerprint {
    /// Of the certificate `der`.
    fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digit = |letter: char| letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Option<Vec<u8>> = text.chars().map(digit).collect();
        let digits = digits.ok_or(NoFingerprint)?;
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        let bytes = bytes.try_into().map_err(|_| NoFingerprint)?;
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(NoFingerprint) }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why the site's authority is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("GET ca.pem")]
    Http(#[source] reqwest::Error),
    #[error("ca.pem is larger than {LARGEST} bytes")]
    TooLarge,
    #[error("ca.pem is not one certificate")]
    NotOne,
    #[error("the certificate in ca.pem is {found}, not {wanted}: it is not believed")]
    Foreign { found: Fingerprint, wanted: Fingerprint },
}

impl Error {
    /// Whether somebody must act, rather than the server come back.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Http(error) => error.status().is_some_and(|status| status.is_client_error()),
            Self::TooLarge | Self::NotOne | Self::Foreign { .. } => true,
        }
    }
}

/// The site's authority, in PEM, from `boot_url`; asks until it is the one that was `wanted`.
pub(crate) async fn authority(boot_url: &Url, wanted: Fingerprint) -> anyhow::Result<String> {
    let client = Client::builder().tls_certs_only([]).no_proxy();
    let client = client.connect_timeout(PATIENCE).read_timeout(PATIENCE).build()?;
    let mut url = boot_url.clone();
    url.set_path(&format!("{}/ca.pem", boot_url.path().trim_end_matches('/')));
    let mut backoff = Backoff::default();
    loop {
        let fetched = fetch(&client, &url).await;
        match fetched.and_then(|file| checked(file, wanted)) {
            Ok(pem) => return Ok(pem),
            Err(error) if error.is_refusal() => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the site cannot be trusted; asking again in a minute");
                tokio::time::sleep(REFUSED_RETRY_DELAY).await;
            }
            Err(error) => backoff.wait("GET ca.pem", &error).await,
        }
    }
}

async fn fetch(client: &Client, url: &Url) -> Result<Vec<u8>, Error> {
    // The address holds the boot's token, which logs are not to show.
    let http = |error: reqwest::Error| Error::Http(error.without_url());
    let response =
        client.get(url.clone()).send().await.and_then(reqwest::Response::error_for_status);
    let mut response = response.map_err(http)?;
    let mut file = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(http)? {
        if file.len().saturating_add(bytes.len()) > LARGEST {
            return Err(Error::TooLarge);
        }
        file.extend_from_slice(&bytes);
    }
    Ok(file)
}

/// `file` as PEM, if it is the certificate that was `wanted` and nothing more: a second one would be a second root.
fn checked(file: Vec<u8>, wanted: Fingerprint) -> Result<String, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file).collect();
    let Ok([certificate]) = certificates.as_deref() else { return Err(Error::NotOne) };
    let found = Fingerprint::of(certificate);
    if found != wanted {
        return Err(Error::Foreign { found, wanted });
    }
    String::from_utf8(file).map_err(|_| Error::NotOne)
}

/// Whom to believe when files are fetched: what the bundle names, where there is one, and the site itself.
pub(crate) fn image_roots(bundle: &Path, authority: &str) -> io::Result<Vec<Vec<u8>>> {
    let public = match std::fs::read(bundle) {
        Ok(public) => Some(public),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(public.into_iter().chain([authority.as_bytes().to_vec()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> (String, Fingerprint) {
        let own = rcgen::generate_simple_self_signed(["authority".to_owned()]).unwrap();
        (own.cert.pem(), Fingerprint::of(own.cert.der()))
    }

    #[test]
    fn the_certificate_of_the_fingerprint_is_believed_and_no_other() {
        let (pem, wanted) = certificate();
        assert_eq!(checked(pem.clone().into_bytes(), wanted).unwrap(), pem);
        let foreign = checked(certificate().0.into_bytes(), wanted).unwrap_err();
        assert!(matches!(foreign, Error::Foreign { .. }) && foreign.is_refusal());
    }

    #[test]
    fn a_second_certificate_in_the_file_is_not_smuggled_in() {
        let (pem, wanted) = certificate();
        for file in [format!("{pem}{}", certificate().0), String::new(), "no PEM".into()] {
            assert!(matches!(checked(file.into_bytes(), wanted), Err(Error::NotOne)));
        }
    }

    #[test]
    fn a_fingerprint_is_read_back_from_its_text_in_either_case() {
        let (_, fingerprint) = certificate();
        let text = fingerprint.to_string();
        assert_eq!(text.parse::<Fingerprint>().unwrap(), fingerprint);
        assert_eq!(text.to_uppercase().parse::<Fingerprint>().unwrap(), fingerprint);
        for wrong in ["", "abc", &text[1..], &format!("{text}00"), &"é".repeat(64)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn image_servers_are_vouched_for_by_the_bundle_if_there_is_one_and_by_the_site() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("ca-certificates.crt");
        assert_eq!(image_roots(&bundle, "site").unwrap(), [b"site"]);
        std::fs::write(&bundle, "public").unwrap();
        assert_eq!(image_roots(&bundle, "site").unwrap(), [&b"public"[..], b"site"]);
    }
}
