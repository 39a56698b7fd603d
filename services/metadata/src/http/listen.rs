//! The HTTP and gRPC listeners, and their connection limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use hyper::Request;
use hyper::body::Incoming;
use runtime::serve::{ConnectionAddresses, ConnectionLimits, Transport, limited_tcp};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::refusal::Refusal;

const MAX_CONNECTIONS: usize = 1024;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 32;
/// Maximum number of connections per IPv6 network of 64 bits. One machine may have many addresses
/// of its network.
const MAX_CONNECTIONS_PER_IPV6_NETWORK: usize = 256;
/// Prefix length of an IPv6 network that counts as one address. The machines of a network share its
/// 64 bits.
const IPV6_PREFIX_LENGTH: u8 = 128;
/// Timeout for receiving the head of a request, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_CALLS_PER_CONNECTION: u32 = 32;
/// Timeout for open gRPC calls after the stop. A stream has no end of its own.
const CALLS_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves requests on `listener` until `stop`, then lets open ones finish.
///
/// The listener is plaintext: no client of the EC2 tree can follow a redirect to TLS.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let limits = service.connection_limits();
    let app = tower::service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move {
            let peers = request.extensions().get::<ConnectionAddresses>().copied();
            let Some(ConnectionAddresses { remote, .. }) = peers else {
                return Ok(Refusal::Forbidden("no_peer").into_response());
            };
            Ok::<_, Infallible>(service.respond(remote, request.map(Body::new)).await)
        }
    });
    limited_tcp(listener, Transport::Plaintext, limits, app, stop).await
}

/// Serves the gRPC services in `router` on `listener` until `stop`, then gives open calls 5 seconds to finish. The connection
/// limits are those of `service`.
///
/// The listener is plaintext too: a caller is identified by its address, and no certificate proves an address.
pub async fn serve_calls(
    listener: TcpListener,
    service: &Service,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    // A machine that subscribes has a connection for as long as it runs.
    let limits =
        ConnectionLimits { per_ipv6_network: MAX_CONNECTIONS, ..service.connection_limits() };
    let served = limited_tcp(listener, Transport::PlaintextCalls, limits, router, stop.clone());
    let stopped = async {
        stop.cancelled().await;
        tokio::time::sleep(CALLS_STOP_TIMEOUT).await;
    };
    tokio::select! {
        served = served => served,
        () = stopped => {
            tracing::debug!("open calls aborted: stop timeout exceeded");
            Ok(())
        }
    }
}

impl Service {
    fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: MAX_CONNECTIONS,
            per_source: MAX_CONNECTIONS_PER_ADDRESS,
            per_ipv6_network: MAX_CONNECTIONS_PER_IPV6_NETWORK,
            ipv6_prefix_length: IPV6_PREFIX_LENGTH,
            exempt: self.config.trusted_proxies.clone(),
            max_head_bytes: MAX_HEAD_BYTES,
            head_timeout: HEAD_TIMEOUT,
            max_concurrent_streams: MAX_CALLS_PER_CONNECTION,
            ..ConnectionLimits::default()
        }
    }
}
