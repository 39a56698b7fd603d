//! Sends a file to `/uploads/<image id>` by tus 1.0, on the connection of the calls
//! (<https://tus.io/protocols/resumable-upload>).
//!
//! ```text
//! POST (length) ─▶ HEAD (offset) ─▶ PATCH (the bytes from there) ─▶ done
//!       ▲                              │ broken: backoff
//!       └──────────────────────────────┘
//! ```

use std::io::SeekFrom;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use indicatif::{HumanBytes, ProgressBar};
use runtime::Channel;
use runtime::retry::{self, Backoff};
use tinwright::image::v1 as pb;
use tinwright::image::v1::get_image_request::By;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_stream::StreamExt as _;
use tokio_util::io::ReaderStream;
use tonic::Status;
use tonic::body::Body;

use super::super::bar::bar;
use crate::connect::call;
use crate::http_requests;

/// Bytes that are read of the file at once.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of consecutive attempts in which no byte was stored.
const MAX_FAILURES: u32 = 10;
/// Delays between attempts. Together they are longer than a restart of the server.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
/// The header with the number of bytes that the server has stored.
const OFFSET: &str = "upload-offset";

/// The file of an upload, or a part of a file.
#[derive(Debug)]
pub(crate) struct UploadFile {
    path: PathBuf,
    /// Where its bytes begin in the file at the path.
    start: u64,
    bytes: u64,
    /// Size and time of the file at the path.
    stamp: (u64, Option<SystemTime>),
}

impl UploadFile {
    /// Checks that the file at `path` can be uploaded.
    pub(super) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let metadata = std::fs::File::open(&path).and_then(|file| file.metadata());
        let metadata = metadata.with_context(|| format!("reading {}", path.display()))?;
        anyhow::ensure!(metadata.is_file(), "{}: not a regular file", path.display());
        anyhow::ensure!(metadata.len() > 0, "{}: the file is empty", path.display());
        let stamp = (metadata.len(), metadata.modified().ok());
        Ok(Self { path, start: 0, bytes: metadata.len(), stamp })
    }

    /// Returns the `bytes` bytes of the file at `path` from `start` on as a file.
    pub(crate) fn part(path: PathBuf, start: u64, bytes: u64) -> anyhow::Result<Self> {
        Ok(Self { start, bytes, ..Self::open(path)? })
    }

    /// Returns the name of the file without its directory.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the bytes from `offset` on as a body. `bar` shows how many were read.
    async fn body(&self, offset: u64, bar: ProgressBar) -> std::io::Result<Body> {
        let mut file = tokio::fs::File::open(&self.path).await?;
        let metadata = file.metadata().await?;
        if (metadata.len(), metadata.modified().ok()) != self.stamp {
            return Err(std::io::Error::other("the file changed during the upload"));
        }
        file.seek(SeekFrom::Start(self.start.saturating_add(offset))).await?;
        let rest = file.take(self.bytes.saturating_sub(offset));
        let frames = ReaderStream::with_capacity(rest, READ_BYTES).map(move |chunk| {
            let chunk = chunk?;
            bar.inc(u64::try_from(chunk.len()).unwrap_or_default());
            Ok::<_, std::io::Error>(Frame::data(chunk))
        });
        Ok(Body::new(StreamBody::new(frames)))
    }
}

/// Sends the bytes of `file` that the server does not have. After a broken connection it goes on
/// where the server's bytes end.
pub(crate) async fn send(
    channel: &Channel,
    image: &pb::Image,
    file: &UploadFile,
) -> anyhow::Result<()> {
    let bar = bar(&image.name, "uploading", &file.path.display().to_string());
    bar.set_length(file.bytes);
    let mut upload = Upload { channel, image, file, bar, stored: 0, backoff: BACKOFF };
    while let Err(status) = upload.attempt().await {
        let is_last = upload.backoff.failures() >= MAX_FAILURES;
        if retry::is_final(status.code()) || is_last {
            let hint = if is_last { ": the same command goes on with it" } else { "" };
            return Err(status).with_context(|| format!("uploading image {}{hint}", image.name));
        }
        upload.report(&status);
        upload.backoff.wait().await;
    }
    upload.bar.finish_and_clear();
    Ok(())
}

/// An upload in progress.
struct Upload<'a> {
    channel: &'a Channel,
    image: &'a pb::Image,
    file: &'a UploadFile,
    bar: ProgressBar,
    /// Bytes that the server had at the last attempt.
    stored: u64,
    backoff: Backoff,
}

impl Upload<'_> {
    /// Sends the bytes that the server does not have.
    async fn attempt(&mut self) -> Result<(), Status> {
        // The response to the last byte may be lost.
        if !self.is_uploading().await? {
            return Ok(());
        }
        let length = ("upload-length", self.file.bytes.to_string());
        self.request(Method::POST, vec![length], Body::empty()).await?;
        let response = self.request(Method::HEAD, Vec::new(), Body::empty()).await?;
        let offset = offset(&response)?;
        if offset > self.stored {
            self.stored = offset;
            self.backoff.reset();
        }
        self.append(offset).await
    }

    async fn is_uploading(&self) -> Result<bool, Status> {
        let by = Some(By::Id(self.image.id.clone()));
        let image = call(self.channel, pb::GetImageRequest { by, tenant: String::new() }).await;
        let image = image.map_err(retry::describe_broken)?.image.unwrap_or_default();
        Ok(image.state() == pb::ImageState::Uploading)
    }

    /// Sends the bytes from `offset` on.
    async fn append(&self, offset: u64) -> Result<(), Status> {
        let path = self.file.path.display();
        self.bar.set_position(offset);
        let body = self.file.body(offset, self.bar.clone()).await;
        let body = body.map_err(|error| Status::failed_precondition(format!("{path}: {error}")))?;
        let headers = vec![
            (OFFSET, offset.to_string()),
            ("content-type", "application/offset+octet-stream".to_owned()),
            ("content-length", self.file.bytes.saturating_sub(offset).to_string()),
        ];
        let response = self.request(Method::PATCH, headers, body).await?;
        let stored = self::offset(&response)?;
        match stored == self.file.bytes {
            true => Ok(()),
            false => Err(Status::unavailable(format!("the server has stored {stored} bytes"))),
        }
    }

    async fn request(
        &self,
        method: Method,
        headers: Vec<(&str, String)>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let uri = format!("/uploads/{}", self.image.id);
        let request = Request::builder().method(method).uri(uri).header("tus-resumable", "1.0.0");
        let request = headers.into_iter().fold(request, |it, (name, value)| it.header(name, value));
        let request = request.body(body).map_err(|error| Status::internal(error.to_string()))?;
        http_requests::send(self.channel, request).await
    }

    /// Says that an attempt failed.
    fn report(&self, status: &Status) {
        let (name, stored) = (&self.image.name, HumanBytes(self.stored));
        let text = status.message();
        self.bar.suspend(|| eprintln!("{name}: upload interrupted after {stored}: {text}"));
    }
}

/// Returns the number of bytes that the server has stored.
fn offset(response: &Response<Body>) -> Result<u64, Status> {
    let value = response.headers().get(OFFSET).and_then(|value| value.to_str().ok());
    let offset = value.and_then(|text| text.parse().ok());
    offset.ok_or_else(|| Status::internal("the response has no Upload-Offset"))
}
