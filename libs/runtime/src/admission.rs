//! The most calls at a time from callers of one role. A call above the limit is refused at once: if it waited, its caller would give
//! up and repeat it, and the server would do ever more work that nobody waits for.
//!
//! Only calls over the network are limited. A call inside the process is part of another one, which is limited already. A call
//! counts until its response begins, so watches do not.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use strum::VariantArray;
use tinwright::status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access;
use crate::identity::{Caller, Role};
use crate::serve::ConnectionAddresses;

/// Calls that the server holds until there is something to do; each machine has one.
const HELD_CALLS: &[&str] =
    &["/tinwright.node.v1.NodeService/Connect", "/tinwright.workflow.v1.WorkerService/NextAction"];
/// The time after which a refused call may be repeated.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Calls that are limited together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue, VariantArray)]
enum Group {
    /// Without a role.
    Anonymous,
    /// Of machines.
    Machines,
    /// Of machines, held by the server.
    HeldMachines,
    /// Of viewers and operators.
    Operators,
    /// Of admins and processes.
    Services,
}

impl Group {
    fn of(caller: Option<Role>, call: &str) -> Self {
        match caller {
            None => Self::Anonymous,
            Some(Role::Machine(..)) if HELD_CALLS.contains(&call) => Self::HeldMachines,
            Some(Role::Machine(..)) => Self::Machines,
            Some(Role::Viewer | Role::Operator) => Self::Operators,
            Some(Role::Admin | Role::Service | Role::Edge | Role::Door | Role::Builder) => {
                Self::Services
            }
        }
    }

    const fn max_calls(self) -> usize {
        match self {
            Self::Anonymous => 64,
            Self::Machines => 8192,
            Self::HeldMachines => 65_536,
            Self::Operators => 1024,
            Self::Services => 4096,
        }
    }
}

/// The calls in progress.
#[derive(Clone, Debug)]
pub struct Admission {
    free: Vec<Arc<Semaphore>>,
    refused: Family<[(&'static str, Group); 1], Counter>,
}

impl Admission {
    /// Registers the metric in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let refused = Family::default();
        let help = "Calls refused because there were too many, by the role of the callers";
        registry.register("grpc_refused", help, refused.clone());
        let free = |group: &Group| Arc::new(Semaphore::new(group.max_calls()));
        Self { free: Group::VARIANTS.iter().map(free).collect(), refused }
    }

    /// Returns a permit for one more call of `group`, unless there are too many.
    fn permit(&self, group: Group) -> Option<OwnedSemaphorePermit> {
        self.free[group as usize].clone().try_acquire_owned().ok()
    }
}

/// Makes a call with `next`, or refuses it with `RESOURCE_EXHAUSTED` and a `RetryInfo` while there are too many.
pub async fn admit<F: Future<Output = Response>>(
    admission: &Admission,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    if request.extensions().get::<ConnectionAddresses>().is_none() {
        return next(request).await;
    }
    let caller = Caller::role_in(request.extensions());
    let group = Group::of(caller, access::call_path(&request));
    let Some(_permit) = admission.permit(group) else {
        admission.refused.get_or_create(&[("group", group)]).inc();
        return status::overloaded("too many calls at a time", RETRY_DELAY).into_http();
    };
    next(request).await
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;
    use tinwright::HardwareId;
    use tonic::{Code, Status};
    use tower::ServiceExt as _;

    use super::*;
    use crate::test_layer::layered;

    const CALL: &str = "/tinwright.workflow.v1.WorkerService/Redeem";

    /// Calls a service that never answers. Returns the status with which the call is refused, or pends.
    async fn call(app: Router, caller: Option<Role>, over_network: bool) -> Status {
        let mut request = Request::post(CALL).body(Body::empty()).unwrap();
        caller.map(|role| request.extensions_mut().insert(Caller::from(role)));
        if over_network {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            request
                .extensions_mut()
                .insert(ConnectionAddresses { remote: address, local: address });
        }
        let response = app.oneshot(request).await.unwrap();
        Status::from_header_map(response.headers()).unwrap()
    }

    fn service() -> Router {
        let admission = Admission::new(&mut Registry::default());
        let app = Router::new().route(CALL, post(std::future::pending::<()>));
        layered(app, admission, async move |it, request, next| admit(&it, request, next).await)
    }

    /// A call that was begun.
    type Begun = Pin<Box<dyn Future<Output = Status>>>;

    /// Begins a call. Returns it if it waits, else the status with which it is refused.
    fn begin(app: &Router, caller: Option<Role>, over_network: bool) -> Result<Begun, Status> {
        let mut begun: Begun = Box::pin(call(app.clone(), caller, over_network));
        match begun.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(begun),
            Poll::Ready(status) => Err(status),
        }
    }

    #[test]
    fn one_call_more_than_the_limit_is_refused_until_another_one_ends() {
        let app = service();
        let mut open: Vec<_> = (0..64).map(|_| begin(&app, None, true).unwrap()).collect();
        let refused = begin(&app, None, true).err().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(status::retry_delay(&refused), Some(RETRY_DELAY));
        open.pop();
        assert!(begin(&app, None, true).is_ok());
    }

    #[test]
    fn other_roles_and_calls_in_the_process_are_not_refused_for_it() {
        let app = service();
        let _open: Vec<_> = (0..64).map(|_| begin(&app, None, true).unwrap()).collect();
        for role in [Role::worker(HardwareId::new()), Role::Viewer, Role::Service] {
            assert!(begin(&app, Some(role), true).is_ok(), "{role}");
        }
        assert!(begin(&app, None, false).is_ok());
    }

    #[test]
    fn a_held_call_does_not_take_the_place_of_a_report() {
        let machine = Some(Role::worker(HardwareId::new()));
        assert_eq!(Group::of(machine, HELD_CALLS[0]), Group::HeldMachines);
        assert_eq!(Group::of(machine, CALL), Group::Machines);
        for call in HELD_CALLS {
            assert!(crate::access::audience(call).is_some(), "{call}");
        }
    }
}
