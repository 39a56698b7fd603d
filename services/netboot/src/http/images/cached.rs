//! Files of images through a cache on disk, at a process away from the image service.
//!
//! The image service is asked at each request whether the client may read the file. While it does
//! not answer, machines are served what a live workflow of theirs names.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::BodyDataStream;
use range_cache::{Cache, CachedFile, Freshness, OriginError, OriginResponse, RangeOrigin};
use runtime::Channel;

use super::{Wanted, later, request_file};
use crate::http::file::{self, BYTES};

/// Suffixes of files whose content never changes. Other files are made from these.
const CACHED: [&str; 2] = [".raw.zst", ".map"];

/// True if the content of the file `name` never changes.
pub(super) fn is_cached(name: &str) -> bool {
    CACHED.iter().any(|suffix| name.ends_with(suffix))
}

/// The image service, for the machine of a workflow if there is one.
pub(super) struct ImageOrigin {
    /// The channel to it.
    pub(super) channel: Channel,
    /// The live workflow of the machine that names the image.
    pub(super) workflow: Option<String>,
    /// True if the machine found wrong bytes.
    pub(super) refetch: bool,
}

impl ImageOrigin {
    async fn request(
        &self,
        method: Method,
        name: &str,
        range: Option<HeaderValue>,
    ) -> Result<Response<tonic::body::Body>, OriginError> {
        // The bytes that the machine found to be wrong may be the origin's.
        let refetch = self.refetch && range.is_some();
        let workflow = self.workflow.as_deref();
        let wanted = Wanted { method, name, workflow, range, refetch };
        let sent = request_file(self.channel.clone(), wanted).await;
        let response = sent.map_err(|error| OriginError::Unavailable(error.to_string()))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::NOT_FOUND => Err(OriginError::NotFound),
            StatusCode::FORBIDDEN => Err(OriginError::Refused("forbidden".to_owned())),
            status => Err(OriginError::Unavailable(status.to_string())),
        }
    }
}

#[async_trait]
impl RangeOrigin for ImageOrigin {
    async fn size(&self, name: &str) -> Result<u64, OriginError> {
        let response = self.request(Method::HEAD, name, None).await?;
        let length = text(response.headers(), header::CONTENT_LENGTH);
        length.and_then(|length| length.parse().ok()).ok_or_else(|| unexpected("no Content-Length"))
    }

    async fn fetch(&self, name: &str, range: Range<u64>) -> Result<OriginResponse, OriginError> {
        let (first, last) = (range.start, range.end.saturating_sub(1));
        let wanted = HeaderValue::try_from(format!("bytes={first}-{last}"));
        let wanted = wanted.map_err(|error| unexpected(&error.to_string()))?;
        let response = self.request(Method::GET, name, Some(wanted)).await?;
        let place = text(response.headers(), header::CONTENT_RANGE).unwrap_or_default();
        let size = place.strip_prefix(&format!("bytes {first}-{last}/"));
        let size = size.and_then(|size| size.parse().ok());
        let size = size.ok_or_else(|| unexpected("another Content-Range"))?;
        let bytes = BodyDataStream::new(response.into_body());
        let bytes = bytes.map_err(|status| OriginError::Unavailable(status.to_string())).boxed();
        Ok(OriginResponse { size, bytes })
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn unexpected(reason: &str) -> OriginError {
    OriginError::Unavailable(format!("unexpected response of the image service: {reason}"))
}

/// Responds with the file `name` from `cache`.
pub(super) async fn respond(
    cache: &Cache,
    origin: ImageOrigin,
    name: &str,
    request: &Parts,
) -> Response {
    let freshness = match origin.refetch {
        true => Freshness::Refetched,
        false => Freshness::Cached,
    };
    let origin = Arc::new(origin);
    match origin.size(name).await {
        Ok(_) => {}
        Err(OriginError::Unavailable(_)) if origin.workflow.is_some() => {}
        Err(error) => return refused(name, &error),
    }
    match cache.file(name, origin).await {
        Ok(file) => send(&file, name, freshness, request).await,
        Err(error) => refused(name, &error),
    }
}

async fn send(file: &CachedFile, name: &str, freshness: Freshness, request: &Parts) -> Response {
    let tag = format!("\"{name}\"");
    let mut first = None;
    if request.method != Method::HEAD
        && let Ok(part) = file::range(&request.headers, &tag, file.size())
    {
        // The status depends on the first bytes.
        let (from, length) = part.unwrap_or((0, file.size()));
        let mut bytes = Box::pin(file.read(from..from.saturating_add(length), freshness));
        match bytes.next().await {
            Some(Err(error)) => return refused(name, &error),
            Some(Ok(piece)) => {
                let piece = futures_util::stream::once(async move { Ok(piece) });
                first = Some(Body::from_stream(piece.chain(bytes)));
            }
            None => {}
        }
    }
    let body = |_, _| Ok(first.unwrap_or_default());
    file::part_of(file.size(), &tag, BYTES, &request.headers, body)
}

fn refused(name: &str, error: &OriginError) -> Response {
    match error {
        OriginError::NotFound | OriginError::Refused(_) => StatusCode::NOT_FOUND.into_response(),
        OriginError::Unavailable(_) | OriginError::WrongLength { .. } => {
            tracing::warn!(%error, file = name, "image not served");
            later()
        }
    }
}
