//! Downloads over HTTP that go on after an interruption, of this command or of an earlier one.
//!
//! ```text
//! request the rest ──▶ append ──▶ append ──▶ … ──▶ compare the checksum of the whole
//!       ▲                 │ disconnected, stalled, 5xx
//!       └──── delay ──────┘ until the attempts are used up; the part stays for the next command
//! ```
//!
//! The rest is requested without If-Range: the checksum of the whole file tells if the part and the
//! rest belong together.

mod part;

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, RANGE};
use reqwest::{Certificate, Client, Response, StatusCode, Url};

use crate::checksums::Checksum;
use crate::text::Size;

pub use part::Part;

/// Timeout for a connection, and for the next byte on it.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay after the first failure, and its maximum. Each failure doubles it.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Attempts in a row without a new byte, after which a download fails.
const MAX_FRUITLESS_ATTEMPTS: u32 = 5;
/// Attempts in all, after which a download fails.
const MAX_ATTEMPTS: u32 = 200;
/// Maximum size of a checksum file. Publishers' files have some KiB.
const MAX_CHECKSUM_FILE_BYTES: usize = 4 << 20;

/// Downloads files.
#[derive(Clone, Debug)]
pub struct Downloader {
    client: Client,
    delays: (Duration, Duration),
}

/// Permission for downloads without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// URLs with `http` are requested.
    Allowed,
    /// URLs with `http` are refused.
    Refused,
}

/// Observer of a download, such as a progress bar.
pub trait Observer: Send + Sync {
    /// Takes the number of bytes that the file has.
    fn position(&self, bytes: u64);
    /// Takes the size of the whole file, once it is known.
    fn total(&self, bytes: u64);
    /// Takes a text about an interruption, after which the download goes on.
    fn interrupted(&self, text: &str);
}

/// Reason why a download failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file with certificates cannot be read.
    #[error("reading {}", .path.display())]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file has no certificate.
    #[error("{}: no certificate", .0.display())]
    NoAuthority(PathBuf),
    /// The client cannot be set up.
    #[error("preparing the download")]
    Client(#[source] reqwest::Error),
    /// The download of this URL failed.
    #[error("{url}")]
    Url {
        /// The URL.
        url: Url,
        /// Reason of the failure.
        source: Box<Error>,
    },
    /// The download is not complete, and its part is left.
    #[error("interrupted after {}: the same command goes on there", Size(*.bytes))]
    Interrupted {
        /// Size of the part in bytes.
        bytes: u64,
        /// Reason of the interruption.
        source: Box<Error>,
    },
    /// A request failed.
    #[error("{0}")]
    Request(String),
    /// The server answered with another status than success.
    #[error("the server answers {0}")]
    Status(StatusCode),
    /// The server has another file than the one that the part begins.
    #[error("the server has another file: starts from the beginning")]
    OtherFile,
    /// A file is larger than allowed.
    #[error("the file has more than {}", Size(*.0))]
    TooLarge(u64),
    /// A checksum file is not text.
    #[error("the file is not text")]
    NotText,
    /// The part cannot be opened.
    #[error("{}", .path.display())]
    Part {
        /// Path of the part.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The part cannot be written.
    #[error("writing the download")]
    Write(#[source] io::Error),
    /// The file has another checksum than expected.
    #[error(
        "wrong checksum: {} with {actual}, published is {expected}; the download was removed", Size(*.bytes)
    )]
    Checksum {
        /// Size of the file in bytes.
        bytes: u64,
        /// Checksum of the file.
        actual: Checksum,
        /// Checksum that the publisher has.
        expected: Checksum,
    },
}

impl Error {
    fn at(self, url: &Url) -> Self {
        Self::Url { url: url.clone(), source: Box::new(self) }
    }
}

/// An attempt that failed.
#[derive(Debug)]
struct AttemptError {
    error: Error,
    /// True if another attempt would fail in the same way.
    is_final: bool,
}

impl AttemptError {
    fn new(error: Error, is_final: bool) -> Self {
        Self { error, is_final }
    }

    /// The error of a response with another status than success.
    fn status(status: StatusCode) -> Self {
        // Overload, maintenance and errors of proxies are temporary.
        let is_temporary = matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504);
        Self::new(Error::Status(status), !is_temporary)
    }

    /// The error of a request. Nothing is tried again if not even the first connection succeeded:
    /// its reason may be a wrong name.
    fn request(error: reqwest::Error, has_bytes: bool) -> Self {
        let is_final = error.is_builder() || error.is_redirect() || !has_bytes;
        Self::new(Error::Request(cause(error)), is_final)
    }
}

/// A write to the part failed: another attempt would not help.
impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::new(Error::Write(error), true)
    }
}

impl Downloader {
    /// Creates a downloader that trusts the host's certificate authorities, and those in the file
    /// `ca` (PEM).
    pub fn new(plaintext: Plaintext, ca: Option<&Path>) -> Result<Self, Error> {
        let mut client = Client::builder()
            .user_agent(concat!("tinwright/", env!("CARGO_PKG_VERSION")))
            .https_only(plaintext == Plaintext::Refused)
            .connect_timeout(STALL_TIMEOUT)
            .read_timeout(STALL_TIMEOUT);
        if let Some(path) = ca {
            client = client.tls_certs_merge(authorities(path)?);
        }
        Ok(Self { client: client.build().map_err(Error::Client)?, delays: RETRY_DELAYS })
    }

