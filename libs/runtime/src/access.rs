//! The roles that may make each call: one table, enforced by one middleware before every service.
//!
//! The table names every call of the contract (a test compares them), so a new call is refused until it is added.
//! `docs/reference/access.md` shows the table; a test compares that too. A service itself checks that a machine only calls for
//! itself: the request's extensions hold the [`Caller`].

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tinwright::common::v1::View;
use tonic::Status;

use crate::identity::{Caller, Role};

/// The callers that may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Every caller, with or without a certificate.
    Everyone,
    /// Viewers, operators, admins and services.
    Viewers,
    /// Operators, admins and services.
    Operators,
    /// Machines, for themselves; admins and services.
    Machines,
    /// Admins and services.
    Services,
}

const CALLS: &[(&str, Audience)] = &[
    ("/grpc.health.v1.Health/Check", Audience::Everyone),
    ("/grpc.health.v1.Health/Watch", Audience::Everyone),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Audience::Viewers),
    ("/tinwright.hardware.v1.HardwareService/CreateHardware", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/DeleteHardware", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/GetHardware", Audience::Viewers),
    ("/tinwright.hardware.v1.HardwareService/ListHardware", Audience::Viewers),
    ("/tinwright.hardware.v1.HardwareService/SetHardwareState", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/UpdateHardware", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/WatchHardware", Audience::Viewers),
    ("/tinwright.instance.v1.InstanceService/CreateInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/DeleteInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/GetInstance", Audience::Viewers),
    ("/tinwright.instance.v1.InstanceService/ListInstances", Audience::Viewers),
    ("/tinwright.instance.v1.InstanceService/ReportPhoneHome", Audience::Services),
    ("/tinwright.instance.v1.InstanceService/ReportScript", Audience::Services),
    ("/tinwright.instance.v1.InstanceService/RetryInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/UpdateInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/WatchInstances", Audience::Viewers),
    ("/tinwright.metadata.v1.MetadataService/ExplainMetadata", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/DeleteLease", Audience::Operators),
    ("/tinwright.netboot.v1.LeaseService/GetLease", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/ListLeases", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/ListUnknownMachines", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/WatchLeases", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/ExplainBoot", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/GetBoot", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/ListBoots", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/ReadBootLog", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/CancelPowerJob", Audience::Operators),
    ("/tinwright.power.v1.PowerService/CreateBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/CreatePowerJob", Audience::Operators),
    ("/tinwright.power.v1.PowerService/DeleteBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/GetBmc", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/GetPowerJob", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/GetPowerState", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/ListBmcs", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/ListPowerJobs", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/UpdateBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/WatchBmcs", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/WatchPowerJobs", Audience::Viewers),
    ("/tinwright.workflow.v1.TemplateService/CreateTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/DeleteTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/GetTemplate", Audience::Viewers),
    ("/tinwright.workflow.v1.TemplateService/ListTemplates", Audience::Viewers),
    ("/tinwright.workflow.v1.TemplateService/UpdateTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/WatchTemplates", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkerService/AppendLog", Audience::Machines),
    ("/tinwright.workflow.v1.WorkerService/FinishAction", Audience::Machines),
    ("/tinwright.workflow.v1.WorkerService/NextAction", Audience::Machines),
    ("/tinwright.workflow.v1.WorkerService/Redeem", Audience::Everyone),
    ("/tinwright.workflow.v1.WorkerService/Renew", Audience::Machines),
    ("/tinwright.workflow.v1.WorkerService/ReportProgress", Audience::Machines),
    ("/tinwright.workflow.v1.WorkerService/StartAction", Audience::Machines),
    ("/tinwright.workflow.v1.WorkflowService/CancelWorkflow", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/CreateWorkflow", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/DeleteWorkflow", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/GetWorkflow", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkflowService/ListWorkflows", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkflowService/NoteBoot", Audience::Services),
    ("/tinwright.workflow.v1.WorkflowService/ReadLog", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkflowService/WatchWorkflows", Audience::Viewers),
];

/// Returns the audience of the call `path`; none if the call is not in the table, and so nobody may make it.
pub fn audience(path: &str) -> Option<Audience> {
    CALLS.iter().find(|(call, _)| *call == path).map(|(_, audience)| *audience)
}

impl Audience {
    /// True if `caller` may make the call.
    pub fn admits(self, caller: Caller) -> bool {
        match (self, caller.0) {
            (Self::Everyone, _) | (_, Some(Role::Admin | Role::Service)) => true,
            (Self::Viewers, Some(Role::Viewer | Role::Operator)) => true,
            (Self::Operators, Some(Role::Operator)) => true,
            (Self::Machines, Some(Role::Machine(_))) => true,
            (Self::Viewers | Self::Operators | Self::Machines | Self::Services, _) => false,
        }
    }
}

/// Returns the view for the response to `request`, which requests the view `wanted`. Services and admins may have the full view
/// with secrets and user data; other callers are refused it.
pub fn effective_view<T>(request: &tonic::Request<T>, wanted: View) -> Result<View, Status> {
    let caller = request.extensions().get().copied().unwrap_or(Caller(None));
    match (wanted, caller.0) {
        (View::Unspecified | View::Basic, _) => Ok(View::Basic),
        (View::Full, Some(Role::Admin | Role::Service)) => Ok(View::Full),
        (View::Full, _) => Err(Status::permission_denied("view full is for admins and services")),
    }
}

/// Middleware that refuses calls that the table does not allow: `UNIMPLEMENTED` for a call that is not in it,
/// `UNAUTHENTICATED` for a caller without a role, `PERMISSION_DENIED` for one of another.
pub async fn check(request: Request, next: Next) -> Response {
    let caller = request.extensions().get().copied().unwrap_or(Caller(None));
    match refusal(request.uri().path(), caller) {
        None => next.run(request).await,
        Some(status) => status.into_http(),
    }
}

fn refusal(path: &str, caller: Caller) -> Option<Status> {
    match (audience(path), caller.0) {
        (None, _) => Some(Status::unimplemented(format!("no call {path}"))),
        (Some(audience), _) if audience.admits(caller) => None,
        (Some(_), None) => {
            Some(Status::unauthenticated("a client certificate of this site is needed"))
        }
        (Some(_), Some(role)) => {
            Some(Status::permission_denied(format!("{role} may not call {path}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;
    use tinwright::HardwareId;
    use tonic::Code;

    #[test]
    fn the_table_names_every_call_of_the_contract_and_no_other() {
        let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        let mut calls: Vec<_> = pool
            .services()
            .flat_map(|service| {
                let path = |m: prost_reflect::MethodDescriptor| {
                    format!("/{}/{}", m.parent_service().full_name(), m.name())
                };
                service.methods().map(path).collect::<Vec<_>>()
            })
            .collect();
        calls.sort();
        let ours =
            CALLS.iter().map(|(path, _)| *path).filter(|path| path.starts_with("/tinwright."));
        assert_eq!(ours.collect::<Vec<_>>(), calls);
    }

    #[test]
    fn exactly_the_calls_that_the_contract_marks_internal_are_for_services_only() {
        let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        let internal = pool.get_extension_by_name("tinwright.common.v1.internal").unwrap();
        for method in pool.services().flat_map(|it| it.methods().collect::<Vec<_>>()) {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            let marked = method.options().get_extension(&internal).as_bool() == Some(true);
            assert_eq!(audience(&path) == Some(Audience::Services), marked, "{path}");
        }
    }

    /// The table of calls in `docs/reference/access.md`.
    fn page() -> String {
        let mut page = String::from("| call | callers |\n|---|---|\n");
        for (path, audience) in CALLS {
            let callers = match audience {
                Audience::Everyone => "everyone",
                Audience::Viewers => "viewer, operator, admin, service",
                Audience::Operators => "operator, admin, service",
                Audience::Machines => "machine, admin, service",
                Audience::Services => "admin, service",
            };
            page += &format!("| `{path}` | {callers} |\n");
        }
        page
    }

    #[test]
    fn the_reference_page_has_the_table_of_calls() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/access.md");
        let (written, page) = (std::fs::read_to_string(path).unwrap(), page());
        assert!(written.ends_with(&page), "{path} has to end with this table:\n{page}");
    }

    #[test]
    fn viewers_may_read_machines_may_work_and_all_may_redeem_a_token() {
        let machine = Role::Machine(HardwareId::new());
        for (path, audience) in CALLS.iter().filter(|(path, _)| path.starts_with("/tinwright.")) {
            let (service, call) = path.rsplit_once('/').unwrap();
            let verbs = ["Explain", "Get", "List", "Read", "Watch"];
            let reads = verbs.iter().any(|verb| call.starts_with(verb));
            let works = service.ends_with(".WorkerService");
            let redeems = call == "Redeem";
            assert_eq!(audience.admits(Caller(Some(Role::Viewer))), reads || redeems, "{path}");
            assert_eq!(audience.admits(Caller(Some(machine))), works, "{path}");
            assert_eq!(audience.admits(Caller(None)), redeems, "{path}");
        }
    }

    #[test]
    fn a_refusal_names_the_reason() {
        let (list, create) = (
            "/tinwright.hardware.v1.HardwareService/ListHardware",
            "/tinwright.hardware.v1.HardwareService/CreateHardware",
        );
        let code = |path, role| refusal(path, Caller(role)).map(|status| status.code());
        assert_eq!(code(list, Some(Role::Viewer)), None);
        assert_eq!(code(create, Some(Role::Operator)), None);
        assert_eq!(code(create, Some(Role::Viewer)), Some(Code::PermissionDenied));
        let machine = Role::Machine(HardwareId::new());
        assert_eq!(code(list, Some(machine)), Some(Code::PermissionDenied));
        assert_eq!(code(list, None), Some(Code::Unauthenticated));
        assert_eq!(code("/grpc.health.v1.Health/Check", None), None);
        assert_eq!(code("/x.Y/Z", Some(Role::Admin)), Some(Code::Unimplemented));
    }
}
