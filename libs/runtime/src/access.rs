//! The roles that may make each call: one table, enforced by one middleware before every service.
//!
//! The table names every call of the contract (a test compares them), so a new call is refused until it is added. Callers with a
//! tenant may make few of them: those whose service shows and changes the tenant's objects only.
//! `docs/reference/access.md` shows the table; a test compares that too. A service itself checks that a machine only calls for
//! itself: the request's extensions hold the [`Caller`]. A service may make the calls in [`SERVICE_CALLS`] only, and an edge those of
//! [`EDGE_SERVICES`].

mod service_calls;

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tinwright::TenantName;
use tinwright::common::v1::View;
use tonic::Status;

pub use self::service_calls::{EDGE_SERVICES, SERVICE_CALLS, service_subject};
use crate::forwarding;
use crate::identity::{Caller, MachinePurpose, Role};

/// The longest time until the response to a caller without a role begins.
const ANONYMOUS_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a machine. A request for an action is held for 50 s.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(90);

/// The callers that may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Every caller, with or without a certificate.
    Everyone,
    /// Viewers, operators, admins, services and edges.
    Viewers,
    /// Viewers, operators, admins, services, edges and doors.
    ViewersAndDoors,
    /// Operators, admins, services and edges.
    Operators,
    /// Workers, for their own machine.
    Workers,
    /// Workers, and machines that enrol, for their own machine.
    Machines,
    /// Workers, and agents of nodes, for their own machine.
    WorkersAndNodes,
    /// Agents of nodes, for their own machine.
    Nodes,
    /// Admins.
    Admins,
    /// Doors and services.
    Doors,
    /// Admins, services, edges and doors.
    Processes,
    /// Admins, services and edges.
    Services,
}

/// A column of the table: a role, a purpose of a machine's identity, or no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    NoRole,
    Viewer,
    Operator,
    Admin,
    Service,
    Edge,
    Door,
    Builder,
    Work,
    Enrol,
    Node,
}

impl Column {
    fn of(caller: Option<Role>) -> Self {
        match caller {
            None => Self::NoRole,
            Some(Role::Viewer) => Self::Viewer,
            Some(Role::Operator) => Self::Operator,
            Some(Role::Admin) => Self::Admin,
            Some(Role::Service) => Self::Service,
            Some(Role::Edge) => Self::Edge,
            Some(Role::Door) => Self::Door,
            Some(Role::Builder) => Self::Builder,
            Some(Role::Machine(_, MachinePurpose::Work)) => Self::Work,
            Some(Role::Machine(_, MachinePurpose::Enrol)) => Self::Enrol,
            Some(Role::Machine(_, MachinePurpose::Node)) => Self::Node,
        }
    }
}

