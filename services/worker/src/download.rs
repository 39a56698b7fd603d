//! One file over HTTP, every byte of it once and in order, however often the connection breaks.
//!
//! ```text
//! connect ──▶ read ──▶ read ──▶ … ──▶ the whole length has come
//!    ▲          │ cut, stalled, 5xx, refused
//!    └─ pause ──┘ until `give_up` passes without a new byte
//! ```
//!
//! What came before a cut stays with the reader. The rest is asked for by Range under If-Range; a server that sends
//! the beginning again has it compared and dropped. A file that changed on the way is a failure, never a mixture:
//! [`resume`] decides which it is.

mod resume;
mod retry_policy;
mod trouble;

use std::time::Instant;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use reqwest::{Certificate, Client, Response, StatusCode, Url};
use runtime::Clock;
use sha2::{Digest, Sha256};

use crate::environment::{self, Environment};
use resume::{Continue, Identity};
pub use retry_policy::RetryPolicy;
pub(crate) use trouble::{Error, Trouble};

/// A client that trusts `roots`, each a PEM bundle, and nobody else. Without any, only `http` works.
pub(crate) fn client(roots: &[Vec<u8>], retry_policy: &RetryPolicy) -> Result<Client, Error> {
    let bundles: Result<Vec<_>, _> =
        roots.iter().map(|pem| Certificate::from_pem_bundle(pem)).collect();
    let client = bundles.and_then(|bundles| {
        let client = Client::builder().tls_certs_only(bundles.into_iter().flatten());
        client
            .no_proxy()
            .connect_timeout(retry_policy.stall_timeout)
            .read_timeout(retry_policy.stall_timeout)
            .build()
    });
    client.map_err(|error| Error { at: "certificate roots".into(), trouble: Trouble::from(error) })
}

/// A download under way.
pub(crate) struct Download<'a> {
    client: &'a Client,
    url: Url,
    retry_policy: &'a RetryPolicy,
    /// Hears what went wrong each time the download is about to try again, and at which byte.
    on_wait: &'a (dyn Fn(&Trouble, u64) + Sync),
    identity: Option<Identity>,
    /// How many bytes the reader has been given.
    position: u64,
    /// The sum of those bytes, kept only where the server names no version to hold it to.
    given: Option<Sha256>,
    body: Option<Body>,
    failures: u32,
    progressed: Instant,
}

/// A reply's body, and what to drop of it first.
struct Body {
    response: Response,
    skip: u64,
    skipped: Sha256,
}

impl<'a> Download<'a> {
    /// Begins to download `url`: connects, and learns its length.
    pub(crate) async fn open(
        client: &'a Client,
        url: Url,
        retry_policy: &'a RetryPolicy,
        on_wait: &'a (dyn Fn(&Trouble, u64) + Sync),
    ) -> Result<Self, Error> {
        let progressed = Clock::system().monotonic();
        let (identity, given, body) = (None, None, None);
        let mut download = Self {
            client,
            url,
            retry_policy,
            on_wait,
            identity,
            position: 0,
            given,
            body,
            failures: 0,
            progressed,
        };
        while let Err(trouble) = download.connect().await {
            download.endure(trouble).await?;
        }
        Ok(download)
    }

    /// The length of the file in bytes, if the server says.
    pub(crate) fn length(&self) -> Option<u64> {
        self.identity.as_ref().and_then(|identity| identity.length)
    }

