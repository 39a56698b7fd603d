//! The caller of a call, for the events of the changes that the call makes, and for the log.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use gateway::errors::code_name;
use runtime::{Caller, access};
use store::events::{Origin, with_origin};
use tonic::{Code, Status};

/// Makes a call with `next`; the call and its caller are the origin of what it commits. A call that asks for a change is logged. It has to be inside of access control,
/// which may replace the caller by the one that a door forwards.
pub(crate) async fn record<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let origin = Arc::new(of_call(access::call_path(&request), request.extensions().get()));
    let response = with_origin(Some(origin.clone()), next(request)).await;
    if origin.is_change_request {
        log_change(&origin, &response);
    }
    response
}

/// Logs a call that asks for a change: who made it, what it changed, and its result.
fn log_change(origin: &Origin, response: &Response) {
    // A call that succeeds has its status behind the message.
    let status = Status::from_header_map(response.headers()).filter(|it| it.code() != Code::Ok);
    let caller = origin.subject.as_deref().unwrap_or("nobody");
    let (role, via, call) = (origin.role, origin.via.as_deref(), origin.call);
    let object = Some(origin.changed.get().join(", ")).filter(|objects| !objects.is_empty());
    let (result, reason) = match &status {
        None => ("OK", None),
        Some(status) => (code_name(status.code()), Some(status.message())),
    };
    tracing::info!(target: "tinwright", caller, role, via, call, object, result, reason, "change requested");
}

/// Returns the origin of the changes of the call `path`. A call that is not in the table of calls has no name.
pub(crate) fn of_call(path: &str, caller: Option<&Caller>) -> Origin {
    Origin {
        call: access::known_path(path).map(call_name).unwrap_or_default(),
        subject: caller.map(Caller::subject).cloned(),
        role: caller.map(|caller| caller.role().name()).unwrap_or_default(),
        via: caller.and_then(Caller::via).cloned(),
        is_change_request: access::is_change_request(path),
        ..Origin::default()
    }
}

/// Returns the service and method of `/tinwright.instance.v1.InstanceService/CreateInstance`, without the package.
fn call_name(path: &str) -> &str {
    let path = path.trim_start_matches('/');
    let service = path.find('/').unwrap_or(path.len());
    path[..service].rfind('.').map_or(path, |dot| &path[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Role;
    use tinwright::HardwareId;

    #[test]
    fn a_call_of_a_person_asks_for_changes_and_one_of_a_worker_reports() {
        let anna = Caller::new(Role::Operator, "person:anna").unwrap();
        let create = of_call("/tinwright.instance.v1.InstanceService/CreateInstance", Some(&anna));
        let text = (create.call, create.subject.as_deref(), create.role);
        assert_eq!(text, ("InstanceService/CreateInstance", Some("person:anna"), "operator"));
        assert!(create.is_change_request);
        let worker = Caller::from(Role::worker(HardwareId::new()));
        let report = of_call("/tinwright.workflow.v1.WorkerService/FinishAction", Some(&worker));
        assert!(!report.is_change_request && report.subject.unwrap().starts_with("machine:"));
        let nobody = of_call("/tinwright.workflow.v1.WorkerService/Redeem", None);
        assert_eq!((nobody.call, nobody.subject), ("WorkerService/Redeem", None));
    }

    #[test]
    fn any_path_has_a_name() {
        for (path, name) in [("", ""), ("/", ""), ("/a.b", "b"), ("/a", "a"), ("/a/b.c", "a/b.c")] {
            assert_eq!(call_name(path), name, "{path}");
        }
    }
}
