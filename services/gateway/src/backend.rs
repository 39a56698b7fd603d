//! The services behind the gateway.

use std::fmt;
use std::task::{Context, Poll};

use axum::Router;
use futures_util::future::{BoxFuture, FutureExt as _};
use runtime::Caller;
use runtime::retry::describe_broken;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{BoxError, Service};

/// A channel to each service. The gateway is a caller of the role `door` there.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Subnets, ranges, grants and bindings.
    pub address: ServiceChannel,
    /// Machines, locations, models and unknown machines.
    pub hardware: ServiceChannel,
    /// Tenants, identities, and the events of the site.
    pub identity: ServiceChannel,
    /// Instances.
    pub instance: ServiceChannel,
    /// Templates and workflows.
    pub workflow: ServiceChannel,
    /// BMCs and power jobs.
    pub power: ServiceChannel,
    /// Nodes and their stacks.
    pub node: ServiceChannel,
    /// Boots and leases.
    pub netboot: ServiceChannel,
    /// Explanations of metadata.
    pub metadata: ServiceChannel,
}

impl Backend {
    /// Returns the backend whose services are all at `channel`.
    pub fn at_one(channel: impl Into<ServiceChannel>) -> Self {
        let channel = channel.into();
        let one = || channel.clone();
        Self {
            address: one(),
            hardware: one(),
            identity: one(),
            instance: one(),
            workflow: one(),
            power: one(),
            node: one(),
            netboot: one(),
            metadata: one(),
        }
    }

    /// Returns the channel to the service that serves the proto package `package`, such as `tinwright.instance.v1`.
    pub fn of_package(&self, package: &str) -> Option<&ServiceChannel> {
        match package.strip_prefix("tinwright.")?.strip_suffix(".v1")? {
            "address" => Some(&self.address),
            "event" | "identity" => Some(&self.identity),
            "hardware" => Some(&self.hardware),
            "instance" => Some(&self.instance),
            "metadata" => Some(&self.metadata),
            "netboot" => Some(&self.netboot),
            "node" => Some(&self.node),
            "power" => Some(&self.power),
            "workflow" => Some(&self.workflow),
            _ => None,
        }
    }
}

/// A channel to a service.
#[derive(Clone, Debug)]
pub enum ServiceChannel {
    /// In this process.
    Local(LocalServices),
    /// Over a connection.
    Connected(Channel),
}

/// The services of this process. A call is a call of their router: an HTTP/2 connection over a pipe would need a third of the processor time
/// of a short call.
#[derive(Clone)]
pub struct LocalServices {
    router: Router,
    caller: Caller,
    stop: CancellationToken,
}

impl LocalServices {
    /// Returns the services of `router`, called by `caller`, until `stop`.
    pub fn new(router: Router, caller: Caller, stop: CancellationToken) -> Self {
        Self { router, caller, stop }
    }
}

impl fmt::Debug for LocalServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalServices").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl From<Channel> for ServiceChannel {
    fn from(channel: Channel) -> Self {
        Self::Connected(channel)
    }
}

impl Service<http::Request<Body>> for ServiceChannel {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Local(_) => Poll::Ready(Ok(())),
            Self::Connected(channel) => channel.poll_ready(context).map_err(to_status),
        }
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        match self {
            Self::Local(LocalServices { stop, .. }) if stop.is_cancelled() => {
                let stopped = Status::unavailable("the server stops").into_http();
                std::future::ready(Ok(stopped)).boxed()
            }
            Self::Local(LocalServices { router, caller, .. }) => {
                request.extensions_mut().insert(caller.clone());
                let response = router.call(request);
                async { Ok(response.await?.map(Body::new)) }.boxed()
            }
            Self::Connected(channel) => {
                let response = channel.call(request);
                async { response.await.map_err(to_status) }.boxed()
            }
        }
    }
}

/// Returns the status of a failed connection, which the clients of services take as it is.
fn to_status(error: tonic::transport::Error) -> BoxError {
    describe_broken(Status::from_error(error.into())).into()
}

#[cfg(test)]
mod tests {
    use tinwright::hardware::v1::ListHardwareRequest;
    use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
    use tokio::net::TcpListener;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_server_that_closes_connections_is_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let _closing = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        let channel = Channel::from_shared(url).unwrap().connect_lazy();
        let mut client = HardwareServiceClient::new(ServiceChannel::from(channel));
        let listed = client.list_hardware(ListHardwareRequest::default()).await;
        let status = listed.unwrap_err();
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status:?}");
    }
}
