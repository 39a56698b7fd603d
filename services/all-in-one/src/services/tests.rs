//! The checks of a call: each is in the chain, and in its place.

use std::net::{Ipv4Addr, SocketAddr};

use axum::body::Body;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use runtime::Role;
use runtime::feed::FeedEvent;
use runtime::forwarding::ForwardCaller;
use runtime::serve::ConnectionAddresses;
use store::ScopedStore;
use store::events::{EventLog, Origin, current_origin};
use store::memory::MemoryStore;
use tinwright::event::v1::{Event, EventFilter};
use tinwright::identity::v1::Revocation;
use tonic::service::Interceptor as _;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use super::*;

const LIST: &str = "/tinwright.hardware.v1.HardwareService/ListHardware";
const CREATE: &str = "/tinwright.hardware.v1.HardwareService/CreateHardware";
/// A call of everyone. The service under test never answers it.
const REDEEM: &str = "/tinwright.workflow.v1.WorkerService/Redeem";

/// A service behind the chain, and what the chain uses.
struct Chain {
    app: Router,
    registry: Registry,
    refusals: Refusals,
    revocations: Revocations,
}

/// The caller and the origin of changes that the service found.
#[derive(Clone)]
struct Found(Option<Caller>, Option<Arc<Origin>>);

async fn service(request: Request) -> Response {
    if request.uri().path() == REDEEM {
        std::future::pending::<()>().await;
    }
    let mut response = Status::ok("").into_http::<Body>();
    let caller = request.extensions().get().cloned();
    response.extensions_mut().insert(Found(caller, current_origin()));
    response
}

impl Chain {
    fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = CallMetrics::new(&mut registry);
        let admission = Admission::new(&mut registry);
        let (refusals, revocations) = (Refusals::new(Clock::system()), Revocations::default());
        let checks = CallChecks {
            metrics,
            refusals: refusals.clone(),
            admission,
            revocations: revocations.clone(),
            workers: WorkerMetrics::new(&mut registry, Clock::system()),
        };
        let layer = from_fn_with_state(Arc::new(checks), checked);
        let app = Router::new().fallback(service).layer(layer);
        Self { app, registry, refusals, revocations }
    }

    /// Makes the call `path` over the network.
    async fn call(&self, path: &str, caller: Option<&Caller>) -> (Code, Option<Found>) {
        make(&self.app, request(path, caller)).await
    }

    /// Makes the call `path` by a door that forwards `client`.
    async fn forward(&self, path: &str, client: &Caller) -> (Code, Option<Found>) {
        let mut request = request(path, Some(&door()));
        let forwarded = ForwardCaller::new(client).call(tonic::Request::new(())).unwrap();
        request.headers_mut().extend(forwarded.into_parts().0.into_headers());
        make(&self.app, request).await
    }

    fn metrics(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page
    }

    /// Returns the first `count` events of refused calls.
    async fn recorded(&self, count: usize) -> Vec<Event> {
        let store = ScopedStore::new(Arc::new(MemoryStore::default()), "hardware");
        let (log, stop) = (EventLog::new(store, "hardware"), CancellationToken::new());
        let run = tokio::spawn(self.refusals.clone().run(vec![log.clone()], stop.clone()));
        let all = async {
            loop {
                let found = log.list(&EventFilter::default(), "", 100).await.unwrap().records;
                if found.len() >= count {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        let limit = std::time::Duration::from_secs(20);
        let found = tokio::time::timeout(limit, all).await.expect("the refusals are recorded");
        stop.cancel();
        run.await.unwrap().unwrap();
        found
    }
}

fn request(path: &str, caller: Option<&Caller>) -> Request {
    let mut request = Request::post(path).body(Body::empty()).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    request.extensions_mut().insert(ConnectionAddresses { remote: address, local: address });
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller.clone());
    }
    request
}

async fn make(app: &Router, request: Request) -> (Code, Option<Found>) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    (status.code(), response.extensions().get().cloned())
}

fn door() -> Caller {
    Caller::new(Role::Door, "service:gateway").unwrap()
}

fn viewer() -> Caller {
    Caller::new(Role::Viewer, "person:anna").unwrap()
}

fn credential() -> Caller {
    Caller::new(Role::Viewer, "credential:1").unwrap()
}

#[tokio::test]
async fn a_call_reaches_the_service_only_if_its_caller_may_make_it() {
    let chain = Chain::new();
    let (code, found) = chain.call(LIST, Some(&viewer())).await;
    assert!(code == Code::Ok && found.is_some());
    for (path, caller, expected) in [
        (CREATE, Some(viewer()), Code::PermissionDenied),
        (LIST, None, Code::Unauthenticated),
        ("/x.Y/Z", Some(viewer()), Code::Unimplemented),
    ] {
        let (code, found) = chain.call(path, caller.as_ref()).await;
        assert!(code == expected && found.is_none(), "{path}: {code:?}");
    }
}

