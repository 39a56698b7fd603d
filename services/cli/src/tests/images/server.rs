//! A server with images and uploads.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response as HttpResponse;
use axum::routing::any;
use clap::Parser as _;
use http_body_util::BodyExt as _;
use pb::ImageState;
use tinwright::image::v1 as pb;
use tinwright::image::v1::get_image_request::By;
use tinwright::image::v1::image_service_server::{ImageService, ImageServiceServer};
use tinwright::image::v1::image_source::Source;
use tinwright::watch::WatchEvent;
use tokio::io::{AsyncReadExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::Iter;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::super::{Program, fake, with_server};
use crate::run_command;

const ID: &str = "01990000-0000-7000-8000-00000000000a";

/// Returns an image of the family debian-12.
pub(super) fn image(name: &str, state: ImageState) -> pb::Image {
    pb::Image {
        id: ID.into(),
        name: name.into(),
        family: "debian-12".into(),
        labels: [("a".to_owned(), "1".to_owned())].into(),
        state: state.into(),
        revision: 7,
        size_bytes: 1 << 30,
        ..pb::Image::default()
    }
}

/// The state of the server.
#[derive(Debug, Default)]
struct Stored {
    image: Option<pb::Image>,
    created: Vec<pb::Image>,
    uploaded: Vec<u8>,
    length: usize,
    refuses_uploads: bool,
    calls: Vec<String>,
}

/// A server with at most one image.
#[derive(Clone, Debug, Default)]
pub(super) struct Images(Arc<Mutex<Stored>>);

impl Images {
    /// A server with `image`, of which these bytes were uploaded.
    pub(super) fn with(image: pb::Image, uploaded: &[u8]) -> Self {
        let images = Self::default();
        images.stored().image = Some(image);
        images.stored().uploaded = uploaded.to_vec();
        images
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap()
    }

    /// Returns the bytes that were uploaded.
    pub(super) fn uploaded(&self) -> Vec<u8> {
        self.stored().uploaded.clone()
    }

    /// Returns the images that were created, as they were sent.
    pub(super) fn created(&self) -> Vec<pb::Image> {
        self.stored().created.clone()
    }

    /// Returns the signatures of the image.
    pub(super) fn signatures(&self) -> Vec<pb::ImageSignature> {
        self.stored().image.clone().unwrap().signatures
    }

    /// Returns the calls since the last time, except those of creations and look-ups.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.stored().calls)
    }

    /// Refuses uploads from now on.
    pub(super) fn refuse_uploads(&self) {
        self.stored().refuses_uploads = true;
    }

    /// Runs a command. Returns its output and its result.
    pub(super) async fn run(&self, line: &str) -> (String, Result<(), String>) {
        self.run_through_cuts(line, &[]).await
    }

    /// Runs a command. The first connections are cut, each after this number of bytes of the
    /// client.
    pub(super) async fn run_through_cuts(
        &self,
        line: &str,
        cuts: &[u64],
    ) -> (String, Result<(), String>) {
        let service = Routes::new(ImageServiceServer::new(self.clone())).into_axum_router();
        let uploads = Router::new().route("/uploads/{id}", any(upload)).with_state(self.clone());
        let server = Server::builder().add_routes(service.merge(uploads).into());
        with_server(server, async |url| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let own = format!("http://{}", listener.local_addr().unwrap());
            let words = ["tinwright"].into_iter().chain(line.split(' '));
            let words = words.chain(["--server", &own]);
            let command = Program::try_parse_from(words).unwrap().command;
            let mut out = Vec::new();
            let result = tokio::select! {
                result = run_command(command, &mut out) => result,
                () = forward(listener, &url, cuts) => unreachable!(),
            };
            let result = result.map_err(|error| crate::failure::lines(&error).join("\n"));
            (String::from_utf8(out).unwrap(), result)
        })
        .await
    }
}

/// Forwards each connection to `url`, the first ones until a number of bytes.
async fn forward(listener: TcpListener, url: &str, cuts: &[u64]) {
    let address = url.trim_start_matches("http://").to_owned();
    let mut cuts = cuts.iter().copied();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(&address).await.unwrap();
        let limit = cuts.next().unwrap_or(u64::MAX);
        tokio::spawn(async move {
            let (client_read, mut client_write) = client.split();
            let (mut server_read, mut server_write) = server.split();
            let mut limited = client_read.take(limit);
            tokio::select! {
                _ = copy(&mut limited, &mut server_write) => {}
                _ = copy(&mut server_read, &mut client_write) => {}
            }
        });
    }
}

/// Answers a request of tus.
async fn upload(State(images): State<Images>, request: HttpRequest) -> HttpResponse {
    let (head, body) = request.into_parts();
    let number = |name: &str| -> usize {
        let value = head.headers.get(name);
        value.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or_default()
    };
    assert_eq!(head.headers["tus-resumable"], "1.0.0");
    let (offset, length) = (number("upload-offset"), number("upload-length"));
    let call = match head.method.as_str() {
        "POST" => format!("POST {length}"),
        "PATCH" => format!("PATCH {offset}"),
        method => method.to_owned(),
    };
    images.stored().calls.push(call);
    let status = match head.method.as_str() {
        "POST" if images.stored().refuses_uploads => {
            let status = Status::failed_precondition("the disk is full");
            let mut response = HttpResponse::builder().status(409).body(Body::empty()).unwrap();
            status.add_header(response.headers_mut()).unwrap();
            return response;
        }
        "POST" => {
            images.stored().length = length;
            201
        }
        "PATCH" => append(&images, offset, body).await,
        _ => 200,
    };
    let offset = images.stored().uploaded.len();
    let response = HttpResponse::builder().status(status).header("upload-offset", offset);
    response.body(Body::empty()).unwrap()
}

