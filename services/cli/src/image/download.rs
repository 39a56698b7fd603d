//! Downloads over HTTP that go on after an interruption, of this command or of an earlier one.
//!
//! ```text
//! request the rest ──▶ append ──▶ append ──▶ … ──▶ compare the checksum of the whole
//!       ▲                 │ disconnected, stalled, 5xx
//!       └──── delay ──────┘ until the attempts are used up; the part stays, and the next command goes on with it
//! ```
//!
//! The rest is requested without If-Range: the checksum of the whole file tells if the part and the rest belong together.

use std::error::Error as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{HumanBytes, ProgressBar};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, HeaderMap, RANGE};
use reqwest::{Certificate, Client, Response, StatusCode, Url};
use runtime::retry::Backoff;
use rustix::fs::OFlags;

use super::checksums::{self, Checksum, Sum};

/// Timeout for a connection, and for the next byte on it.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The delays between attempts.
const RETRY_DELAYS: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
/// Attempts in a row without a new byte, after which a download fails.
const MAX_FRUITLESS_ATTEMPTS: u32 = 5;
/// Attempts in all, after which a download fails.
const MAX_ATTEMPTS: u32 = 200;
/// Maximum size of a checksum file. Publishers' files have some KiB.
const MAX_CHECKSUM_FILE_BYTES: usize = 4 << 20;
/// The largest image, in bytes.
const MAX_IMAGE_BYTES: u64 = 64 << 30;

/// Downloads files.
#[derive(Clone, Debug)]
pub(super) struct Downloader {
    client: Client,
    delays: Backoff,
}

/// Downloads allowed without TLS, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plaintext {
    Allowed,
    Refused,
}

/// An attempt that failed.
struct AttemptError {
    error: anyhow::Error,
    /// True if another attempt would fail in the same way.
    is_final: bool,
}

impl AttemptError {
    fn new(error: anyhow::Error, is_final: bool) -> Self {
        Self { error, is_final }
    }

    /// The error of a response with another status than success.
    fn status(status: StatusCode) -> Self {
        // Overload, maintenance and errors of proxies are temporary.
        let is_temporary = matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504);
        Self::new(anyhow::anyhow!("the server answers {status}"), !is_temporary)
    }

    /// The error of a request. Nothing is tried again if not even the first connection succeeded: its reason may be a wrong name.
    fn request(error: reqwest::Error, has_bytes: bool) -> Self {
        let is_final = error.is_builder() || error.is_redirect() || !has_bytes;
        Self::new(anyhow::anyhow!(cause(error)), is_final)
    }
}

/// A write to the part failed: another attempt would not help.
impl From<std::io::Error> for AttemptError {
    fn from(error: std::io::Error) -> Self {
        Self::new(anyhow::Error::new(error).context("writing the download"), true)
    }
}

impl Downloader {
    /// Creates a downloader that trusts the host's certificate authorities, and those in the file `ca` (PEM).
    pub(super) fn new(plaintext: Plaintext, ca: Option<&Path>) -> anyhow::Result<Self> {
        let mut client = Client::builder()
            .user_agent(concat!("tinwright/", env!("CARGO_PKG_VERSION")))
            .https_only(plaintext == Plaintext::Refused)
            .connect_timeout(STALL_TIMEOUT)
            .read_timeout(STALL_TIMEOUT);
        if let Some(path) = ca {
            let reading = || format!("reading {}", path.display());
            let pem = std::fs::read(path).with_context(reading)?;
            let authorities = Certificate::from_pem_bundle(&pem).with_context(reading)?;
            anyhow::ensure!(!authorities.is_empty(), "{}: no certificate", path.display());
            client = client.tls_certs_merge(authorities);
        }
        Ok(Self { client: client.build().context("preparing the download")?, delays: RETRY_DELAYS })
    }

    /// Sets the delays between attempts.
    #[cfg(test)]
    pub(super) fn with_delays(self, delays: Backoff) -> Self {
        Self { delays, ..self }
    }

