//! Content over HTTP, beside gRPC.
//!
//! - `/blobs/<digest>`: content by its digest, for builders.
//! - `/images/<file>`: files of images, for boot servers: public ones, and those of live workflows.
//! - `/uploads/<image id>`: the content of an image, from its owner.
//!
//! The table of calls says who may make these requests (`runtime::access`). A request that fails is
//! answered with one line of text.

mod blobs;
mod images;
mod ranges;
mod response;
mod slots;
mod tus;
mod uploads;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use runtime::Clock;

use crate::blobs::Blobs;
use crate::images::Images;
use crate::imports::Imports;
use crate::uploads::Uploads;

/// The content that HTTP serves.
#[derive(Clone, Debug)]
pub struct ServedContent {
    /// The images.
    pub images: Images,
    /// Content by its digest.
    pub blobs: Blobs,
    /// Files of uploads.
    pub uploads: Uploads,
    /// Images that are uploaded.
    pub imports: Imports,
    /// Maximum size of an uploaded file in bytes.
    pub max_upload_bytes: u64,
    /// An upload fails after this time without a new byte.
    pub retention: Duration,
    /// The clock.
    pub clock: Clock,
}

/// Returns the routes of `content`.
pub fn router(content: ServedContent) -> Router {
    let blobs = get(blobs::read).put(blobs::write);
    let uploads = get(uploads::read)
        .head(uploads::head)
        .put(uploads::put)
        .post(uploads::create)
        .patch(uploads::patch)
        .options(uploads::options);
    Router::new()
        .route("/blobs/{digest}", blobs)
        .route("/images/{file}", get(images::read))
        .route("/uploads/{image}", uploads)
        .with_state(uploads::Doors::new(content))
}
