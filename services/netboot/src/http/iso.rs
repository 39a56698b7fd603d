//! Images for virtual media over HTTP.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt as _;

use super::{Http, Source, file, scripts};
use crate::Mac;
use crate::iso::{Image, overlay};

pub(super) async fn image(
    State(http): State<Arc<Http>>,
    Extension(Source(source)): Extension<Source>,
    Path((mac, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let (Some(images), true) = (&http.images, name.ends_with(".iso")) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(mac) = mac.parse::<Mac>() else { return StatusCode::BAD_REQUEST.into_response() };
    if let Err(refusal) = http.boots.check_image_access(mac, source) {
        return http.refuse(&refusal, &name);
    }
    match images.image(&name, mac, &http.boots, http.boots.clock.wall()).await {
        Ok(image) => {
            let (size, tag) = (image.source.size, image.tag.clone());
            let body = |from, length| body(image, from, length);
            scripts::no_store(file::part_of(size, &tag, file::BYTES, &headers, body))
        }
        Err(refusal) => http.refuse(&refusal, &name),
    }
}

/// Returns `length` octets from `from` on, with the machine's arguments.
fn body(image: Image, from: u64, length: u64) -> io::Result<Body> {
    let Image { file, source, patch, tag: _ } = image;
    let mut offset = from;
    Ok(Body::from_stream(file::stream(file, from, length)?.map_ok(move |part| {
        let start = offset;
        offset += part.len() as u64;
        let mut patched = Vec::from(part);
        overlay::apply(&mut patched, start, &source.places, &patch);
        Bytes::from(patched)
    })))
}