    /// Returns the text at `url`.
    pub(super) async fn text(&self, url: &Url) -> anyhow::Result<String> {
        let mut failures = 0;
        loop {
            match self.text_once(url).await {
                Ok(text) => return Ok(text),
                Err(AttemptError { error, is_final }) => {
                    failures += 1;
                    if is_final || failures >= MAX_FRUITLESS_ATTEMPTS {
                        return Err(error.context(url.to_string()));
                    }
                    tokio::time::sleep(self.delays.delay_after(failures)).await;
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
        loop {
            let chunk =
                response.chunk().await.map_err(|error| AttemptError::request(error, true))?;
            let Some(chunk) = chunk else { break };
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_CHECKSUM_FILE_BYTES {
                return Err(AttemptError::new(anyhow::anyhow!("the file is too large"), true));
            }
        }
        String::from_utf8(bytes)
            .map_err(|_| AttemptError::new(anyhow::anyhow!("the file is not text"), true))
    }

    /// Downloads `url` into `part`, which has a beginning of the file, or nothing. Verifies the checksum of the whole: if it is wrong, the
    /// part is removed.
    pub(super) async fn file(&self, url: &Url, mut part: Part) -> anyhow::Result<PathBuf> {
        let (mut fruitless, mut attempts) = (0, 0);
        loop {
            let before = part.received;
            let Err(AttemptError { error, is_final }) = self.attempt(url, &mut part).await else {
                return part.verified().with_context(|| url.to_string());
            };
            attempts += 1;
            fruitless = if part.received > before { 1 } else { fruitless + 1 };
            if is_final || fruitless >= MAX_FRUITLESS_ATTEMPTS || attempts >= MAX_ATTEMPTS {
                return Err(part.interrupted(error).context(url.to_string()));
            }
            let delay = self.delays.delay_after(fruitless);
            let (length, seconds) = (HumanBytes(part.length), delay.as_secs_f64());
            part.bar.suspend(|| {
                eprintln!("interrupted after {length} ({error}): goes on in {seconds:.0} s");
            });
            tokio::time::sleep(delay).await;
        }
    }

    async fn attempt(&self, url: &Url, part: &mut Part) -> Result<(), AttemptError> {
        let has_bytes = part.received > 0;
        // No content coding: the checksum is that of the file as it is stored.
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        if part.length > 0 {
            request = request.header(RANGE, format!("bytes={}-", part.length));
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| AttemptError::request(error, has_bytes))?;
        if !part.fits(&response)? {
            return Ok(());
        }
        if let Some(rest) = response.content_length() {
            part.bar.set_length(part.length + rest);
        }
        loop {
            let chunk =
                response.chunk().await.map_err(|error| AttemptError::request(error, true))?;
            match chunk {
                Some(bytes) => part.append(&bytes)?,
                None => return Ok(()),
            }
        }
    }
}

/// The beginning of a file that is downloaded.
pub(super) struct Part {
    path: PathBuf,
    file: File,
    /// Bytes that the file has.
    length: u64,
    /// Bytes that came from the server since this command began.
    received: u64,
    /// The sum of the bytes that the file has.
    sum: Sum,
    expected: Checksum,
    bar: ProgressBar,
}

impl Part {
    /// Opens the part at `path`, or makes an empty one. The complete file shall have the checksum `expected`.
    pub(super) fn open(
        path: PathBuf,
        expected: Checksum,
        bar: ProgressBar,
    ) -> anyhow::Result<Self> {
        let opening = || path.display().to_string();
        // A link that somebody else made is not followed.
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = File::options();
        options.read(true).append(true).create(true).custom_flags(no_links);
        let mut file = options.open(&path).with_context(opening)?;
        let mut sum = expected.sum();
        let length = checksums::add(&mut sum, &mut file).with_context(opening)?;
        bar.set_position(length);
        Ok(Self { path, file, length, received: 0, sum, expected, bar })
    }

    /// True if the body of `response` is to be appended; false if the part is the whole file already. A part that does not fit is emptied.
    fn fits(&mut self, response: &Response) -> Result<bool, AttemptError> {
        match response.status() {
            StatusCode::OK => self.empty()?,
            StatusCode::PARTIAL_CONTENT if range_start(response.headers()) == Some(self.length) => {
            }
            StatusCode::RANGE_NOT_SATISFIABLE if self.length > 0 => {
                // RFC 9110 §15.5.17: `bytes */LENGTH`.
                let whole = response.headers().get(CONTENT_RANGE);
                let whole = whole.and_then(|value| value.to_str().ok()?.strip_prefix("bytes */"));
                if whole.and_then(|length| length.parse().ok()) == Some(self.length) {
                    return Ok(false);
                }
                return Err(self.does_not_fit()?);
            }
            StatusCode::PARTIAL_CONTENT => return Err(self.does_not_fit()?),
            status => return Err(AttemptError::status(status)),
        }
        Ok(true)
    }

    fn does_not_fit(&mut self) -> std::io::Result<AttemptError> {
        self.empty()?;
        let error = anyhow::anyhow!("the server has another file: starts from the beginning");
        Ok(AttemptError::new(error, false))
    }

    fn empty(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        (self.length, self.sum) = (0, self.expected.sum());
        self.bar.set_position(0);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), AttemptError> {
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        let count = bytes.len() as u64;
        (self.length, self.received) = (self.length + count, self.received + count);
        self.bar.set_position(self.length);
        if self.length > MAX_IMAGE_BYTES {
            let limit = HumanBytes(MAX_IMAGE_BYTES);
            return Err(AttemptError::new(anyhow::anyhow!("the file has more than {limit}"), true));
        }
        Ok(())
    }

    /// Returns the path of the complete file if its checksum is right; else removes the file.
    fn verified(self) -> anyhow::Result<PathBuf> {
        let actual = self.sum.finish();
        if actual == self.expected {
            self.file.sync_all().with_context(|| self.path.display().to_string())?;
            return Ok(self.path);
        }
        std::fs::remove_file(&self.path).with_context(|| self.path.display().to_string())?;
        let (length, expected) = (HumanBytes(self.length), &self.expected);
        anyhow::bail!(
            "wrong checksum: {length} with {actual}, published is {expected}; the download was removed"
        )
    }

    /// Returns the error of an interrupted download. A part without content is removed.
    fn interrupted(&self, error: anyhow::Error) -> anyhow::Error {
        if self.length == 0 {
            drop(std::fs::remove_file(&self.path));
            return error;
        }
        let length = HumanBytes(self.length);
        error.context(format!("interrupted after {length}: the same command goes on there"))
    }
}

/// Returns the position at which a partial response begins (RFC 9110 §14.4).
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
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
    fn the_start_of_a_range_is_read() {
        for (value, start) in [
            ("bytes 5-9/10", Some(5)),
            ("bytes 0-0/*", Some(0)),
            ("bytes */10", None),
            ("lines 5-9/10", None),
            ("", None),
        ] {
            let headers = [(CONTENT_RANGE, value.parse().unwrap())].into_iter().collect();
            assert_eq!(range_start(&headers), start, "{value}");
        }
        assert_eq!(range_start(&HeaderMap::new()), None);
    }

    #[test]
    fn a_file_that_has_no_certificate_is_refused() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let error = Downloader::new(Plaintext::Refused, Some(place.path())).unwrap_err();
        assert!(error.to_string().ends_with(": no certificate"), "{error}");
    }
}
