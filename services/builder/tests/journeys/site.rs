//! A fake of the image service, as builders see it: calls, uploads and blobs.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tinwright::image::v1 as pb;
use tinwright::image::v1::builder_service_server::{BuilderService, BuilderServiceServer};
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::status;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tonic::service::Routes;
use tonic::{Request as Call, Response as Answer, Status};

use crate::digest;

/// Timeout of all that a test waits for. Only a failure reaches it.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

/// A fake of the image service. Clones share it.
#[derive(Clone)]
pub(crate) struct Site(Arc<watch::Sender<()>>, Arc<Mutex<Contents>>);

/// Contents of the site, and its behaviour for the next requests.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) pending: VecDeque<pb::Build>,
    /// The leased build.
    pub(crate) running: Option<pb::Build>,
    pub(crate) max_size_bytes: u64,
    pub(crate) uploads: BTreeMap<String, Upload>,
    /// The range of each request for an upload; none for a whole one.
    pub(crate) fetches: Vec<Option<String>>,
    pub(crate) blobs: BTreeMap<String, Bytes>,
    /// Digests of the blobs that were sent, in order.
    pub(crate) sent: Vec<String>,
    /// Steps that were reported.
    pub(crate) steps: Vec<String>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Number of next requests of each kind that fail: `lease`, `report`, `finish`, `upload`,
    /// `blob`.
    pub(crate) failures: BTreeMap<&'static str, u32>,
    /// Reason why reports and ends are refused.
    pub(crate) lost: Option<&'static str>,
    /// True if blobs are lost before the next end.
    pub(crate) loses_blobs: bool,
    /// True if no content is accepted.
    pub(crate) refuses_content: bool,
}

/// An upload.
#[derive(Clone)]
pub(crate) enum Upload {
    Whole(Bytes),
    /// Only the beginning comes, and then nothing.
    Stuck(Bytes),
    /// Of the first answer only half comes, and then it is cut once that is said. The next ones are
    /// whole.
    Cut(Bytes, Arc<Notify>),
}

impl Upload {
    /// Returns the bytes from `start` on.
    fn rest(bytes: &Bytes, start: usize) -> Response {
        let length = bytes.len();
        let range = format!("bytes {start}-{}/{length}", length - 1);
        let headers = [(header::CONTENT_RANGE, range)];
        (StatusCode::PARTIAL_CONTENT, headers, bytes.slice(start..)).into_response()
    }

    /// Returns the first half of `bytes`, which ends with an error when it is said.
    fn half(bytes: &Bytes, cut: Arc<Notify>) -> Response {
        let half = bytes.slice(..bytes.len() / 2);
        let begin = stream::once(async { Ok(half) });
        let end = stream::once(async move {
            cut.notified().await;
            Err(std::io::Error::other("cut"))
        });
        let length = [(header::CONTENT_LENGTH, bytes.len().to_string())];
        (length, Body::from_stream(begin.chain(end))).into_response()
    }
}

impl Site {
    /// Starts a site, and returns its address.
    pub(crate) async fn start() -> (Self, SocketAddr) {
        let contents = Contents { max_size_bytes: 64 << 30, ..Contents::default() };
        let site = Self(Arc::default(), Arc::new(Mutex::new(contents)));
        let routes = Routes::new(BuilderServiceServer::new(site.clone())).into_axum_router();
        let http = axum::Router::new()
            .route("/uploads/{image}", get(upload))
            .route("/blobs/{digest}", put(blob))
            .layer(DefaultBodyLimit::disable())
            .with_state(site.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes.merge(http)).await });
        (site, address)
    }

    /// Changes the contents, and wakes all who wait.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> T {
        let result = change(&mut self.contents());
        self.0.send_replace(());
        result
    }

    /// Waits for a value.
    pub(crate) async fn wait_for<T>(&self, mut value: impl FnMut(&mut Contents) -> Option<T>) -> T {
        let mut changes = self.0.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(value) = value(&mut self.contents()) {
                    return value;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, waiting).await.expect("the site waits in vain")
    }

    /// Waits for the end of a build, which is the only one.
    pub(crate) async fn outcome(&self) -> Outcome {
        self.wait_for(|it| it.outcomes.first().cloned()).await
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.1.lock().unwrap()
    }

    /// True if the next request of this kind fails.
    fn fails(&self, kind: &'static str) -> bool {
        let mut contents = self.contents();
        let left = contents.failures.entry(kind).or_default();
        *left = left.saturating_sub(1);
        *left > 0
    }

    fn check(&self, kind: &'static str, holder: &str, id: &str) -> Result<(), Status> {
        if self.fails(kind) {
            return Err(Status::unavailable("away"));
        }
        let contents = self.contents();
        assert_eq!(holder, "builder-1.1");
        match contents.lost {
            Some(reason) => Err(status::failed_precondition(reason, id, "stop")),
            None if contents.running.as_ref().is_some_and(|it| it.id == id) => Ok(()),
            None => Err(status::failed_precondition("BUILD_ENDED", id, "not running")),
        }
    }
}

