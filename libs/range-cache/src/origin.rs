//! Origin of cached files, and the checked bytes of one of its responses.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

/// Maximum time without a byte from the origin.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Server that has the files.
#[async_trait]
pub trait RangeOrigin: Send + Sync + 'static {
    /// Returns the size of the file `name`.
    async fn size(&self, name: &str) -> Result<u64, OriginError>;

    /// Requests the bytes `range` of the file `name`. The range is not empty.
    async fn fetch(&self, name: &str, range: Range<u64>) -> Result<OriginResponse, OriginError>;
}

/// Response of the origin to the request of a range.
pub struct OriginResponse {
    /// Size of the whole file.
    pub size: u64,
    /// Bytes of the range, and no others.
    pub bytes: BoxStream<'static, Result<Bytes, OriginError>>,
}

impl fmt::Debug for OriginResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginResponse").field("size", &self.size).finish_non_exhaustive()
    }
}

/// The origin did not send the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The origin has no such file.
    #[error("file not found")]
    NotFound,
    /// The origin refuses to send the file. A later request has the same result.
    #[error("request refused: {0}")]
    Refused(String),
    /// The origin is not reached, or cannot send the file now.
    #[error("origin unavailable: {0}")]
    Unavailable(String),
    /// The origin sent another number of bytes than announced, or announced another size than
    /// before.
    #[error("wrong length: {found} bytes, expected {expected}")]
    WrongLength {
        /// Expected bytes.
        expected: u64,
        /// Announced bytes, or the minimum of sent ones.
        found: u64,
    },
}

/// Remaining bytes of a response. A response that is too short or too long ends with an error.
pub(crate) struct OriginBody {
    bytes: BoxStream<'static, Result<Bytes, OriginError>>,
    expected: u64,
    remaining: u64,
}

impl OriginBody {
    /// Requests `range` of the file `name`, which has `size` bytes.
    pub(crate) async fn request(
        origin: &dyn RangeOrigin,
        name: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Self, OriginError> {
        let expected = range.end.saturating_sub(range.start);
        let response = within_timeout(origin.fetch(name, range)).await?;
        match response.size == size {
            true => Ok(Self { bytes: response.bytes, expected, remaining: expected }),
            false => Err(OriginError::WrongLength { expected: size, found: response.size }),
        }
    }

    /// Returns the next bytes, or None after the last ones.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, OriginError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        let next = async { self.bytes.next().await.transpose() };
        let bytes = within_timeout(next).await?;
        let length = bytes.as_ref().map_or(0, Bytes::len) as u64;
        if bytes.is_none() || length > self.remaining {
            let found = (self.expected - self.remaining).saturating_add(length);
            return Err(OriginError::WrongLength { expected: self.expected, found });
        }
        self.remaining -= length;
        Ok(bytes)
    }
}

impl fmt::Debug for OriginBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginBody").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

/// Returns the result of `call`, or an error if the origin does not send it in time.
pub(crate) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, OriginError>>,
) -> Result<T, OriginError> {
    tokio::time::timeout(IDLE_TIMEOUT, call).await.unwrap_or_else(|_| {
        let seconds = IDLE_TIMEOUT.as_secs();
        Err(OriginError::Unavailable(format!("no bytes for {seconds} seconds")))
    })
}
