//! Who may call what: one table, one layer before every call.
//!
//! The table names every call of the contract (a test compares them), so a new call is closed until somebody has
//! decided. What of a machine's own a machine may see is the service's to check: it is told who calls.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Request, Response};
use tinwright::common::v1::View;
use tonic::Status;
use tower::{Layer, Service};

use crate::identity::{Caller, Role};

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Anybody, certificate or not.
    ToAll,
    /// Whoever may look.
    ToViewers,
    /// Whoever may change things.
    ToOperators,
    /// Machines, for what is theirs.
    ToMachines,
    /// Processes of Tinwright's own.
    ToServices,
}

const CALLS: &[(&str, Open)] = &[
    ("/grpc.health.v1.Health/Check", Open::ToAll),
    ("/grpc.health.v1.Health/Watch", Open::ToAll),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Open::ToViewers),
    ("/tinwright.hardware.v1.HardwareService/CreateHardware", Open::ToOperators),
    ("/tinwright.hardware.v1.HardwareService/DeleteHardware", Open::ToOperators),
    ("/tinwright.hardware.v1.HardwareService/GetHardware", Open::ToViewers),
    ("/tinwright.hardware.v1.HardwareService/ListHardware", Open::ToViewers),
    ("/tinwright.hardware.v1.HardwareService/SetHardwareState", Open::ToOperators),
    ("/tinwright.hardware.v1.HardwareService/UpdateHardware", Open::ToOperators),
    ("/tinwright.hardware.v1.HardwareService/WatchHardware", Open::ToViewers),
    ("/tinwright.instance.v1.InstanceService/CreateInstance", Open::ToOperators),
    ("/tinwright.instance.v1.InstanceService/DeleteInstance", Open::ToOperators),
    ("/tinwright.instance.v1.InstanceService/GetInstance", Open::ToViewers),
    ("/tinwright.instance.v1.InstanceService/ListInstances", Open::ToViewers),
    ("/tinwright.instance.v1.InstanceService/ReportPhoneHome", Open::ToServices),
    ("/tinwright.instance.v1.InstanceService/ReportScript", Open::ToServices),
    ("/tinwright.instance.v1.InstanceService/RetryInstance", Open::ToOperators),
    ("/tinwright.instance.v1.InstanceService/UpdateInstance", Open::ToOperators),
    ("/tinwright.instance.v1.InstanceService/WatchInstances", Open::ToViewers),
    ("/tinwright.metadata.v1.MetadataService/ExplainMetadata", Open::ToViewers),
    ("/tinwright.netboot.v1.LeaseService/DeleteLease", Open::ToOperators),
    ("/tinwright.netboot.v1.LeaseService/GetLease", Open::ToViewers),
    ("/tinwright.netboot.v1.LeaseService/ListLeases", Open::ToViewers),
    ("/tinwright.netboot.v1.LeaseService/ListUnknownMachines", Open::ToViewers),
    ("/tinwright.netboot.v1.LeaseService/WatchLeases", Open::ToViewers),
    ("/tinwright.netboot.v1.NetbootService/ExplainBoot", Open::ToViewers),
    ("/tinwright.netboot.v1.NetbootService/GetBoot", Open::ToViewers),
    ("/tinwright.netboot.v1.NetbootService/ListBoots", Open::ToViewers),
    ("/tinwright.netboot.v1.NetbootService/ReadBootLog", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/CancelPowerJob", Open::ToOperators),
    ("/tinwright.power.v1.PowerService/CreateBmc", Open::ToOperators),
    ("/tinwright.power.v1.PowerService/CreatePowerJob", Open::ToOperators),
    ("/tinwright.power.v1.PowerService/DeleteBmc", Open::ToOperators),
    ("/tinwright.power.v1.PowerService/GetBmc", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/GetPowerJob", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/GetPowerState", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/ListBmcs", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/ListPowerJobs", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/UpdateBmc", Open::ToOperators),
    ("/tinwright.power.v1.PowerService/WatchBmcs", Open::ToViewers),
    ("/tinwright.power.v1.PowerService/WatchPowerJobs", Open::ToViewers),
    ("/tinwright.workflow.v1.TemplateService/CreateTemplate", Open::ToOperators),
    ("/tinwright.workflow.v1.TemplateService/DeleteTemplate", Open::ToOperators),
    ("/tinwright.workflow.v1.TemplateService/GetTemplate", Open::ToViewers),
    ("/tinwright.workflow.v1.TemplateService/ListTemplates", Open::ToViewers),
    ("/tinwright.workflow.v1.TemplateService/UpdateTemplate", Open::ToOperators),
    ("/tinwright.workflow.v1.TemplateService/WatchTemplates", Open::ToViewers),
    ("/tinwright.workflow.v1.WorkerService/AppendLog", Open::ToMachines),
    ("/tinwright.workflow.v1.WorkerService/FinishAction", Open::ToMachines),
    ("/tinwright.workflow.v1.WorkerService/NextAction", Open::ToMachines),
    ("/tinwright.workflow.v1.WorkerService/Redeem", Open::ToAll),
    ("/tinwright.workflow.v1.WorkerService/Renew", Open::ToMachines),
    ("/tinwright.workflow.v1.WorkerService/ReportProgress", Open::ToMachines),
    ("/tinwright.workflow.v1.WorkerService/StartAction", Open::ToMachines),
    ("/tinwright.workflow.v1.WorkflowService/CancelWorkflow", Open::ToOperators),
    ("/tinwright.workflow.v1.WorkflowService/CreateWorkflow", Open::ToOperators),
    ("/tinwright.workflow.v1.WorkflowService/DeleteWorkflow", Open::ToOperators),
    ("/tinwright.workflow.v1.WorkflowService/GetWorkflow", Open::ToViewers),
    ("/tinwright.workflow.v1.WorkflowService/ListWorkflows", Open::ToViewers),
    ("/tinwright.workflow.v1.WorkflowService/NoteBoot", Open::ToServices),
    ("/tinwright.workflow.v1.WorkflowService/ReadLog", Open::ToViewers),
    ("/tinwright.workflow.v1.WorkflowService/WatchWorkflows", Open::ToViewers),
];

/// Who may call `path`. A call that is not in the table is nobody's.
pub fn open(path: &str) -> Option<Open> {
    CALLS.iter().find(|(call, _)| *call == path).map(|(_, open)| *open)
}

impl Open {
    /// Whether `caller` is among them.
    pub fn admits(self, caller: Caller) -> bool {
        match (self, caller.0) {
            (Self::ToAll, _) | (_, Some(Role::Admin | Role::Service)) => true,
            (Self::ToViewers, Some(Role::Viewer | Role::Operator)) => true,
            (Self::ToOperators, Some(Role::Operator)) => true,
            (Self::ToMachines, Some(Role::Machine(_))) => true,
            (Self::ToViewers | Self::ToOperators | Self::ToMachines | Self::ToServices, _) => false,
        }
    }
}

/// The view that is shown to whoever makes `request` and asks for `wanted`: secrets and user data are for services and
/// admins, everybody else who asks for them is refused.
pub fn view<T>(request: &tonic::Request<T>, wanted: View) -> Result<View, Status> {
    let caller = request.extensions().get().copied().unwrap_or(Caller(None));
    match (wanted, caller.0) {
        (View::Unspecified | View::Basic, _) => Ok(View::Basic),
        (View::Full, Some(Role::Admin | Role::Service)) => Ok(View::Full),
        (View::Full, _) => Err(Status::permission_denied("view full is for admins and services")),
    }
}

/// Refuses what the table does not allow: `UNIMPLEMENTED` for a call that is not in it, `UNAUTHENTICATED` for a caller
/// without a role, `PERMISSION_DENIED` for one of another.
#[derive(Clone, Copy, Debug)]
pub struct Access;

impl<S> Layer<S> for Access {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner }
    }
}

