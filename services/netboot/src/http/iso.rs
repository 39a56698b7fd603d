//! Images for virtual media over HTTP.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, SeekFrom};
use tokio_util::io::ReaderStream;

use super::rate_limit::Source;
use super::{Http, file, scripts};
use crate::Mac;
use crate::iso::{Image, overlay};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

pub(super) async fn image(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    Path((mac, name)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let (Some(images), true) = (&http.images, name.ends_with(".iso")) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(mac) = mac.parse::<Mac>() else { return StatusCode::BAD_REQUEST.into_response() };
    let now = SystemTime::now();
    if let Err(refusal) = http.boots.check_image_access(mac, source) {
        return http.refuse(&refusal, &name);
    }
    let image = match images.image(&name, mac, &http.boots, now).await {
        Ok(image) => image,
        Err(refusal) => return http.refuse(&refusal, &name),
    };
    let (size, tag) = (image.source.size, image.tag.clone());
    let body = |from, length| body(image, from, length);
    let answer = file::part_of(size, &tag, file::BYTES, &method, &headers, body).await;
    scripts::no_store(answer)
}

/// Returns `length` octets from `from` on, with the machine's arguments.
async fn body(image: Image, from: u64, length: u64) -> io::Result<Body> {
    let Image { file, source, patch, tag: _ } = image;
    let mut file = tokio::fs::File::from_std(file);
    file.seek(SeekFrom::Start(from)).await?;
    let mut offset = from;
    let parts = ReaderStream::with_capacity(file.take(length), CHUNK_BYTES);
    Ok(Body::from_stream(parts.map(move |part: io::Result<Bytes>| {
        let part = part?;
        let begins = offset;
        offset += part.len() as u64;
        if !overlay::touches(begins, part.len(), &source.places) {
            return Ok(part);
        }
        let mut own = Vec::from(part);
        overlay::apply(&mut own, begins, &source.places, &patch);
        Ok::<_, io::Error>(own.into())
    })))
}
