//! The health of the service in Hegel's format, for monitoring: the caller need not be a machine.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tokio::runtime::Handle;

use super::response;
use crate::index::Index;

/// Returns the response at `/_packet/healthcheck` or `/_packet/version`. While the control plane cannot be reached the
/// status of the health check is 500, as Hegel's is; machines are served all the same.
pub(super) fn response(index: &Index, path: &[&str], uptime: Duration) -> Response {
    let version = env!("CARGO_PKG_VERSION");
    if path.ends_with(&["version"]) {
        let text = json!({ "git_rev": version, "service_name": "tinwright metadata" });
        return response::json(text.to_string());
    }
    let is_live = index.is_live();
    let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
    let text = json!({
        "git_rev": version,
        "uptime": uptime.as_secs_f64(),
        "goroutines": tasks,
        "hardware_client_status": is_live,
    });
    let status = if is_live { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, response::json(text.to_string())).into_response()
}
