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
//! has the rules.

mod error;
mod resume;
mod retry_policy;

use std::time::Instant;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use reqwest::{Certificate, Client, Response, StatusCode, Url};
use runtime::Clock;
use sha2::{Digest, Sha256};

use crate::environment::{self, Environment};
pub(crate) use error::{AttemptError, Error};
use resume::{FileVersion, Resume};
pub use retry_policy::RetryPolicy;

/// Creates a client that trusts only the certificate authorities in the PEM bundles `roots`. Without any, only `http` works.
fn client(roots: &[Vec<u8>], retry: &RetryPolicy) -> Result<Client, Error> {
    let bundles: Result<Vec<_>, _> =
        roots.iter().map(|pem| Certificate::from_pem_bundle(pem)).collect();
    let timeout = retry.stall_timeout;
    let client = bundles.and_then(|bundles| {
        let client = Client::builder().tls_certs_only(bundles.into_iter().flatten()).no_proxy();
        client.connect_timeout(timeout).read_timeout(timeout).build()
    });
    client.map_err(|error| Error {
        request: "certificate roots".into(),
        source: AttemptError::from(error),
    })
}

/// Called before each retry, with the error and the position in bytes.
pub(crate) type OnWait = Box<dyn Fn(&AttemptError, u64) + Send + Sync>;

/// A download in progress.
pub(crate) struct Download {
    client: Client,
    url: Url,
    retry: RetryPolicy,
    on_wait: OnWait,
    version: Option<FileVersion>,
    /// Bytes returned to the reader.
    position: u64,
    /// The digest of these bytes, to compare them if the server sends them again. Only used if it sends no validator.
    digest: Option<Sha256>,
    body: Option<Body>,
    failures: u32,
    last_progress: Instant,
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
            url,
            retry,
            on_wait,
            version: None,
            position: 0,
            digest: None,
            body: None,
            failures: 0,
            last_progress: Clock::system().monotonic(),
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
        (self.failures, self.last_progress) = (0, Clock::system().monotonic());
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
        let mut request = self.client.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
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
        if error.is_final() {
            return Err(self.failed(error));
        }
        self.failures += 1;
        let idle = Clock::system().monotonic() - self.last_progress;
        let Some(delay) = self.retry.delay(self.failures, idle, error.retry_after()) else {
            let is_tried_once = self.retry.give_up_after.is_zero();
            return Err(self.failed(if is_tried_once { error } else { self.gave_up(error) }));
        };
        tracing::warn!(url = redacted(&self.url), position = self.position, %error, "download interrupted");
        (self.on_wait)(&error, self.position);
        tokio::time::sleep(delay).await;
        Ok(())
    }

    fn gave_up(&self, last: AttemptError) -> AttemptError {
        let length = self.length().map_or(String::new(), |length| format!(" of {length}"));
        let progress = format!("{}{length}", self.position);
        let seconds = self.retry.give_up_after.as_secs_f64();
        AttemptError::GaveUp { seconds, progress, source: Box::new(last) }
    }

    fn failed(&self, error: AttemptError) -> Error {
        Error { request: format!("GET {}", redacted(&self.url)), source: error }
    }
}

/// Parses the variable `name` as a required URL.
pub(crate) fn url(
    environment: &Environment,
    name: &'static str,
) -> Result<Url, environment::Error> {
    const EXPECTED: &str = "an http or https URL";
    let url: Url = environment.parsed(name, EXPECTED)?.ok_or(environment::Error::Missing(name))?;
    if matches!(url.scheme(), "http" | "https") {
        return Ok(url);
    }
    Err(environment::Error::invalid(name, &redacted(&url), EXPECTED))
}

/// Returns `url` without parts that may be secret: user, password, and the query, which may contain a signature.
pub(crate) fn redacted(url: &Url) -> String {
    let mut url = url.clone();
    // Both calls fail only for URLs that cannot contain a password.
    let _unchanged = url.set_username("").and_then(|()| url.set_password(None));
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string().replace("%E2%80%A6", "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_url_has_no_password_and_no_query() {
        for (url, safe) in [
            ("http://user:secret@images/os.img?X-Amz-Signature=abc", "http://images/os.img?…"),
            ("https://images:8443/os.img.zst", "https://images:8443/os.img.zst"),
        ] {
            assert_eq!(redacted(&url.parse().unwrap()), safe);
        }
    }
}