/// The calls, in the order of their paths.
const CALLS: &[(&str, Audience)] = &[
    ("/grpc.health.v1.Health/Check", Audience::Everyone),
    ("/grpc.health.v1.Health/Watch", Audience::Everyone),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Audience::Viewers),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Audience::Viewers),
    ("/tinwright.address.v1.ClaimService/ClaimAddresses", Audience::Services),
    ("/tinwright.address.v1.ClaimService/ListClaims", Audience::Services),
    ("/tinwright.address.v1.ClaimService/ReleaseAddresses", Audience::Services),
    ("/tinwright.address.v1.GrantService/AttachGrant", Audience::Operators),
    ("/tinwright.address.v1.GrantService/ConfirmGrant", Audience::Operators),
    ("/tinwright.address.v1.GrantService/CreateGrant", Audience::Operators),
    ("/tinwright.address.v1.GrantService/DetachGrant", Audience::Operators),
    ("/tinwright.address.v1.GrantService/GetGrant", Audience::Viewers),
    ("/tinwright.address.v1.GrantService/ListGrants", Audience::Viewers),
    ("/tinwright.address.v1.GrantService/ReleaseGrant", Audience::Operators),
    ("/tinwright.address.v1.GrantService/WatchGrants", Audience::Viewers),
    ("/tinwright.address.v1.LocationBindingService/CreateLocationBinding", Audience::Operators),
    ("/tinwright.address.v1.LocationBindingService/DeleteLocationBinding", Audience::Operators),
    ("/tinwright.address.v1.LocationBindingService/GetLocationBinding", Audience::ViewersAndDoors),
    ("/tinwright.address.v1.LocationBindingService/ListLocationBindings", Audience::Viewers),
    ("/tinwright.address.v1.LocationBindingService/UpdateLocationBinding", Audience::Operators),
    ("/tinwright.address.v1.LocationBindingService/WatchLocationBindings", Audience::Viewers),
    ("/tinwright.address.v1.SubnetService/CreateRange", Audience::Operators),
    ("/tinwright.address.v1.SubnetService/CreateSubnet", Audience::Operators),
    ("/tinwright.address.v1.SubnetService/DeleteRange", Audience::Operators),
    ("/tinwright.address.v1.SubnetService/DeleteSubnet", Audience::Operators),
    ("/tinwright.address.v1.SubnetService/GetRange", Audience::Viewers),
    ("/tinwright.address.v1.SubnetService/GetSubnet", Audience::Viewers),
    ("/tinwright.address.v1.SubnetService/ListRanges", Audience::Viewers),
    ("/tinwright.address.v1.SubnetService/ListSubnets", Audience::Viewers),
    ("/tinwright.address.v1.SubnetService/UpdateRange", Audience::Operators),
    ("/tinwright.address.v1.SubnetService/UpdateSubnet", Audience::Operators),
    ("/tinwright.address.v1.SubnetService/WatchRanges", Audience::Viewers),
    ("/tinwright.address.v1.SubnetService/WatchSubnets", Audience::Viewers),
    ("/tinwright.event.v1.EventService/ListEvents", Audience::Viewers),
    ("/tinwright.event.v1.EventService/WatchEvents", Audience::Viewers),
    ("/tinwright.event.v1.OwnerEventService/ListOwnerEvents", Audience::Services),
    ("/tinwright.event.v1.OwnerEventService/WatchOwnerEvents", Audience::Services),
    ("/tinwright.hardware.v1.HardwareService/CreateHardware", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/DeleteHardware", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/EnrolMachine", Audience::Services),
    ("/tinwright.hardware.v1.HardwareService/GetHardware", Audience::Viewers),
    ("/tinwright.hardware.v1.HardwareService/ListHardware", Audience::Viewers),
    ("/tinwright.hardware.v1.HardwareService/RecordBmcInventory", Audience::Services),
    ("/tinwright.hardware.v1.HardwareService/RecordInventory", Audience::Services),
    ("/tinwright.hardware.v1.HardwareService/SetHardwareState", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/UpdateHardware", Audience::Operators),
    ("/tinwright.hardware.v1.HardwareService/WatchHardware", Audience::Viewers),
    ("/tinwright.hardware.v1.LocationService/CreateLocation", Audience::Operators),
    ("/tinwright.hardware.v1.LocationService/DeleteLocation", Audience::Operators),
    ("/tinwright.hardware.v1.LocationService/GetLocation", Audience::ViewersAndDoors),
    ("/tinwright.hardware.v1.LocationService/ListLocations", Audience::ViewersAndDoors),
    ("/tinwright.hardware.v1.LocationService/UpdateLocation", Audience::Operators),
    ("/tinwright.hardware.v1.LocationService/WatchLocations", Audience::Viewers),
    ("/tinwright.hardware.v1.ModelService/CreateModel", Audience::Operators),
    ("/tinwright.hardware.v1.ModelService/DeleteModel", Audience::Operators),
    ("/tinwright.hardware.v1.ModelService/GetModel", Audience::ViewersAndDoors),
    ("/tinwright.hardware.v1.ModelService/ListModelOffers", Audience::ViewersAndDoors),
    ("/tinwright.hardware.v1.ModelService/ListModels", Audience::ViewersAndDoors),
    ("/tinwright.hardware.v1.ModelService/UpdateModel", Audience::Operators),
    ("/tinwright.hardware.v1.ModelService/WatchModels", Audience::Viewers),
    ("/tinwright.hardware.v1.UnknownMachineService/DeleteUnknownMachine", Audience::Operators),
    ("/tinwright.hardware.v1.UnknownMachineService/GetUnknownMachine", Audience::Viewers),
    ("/tinwright.hardware.v1.UnknownMachineService/ListUnknownMachines", Audience::Viewers),
    ("/tinwright.hardware.v1.UnknownMachineService/RecordUnknownMachines", Audience::Services),
    ("/tinwright.hardware.v1.UnknownMachineService/WatchUnknownMachines", Audience::Viewers),
    ("/tinwright.identity.v1.IdentityService/Authenticate", Audience::Doors),
    ("/tinwright.identity.v1.IdentityService/CreateCredential", Audience::Admins),
    ("/tinwright.identity.v1.IdentityService/DeleteCredential", Audience::Admins),
    ("/tinwright.identity.v1.IdentityService/GetCredential", Audience::Viewers),
    ("/tinwright.identity.v1.IdentityService/IssueCertificate", Audience::Admins),
    ("/tinwright.identity.v1.IdentityService/ListCertificates", Audience::Viewers),
    ("/tinwright.identity.v1.IdentityService/ListCredentials", Audience::Viewers),
    ("/tinwright.identity.v1.IdentityService/RevokeCertificate", Audience::Admins),
    ("/tinwright.identity.v1.IdentityService/RotateAuthority", Audience::Admins),
    ("/tinwright.identity.v1.IdentityService/RotateSiteKey", Audience::Admins),
    ("/tinwright.identity.v1.IdentityService/WatchRevocations", Audience::Processes),
    ("/tinwright.identity.v1.TenantService/CreateTenant", Audience::Operators),
    ("/tinwright.identity.v1.TenantService/DeleteTenant", Audience::Operators),
    ("/tinwright.identity.v1.TenantService/GetTenant", Audience::Viewers),
    ("/tinwright.identity.v1.TenantService/ListTenants", Audience::Viewers),
    ("/tinwright.identity.v1.TenantService/UpdateTenant", Audience::Operators),
    ("/tinwright.identity.v1.TenantService/WatchTenants", Audience::Viewers),
    ("/tinwright.instance.v1.InstanceService/CreateInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/DeleteInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/GetInstance", Audience::Viewers),
    ("/tinwright.instance.v1.InstanceService/ListInstances", Audience::Viewers),
    ("/tinwright.instance.v1.InstanceService/ReinstallInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/ReportPhoneHome", Audience::Services),
    ("/tinwright.instance.v1.InstanceService/ReportScript", Audience::Services),
    ("/tinwright.instance.v1.InstanceService/ReportStackRunning", Audience::Services),
    ("/tinwright.instance.v1.InstanceService/RestartInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/RetryInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/UpdateInstance", Audience::Operators),
    ("/tinwright.instance.v1.InstanceService/WatchInstances", Audience::Viewers),
    ("/tinwright.metadata.v1.MetadataService/ExplainMetadata", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/DeleteLease", Audience::Operators),
    ("/tinwright.netboot.v1.LeaseService/GetLease", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/ListLeases", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/WatchLeases", Audience::Viewers),
    ("/tinwright.netboot.v1.LeaseService/WithholdAddresses", Audience::Services),
    ("/tinwright.netboot.v1.NetbootService/ExplainBoot", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/GetBoot", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/ListBoots", Audience::Viewers),
    ("/tinwright.netboot.v1.NetbootService/ReadBootLog", Audience::Viewers),
    ("/tinwright.node.v1.NodeService/CallNode", Audience::Operators),
    ("/tinwright.node.v1.NodeService/Connect", Audience::Nodes),
    ("/tinwright.node.v1.NodeService/DeleteNode", Audience::Operators),
    ("/tinwright.node.v1.NodeService/GetNode", Audience::Viewers),
    ("/tinwright.node.v1.NodeService/ListNodes", Audience::Viewers),
    ("/tinwright.node.v1.NodeService/WatchNodes", Audience::Viewers),
    ("/tinwright.node.v1.StackService/CreateStack", Audience::Operators),
    ("/tinwright.node.v1.StackService/DeleteStack", Audience::Operators),
    ("/tinwright.node.v1.StackService/GetStack", Audience::Viewers),
    ("/tinwright.node.v1.StackService/ListStacks", Audience::Viewers),
    ("/tinwright.node.v1.StackService/RollBackStack", Audience::Operators),
    ("/tinwright.node.v1.StackService/UpdateStack", Audience::Operators),
    ("/tinwright.node.v1.StackService/WatchStacks", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/CancelPowerJob", Audience::Operators),
    ("/tinwright.power.v1.PowerService/CreateBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/CreatePowerJob", Audience::Operators),
    ("/tinwright.power.v1.PowerService/DeleteBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/EnrolBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/GetBmc", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/GetPowerJob", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/GetPowerState", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/ListBmcs", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/ListPowerJobs", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/ReadBmcInventory", Audience::Operators),
    ("/tinwright.power.v1.PowerService/ReleasePowerJob", Audience::Services),
    ("/tinwright.power.v1.PowerService/UpdateBmc", Audience::Operators),
    ("/tinwright.power.v1.PowerService/WatchBmcs", Audience::Viewers),
    ("/tinwright.power.v1.PowerService/WatchPowerJobs", Audience::Viewers),
    ("/tinwright.store.v1.StoreService/Backup", Audience::Admins),
    ("/tinwright.workflow.v1.TemplateService/CreateTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/DeleteTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/GetTemplate", Audience::Viewers),
    ("/tinwright.workflow.v1.TemplateService/ListTemplates", Audience::Viewers),
    ("/tinwright.workflow.v1.TemplateService/RenderTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/UpdateTemplate", Audience::Operators),
    ("/tinwright.workflow.v1.TemplateService/WatchTemplates", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkerService/AppendLog", Audience::Workers),
    ("/tinwright.workflow.v1.WorkerService/FinishAction", Audience::Workers),
    ("/tinwright.workflow.v1.WorkerService/NextAction", Audience::Workers),
    ("/tinwright.workflow.v1.WorkerService/Redeem", Audience::Everyone),
    ("/tinwright.workflow.v1.WorkerService/Renew", Audience::WorkersAndNodes),
    ("/tinwright.workflow.v1.WorkerService/ReportInventory", Audience::Machines),
    ("/tinwright.workflow.v1.WorkerService/ReportProgress", Audience::Workers),
    ("/tinwright.workflow.v1.WorkerService/StartAction", Audience::Workers),
    ("/tinwright.workflow.v1.WorkflowService/CancelWorkflow", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/ConfirmRestart", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/CreateWorkflow", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/DeleteWorkflow", Audience::Operators),
    ("/tinwright.workflow.v1.WorkflowService/GetBootEpoch", Audience::Services),
    ("/tinwright.workflow.v1.WorkflowService/GetWorkflow", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkflowService/ListWorkflows", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkflowService/NoteBoot", Audience::Services),
    ("/tinwright.workflow.v1.WorkflowService/PlanWorkflow", Audience::Services),
    ("/tinwright.workflow.v1.WorkflowService/ReadLog", Audience::Viewers),
    ("/tinwright.workflow.v1.WorkflowService/ReleaseWorkflow", Audience::Services),
    ("/tinwright.workflow.v1.WorkflowService/WatchWorkflows", Audience::Viewers),
];

/// The calls of [`CALLS`] that callers with a tenant may make, if their role is in the audience. The services limit these calls
/// to the tenant's objects.
const TENANT_CALLS: &[&str] = &[
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/tinwright.address.v1.GrantService/AttachGrant",
    "/tinwright.address.v1.GrantService/ConfirmGrant",
    "/tinwright.address.v1.GrantService/CreateGrant",
    "/tinwright.address.v1.GrantService/DetachGrant",
    "/tinwright.address.v1.GrantService/GetGrant",
    "/tinwright.address.v1.GrantService/ListGrants",
    "/tinwright.address.v1.GrantService/ReleaseGrant",
    "/tinwright.address.v1.GrantService/WatchGrants",
    "/tinwright.address.v1.LocationBindingService/GetLocationBinding",
    "/tinwright.address.v1.LocationBindingService/ListLocationBindings",
    "/tinwright.event.v1.EventService/ListEvents",
    "/tinwright.event.v1.EventService/WatchEvents",
    "/tinwright.hardware.v1.HardwareService/GetHardware",
    "/tinwright.hardware.v1.HardwareService/ListHardware",
    "/tinwright.hardware.v1.LocationService/GetLocation",
    "/tinwright.hardware.v1.LocationService/ListLocations",
    "/tinwright.hardware.v1.ModelService/GetModel",
    "/tinwright.hardware.v1.ModelService/ListModelOffers",
    "/tinwright.hardware.v1.ModelService/ListModels",
    "/tinwright.instance.v1.InstanceService/CreateInstance",
    "/tinwright.instance.v1.InstanceService/DeleteInstance",
    "/tinwright.instance.v1.InstanceService/GetInstance",
    "/tinwright.instance.v1.InstanceService/ListInstances",
    "/tinwright.instance.v1.InstanceService/ReinstallInstance",
    "/tinwright.instance.v1.InstanceService/RestartInstance",
    "/tinwright.instance.v1.InstanceService/RetryInstance",
    "/tinwright.instance.v1.InstanceService/UpdateInstance",
    "/tinwright.instance.v1.InstanceService/WatchInstances",
    "/tinwright.power.v1.PowerService/CancelPowerJob",
    "/tinwright.power.v1.PowerService/CreatePowerJob",
    "/tinwright.power.v1.PowerService/GetPowerJob",
    "/tinwright.power.v1.PowerService/ListPowerJobs",
    "/tinwright.power.v1.PowerService/WatchPowerJobs",
    "/tinwright.workflow.v1.TemplateService/CreateTemplate",
    "/tinwright.workflow.v1.TemplateService/DeleteTemplate",
    "/tinwright.workflow.v1.TemplateService/GetTemplate",
    "/tinwright.workflow.v1.TemplateService/ListTemplates",
    "/tinwright.workflow.v1.TemplateService/UpdateTemplate",
    "/tinwright.workflow.v1.TemplateService/WatchTemplates",
    "/tinwright.workflow.v1.WorkflowService/GetWorkflow",
    "/tinwright.workflow.v1.WorkflowService/ListWorkflows",
    "/tinwright.workflow.v1.WorkflowService/ReadLog",
    "/tinwright.workflow.v1.WorkflowService/WatchWorkflows",
];

/// Returns the audience of the call `path`; none if the call is not in the table, and so nobody may make it.
pub fn audience(path: &str) -> Option<Audience> {
    row(path).map(|(_, audience)| *audience)
}

/// Returns the path of the table that is equal to `path`.
pub fn known_path(path: &str) -> Option<&'static str> {
    row(path).map(|(known, _)| *known)
}

fn row(path: &str) -> Option<&'static (&'static str, Audience)> {
    let found = CALLS.binary_search_by_key(&path, |(known, _)| *known).ok()?;
    CALLS.get(found)
}

/// True if people make the call `path` to change objects: the changes that it makes are recorded as events.
pub fn is_change_request(path: &str) -> bool {
    match audience(path) {
        Some(Audience::Operators | Audience::Admins) => true,
        Some(
            Audience::Everyone
            | Audience::Viewers
            | Audience::ViewersAndDoors
            | Audience::Doors
            | Audience::Workers
            | Audience::Machines
            | Audience::WorkersAndNodes
            | Audience::Nodes
            | Audience::Processes
            | Audience::Services,
        )
        | None => false,
    }
}

impl Audience {
    /// True if a caller of this role, or one without a role, may make the call.
    pub fn admits(self, caller: Option<Role>) -> bool {
        use Column::{Admin, Door, Edge, Enrol, Node, Operator, Service, Viewer, Work};
        let columns: &[Column] = match self {
            Self::Everyone => return true,
            Self::Viewers => &[Viewer, Operator, Admin, Service, Edge],
            Self::ViewersAndDoors => &[Viewer, Operator, Admin, Service, Edge, Door],
            Self::Operators => &[Operator, Admin, Service, Edge],
            Self::Workers => &[Work],
            Self::Machines => &[Work, Enrol],
            Self::WorkersAndNodes => &[Work, Node],
            Self::Nodes => &[Node],
            Self::Admins => &[Admin],
            Self::Doors => &[Door, Service],
            Self::Processes => &[Admin, Service, Edge, Door],
            Self::Services => &[Admin, Service, Edge],
        };
        columns.contains(&Column::of(caller))
    }
}

/// True if `caller`, or a caller without a role, may make the call `path`.
pub fn admits(path: &str, caller: Option<&Caller>) -> bool {
    let Some(audience) = audience(path) else { return false };
    let Some(caller) = caller.filter(|_| audience != Audience::Everyone) else {
        return audience.admits(None);
    };
    let is_open = if caller.role() == Role::Service {
        service_calls::is_of(caller, path)
    } else if caller.role() == Role::Edge {
        service_calls::is_of_edges(path)
    } else {
        caller.tenant().is_none() || TENANT_CALLS.contains(&path)
    };
    is_open && audience.admits(Some(caller.role()))
}

/// Returns the tenant to whose objects the caller of `request` is limited; none if it may use those of the whole site.
pub fn tenant<T>(request: &tonic::Request<T>) -> Option<&TenantName> {
    request.extensions().get::<Caller>()?.tenant()
}

/// Returns the name of the caller of `request` for the scope of its request ids. All services have one: when a request is
/// repeated, another process may do it.
pub fn request_scope<T>(request: &tonic::Request<T>) -> String {
    match request.extensions().get::<Caller>() {
        Some(caller) if caller.role() == Role::Service => Role::Service.to_string(),
        Some(caller) => caller.to_string(),
        None => String::new(),
    }
}

/// Returns the view for the response to `request`, which requests the view `wanted`. Services, edges and admins may have the full view
/// with secrets and user data; other callers are refused it.
pub fn effective_view<T>(request: &tonic::Request<T>, wanted: View) -> Result<View, Status> {
    match (wanted, largest_view(request)) {
        (View::Unspecified | View::Basic, _) => Ok(View::Basic),
        (View::Full, View::Full) => Ok(View::Full),
        (View::Full, View::Unspecified | View::Basic) => {
            Err(Status::permission_denied("view full is for admins, services and edges"))
        }
    }
}

/// Returns the view that shows all that the caller may see.
pub fn largest_view<T>(request: &tonic::Request<T>) -> View {
    match Caller::role_in(request.extensions()) {
        Some(Role::Admin | Role::Service | Role::Edge) => View::Full,
        Some(_) | None => View::Basic,
    }
}

/// Makes a call with `next`, or refuses it if the table does not allow it: `UNIMPLEMENTED` for a call that is not in it,
/// `UNAUTHENTICATED` for a caller without a role, `PERMISSION_DENIED` for one of another. A call of a machine, or of a caller
/// without a role, ends with `DEADLINE_EXCEEDED` if its response does not begin in time, such as when its request is never complete.
///
/// A call that a door forwards is judged as that of the door's client. This caller is in the extensions of the response, too.
pub async fn check<F: Future<Output = Response>>(
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let client = match forwarding::apply(&mut request) {
        Ok(client) => client,
        Err(status) => return status.into_http(),
    };
    let mut response = check_caller(request, next).await;
    client.map(|client| response.extensions_mut().insert(client));
    response
}

async fn check_caller<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let caller = request.extensions().get::<Caller>();
    if let Some(status) = refusal(request.uri().path(), caller) {
        return status.into_http();
    }
    let limit = time_limit(caller.map(Caller::role));
    let response = next(request);
    let Some(limit) = limit else { return response.await };
    tokio::time::timeout(limit, response).await.unwrap_or_else(|_| {
        Status::deadline_exceeded(format!("no response within {limit:?}")).into_http()
    })
}

/// Returns the longest time until the response to `caller` begins, if it is limited.
fn time_limit(caller: Option<Role>) -> Option<Duration> {
    match caller {
        None => Some(ANONYMOUS_TIMEOUT),
        Some(Role::Machine(..)) => Some(MACHINE_TIMEOUT),
        Some(_) => None,
    }
}

fn refusal(path: &str, caller: Option<&Caller>) -> Option<Status> {
    let Some(audience) = audience(path) else {
        return Some(Status::unimplemented(format!("no call {path}")));
    };
    if admits(path, caller) {
        return None;
    }
    let Some(caller) = caller else {
        return Some(Status::unauthenticated("a client certificate of this site is needed"));
    };
    let text = if caller.role() == Role::Service && audience.admits(Some(Role::Service)) {
        format!("{} does not make the call {path}", caller.subject())
    } else {
        let with_tenant = if caller.tenant().is_some() { " with a tenant" } else { "" };
        format!("{}{with_tenant} may not call {}", with_article(caller.role()), short(path))
    };
    Some(Status::permission_denied(text))
}

/// Returns the name of `role` with its article: `an operator`.
fn with_article(role: Role) -> String {
    let name = role.name();
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// Returns the path of a call without the package of its service: `SubnetService/GetRange`.
fn short(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::clock::Clock;
    use crate::test_layer::layered;
    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;
    use prost_reflect::DescriptorPool;
    use tinwright::HardwareId;
    use tonic::Code;
    use tower::ServiceExt as _;

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
        assert!(CALLS.is_sorted_by_key(|(path, _)| path));
    }

    #[test]
    fn exactly_the_internal_calls_of_the_contract_are_for_processes_only() {
        for call in tinwright::calls::CALLS {
            let processes = [Some(Audience::Services), Some(Audience::Processes)];
            assert_eq!(
                processes.contains(&audience(call.path)),
                call.is_internal(),
                "{}",
                call.path
            );
        }
    }

    /// The table of calls in `docs/reference/access.md`.
    fn page() -> String {
        let mut page =
            String::from("| call | callers | services | with tenant |\n|---|---|---|---|\n");
        for (path, audience) in CALLS {
            let callers = match audience {
                Audience::Everyone => "everyone",
                Audience::Viewers => "viewer, operator, admin",
                Audience::ViewersAndDoors => "viewer, operator, admin, door",
                Audience::Operators => "operator, admin",
                Audience::Workers => "machine (work)",
                Audience::Machines => "machine (work), machine (enrol)",
                Audience::WorkersAndNodes => "machine (work), machine (node)",
                Audience::Nodes => "machine (node)",
                Audience::Admins => "admin",
                Audience::Doors => "door",
                Audience::Processes => "admin, door",
                Audience::Services => "admin",
            };
            let is_edges = *audience != Audience::Everyone && service_calls::is_of_edges(path);
            let callers = if is_edges { format!("{callers}, edge") } else { callers.into() };
            let services: Vec<_> = service_calls::callers(path).collect();
            let services = services.join(", ");
            let is_open = *audience == Audience::Everyone || TENANT_CALLS.contains(path);
            let with_tenant = if is_open { "yes" } else { "no" };
            page += &format!("| `{path}` | {callers} | {services} | {with_tenant} |\n");
        }
        page
    }

    #[test]
    fn the_reference_page_has_the_table_of_calls() {
        setup::reference::check("docs/reference/access.md", &page());
    }

    /// What the contract says of the call `method`, apart from the table.
    fn may_call(caller: Option<Role>, method: &prost_reflect::MethodDescriptor) -> bool {
        let is_internal = tinwright::options::is_internal(method);
        let verbs = ["Explain", "Get", "List", "Read", "Watch"];
        let reads = verbs.iter().any(|verb| method.name().starts_with(verb));
        let is_workers = method.parent_service().name() == "WorkerService";
        let is_nodes = method.name() == "Connect";
        let is_machines = is_workers || is_nodes;
        let for_admins = [
            "Backup",
            "CreateCredential",
            "DeleteCredential",
            "IssueCertificate",
            "RevokeCertificate",
            "RotateAuthority",
            "RotateSiteKey",
        ];
        match caller {
            _ if method.name() == "Redeem" => true,
            _ if method.name() == "Authenticate" => {
                matches!(caller, Some(Role::Door | Role::Service))
            }
            _ if for_admins.contains(&method.name()) => caller == Some(Role::Admin),
            Some(Role::Viewer) if is_internal => false,
            Some(Role::Machine(_, MachinePurpose::Work)) => is_workers,
            Some(Role::Machine(_, MachinePurpose::Enrol)) => method.name() == "ReportInventory",
            // It stores what it reads.
            Some(Role::Viewer) if method.name() == "ReadBmcInventory" => false,
            Some(Role::Viewer) => reads,
            Some(Role::Machine(_, MachinePurpose::Node)) => is_nodes || method.name() == "Renew",
            Some(Role::Operator) => !is_internal && !is_machines,
            Some(Role::Admin | Role::Service | Role::Edge) => !is_machines,
            Some(Role::Door) => {
                let of_doors = [
                    "WatchRevocations",
                    "GetLocation",
                    "GetLocationBinding",
                    "GetModel",
                    "ListLocations",
                    "ListModelOffers",
                    "ListModels",
                ];
                of_doors.contains(&method.name())
            }
            Some(Role::Builder) | None => false,
        }
    }

    #[test]
    fn every_role_and_purpose_may_make_its_calls_and_no_other() {
        let purposes = [MachinePurpose::Work, MachinePurpose::Enrol, MachinePurpose::Node];
        let machines = purposes.map(|purpose| Role::Machine(HardwareId::new(), purpose));
        let people = [Role::Viewer, Role::Operator, Role::Admin];
        let processes = [Role::Service, Role::Edge, Role::Door, Role::Builder];
        let roles = people.into_iter().chain(processes).chain(machines).map(Some);
        let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        for role in roles.chain([None]) {
            for method in pool.services().flat_map(|it| it.methods().collect::<Vec<_>>()) {
                let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
                let admits = audience(&path).unwrap().admits(role);
                assert_eq!(admits, may_call(role, &method), "{path}, {role:?}");
            }
        }
    }

    #[test]
    fn callers_with_a_tenant_make_calls_of_their_role_that_are_open_to_tenants() {
        let acme: TenantName = "acme".parse().unwrap();
        for (path, audience) in CALLS {
            let is_open = *audience == Audience::Everyone || TENANT_CALLS.contains(path);
            for role in [Role::Viewer, Role::Operator, Role::Admin] {
                let caller = Caller::from(role).with_tenant(acme.clone()).unwrap();
                let expected = is_open && audience.admits(Some(role));
                assert_eq!(admits(path, Some(&caller)), expected, "{path}, {caller}");
            }
        }
        for path in TENANT_CALLS {
            let audience = audience(path).unwrap();
            let is_of_people = matches!(
                audience,
                Audience::Viewers | Audience::ViewersAndDoors | Audience::Operators
            );
            assert!(is_of_people, "{path}");
        }
    }

    #[test]
    fn an_edge_makes_the_calls_of_netboot_and_metadata_only() {
        let edge = Caller::new(Role::Edge, "service:rack-7").unwrap();
        let service = |name: &str| Caller::new(Role::Service, &service_subject([name])).unwrap();
        let of_services = ["netboot", "metadata"].map(service);
        for (path, audience) in CALLS {
            let expected = *audience == Audience::Everyone
                || of_services.iter().any(|service| admits(path, Some(service)));
            assert_eq!(admits(path, Some(&edge)), expected, "{path}");
        }
        let create = "/tinwright.hardware.v1.HardwareService/CreateHardware";
        let refused = refusal(create, Some(&edge)).unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert_eq!(refused.message(), "an edge may not call HardwareService/CreateHardware");
    }

    #[test]
    fn a_refusal_names_the_reason() {
        let (list, delete) = (
            "/tinwright.hardware.v1.HardwareService/ListHardware",
            "/tinwright.hardware.v1.HardwareService/DeleteHardware",
        );
        let caller = |role: Option<Role>| role.map(Caller::from);
        let code = |path, role| refusal(path, caller(role).as_ref()).map(|status| status.code());
        assert_eq!(code(list, Some(Role::Viewer)), None);
        assert_eq!(code(delete, Some(Role::Operator)), None);
        assert_eq!(code(delete, Some(Role::Viewer)), Some(Code::PermissionDenied));
        let machine = Role::worker(HardwareId::new());
        assert_eq!(code(list, Some(machine)), Some(Code::PermissionDenied));
        assert_eq!(code(list, None), Some(Code::Unauthenticated));
        assert_eq!(code("/grpc.health.v1.Health/Check", None), None);
        assert_eq!(code("/x.Y/Z", Some(Role::Admin)), Some(Code::Unimplemented));
        let of_acme = Caller::from(Role::Admin).with_tenant("acme".parse().unwrap()).unwrap();
        let refused =
            refusal("/tinwright.power.v1.PowerService/CreateBmc", Some(&of_acme)).unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let text = "an admin with a tenant may not call PowerService/CreateBmc";
        assert_eq!(refused.message(), text);
        assert_eq!(code(delete, Some(Role::Service)), Some(Code::PermissionDenied));
        let instance = Caller::new(Role::Service, "service:instance").unwrap();
        let code = |path| refusal(path, Some(&instance)).map(|status| status.code());
        assert_eq!(code("/tinwright.hardware.v1.HardwareService/GetHardware"), None);
        assert_eq!(code("/grpc.health.v1.Health/Check"), None);
        assert_eq!(code(delete), Some(Code::PermissionDenied));
        assert_eq!(
            code("/tinwright.workflow.v1.WorkerService/Renew"),
            Some(Code::PermissionDenied)
        );
    }

    /// Makes the call `path` with a request that is never complete. Returns the response and the time until it.
    async fn unfinished(path: &'static str, caller: Option<Role>) -> (Option<Code>, Duration) {
        let read = async |request: Request| {
            let read = axum::body::to_bytes(request.into_body(), usize::MAX).await;
            Status::internal(format!("{read:?}")).into_http::<Body>()
        };
        let app = Router::new().route(path, post(read));
        let app = layered(app, (), |(), request, next| check(request, next));
        let body =
            Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, Infallible>>());
        let mut request = Request::post(path).body(body).unwrap();
        caller.map(|role| request.extensions_mut().insert(Caller::from(role)));
        let began = Clock::system().monotonic();
        let hour = Duration::from_secs(3600);
        let response = tokio::time::timeout(hour, app.oneshot(request)).await;
        let status = response.ok().and_then(|it| Status::from_header_map(it.unwrap().headers()));
        (status.map(|status| status.code()), Clock::system().monotonic() - began)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_never_complete_ends_in_time_for_machines_and_without_a_role() {
        let redeem = "/tinwright.workflow.v1.WorkerService/Redeem";
        let (code, time) = unfinished(redeem, None).await;
        assert_eq!((code, time.as_secs()), (Some(Code::DeadlineExceeded), 10));
        let machine = Some(Role::worker(HardwareId::new()));
        let (code, time) = unfinished(redeem, machine).await;
        assert_eq!((code, time.as_secs()), (Some(Code::DeadlineExceeded), 90));
        let (code, _) = unfinished(redeem, Some(Role::Service)).await;
        assert_eq!(code, None);
    }
}
