//! Downloads one file over HTTP. The reader gets each byte once and in order, even after disconnects.
//!
//! ```text
//! connect ──▶ read ──▶ read ──▶ … ──▶ complete
//!    ▲          │ disconnected, stalled, 5xx, refused
//!    └─ delay ──┘ until `give_up_after` passes without a new byte
//! ```
//!
//! After a disconnect, the rest is requested with Range and If-Range. If the server sends the whole file again, the bytes
//! that the reader already has are compared and skipped. If the file has changed meanwhile, the download fails; [`resume`]
//! has the rules. [`ranges`] downloads parts of a file.

mod attempts;
mod client;
mod error;
mod ranges;
mod resume;
mod retry_policy;
mod url;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use sha2::{Digest, Sha256};

use attempts::Attempts;
pub(crate) use attempts::OnWait;
use client::client;
pub(crate) use error::{AttemptError, Error};
pub(crate) use ranges::{Caches, RangeReader, RangeSource};
use resume::{FileVersion, Resume};
pub use retry_policy::RetryPolicy;
pub(crate) use url::{redacted, url};

/// A download in progress.
pub(crate) struct Download {
    client: Client,
    attempts: Attempts,
    version: Option<FileVersion>,
    /// Bytes returned to the reader.
    position: u64,
    /// The digest of these bytes, to compare them if the server sends them again. Only used if it sends no validator.
    digest: Option<Sha256>,
    body: Option<Body>,
}

/// A response body, and the number of bytes to skip at its beginning.
struct Body {
    response: Response,
    skip: u64,
    skipped: Sha256,
}

impl Download {
    /// Starts the download of `url`: connects, and reads the response headers. Trusts the certificate authorities in `roots`.
    pub(crate) async fn open(
        roots: &[Vec<u8>],
        url: Url,
        retry: RetryPolicy,
        on_wait: OnWait,
    ) -> Result<Self, Error> {
        let mut download = Self {
            client: client(roots, &retry)?,
            attempts: Attempts::new(url, retry, on_wait),
            version: None,
            position: 0,
            digest: None,
            body: None,
        };
        while let Err(error) = download.connect().await {
            download.wait_or_fail(error).await?;
        }
        Ok(download)
    }

    /// Returns the length of the file in bytes, if the server sends it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.version.as_ref().and_then(|version| version.length)
    }

    /// True if a disconnect cannot be mistaken for the end: the response has a length, or is chunked.
    pub(crate) fn has_known_end(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.length.is_some() || version.chunked)
    }

    /// Returns the next bytes, or `None` at the end of the file. An empty file is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.read().await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => self.wait_or_fail(error).await?,
            }
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, AttemptError> {
        if self.body.is_none() {
            self.connect().await?;
        }
        while let Some(body) = &mut self.body {
            let Some(bytes) = body.response.chunk().await? else { return self.end() };
            if let Some(fresh) = self.accept(bytes)? {
                return Ok(Some(fresh));
            }
        }
        Ok(None)
    }

    /// Returns the part of `bytes` that the reader does not have yet, if any.
    fn accept(&mut self, mut bytes: Bytes) -> Result<Option<Bytes>, AttemptError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        let skipped =
            bytes.split_to(usize::try_from(body.skip).unwrap_or(usize::MAX).min(bytes.len()));
        body.skip -= skipped.len() as u64;
        if let Some(digest) = &self.digest {
            body.skipped.update(&skipped);
            let done = !skipped.is_empty() && body.skip == 0;
            if done && body.skipped.clone().finalize() != digest.clone().finalize() {
                let (was, is) = ("its beginning".into(), "different".into());
                return Err(AttemptError::Changed { was, is });
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        self.position += bytes.len() as u64;
        if let Some(length) = self.length().filter(|length| self.position > *length) {
            return Err(AttemptError::TooLong { length });
        }
        if let Some(digest) = &mut self.digest {
            digest.update(&bytes);
        }
        self.attempts.progressed();
        Ok(Some(bytes))
    }

    fn end(&mut self) -> Result<Option<Bytes>, AttemptError> {
        let skipping = self.body.take().is_some_and(|body| body.skip > 0);
        let short = self.length().is_some_and(|length| self.position < length);
        match self.position {
            _ if skipping || short => Err(AttemptError::Short),
            0 => Err(AttemptError::Empty),
            _ => Ok(None),
        }
    }

    async fn connect(&mut self) -> Result<(), AttemptError> {
        // No content coding: checksums and ranges are those of the file as it is stored.
        let mut request =
            self.client.get(self.attempts.url.clone()).header(ACCEPT_ENCODING, "identity");
        let validator = self.version.as_ref().and_then(|version| version.validator.as_deref());
        if let Some(validator) = validator.filter(|_| self.position > 0) {
            request = request
                .header(RANGE, format!("bytes={}-", self.position))
                .header(IF_RANGE, validator);
        }
        let response = request.send().await?;
        let skip = self.bytes_to_skip(&response)?;
        self.body = Some(Body { response, skip, skipped: Sha256::new() });
        Ok(())
    }

    /// Returns the number of bytes at the beginning of `response` that the reader has already.
    fn bytes_to_skip(&mut self, response: &Response) -> Result<u64, AttemptError> {
        let status = response.status();
        if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(AttemptError::status(status, response.headers()));
        }
        let received = FileVersion::from_headers(response.headers());
        let partial = status == StatusCode::PARTIAL_CONTENT;
        let Some(first) = &self.version else {
            if partial {
                return Err(AttemptError::status(status, response.headers()));
            }
            self.digest = received.validator.is_none().then(Sha256::new);
            self.version = Some(received);
            return Ok(0);
        };
        let range = partial.then(|| resume::content_range(response.headers()));
        match resume::decide(first, self.position, range, &received)? {
            Resume::AtPosition => Ok(0),
            Resume::FromStart => Ok(self.position),
        }
    }

    /// Waits before the next attempt, or fails.
    async fn wait_or_fail(&mut self, error: AttemptError) -> Result<(), Error> {
        self.body = None;
        let length = self.length();
        self.attempts.wait_or_fail(error, self.position, length).await
    }
}