#[tokio::test]
async fn calls_are_counted_and_so_are_refused_ones() {
    let chain = Chain::new();
    chain.call(LIST, Some(&viewer())).await;
    chain.call(CREATE, Some(&viewer())).await;
    let page = chain.metrics();
    for line in [
        "grpc_method=\"ListHardware\",grpc_code=\"OK\"} 1",
        "grpc_method=\"CreateHardware\",grpc_code=\"PermissionDenied\"} 1",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}

#[tokio::test]
async fn refused_calls_are_recorded_with_the_client_that_a_door_forwards() {
    let chain = Chain::new();
    let acme = viewer().with_tenant("acme".parse().unwrap()).unwrap();
    assert_eq!(chain.call(CREATE, Some(&viewer())).await.0, Code::PermissionDenied);
    let bert = Caller::new(Role::Viewer, "person:bert").unwrap();
    let bert = bert.with_tenant("acme".parse().unwrap()).unwrap();
    assert_eq!(chain.forward(CREATE, &bert).await.0, Code::PermissionDenied);
    // The door itself may not make the call, and neither may somebody else forward a caller.
    assert_eq!(chain.call(CREATE, Some(&door())).await.0, Code::PermissionDenied);
    let mut forged = request(LIST, Some(&viewer()));
    let forwarded = ForwardCaller::new(&acme).call(tonic::Request::new(())).unwrap();
    forged.headers_mut().extend(forwarded.into_parts().0.into_headers());
    assert_eq!(make(&chain.app, forged).await.0, Code::PermissionDenied);
    let events = chain.recorded(4).await;
    let line = |event: &Event| {
        let Event { call, role, subject, via, tenant, .. } = event;
        format!("{call} {role} {subject} via={via} tenant={tenant}")
    };
    let expected = [
        "HardwareService/CreateHardware viewer person:anna via= tenant=",
        "HardwareService/CreateHardware viewer person:bert via=service:gateway tenant=acme",
        "HardwareService/CreateHardware door service:gateway via= tenant=",
        "HardwareService/ListHardware viewer person:anna via= tenant=",
    ];
    assert_eq!(events.iter().map(line).collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_role_ends_in_time() {
    let chain = Chain::new();
    let hour = std::time::Duration::from_secs(3600);
    let (code, _) = tokio::time::timeout(hour, chain.call(REDEEM, None)).await.expect("an end");
    assert_eq!(code, Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn calls_above_the_limit_are_refused() {
    let chain = Chain::new();
    let calls = (0..1000).map(|_| chain.call(REDEEM, None));
    let codes = futures_util::future::join_all(calls).await.into_iter().map(|(code, _)| code);
    let refused = codes.filter(|code| *code == Code::ResourceExhausted).count();
    assert!((1..1000).contains(&refused), "{refused} of 1000 refused");
}

#[tokio::test]
async fn a_revoked_credential_is_refused_and_so_is_one_that_a_door_forwards() {
    let chain = Chain::new();
    assert_eq!(chain.forward(LIST, &credential()).await.0, Code::Ok);
    let revocation = Revocation { id: "credential:1".into(), ..Revocation::default() };
    chain.revocations.apply(FeedEvent::Put(revocation));
    assert_eq!(chain.call(LIST, Some(&credential())).await.0, Code::Unauthenticated);
    assert_eq!(chain.forward(LIST, &credential()).await.0, Code::Unauthenticated);
    assert_eq!(chain.call(LIST, Some(&viewer())).await.0, Code::Ok);
}

#[tokio::test]
async fn changes_have_the_client_that_a_door_forwards_as_their_origin() {
    let chain = Chain::new();
    let Found(_, origin) = chain.call(LIST, Some(&viewer())).await.1.unwrap();
    let origin = origin.expect("an origin");
    assert_eq!((origin.subject.as_deref(), origin.via.as_deref()), (Some("person:anna"), None));
    let Found(caller, origin) = chain.forward(LIST, &viewer()).await.1.unwrap();
    assert_eq!(caller.unwrap().to_string(), viewer().to_string());
    let origin = origin.expect("an origin");
    let names = (origin.call, origin.subject.as_deref(), origin.via.as_deref());
    let expected = ("HardwareService/ListHardware", Some("person:anna"), Some("service:gateway"));
    assert_eq!(names, expected);
}
