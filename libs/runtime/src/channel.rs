//! Channels to services: in this process, or at a server.
//!
//! A call inside the process is a call of the services' router, through the same checks as any
//! other. It needs neither a connection nor HTTP/2, which cost several times as much processor time
//! as a short call itself.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use tinwright::client::{self, Call, Grpc, GrpcClient};
use tinwright::requests::{ListRequest, Page};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::{BoxError, Service};

use crate::identity::Caller;
use crate::retry::describe_broken;

/// The longest time until another service responds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A channel to a service, for the clients of the contract.
#[derive(Clone, Debug)]
pub enum Channel {
    /// To the services of this process, as a caller; none for one without a role.
    Local(LocalServices, Option<Caller>),
    /// To a server, over a connection.
    Connected(tonic::transport::Channel),
}

/// The services of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct LocalServices {
    state: Arc<watch::Sender<State>>,
    stop: CancellationToken,
}

#[derive(Clone, Debug)]
enum State {
    Starting,
    Running(Router),
    Ended,
}

/// Ends services when it is dropped. They have channels to each other: without an end, they would
/// keep each other, and their store, in memory.
#[derive(Debug)]
#[must_use]
pub struct RunningServices(LocalServices);

impl LocalServices {
    /// Services that are not started: calls wait. From `stop` on, calls are refused.
    pub fn new(stop: CancellationToken) -> Self {
        Self { state: Arc::new(watch::Sender::new(State::Starting)), stop }
    }

    /// The services of `router`, which run until the process ends.
    pub fn of(router: Router) -> Self {
        let services = Self::new(CancellationToken::new());
        services.state.send_replace(State::Running(router));
        services
    }

    /// Starts the services of `router`. They run until the result is dropped.
    pub fn start(&self, router: Router) -> RunningServices {
        self.state.send_replace(State::Running(router));
        RunningServices(self.clone())
    }

    /// Returns a channel to these services. All its calls have this `caller`.
    pub fn channel(&self, caller: Caller) -> Channel {
        Channel::Local(self.clone(), Some(caller))
    }

    async fn call(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        match self.stop.run_until_cancelled(self.router()).await.flatten() {
            Some(mut router) => Ok(router.call(request).await?.map(Body::new)),
            None => Ok(Status::unavailable("the server stops").into_http()),
        }
    }

    /// Returns the router, once it is there; none if the services have ended.
    async fn router(&self) -> Option<Router> {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| !matches!(state, State::Starting)).await.ok()?.clone();
        match state {
            State::Running(router) => Some(router),
            State::Starting | State::Ended => None,
        }
    }
}

impl Drop for RunningServices {
    fn drop(&mut self) {
        self.0.state.send_replace(State::Ended);
    }
}

/// Makes a call with one response on `channel`.
pub async fn call<R: Call>(channel: impl GrpcClient, request: R) -> Result<R::Response, Status> {
    Ok(client::unary(&mut Grpc::new(channel), request).await?.into_inner())
}

/// Returns the response to a call of another service, or an error after ten seconds.
pub fn response<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> impl Future<Output = Result<T, Status>> {
    let late = |_| Status::deadline_exceeded("no response in time");
    let response = tokio::time::timeout(TIMEOUT, call);
    response.map(move |it| it.map_err(late).flatten().map(tonic::Response::into_inner))
}

/// Does the same; none if the service does not have the object.
pub fn find<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> impl Future<Output = Result<Option<T>, Status>> {
    response(call).map(|response| match response {
        Ok(found) => Ok(Some(found)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    })
}

/// Returns the objects of all pages, each by the request that `page` returns for its token.
pub async fn list_all<R>(
    channel: impl GrpcClient + Clone,
    page: impl Fn(String) -> R,
) -> Result<Vec<R::Object>, Status>
where
    R: Call<Response: Into<Page<R::Object>>> + ListRequest,
{
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let Page { objects, next_page_token } = call(channel.clone(), page(token)).await?.into();
        all.extend(objects);
        if next_page_token.is_empty() {
            return Ok(all);
        }
        token = next_page_token;
    }
}

impl Channel {
    /// A channel to the services of `routes`, without a caller.
    pub fn to(routes: Routes) -> Self {
        Self::Local(LocalServices::of(routes.into_axum_router()), None)
    }

    /// A channel to a service that does not run: calls are UNAVAILABLE.
    pub fn unconnected() -> Self {
        let services = LocalServices::new(CancellationToken::new());
        services.stop.cancel();
        Self::Local(services, None)
    }
}

impl From<tonic::transport::Channel> for Channel {
    fn from(channel: tonic::transport::Channel) -> Self {
        Self::Connected(channel)
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Local(..) => Poll::Ready(Ok(())),
            Self::Connected(channel) => channel.poll_ready(context).map_err(to_status),
        }
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        match self {
            Self::Local(services, caller) => {
                if let Some(caller) = caller {
                    request.extensions_mut().insert(caller.clone());
                }
                services.clone().call(request).boxed()
            }
            Self::Connected(channel) => {
                let response = channel.call(request);
                async { response.await.map_err(to_status) }.boxed()
            }
        }
    }
}

/// Returns the status of a failed connection, which clients return as it is. Its source is `error`.
fn to_status(error: tonic::transport::Error) -> BoxError {
    describe_broken(Status::from_error(error.into())).into()
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::routing::post;
    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;
    use crate::identity::Role;

    /// Calls `channel`. Returns the body of its response, or the status.
    async fn call(channel: Channel) -> Result<String, Status> {
        let request = Request::post("/caller").body(Body::empty()).unwrap();
        let response = channel.oneshot(request).await.unwrap();
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status);
        }
        let body = axum::body::Body::new(response.into_body());
        let body = axum::body::to_bytes(body, 1000).await.unwrap();
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }

    fn router() -> Router {
        let caller = async |caller: Option<Extension<Caller>>| {
            caller.map_or_else(|| "nobody".to_owned(), |Extension(caller)| caller.to_string())
        };
        Router::new().route("/caller", post(caller))
    }

    #[tokio::test]
    async fn a_local_call_has_the_caller_of_its_channel() {
        let caller = Caller::new(Role::Service, "service:power").unwrap();
        let channel = LocalServices::of(router()).channel(caller.clone());
        assert_eq!(call(channel).await.unwrap(), caller.to_string());
    }

    #[tokio::test]
    async fn a_call_waits_for_the_start_and_is_refused_from_the_stop_on() {
        let stop = CancellationToken::new();
        let services = LocalServices::new(stop.clone());
        let caller = Caller::from(Role::Admin);
        let mut early = std::pin::pin!(call(services.channel(caller.clone())));
        assert!(early.as_mut().now_or_never().is_none());
        let _running = services.start(router());
        assert_eq!(early.await.unwrap(), caller.to_string());
        stop.cancel();
        let late = call(services.channel(caller)).await.unwrap_err();
        assert_eq!(late.code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn services_that_have_ended_are_not_kept_by_their_channels() {
        let services = LocalServices::new(CancellationToken::new());
        let channel = services.channel(Role::Admin.into());
        let own = channel.clone();
        let kept = Arc::new(());
        let shared = kept.clone();
        let router = Router::new().fallback(async move || drop((own, shared)));
        drop(services.start(router));
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_eq!(call(channel).await.unwrap_err().code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn a_service_that_does_not_run_is_unavailable() {
        assert_eq!(call(Channel::unconnected()).await.unwrap_err().code(), Code::Unavailable);
    }
}
