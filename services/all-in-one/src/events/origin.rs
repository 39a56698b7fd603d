//! The caller of a call, for the events of the changes that the call makes.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use runtime::{Caller, access};
use store::events::{Origin, with_origin};

/// Middleware that makes the call and its caller the origin of what the call commits. It has to be inside of access control, which
/// may replace the caller by the one that a door forwards.
pub(crate) async fn record(request: Request, next: Next) -> Response {
    let origin = of_call(request.uri().path(), request.extensions().get());
    with_origin(Some(Arc::new(origin)), next.run(request)).await
}

/// Returns the origin of the changes of the call `path`.
pub(crate) fn of_call(path: &str, caller: Option<&Caller>) -> Origin {
    let text = |part: fn(&Caller) -> &str| caller.map(part).unwrap_or_default().to_owned();
    Origin {
        call: call_name(path).to_owned(),
        subject: text(Caller::subject),
        role: text(|caller| caller.role().name()),
        via: caller.and_then(Caller::via).unwrap_or_default().to_owned(),
        is_change_request: access::is_change_request(path),
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
        let text = (create.call.as_str(), create.subject.as_str(), create.role.as_str());
        assert_eq!(text, ("InstanceService/CreateInstance", "person:anna", "operator"));
        assert!(create.is_change_request);
        let worker = Caller::from(Role::worker(HardwareId::new()));
        let report = of_call("/tinwright.workflow.v1.WorkerService/FinishAction", Some(&worker));
        assert!(!report.is_change_request && report.subject.starts_with("machine:"));
        let nobody = of_call("/tinwright.workflow.v1.WorkerService/Redeem", None);
        assert_eq!((nobody.call.as_str(), nobody.subject.as_str()), ("WorkerService/Redeem", ""));
    }

    #[test]
    fn any_path_has_a_name() {
        for (path, name) in [("", ""), ("/", ""), ("/a.b", "b"), ("/a", "a"), ("/a/b.c", "a/b.c")] {
            assert_eq!(call_name(path), name, "{path}");
        }
    }
}
