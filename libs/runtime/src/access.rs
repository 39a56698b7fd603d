//! The roles that may make each call, enforced by one middleware before every service.
//!
//! The contract says of each call who may make it (option `call`), and does not build if a call has
//! no such option. `docs/reference/access.md` shows the table; a test compares it. Callers with a
//! tenant may make few calls: those whose service shows and changes the tenant's objects only. A
//! service itself checks that a machine only calls for itself: the request's extensions hold the
//! [`Caller`]. A service may make the calls that name it only, and an edge those that name one of
//! [`EDGE_SERVICES`].

mod http_calls;
mod service_calls;

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tinwright::TenantName;
use tinwright::calls::{self, Call};
use tinwright::common::v1::{Audience, View};
use tonic::Status;

pub use self::http_calls::{call_path, is_http};
pub use self::service_calls::{EDGE_SERVICES, service_subject};
use crate::forwarding;
use crate::identity::{Caller, MachinePurpose, Role};

/// The longest time until the response to a caller without a role begins.
const ANONYMOUS_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a machine. A request for an action is held for 50 s.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(90);

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

/// The calls of each server that are not in the contract: health and reflection.
const SERVER_CALLS: [Call; 4] = [
    server_call("/grpc.health.v1.Health/Check", Audience::Everyone),
    server_call("/grpc.health.v1.Health/Watch", Audience::Everyone),
    server_call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Audience::Viewers),
    server_call(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Audience::Viewers,
    ),
];

const fn server_call(path: &'static str, audience: Audience) -> Call {
    Call { path, audience, is_open_to_tenants: true, services: &[] }
}

/// Returns the call `path`. None: there is no such call, and so nobody may make it.
fn find(path: &str) -> Option<&'static Call> {
    let more = || SERVER_CALLS.iter().chain(&http_calls::HTTP_CALLS);
    calls::find(path).or_else(|| more().find(|call| call.path == path))
}

/// Returns the audience of the call `path`. None: there is no such call.
pub fn audience(path: &str) -> Option<Audience> {
    find(path).map(|call| call.audience)
}

/// Returns the path of the call that is equal to `path`.
pub fn known_path(path: &str) -> Option<&'static str> {
    find(path).map(|call| call.path)
}

/// True if people make the call `path` to change objects: the changes that it makes are recorded as
/// events.
pub fn is_change_request(path: &str) -> bool {
    matches!(audience(path), Some(Audience::Operators | Audience::Admins))
}

/// True if a caller of this role, or one without a role, is in `audience`.
fn admits_role(audience: Audience, caller: Option<Role>) -> bool {
    use Column::{Admin, Builder, Door, Edge, Enrol, Node, Operator, Service, Viewer, Work};
    let columns: &[Column] = match audience {
        Audience::Unspecified => &[],
        Audience::Everyone => return true,
        Audience::Viewers => &[Viewer, Operator, Admin, Service, Edge],
        Audience::ViewersAndDoors => &[Viewer, Operator, Admin, Service, Edge, Door],
        Audience::Operators => &[Operator, Admin, Service, Edge],
        Audience::Workers => &[Work],
        Audience::Machines => &[Work, Enrol],
        Audience::WorkersAndNodes => &[Work, Node],
        Audience::Nodes => &[Node],
        Audience::Admins => &[Admin],
        Audience::Doors => &[Door, Service],
        Audience::Processes => &[Admin, Service, Edge, Door, Builder],
        Audience::Services => &[Admin, Service, Edge],
        Audience::Builders => &[Builder],
    };
    columns.contains(&Column::of(caller))
}

/// True if `caller`, or a caller without a role, may make the call `path`.
pub fn admits(path: &str, caller: Option<&Caller>) -> bool {
    let Some(call) = find(path) else { return false };
    let Some(caller) = caller.filter(|_| call.audience != Audience::Everyone) else {
        return admits_role(call.audience, None);
    };
    let is_open = if caller.role() == Role::Service {
        service_calls::is_of(caller, call)
    } else if caller.role() == Role::Edge {
        service_calls::is_of_edges(call)
    } else {
        caller.tenant().is_none() || call.is_open_to_tenants
    };
    is_open && admits_role(call.audience, Some(caller.role()))
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
        Err(status) => return http_calls::refuse(status, request).await,
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
    if let Some(status) = refusal(call_path(&request), caller) {
        return http_calls::refuse(status, request).await;
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
    let text = if caller.role() == Role::Service && admits_role(audience, Some(Role::Service)) {
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

    /// All calls, in the order of their paths.
    fn all_calls() -> impl Iterator<Item = &'static Call> {
        SERVER_CALLS.iter().chain(&http_calls::HTTP_CALLS).chain(calls::CALLS)
    }

    fn is_open_to_tenants(call: &Call) -> bool {
        call.audience == Audience::Everyone || call.is_open_to_tenants
    }

    /// The table of calls in `docs/reference/access.md`.
    fn page() -> String {
        let mut page =
            String::from("| call | callers | services | with tenant |\n|---|---|---|---|\n");
        for call in all_calls() {
            let Call { path, audience, services, .. } = call;
            let callers = match audience {
                Audience::Unspecified => "nobody",
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
                Audience::Processes => "admin, door, builder",
                Audience::Services => "admin",
                Audience::Builders => "builder",
            };
            let is_edges = *audience != Audience::Everyone && service_calls::is_of_edges(call);
            let callers = if is_edges { format!("{callers}, edge") } else { callers.into() };
            let services = services.join(", ");
            let with_tenant = if is_open_to_tenants(call) { "yes" } else { "no" };
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
            "ResumeImageCollection",
            "RevokeCertificate",
            "RotateAuthority",
            "RotateSiteKey",
        ];
        let is_builders = method.parent_service().name() == "BuilderService";
        match caller {
            _ if is_builders => caller == Some(Role::Builder),
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
            Some(Role::Builder) => method.name() == "WatchRevocations",
            None => false,
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
                let admits = admits_role(audience(&path).unwrap(), role);
                assert_eq!(admits, may_call(role, &method), "{path}, {role:?}");
            }
        }
    }

    #[test]
    fn callers_with_a_tenant_make_calls_of_their_role_that_are_open_to_tenants() {
        let acme: TenantName = "acme".parse().unwrap();
        for call in all_calls() {
            for role in [Role::Viewer, Role::Operator, Role::Admin] {
                let caller = Caller::from(role).with_tenant(acme.clone()).unwrap();
                let expected = is_open_to_tenants(call) && admits_role(call.audience, Some(role));
                assert_eq!(admits(call.path, Some(&caller)), expected, "{}, {caller}", call.path);
            }
        }
        for call in calls::CALLS.iter().filter(|call| call.is_open_to_tenants) {
            let is_of_people = matches!(
                call.audience,
                Audience::Viewers | Audience::ViewersAndDoors | Audience::Operators
            );
            assert!(is_of_people, "{}", call.path);
        }
    }

    #[test]
    fn an_edge_makes_the_calls_of_netboot_and_metadata_only() {
        let edge = Caller::new(Role::Edge, "service:rack-7").unwrap();
        let service = |name: &str| Caller::new(Role::Service, &service_subject([name])).unwrap();
        let of_services = ["netboot", "metadata"].map(service);
        for Call { path, audience, .. } in all_calls() {
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