/// A service behind the table.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
}

impl<S, B, T: Default> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<T>>,
{
    type Response = Response<T>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Self::Response, Self::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let caller = request.extensions().get().copied().unwrap_or(Caller(None));
        match refusal(request.uri().path(), caller) {
            None => Either::Left(self.inner.call(request)),
            Some(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}

fn refusal(path: &str, caller: Caller) -> Option<Status> {
    match (open(path), caller.0) {
        (None, _) => Some(Status::unimplemented(format!("no call {path}"))),
        (Some(open), _) if open.admits(caller) => None,
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
    fn viewers_read_machines_work_and_whoever_has_no_certificate_gets_one() {
        let machine = Role::Machine(HardwareId::new());
        for (path, open) in CALLS.iter().filter(|(path, _)| path.starts_with("/tinwright.")) {
            let (service, call) = path.rsplit_once('/').unwrap();
            let verbs = ["Explain", "Get", "List", "Read", "Watch"];
            let reads = verbs.iter().any(|verb| call.starts_with(verb));
            let works = service.ends_with(".WorkerService");
            let redeems = call == "Redeem";
            assert_eq!(open.admits(Caller(Some(Role::Viewer))), reads || redeems, "{path}");
            assert_eq!(open.admits(Caller(Some(machine))), works, "{path}");
            assert_eq!(open.admits(Caller(None)), redeems, "{path}");
        }
    }

    #[test]
    fn who_is_not_meant_is_told_why() {
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
