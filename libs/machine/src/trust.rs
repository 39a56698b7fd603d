//! Certificate authorities that this machine trusts. That of the site is identified by its fingerprint in the boot script.
//!
//! ```text
//! ca_sha256= ──▶ in <boot_url>/ca.pem? ──▶ the only root for gRPC
//!                                           └──▶ with Debian's bundle: the roots for image servers
//! ```
//!
//! The file is downloaded without TLS. It is trusted only because of its fingerprint. A restarted program has it in its journal,
//! because the token in the URL is valid for a few minutes only.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use reqwest::{Client, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::journal::{Journal, Page};
use crate::retry_policy::{Backoff, until_given_up};

/// The last line of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";
/// Maximum size of ca.pem in bytes.
const MAX_CA_BYTES: usize = 64 << 10;
/// Timeout for a connection to the boot server, and for the next byte on it.
const BOOT_SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// SHA-256 of a certificate in DER, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

/// The text is not a fingerprint.
#[derive(Debug, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits")]
pub struct InvalidFingerprint;

impl Fingerprint {
    /// Computes the fingerprint of the certificate `der`.
    fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        valid.then(|| Self(text.to_ascii_lowercase())).ok_or(InvalidFingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The site's certificate authority could not be fetched or is not trusted.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("GET ca.pem")]
    Http(#[source] reqwest::Error),
    #[error("ca.pem is larger than {MAX_CA_BYTES} bytes")]
    TooLarge,
    #[error("ca.pem has no certificate")]
    NoCertificate,
    #[error("the certificate in ca.pem has fingerprint {found}, not {expected}: not trusted")]
    Untrusted { found: Fingerprint, expected: Fingerprint },
}

impl Error {
    /// True if a retry is unlikely to help.
    fn is_final(&self) -> bool {
        match self {
            Self::Http(error) => error.status().is_some_and(|status| status.is_client_error()),
            Self::TooLarge | Self::NoCertificate | Self::Untrusted { .. } => true,
        }
    }
}

/// Returns the site's certificate authority in PEM, with the `expected` fingerprint, from the journal or from `boot_url`.
/// Returns `None` after ten minutes of refusals, such as of a boot whose token is over.
pub async fn authority(
    journal: &Journal,
    boot_url: &Url,
    expected: &Fingerprint,
) -> anyhow::Result<Option<String>> {
    let journalled: Option<String> = journal.read(Page::AUTHORITY).await?;
    if let Some(file) = journalled.and_then(|pem| check(pem.into_bytes(), expected).ok()) {
        return Ok(Some(file));
    }
    let client = Client::builder().tls_certs_only([]).no_proxy();
    let client =
        client.connect_timeout(BOOT_SERVER_TIMEOUT).read_timeout(BOOT_SERVER_TIMEOUT).build()?;
    let mut url = boot_url.clone();
    url.set_path(&format!("{}/ca.pem", boot_url.path().trim_end_matches('/')));
    let refusal = "certificate authority of the site not trusted";
    let fetch = async || fetch_trusted(&client, &url, expected).await;
    let Some(pem) = until_given_up(refusal, fetch).await else { return Ok(None) };
    journal.write(Page::AUTHORITY, &pem).await?;
    Ok(Some(pem))
}

/// Fetches the certificate with the `expected` fingerprint. Only a final error ends the retries.
async fn fetch_trusted(
    client: &Client,
    url: &Url,
    expected: &Fingerprint,
) -> Result<String, Error> {
    let mut backoff = Backoff::default();
    loop {
        match fetch(client, url).await.and_then(|file| check(file, expected)) {
            Err(error) if !error.is_final() => backoff.wait("GET ca.pem", &error).await,
            result => return result,
        }
    }
}

async fn fetch(client: &Client, url: &Url) -> Result<Vec<u8>, Error> {
    // The URL contains the token of this boot, which must not be logged.
    let http = |error: reqwest::Error| Error::Http(error.without_url());
    let response =
        client.get(url.clone()).send().await.and_then(reqwest::Response::error_for_status);
    let mut response = response.map_err(http)?;
    let mut file = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(http)? {
        if file.len().saturating_add(bytes.len()) > MAX_CA_BYTES {
            return Err(Error::TooLarge);
        }
        file.extend_from_slice(&bytes);
    }
    Ok(file)
}

/// Returns the certificate in `file` with the `expected` fingerprint, in PEM. While the site's authority is replaced there is another one, which is
/// not trusted: it would be another root.
fn check(file: Vec<u8>, expected: &Fingerprint) -> Result<String, Error> {
    let file = String::from_utf8(file).map_err(|_| Error::NoCertificate)?;
    let mut last = None;
    for pem in file.split_inclusive(END).filter(|part| part.contains(END)) {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        let found = Fingerprint::of(&certificate.map_err(|_| Error::NoCertificate)?);
        if found == *expected {
            return Ok(format!("{}\n", pem.trim()));
        }
        last = Some(found);
    }
    let found = last.ok_or(Error::NoCertificate)?;
    Err(Error::Untrusted { found, expected: expected.clone() })
}

/// Returns the certificate authorities for image servers: those in the bundle, if it exists, and the site's own.
pub fn image_roots(bundle: &Path, authority: &str) -> io::Result<Vec<Vec<u8>>> {
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
    fn only_the_certificate_with_the_fingerprint_is_trusted() {
        let (pem, expected) = certificate();
        assert_eq!(check(pem.clone().into_bytes(), &expected).unwrap(), pem);
        let error = check(certificate().0.into_bytes(), &expected).unwrap_err();
        assert!(matches!(error, Error::Untrusted { .. }) && error.is_final());
    }

    #[test]
    fn a_second_certificate_in_the_file_is_not_trusted() {
        let ((pem, expected), other) = (certificate(), certificate().0);
        for file in [format!("{pem}{other}"), format!("{other}{pem}")] {
            assert_eq!(check(file.into_bytes(), &expected).unwrap(), pem);
        }
        for file in [String::new(), "no PEM".into(), format!("no PEM {END}")] {
            assert!(matches!(check(file.into_bytes(), &expected), Err(Error::NoCertificate)));
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
    fn image_roots_are_the_bundle_and_the_sites_authority() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("ca-certificates.crt");
        assert_eq!(image_roots(&bundle, "site").unwrap(), [b"site"]);
        std::fs::write(&bundle, "public").unwrap();
        assert_eq!(image_roots(&bundle, "site").unwrap(), [&b"public"[..], b"site"]);
    }
}
