//! How the service is, in the words of Hegel: for whoever watches it, machine or not.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use tokio::runtime::Handle;

use super::answer;
use super::refusal::Refusal;
use crate::index::Index;

/// What `/_packet/healthcheck` and `/_packet/version` answer. While the control plane is out of reach a health check
/// says 500, as Hegel's does; machines are answered all the same.
pub(super) fn answer(index: &Index, path: &[&str], uptime: Duration) -> Result<Response, Refusal> {
    let version = env!("CARGO_PKG_VERSION");
    let live = index.is_live();
    let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
    let uptime = uptime.as_secs_f64();
    match path {
        [.., "version"] => {
            let said = json!({ "git_rev": version, "service_name": "tinwright metadata" });
            Ok(answer::json(said.to_string()))
        }
        _ => {
            let said = json!({
                "git_rev": version,
                "uptime": uptime,
                "goroutines": tasks,
                "hardware_client_status": live,
            });
            let mut answer = answer::json(said.to_string());
            if !live {
                *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
            Ok(answer)
        }
    }
}
