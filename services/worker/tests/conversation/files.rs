//! A web server with the site's `ca.pem` and one image, whose second half it sends only after a release.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{StreamExt as _, stream};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The server; it stops when dropped.
pub(crate) struct Files {
    address: SocketAddr,
    gate: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Files {
    pub(crate) async fn serve(ca: String, image: Vec<u8>) -> Self {
        Self::serve_with_map(ca, image, Vec::new()).await
    }

    /// Does the same, with the image's map.
    pub(crate) async fn serve_with_map(ca: String, image: Vec<u8>, map: Vec<u8>) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let (opened, image) = (gate.clone(), Bytes::from(image));
        let app = Router::new()
            .route("/v1/boot/TOKEN/ca.pem", get(async move || ca))
            .route("/os.map", get(async move || map))
            .route("/os.img", get(async move || halves(image, opened)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, gate, task }
    }

    pub(crate) fn boot_url(&self) -> String {
        format!("http://{}/v1/boot/TOKEN", self.address)
    }

    pub(crate) fn image_url(&self) -> String {
        format!("http://{}/os.img", self.address)
    }

    pub(crate) fn map_url(&self) -> String {
        format!("http://{}/os.map", self.address)
    }

    /// Releases the second half.
    pub(crate) fn open(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn halves(mut image: Bytes, gate: Arc<Semaphore>) -> Response {
    let length = image.len();
    let first = image.split_to(length / 2);
    let second = stream::once(async move {
        let _open = gate.acquire().await.unwrap();
        image
    });
    let body = Body::from_stream(stream::iter([first]).chain(second).map(Ok::<_, std::io::Error>));
    ([(CONTENT_LENGTH, length)], body).into_response()
}
