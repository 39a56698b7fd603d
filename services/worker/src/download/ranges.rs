//! Downloads parts of a file. The caller knows the digests of its blocks, so no version is
//! compared, only the length.
//!
//! ```text
//! seek ──▶ connect ──▶ read ──▶ … ──▶ end of the range ──▶ seek …
//!             ▲          │ disconnected, stalled, 5xx, refused
//!             └─ delay ──┘ from the next byte on
//! ```
//!
//! A server without ranges sends the whole file. Its response is read on over the gaps between the
//! ranges, which ascend, so that the file is sent once.

use std::ops::Range;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_LENGTH, RANGE};
use reqwest::{Client, Response, StatusCode, Url};

use super::attempts::{Attempts, OnWait};
use super::client::client;
use super::error::{AttemptError, Error};
use super::resume;
use super::retry_policy::RetryPolicy;

/// Use of caches between this machine and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caches {
    /// A cache may answer.
    Allowed,
    /// A cache asks the server first (RFC 9111 §5.2.1.4).
    Revalidated,
}

/// A file on a web server.
#[derive(Clone, Debug)]
pub(crate) struct RangeSource {
    client: Client,
    url: Url,
    retry: RetryPolicy,
    /// Length of the file in bytes.
    length: u64,
}

/// Reads ranges of a file, one after the other.
pub(crate) struct RangeReader {
    client: Client,
    attempts: Attempts,
    length: u64,
    caches: Caches,
    /// The bytes of the range that are not read yet.
    rest: Range<u64>,
    body: Option<Body>,
}

/// A response, and the position of its next byte in the file.
struct Body {
    response: Response,
    position: u64,
    /// Received bytes that are not taken yet.
    received: Bytes,
    /// True if the response ends with the file, not with the range.
    is_whole: bool,
}

impl RangeSource {
    /// Creates the source of the file at `url`, which has `length` bytes. Trusts the certificate
    /// authorities in `roots`.
    pub(crate) fn new(
        roots: &[Vec<u8>],
        url: Url,
        retry: RetryPolicy,
        length: u64,
    ) -> Result<Self, Error> {
        Ok(Self { client: client(roots, &retry)?, url, retry, length })
    }

    /// Returns a reader of the file. `on_wait` is called before each retry.
    pub(crate) fn reader(&self, caches: Caches, on_wait: OnWait) -> RangeReader {
        RangeReader {
            client: self.client.clone(),
            attempts: Attempts::new(self.url.clone(), self.retry.clone(), on_wait),
            length: self.length,
            caches,
            rest: 0..0,
            body: None,
        }
    }
}

impl RangeReader {
    /// Starts reading `range`.
    pub(crate) fn seek(&mut self, range: Range<u64>) {
        let has_start = |body: &Body| body.is_whole && body.position <= range.start;
        self.body = self.body.take().filter(has_start);
        self.rest = range;
    }

    /// Leaves out the bytes before `position`, which is in the range.
    pub(crate) fn skip_to(&mut self, position: u64) {
        self.rest.start = position.clamp(self.rest.start, self.rest.end);
    }

    /// Returns the next bytes of the range, at most `max_bytes`. Empty at the end of the range.
    pub(crate) async fn next(&mut self, max_bytes: usize) -> Result<Bytes, Error> {
        loop {
            match self.read(max_bytes).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => {
                    self.body = None;
                    let position = self.rest.start;
                    self.attempts.wait_or_fail(error, position, Some(self.length)).await?;
                }
            }
        }
    }

    async fn read(&mut self, max_bytes: usize) -> Result<Bytes, AttemptError> {
        let wanted = (self.rest.end - self.rest.start).min(max_bytes as u64);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        loop {
            let Some(body) = &mut self.body else {
                self.body = Some(self.connect().await?);
                continue;
            };
            body.receive().await?;
            let _skipped = body.take(self.rest.start.saturating_sub(body.position));
            let bytes = body.take(wanted);
            if !bytes.is_empty() {
                self.rest.start += bytes.len() as u64;
                self.attempts.progressed();
                return Ok(bytes);
            }
        }
    }

    async fn connect(&self) -> Result<Body, AttemptError> {
        let last = self.rest.end.saturating_sub(1);
        let request = self.client.get(self.attempts.url.clone());
        let mut request = request
            .header(ACCEPT_ENCODING, "identity")
            .header(RANGE, format!("bytes={}-{last}", self.rest.start));
        if self.caches == Caches::Revalidated {
            request = request.header(CACHE_CONTROL, "no-cache");
        }
        let response = request.send().await?;
        let position = self.position(&response)?;
        let is_whole = response.status() == StatusCode::OK;
        Ok(Body { response, position, received: Bytes::new(), is_whole })
    }

    /// Returns the position of the first byte of `response` in the file.
    fn position(&self, response: &Response) -> Result<u64, AttemptError> {
        let headers = response.headers();
        match response.status() {
            StatusCode::OK => {
                let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
                self.check_length(length.and_then(|length| length.parse().ok()))?;
                Ok(0)
            }
            StatusCode::PARTIAL_CONTENT => match resume::content_range(headers) {
                Some((first, length)) if first == self.rest.start => {
                    self.check_length(length)?;
                    Ok(first)
                }
                _ => Err(AttemptError::WrongRange { position: self.rest.start }),
            },
            status => Err(AttemptError::status(status, headers)),
        }
    }

    /// Fails if the file on the server has another length.
    fn check_length(&self, length: Option<u64>) -> Result<(), AttemptError> {
        match length {
            Some(length) if length != self.length => Err(AttemptError::Changed {
                was: format!("length {}", self.length),
                is: format!("length {length}"),
            }),
            _ => Ok(()),
        }
    }
}

impl Body {
    /// Waits for bytes, unless some are left.
    async fn receive(&mut self) -> Result<(), AttemptError> {
        if self.received.is_empty() {
            self.received = self.response.chunk().await?.ok_or(AttemptError::Short)?;
        }
        Ok(())
    }

    /// Takes at most `max_bytes` of the received bytes.
    fn take(&mut self, max_bytes: u64) -> Bytes {
        let length = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(self.received.len());
        self.position += length as u64;
        self.received.split_to(length)
    }
}