    /// Whether a cut cannot look like the end: the reply tells its own length, or is sent in chunks.
    pub(crate) fn tells_its_end(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.length.is_some() || identity.chunked)
    }

    /// The next bytes; `None` at the end of the file. A file without any is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.read().await {
                Ok(bytes) => return Ok(bytes),
                Err(trouble) => self.endure(trouble).await?,
            }
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, Trouble> {
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

    /// The part of `bytes` that the reader does not have yet, if any.
    fn accept(&mut self, mut bytes: Bytes) -> Result<Option<Bytes>, Trouble> {
        let Some(body) = &mut self.body else { return Ok(None) };
        let again =
            bytes.split_to(usize::try_from(body.skip).unwrap_or(usize::MAX).min(bytes.len()));
        body.skip -= again.len() as u64;
        if let Some(given) = &self.given {
            body.skipped.update(&again);
            let done = !again.is_empty() && body.skip == 0;
            if done && body.skipped.clone().finalize() != given.clone().finalize() {
                return Err(Trouble::Changed {
                    was: "its beginning".into(),
                    is: "another one".into(),
                });
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        self.position += bytes.len() as u64;
        if let Some(length) = self.length().filter(|length| self.position > *length) {
            return Err(Trouble::TooLong { length });
        }
        if let Some(given) = &mut self.given {
            given.update(&bytes);
        }
        (self.failures, self.progressed) = (0, Clock::system().monotonic());
        Ok(Some(bytes))
    }

    fn end(&mut self) -> Result<Option<Bytes>, Trouble> {
        let skipping = self.body.take().is_some_and(|body| body.skip > 0);
        let short = self.length().is_some_and(|length| self.position < length);
        match self.position {
            _ if skipping || short => Err(Trouble::Short),
            0 => Err(Trouble::Empty),
            _ => Ok(None),
        }
    }

    async fn connect(&mut self) -> Result<(), Trouble> {
        // What is written must be what is summed and counted: no transfer coding but the plain one.
        let mut request = self.client.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
        let version = self.identity.as_ref().and_then(|identity| identity.version.as_deref());
        if let Some(version) = version.filter(|_| self.position > 0) {
            request = request
                .header(RANGE, format!("bytes={}-", self.position))
                .header(IF_RANGE, version);
        }
        let response = request.send().await?;
        let skip = self.place(&response)?;
        self.body = Some(Body { response, skip, skipped: Sha256::new() });
        Ok(())
    }

    /// How much of `response` the reader has already.
    fn place(&mut self, response: &Response) -> Result<u64, Trouble> {
        let status = response.status();
        if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(Trouble::status(status, response.headers()));
        }
        let reply = Identity::of(response.headers());
        let partial = status == StatusCode::PARTIAL_CONTENT;
        let Some(known) = &self.identity else {
            if partial {
                return Err(Trouble::status(status, response.headers()));
            }
            self.given = reply.version.is_none().then(Sha256::new);
            self.identity = Some(reply);
            return Ok(0);
        };
        let range = partial.then(|| resume::content_range(response.headers()));
        match resume::decide(known, self.position, range, &reply)? {
            Continue::Here => Ok(0),
            Continue::Skipping => Ok(self.position),
        }
    }

    /// Waits before the next try, or fails for good.
    async fn endure(&mut self, trouble: Trouble) -> Result<(), Error> {
        self.body = None;
        if trouble.is_final() {
            return Err(self.failed(trouble));
        }
        self.failures += 1;
        let idle = Clock::system().monotonic() - self.progressed;
        let Some(delay) = self.retry_policy.delay(self.failures, idle, trouble.asked_pause())
        else {
            let given_up = self.retry_policy.give_up_after;
            return Err(self.failed(if given_up.is_zero() {
                trouble
            } else {
                self.gave_up(trouble)
            }));
        };
        tracing::warn!(url = shown(&self.url), position = self.position, %trouble, "download interrupted");
        (self.on_wait)(&trouble, self.position);
        tokio::time::sleep(delay).await;
        Ok(())
    }

    fn gave_up(&self, last: Trouble) -> Trouble {
        let length = self.length().map_or(String::new(), |length| format!(" of {length}"));
        let place = format!("{}{length}", self.position);
        Trouble::GaveUp {
            seconds: self.retry_policy.give_up_after.as_secs_f64(),
            place,
            source: Box::new(last),
        }
    }

    fn failed(&self, trouble: Trouble) -> Error {
        Error { at: format!("GET {}", shown(&self.url)), trouble }
    }
}

/// The URL that the variable `name` must have.
pub(crate) fn url(
    environment: &Environment,
    name: &'static str,
) -> Result<Url, environment::Error> {
    const WANTED: &str = "an http or https URL";
    let url: Url = environment.parsed(name, WANTED)?.ok_or(environment::Error::Missing(name))?;
    if matches!(url.scheme(), "http" | "https") {
        return Ok(url);
    }
    Err(environment::Error::Invalid { name, value: shown(&url), wanted: WANTED })
}

/// `url` without what may be secret in it: the password, and a query, where signatures and tokens travel.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that cannot hold a password.
    let _kept = url.set_username("").and_then(|()| url.set_password(None));
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string().replace("%E2%80%A6", "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_password_and_no_query() {
        for (url, safe) in [
            ("http://user:secret@images/os.img?X-Amz-Signature=abc", "http://images/os.img?…"),
            ("https://images:8443/os.img.zst", "https://images:8443/os.img.zst"),
        ] {
            assert_eq!(shown(&url.parse().unwrap()), safe);
        }
    }
}
