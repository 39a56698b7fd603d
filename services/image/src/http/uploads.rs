//! `/uploads/<image id>`: the content of an image, by tus 1.0 or in one `PUT`.

use std::ops::Range;
use std::time::SystemTime;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use runtime::Caller;
use store::records::Selector;
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::{ImageId, TenantName};

use super::slots::{UploadSlot, UploadSlots};
use super::{ServedContent, ranges, response, tus};
use crate::error::Error;
use crate::owner;

/// What requests are answered from.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    pub(super) content: ServedContent,
    slots: UploadSlots,
}

impl Doors {
    pub(super) fn new(content: ServedContent) -> Self {
        Self { content, slots: UploadSlots::default() }
    }

    /// Returns the image `id`, which `caller` may upload.
    async fn image(&self, id: &str, caller: Option<&Caller>) -> Result<pb::Image, Error> {
        let tenant: Option<&TenantName> = caller.and_then(Caller::tenant);
        let selector = Selector::Id(id.to_owned());
        if id.parse::<ImageId>().is_err() {
            return Err(selector.missing("image").into());
        }
        let image = self.content.images.find(&selector, tenant).await?;
        owner::check_owned(&image, tenant)?;
        Ok(image)
    }

    /// Returns the image `id`, which `caller` may upload and which is being uploaded.
    async fn uploading(&self, id: &str, caller: Option<&Caller>) -> Result<pb::Image, Error> {
        let image = self.image(id, caller).await?;
        let state = image.state();
        if state == ImageState::Uploading {
            return Ok(image);
        }
        let text = format!("image {} is not being uploaded: {}", image.name, state.word());
        Err(Error::precondition("IMAGE_STATE", "image", id, text))
    }

    /// Returns the time at which an upload fails that gets no byte from now on.
    fn expiry(&self) -> SystemTime {
        self.content.clock.wall() + self.content.retention
    }

    /// Takes a slot for an upload of `image`.
    fn slot(&self, image: &pb::Image) -> Option<UploadSlot> {
        self.slots.take(&image.tenant)
    }

    /// Stores a body that continues an upload.
    async fn append(
        &self,
        image: &pb::Image,
        headers: &HeaderMap,
        body: &mut response::RequestBody,
    ) -> Result<Response, Error> {
        let offset = tus::offset(headers)?;
        let checksum = tus::checksum(headers)?;
        let ServedContent { uploads, imports, .. } = &self.content;
        let max = image.stored_bytes;
        if max == 0 {
            let text = "Upload-Length: not declared: create the upload with POST";
            return Err(Error::precondition("IMAGE_STATE", "image", &image.id, text));
        }
        let size = uploads.append(&image.id, offset, body.parts(), max, checksum).await?;
        if size == image.stored_bytes {
            imports.begin_build(&image.id).await?;
        }
        Ok(tus::answer(StatusCode::NO_CONTENT, tus::state(size, 0, self.expiry())))
    }

    /// Stores a body that is the whole upload.
    async fn replace(
        &self,
        image: &pb::Image,
        headers: &HeaderMap,
        body: &mut response::RequestBody,
    ) -> Result<Response, Error> {
        let ServedContent { uploads, imports, max_upload_bytes, .. } = &self.content;
        let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        let length: Option<u64> = length.and_then(|text| text.parse().ok());
        if length.is_some_and(|length| length > *max_upload_bytes) {
            return Err(Error::TooLong { max: *max_upload_bytes });
        }
        if let Some(length) = length {
            imports.declare(&image.id, length, true).await?;
        }
        let size = uploads.replace(&image.id, body.parts(), *max_upload_bytes).await?;
        if let Err(error) = imports.declare(&image.id, size, true).await {
            // The quota has no room for it.
            uploads.remove(&image.id).await?;
            return Err(error);
        }
        imports.begin_build(&image.id).await?;
        Ok(StatusCode::CREATED.into_response())
    }
}

/// Sends an upload to a builder, or the range of it that an interrupted one lacks. No byte of an
/// upload changes while builders read it.
pub(super) async fn read(
    State(doors): State<Doors>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let image = doors.image(&id, None).await?;
    let uploads = &doors.content.uploads;
    let size = uploads.offset(&image.id).await?;
    let read = |range: Option<Range<u64>>| uploads.read(&image.id, range.unwrap_or(0..size));
    ranges::send(size, &headers, read).await
}

/// Describes the server (tus: OPTIONS).
pub(super) async fn options(State(doors): State<Doors>) -> Response {
    tus::description(doors.content.max_upload_bytes)
}

/// Answers the durable bytes of an upload (tus: HEAD).
pub(super) async fn head(
    State(doors): State<Doors>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    if let Some(refused) = tus::wrong_version(request.headers()) {
        return Ok(refused);
    }
    let image = doors.image(&id, request.extensions().get()).await?;
    let has_file = matches!(image.state(), ImageState::Uploading | ImageState::Processing);
    if !has_file {
        return Ok(tus::answer(StatusCode::GONE, []));
    }
    let offset = doors.content.uploads.offset(&image.id).await?;
    Ok(tus::answer(StatusCode::OK, tus::state(offset, image.stored_bytes, doors.expiry())))
}

/// Begins an upload with a length (tus: POST).
pub(super) async fn create(
    State(doors): State<Doors>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    if let Some(refused) = tus::wrong_version(request.headers()) {
        return Ok(refused);
    }
    let image = doors.uploading(&id, request.extensions().get()).await?;
    let length = tus::length(request.headers())?;
    let max = doors.content.max_upload_bytes;
    if length > max {
        return Err(Error::TooLong { max });
    }
    doors.content.imports.declare(&image.id, length, false).await?;
    let location = HeaderValue::try_from(format!("/uploads/{}", image.id)).ok();
    let location = location.map(|location| (header::LOCATION, location));
    Ok(tus::answer(StatusCode::CREATED, location))
}

/// Continues an upload (tus: PATCH).
pub(super) async fn patch(
    State(doors): State<Doors>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    if let Some(refused) = tus::wrong_version(request.headers()) {
        return refused;
    }
    let (parts, body) = request.into_parts();
    response::to_the_end(async move {
        let mut body = response::RequestBody::new(body, parts.version);
        let stored = async {
            let image = doors.uploading(&id, parts.extensions.get()).await?;
            let Some(_slot) = doors.slot(&image) else { return Ok(too_many()) };
            doors.append(&image, &parts.headers, &mut body).await
        };
        let stored = stored.await;
        body.answer(stored).await
    })
    .await
}

/// Stores a whole upload.
pub(super) async fn put(
    State(doors): State<Doors>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    response::to_the_end(async move {
        let mut body = response::RequestBody::new(body, parts.version);
        let stored = async {
            let image = doors.uploading(&id, parts.extensions.get()).await?;
            let Some(_slot) = doors.slot(&image) else { return Ok(too_many()) };
            doors.replace(&image, &parts.headers, &mut body).await
        };
        let stored = stored.await;
        body.answer(stored).await
    })
    .await
}

/// The answer while there are too many uploads.
fn too_many() -> Response {
    let retry: (HeaderName, HeaderValue) = (header::RETRY_AFTER, HeaderValue::from_static("10"));
    let text = "too many concurrent uploads: repeat later\n";
    (StatusCode::TOO_MANY_REQUESTS, [retry], text).into_response()
}