impl BuilderService for Site {
    async fn lease_build(
        &self,
        call: Call<pb::LeaseBuildRequest>,
    ) -> Result<Answer<pb::LeaseBuildResponse>, Status> {
        if self.fails("lease") {
            return Err(Status::unavailable("away"));
        }
        let holder = call.into_inner().holder;
        let (build, max_size_bytes) = self
            .wait_for(|it| {
                if it.running.is_none() {
                    let mut build = it.pending.pop_front()?;
                    build.attempts += 1;
                    let attempt = build.attempts;
                    let lease =
                        pb::BuildLease { holder: holder.clone(), attempt, expire_time: None };
                    build.lease = Some(lease);
                    it.running = Some(build);
                }
                Some((it.running.clone(), it.max_size_bytes))
            })
            .await;
        Ok(Answer::new(pb::LeaseBuildResponse { build, max_size_bytes }))
    }

    async fn report_build(
        &self,
        call: Call<pb::ReportBuildRequest>,
    ) -> Result<Answer<pb::ReportBuildResponse>, Status> {
        let pb::ReportBuildRequest { build_id, holder, step, .. } = call.into_inner();
        self.check("report", &holder, &build_id)?;
        self.change(|it| it.steps.push(step));
        Ok(Answer::new(pb::ReportBuildResponse::default()))
    }

    async fn finish_build(
        &self,
        call: Call<pb::FinishBuildRequest>,
    ) -> Result<Answer<pb::FinishBuildResponse>, Status> {
        let pb::FinishBuildRequest { build_id, holder, attempt: _, outcome } = call.into_inner();
        self.check("finish", &holder, &build_id)?;
        let outcome = outcome.unwrap();
        self.change(|it| {
            if std::mem::take(&mut it.loses_blobs) {
                it.blobs.clear();
            }
            if let Outcome::Content(content) = &outcome {
                if it.refuses_content {
                    return Err(Status::invalid_argument("content.sha256: refused"));
                }
                let digests = [&content.stored_sha256, &content.map_sha256];
                for digest in digests.into_iter().filter(|it| !it.is_empty()) {
                    if !it.blobs.contains_key(digest) {
                        let text = "not stored";
                        return Err(status::failed_precondition("BLOB_MISSING", digest, text));
                    }
                }
            }
            it.running = None;
            it.outcomes.push(outcome);
            Ok(Answer::new(pb::FinishBuildResponse {}))
        })
    }
}

async fn upload(State(site): State<Site>, Path(image): Path<String>, request: Request) -> Response {
    let range = request.headers().get(header::RANGE);
    let range = range.map(|range| range.to_str().unwrap().to_owned());
    let is_first = site.change(|it| {
        it.fetches.push(range.clone());
        it.fetches.len() == 1
    });
    if site.fails("upload") {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let Some(upload) = site.contents().uploads.get(&image).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let start = range.map(|range| {
        let start = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
        start.unwrap().parse().unwrap()
    });
    match upload {
        Upload::Cut(bytes, cut) if is_first => Upload::half(&bytes, cut),
        Upload::Cut(bytes, _) => match start {
            Some(start) => Upload::rest(&bytes, start),
            None => Body::from(bytes).into_response(),
        },
        Upload::Whole(_) | Upload::Stuck(_) if start.is_some() => panic!("nothing was cut"),
        Upload::Whole(bytes) => Body::from(bytes).into_response(),
        Upload::Stuck(bytes) => {
            let begin = stream::once(async { Ok::<_, std::io::Error>(bytes) });
            Body::from_stream(begin.chain(stream::pending())).into_response()
        }
    }
}

async fn blob(State(site): State<Site>, Path(name): Path<String>, body: Bytes) -> StatusCode {
    if site.fails("blob") {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if digest(&body) != name {
        return StatusCode::BAD_REQUEST;
    }
    site.change(|it| {
        it.sent.push(name.clone());
        it.blobs.insert(name, body);
    });
    StatusCode::CREATED
}
