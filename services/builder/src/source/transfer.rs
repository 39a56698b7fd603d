//! Transfer of a source into a file. It goes on after an interruption.
//!
//! ```text
//! request the rest ──▶ append ──▶ append ──▶ … ──▶ compare the checksum of the whole
//!       ▲                 │ disconnected, stalled, 5xx
//!       └──── delay ──────┘ until the attempts are used up
//! ```
//!
//! Two parts belong together if the checksum of the whole is known, or if the server says so: it
//! has a strong ETag (RFC 9110 §13.1.5). Else the transfer begins anew.

use http::header::{CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use runtime::retry::Backoff;

use super::answer::{Answer, Cut};
use super::registry::Repository;
use super::target::Target;
use super::upload::Upload;
use super::web::{Remote, Web};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::settings::Timing;

/// Maximum number of attempts in a row without a new byte from a server of others.
const MAX_FRUITLESS_ATTEMPTS: u32 = 6;

/// Place where a source is.
#[derive(Debug)]
pub(crate) enum Origin<'a> {
    /// The image service has it. It is asked for as long as the lease lasts.
    Upload(Upload<'a>),
    /// A server of others has it.
    Web(&'a Web, Remote),
    /// A registry has it.
    Registry(Repository<'a>, Remote),
}

/// Writes what `origin` has into `target`. Returns its SHA-256 in hexadecimal digits.
pub(crate) async fn transfer(
    origin: &Origin<'_>,
    mut target: Target<'_>,
    progress: &Progress,
    timing: &Timing,
) -> Result<String, Failure> {
    let (first, max) = timing.retry_delays;
    let mut backoff = Backoff::new(first, max);
    loop {
        let before = target.received();
        let failure = match attempt(origin, &mut target, progress, timing).await {
            Ok(()) => return target.finish().await,
            Err(Cut::End(failure)) => return Err(failure),
            Err(Cut::Again(failure)) => failure,
        };
        if target.received() > before {
            backoff.reset();
        }
        if origin.gives_up_after(backoff.failures() + 1) {
            return Err(failure);
        }
        tracing::info!(reason = %failure, bytes = target.length(), "transfer interrupted");
        backoff.wait().await;
    }
}

async fn attempt(
    origin: &Origin<'_>,
    target: &mut Target<'_>,
    progress: &Progress,
    timing: &Timing,
) -> Result<(), Cut> {
    let headers = resumption(origin, target).await?;
    let mut answer = origin.get(&headers, timing).await?;
    if !fits(origin, target, answer.status, &answer.headers).await? {
        return Ok(());
    }
    let total = answer.length().map(|rest| target.length().saturating_add(rest));
    if let Some(rest) = answer.length() {
        target.expect(rest)?;
    }
    progress.set_total(total.unwrap_or(0));
    while let Some(bytes) =
        answer.next(timing.stall).await.map_err(|problem| origin.again(&problem))?
    {
        target.append(&bytes).await?;
        progress.set(target.length());
    }
    match total.is_some_and(|total| total != target.length()) {
        true => Err(origin.again("the answer ended early")),
        false => Ok(()),
    }
}

/// Returns the headers of the next request, which asks for the rest if the parts will belong
/// together.
async fn resumption(origin: &Origin<'_>, target: &mut Target<'_>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    if target.length() == 0 {
        return Ok(headers);
    }
    let is_upload = matches!(origin, Origin::Upload(_));
    if !is_upload && !target.has_checksum() && target.validator.is_none() {
        target.restart().await?;
        return Ok(headers);
    }
    let range = HeaderValue::from_str(&format!("bytes={}-", target.length()));
    headers.extend(range.ok().map(|range| (RANGE, range)));
    headers.extend(target.validator.clone().map(|validator| (IF_RANGE, validator)));
    Ok(headers)
}

/// True if the body of an answer with this head is to be appended; false if the file is complete
/// already. A file that does not fit is begun anew.
async fn fits(
    origin: &Origin<'_>,
    target: &mut Target<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<bool, Cut> {
    match status {
        StatusCode::OK => {
            target.restart().await?;
            let strong = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
            target.validator = strong.cloned();
            Ok(true)
        }
        StatusCode::PARTIAL_CONTENT if range_start(headers) == Some(target.length()) => Ok(true),
        // RFC 9110 §15.5.17: `bytes */LENGTH`.
        StatusCode::RANGE_NOT_SATISFIABLE if whole(headers) == Some(target.length()) => Ok(false),
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if target.length() > 0 => {
            target.restart().await?;
            Err(origin.again("the server has another file"))
        }
        status => Err(origin.unexpected(status)),
    }
}

/// Returns the position at which a partial answer begins (RFC 9110 §14.4).
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

/// Returns the length of the whole file.
fn whole(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes */")?.parse().ok()
}

impl Origin<'_> {
    async fn get(&self, headers: &HeaderMap, timing: &Timing) -> Result<Answer, Cut> {
        match self {
            Self::Upload(upload) => upload.get(headers, timing.stall).await,
            Self::Web(web, remote) => web.get(remote, headers).await,
            Self::Registry(repository, remote) => repository.get(remote, headers).await,
        }
    }

    fn again(&self, problem: &str) -> Cut {
        match self {
            Self::Upload(_) => Upload::again(problem),
            Self::Web(_, remote) | Self::Registry(_, remote) => remote.again(&remote.url, problem),
        }
    }

    /// The failure of an answer that is neither the file nor a part of it.
    fn unexpected(&self, status: StatusCode) -> Cut {
        let checked = match self {
            Self::Upload(_) => Upload::check_status(status),
            Self::Web(_, remote) => remote.check_status(status),
            Self::Registry(repository, remote) => repository.check_status(remote, status),
        };
        // Partial content that was not requested.
        checked.err().unwrap_or_else(|| self.again("the server answered with a part of the file"))
    }

    fn gives_up_after(&self, failures: u32) -> bool {
        match self {
            Self::Upload(_) => false,
            Self::Web(..) | Self::Registry(..) => failures >= MAX_FRUITLESS_ATTEMPTS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_range_and_the_length_of_a_file_are_read() {
        for (value, start, length) in [
            ("bytes 5-9/10", Some(5), None),
            ("bytes 0-0/*", Some(0), None),
            ("bytes */10", None, Some(10)),
            ("lines 5-9/10", None, None),
            ("", None, None),
        ] {
            let headers = [(CONTENT_RANGE, value.parse().unwrap())].into_iter().collect();
            assert_eq!((range_start(&headers), whole(&headers)), (start, length), "{value}");
        }
    }
}
