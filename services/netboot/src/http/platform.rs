//! The private files of outside platforms, each behind the boot gate of the machine that requests it.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use runtime::neighbour::NeighbourCheck;

use super::scripts::{label, no_store};
use super::{Http, HttpState, Source, file};
use crate::bootscripts::platform::PrivateFileRequest;

pub(super) fn routes() -> Router<Arc<Http>> {
    // The folder itself is refused as its files are, and never listed.
    Router::new()
        .route("/platform", get(private_file))
        .route("/platform/", get(private_file))
        .route("/platform/{*path}", get(private_file))
}

async fn private_file(
    http: HttpState,
    source: Source,
    Extension(neighbour): Extension<NeighbourCheck>,
    path: Option<Path<String>>,
    request: Parts,
) -> Response {
    let path = path.map(|Path(path)| path).unwrap_or_default();
    let uuid = label(request.uri.query(), "uuid");
    let asked =
        PrivateFileRequest { path: &path, uuid: uuid.as_deref(), source: *source, neighbour };
    let now = http.boots.clock.wall();
    let (reply, effects) = http.boots.respond_private_file(&asked, now);
    let _no_report = http.boots.apply(effects, now);
    match reply {
        Ok(path) => {
            let directories = http.platform_files.as_ref();
            no_store(file::respond(directories, path, file::BYTES, &request.headers).await)
        }
        // The path may have a token, which is not logged.
        Err(refusal) => http.refuse(&refusal, "private file", *source, None),
    }
}