/// Stores what arrives of `body`.
async fn append(images: &Images, offset: usize, mut body: Body) -> u16 {
    if offset != images.stored().uploaded.len() {
        return 409;
    }
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return 400 };
        images.stored().uploaded.extend_from_slice(&frame.into_data().unwrap());
    }
    let mut stored = images.stored();
    if stored.uploaded.len() == stored.length
        && let Some(image) = &mut stored.image
    {
        image.set_state(ImageState::Processing);
    }
    204
}

fake! {
    impl ImageService for Images {
        type WatchImagesStream = Iter<std::vec::IntoIter<Result<pb::WatchImagesResponse, Status>>>;

        async fn create_image(
            &self,
            request: Request<pb::CreateImageRequest>,
        ) -> Result<Response<pb::CreateImageResponse>, Status> {
            let sent = request.into_inner().image.unwrap();
            let mut stored = self.stored();
            if stored.image.as_ref().is_some_and(|image| image.name == sent.name) {
                return Err(Status::already_exists(format!("image {} exists", sent.name)));
            }
            stored.created.push(sent.clone());
            let source = sent.source.as_ref().and_then(|source| source.source.as_ref());
            let state = match source {
                Some(Source::Upload(_)) => ImageState::Uploading,
                _ => ImageState::Processing,
            };
            let image = pb::Image { id: ID.into(), state: state.into(), ..sent };
            stored.image = Some(image.clone());
            Ok(Response::new(pb::CreateImageResponse { image: Some(image) }))
        }

        async fn get_image(
            &self,
            request: Request<pb::GetImageRequest>,
        ) -> Result<Response<pb::GetImageResponse>, Status> {
            let by = request.into_inner().by.unwrap();
            let image = self.stored().image.clone().filter(|image| match &by {
                By::Id(id) => image.id == *id,
                By::Name(name) => [&image.name, &image.family].contains(&name),
            });
            let missing = || Status::not_found(format!("{by:?} not found"));
            Ok(Response::new(pb::GetImageResponse { image: Some(image.ok_or_else(missing)?) }))
        }

        async fn list_images(
            &self,
            request: Request<pb::ListImagesRequest>,
        ) -> Result<Response<pb::ListImagesResponse>, Status> {
            let pb::ListImagesRequest { tenant, name, state, family, .. } = request.into_inner();
            let mut stored = self.stored();
            stored.calls.push(format!("list {family} {state} {name} {tenant}"));
            let images = stored.image.clone().into_iter().collect();
            Ok(Response::new(pb::ListImagesResponse { images, next_page_token: String::new() }))
        }

        async fn update_image(
            &self,
            request: Request<pb::UpdateImageRequest>,
        ) -> Result<Response<pb::UpdateImageResponse>, Status> {
            let pb::UpdateImageRequest { image, update_mask } = request.into_inner();
            let (image, paths) = (image.unwrap(), update_mask.unwrap().paths.join(","));
            let call = format!("update {paths} at {}: {:?}", image.revision, image.labels);
            self.stored().calls.push(call);
            Ok(Response::new(pb::UpdateImageResponse { image: Some(image) }))
        }

        async fn add_signature(
            &self,
            request: Request<pb::AddSignatureRequest>,
        ) -> Result<Response<pb::AddSignatureResponse>, Status> {
            let pb::AddSignatureRequest { image_id, text } = request.into_inner();
            assert_eq!(image_id, ID);
            let mut stored = self.stored();
            let signature = pb::ImageSignature { text, ..pb::ImageSignature::default() };
            stored.image.as_mut().unwrap().signatures.push(signature);
            Ok(Response::new(pb::AddSignatureResponse { image: stored.image.clone() }))
        }

        async fn delete_image(
            &self,
            _: Request<pb::DeleteImageRequest>,
        ) -> Result<Response<pb::DeleteImageResponse>, Status> {
            let mut stored = self.stored();
            stored.calls.push("delete".into());
            stored.image = None;
            Ok(Response::new(pb::DeleteImageResponse {}))
        }

        async fn watch_images(
            &self,
            request: Request<pb::WatchImagesRequest>,
        ) -> Result<Response<Self::WatchImagesStream>, Status> {
            assert_eq!(request.into_inner().id, ID);
            let mut stored = self.stored();
            stored.calls.push("watch".into());
            let mut image = stored.image.clone().unwrap();
            image.set_state(ImageState::Processing);
            image.step = "converting".into();
            let converting = image.clone();
            if image.name == "bad" {
                image.state_reason = "no partition table".into();
                image.set_state(ImageState::Failed);
            } else {
                image.set_state(ImageState::Ready);
            }
            let events = [WatchEvent::Put(converting), WatchEvent::Synced, WatchEvent::Put(image)];
            let responses: Vec<_> = events.into_iter().map(|event| Ok(event.into())).collect();
            Ok(Response::new(tokio_stream::iter(responses)))
        }
    }
    refuses {}
}