    /// Sets the delay after the first failure, and the maximum delay.
    #[must_use]
    pub fn with_delays(self, first: Duration, max: Duration) -> Self {
        Self { delays: (first, max), ..self }
    }

    /// Returns the text at `url`.
    pub async fn text(&self, url: &Url) -> Result<String, Error> {
        let mut failures = 0;
        loop {
            match self.text_once(url).await {
                Ok(text) => return Ok(text),
                Err(AttemptError { error, is_final }) => {
                    failures += 1;
                    if is_final || failures >= MAX_FRUITLESS_ATTEMPTS {
                        return Err(error.at(url));
                    }
                    tokio::time::sleep(self.delay_after(failures)).await;
                }
            }
        }
    }

    async fn text_once(&self, url: &Url) -> Result<String, AttemptError> {
        let request = self.client.get(url.clone());
        let sent = request.send().await;
        let mut response = sent.map_err(|error| AttemptError::request(error, false))?;
        if response.status() != StatusCode::OK {
            return Err(AttemptError::status(response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = next(&mut response).await? {
            bytes.extend_from_slice(chunk.as_ref());
            if bytes.len() > MAX_CHECKSUM_FILE_BYTES {
                let error = Error::TooLarge(MAX_CHECKSUM_FILE_BYTES as u64);
                return Err(AttemptError::new(error, true));
            }
        }
        String::from_utf8(bytes).map_err(|_| AttemptError::new(Error::NotText, true))
    }

    /// Downloads `url` into `part`, which has a beginning of the file, or nothing. Verifies the
    /// checksum of the whole: if it is wrong, the part is removed. Returns the path of the file.
    pub async fn file(&self, url: &Url, mut part: Part) -> Result<PathBuf, Error> {
        let mut fruitless = 0;
        let mut attempts = 0;
        loop {
            let before = part.received();
            let Err(AttemptError { error, is_final }) = self.attempt(url, &mut part).await else {
                return part.verified().map_err(|error| error.at(url));
            };
            attempts += 1;
            fruitless = if part.received() > before { 1 } else { fruitless + 1 };
            if is_final || fruitless >= MAX_FRUITLESS_ATTEMPTS || attempts >= MAX_ATTEMPTS {
                return Err(part.interrupted(error).at(url));
            }
            let delay = self.delay_after(fruitless);
            part.pause(&error, delay);
            tokio::time::sleep(delay).await;
        }
    }

    async fn attempt(&self, url: &Url, part: &mut Part) -> Result<(), AttemptError> {
        let has_bytes = part.received() > 0;
        // No content coding: the checksum is that of the file as it is stored.
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        if part.length() > 0 {
            request = request.header(RANGE, format!("bytes={}-", part.length()));
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| AttemptError::request(error, has_bytes))?;
        if !part.fits(&response)? {
            return Ok(());
        }
        while let Some(bytes) = next(&mut response).await? {
            part.append(&bytes)?;
        }
        Ok(())
    }

    /// Returns the delay after `failures` failures in a row.
    fn delay_after(&self, failures: u32) -> Duration {
        let (first, max) = self.delays;
        let doublings = failures.saturating_sub(1);
        first.saturating_mul(2_u32.saturating_pow(doublings)).min(max)
    }
}

/// Returns the next bytes of a body; none at its end.
async fn next(response: &mut Response) -> Result<Option<impl AsRef<[u8]> + use<>>, AttemptError> {
    response.chunk().await.map_err(|error| AttemptError::request(error, true))
}

/// Reads the certificates in the file at `path`.
fn authorities(path: &Path) -> Result<Vec<Certificate>, Error> {
    let failed = |source| Error::Authorities { path: path.to_owned(), source };
    let pem = std::fs::read(path).map_err(|error| failed(error.into()))?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|error| failed(error.into()))?;
    match authorities.is_empty() {
        true => Err(Error::NoAuthority(path.to_owned())),
        false => Ok(authorities),
    }
}

/// Returns the innermost cause of an error: the outer ones only repeat the URL.
fn cause(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer for {} s", STALL_TIMEOUT.as_secs());
    }
    let mut cause = None;
    let mut next = error.source();
    while let Some(error) = next {
        cause = Some(error.to_string());
        next = error.source();
    }
    cause.unwrap_or_else(|| error.without_url().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_no_certificate_is_refused() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let error = Downloader::new(Plaintext::Refused, Some(place.path())).unwrap_err();
        assert!(error.to_string().ends_with(": no certificate"), "{error}");
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let downloader = Downloader::new(Plaintext::Refused, None).unwrap();
        let seconds = [1, 2, 3, 5, 6, u32::MAX].map(|it| downloader.delay_after(it).as_secs());
        assert_eq!(seconds, [1, 2, 4, 15, 15, 15]);
    }
}
