//! The accept loop: connections in, bounded in number and in patience.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::Service;
use super::wire;
use runtime::forwarded::Trusted;
use runtime::prefix::normal;

/// How many connections there may be at once.
const CONNECTIONS: usize = 1024;
/// How many of one address.
const CONNECTIONS_OF_ONE: usize = 32;
/// How long a request's head may take to arrive, and a connection may idle.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes a request's head may have.
const HEAD: u32 = 16 * 1024;
/// How long a silent caller is left alone before it is asked whether it is there, and then given to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How many calls a connection may have open.
const CALLS: u32 = 32;
/// How long to wait when the system has no file descriptor left for a connection.
const BREATH: Duration = Duration::from_millis(100);

/// Answers on `listener` until `stop`, then lets the requests at hand finish.
///
/// The listener stands in the clear: no client of the EC2 tree can follow a redirect to TLS.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    stop: CancellationToken,
) -> io::Result<()> {
    let serve = |stream, peer| by_request(stream, peer, service.clone());
    accept(listener, &service.config.trusted_proxies, serve, stop).await.shutdown().await;
    Ok(())
}

/// Answers the calls of `router`, which ask `service`, over HTTP/2 on `listener` until `stop`; then lets those at hand finish
/// if they do soon, for a stream may last for ever.
///
/// Whom a caller is taken for follows from its address, which no certificate proves; so the listener stands in the clear
/// as well.
pub async fn serve_calls(
    listener: TcpListener,
    service: &Service,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let serve = |stream, peer| by_call(stream, peer, router.clone());
    let open = accept(listener, &service.config.trusted_proxies, serve, stop).await;
    if tokio::time::timeout(PATIENCE, open.shutdown()).await.is_err() {
        tracing::debug!("calls that did not end are cut");
    }
    Ok(())
}

/// What is open when nothing new is accepted any more.
struct Open {
    connections: Connections,
    graceful: GracefulShutdown,
}

impl Open {
    /// Resolves once all of it has ended.
    async fn shutdown(self) {
        let Self { connections, graceful } = self;
        graceful.shutdown().await;
        drop(connections);
    }
}

/// Lets each of `listener`'s connections be what `serve` makes of it, until `stop`.
async fn accept<C>(
    listener: TcpListener,
    trusted: &Trusted,
    serve: impl Fn(TcpStream, SocketAddr) -> C,
    stop: CancellationToken,
) -> Open
where
    C: GracefulConnection<Error = hyper::Error> + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.tasks.join_next_with_id() => connections.forget(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => if connections.admit(peer, trusted) {
                    // What was lost is speed, nothing else.
                    let _best_effort = stream.set_nodelay(true);
                    connections.begin(peer, graceful.watch(serve(stream, peer)));
                },
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no connection accepted");
                    tokio::time::sleep(BREATH).await;
                }
            },
        }
    }
    Open { connections, graceful }
}

/// The open connections, by the address at their other end.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    peers: HashMap<Id, IpAddr>,
}

impl Connections {
    /// Whether there is room for one more. A trusted proxy speaks for many machines.
    fn admit(&self, peer: SocketAddr, trusted: &Trusted) -> bool {
        let address = normal(peer.ip());
        let of_one = self.peers.values().filter(|other| **other == address).count();
        let greedy = of_one >= CONNECTIONS_OF_ONE && !trusted.contains(address);
        let admitted = !greedy && self.peers.len() < CONNECTIONS;
        if !admitted {
            tracing::warn!(%peer, "too many connections; this one is closed");
        }
        admitted
    }

    /// Serves one more.
    fn begin(
        &mut self,
        peer: SocketAddr,
        connection: impl Future<Output = Result<(), hyper::Error>> + Send + 'static,
    ) {
        let task = self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, error = &error as &dyn std::error::Error, "connection ended");
            }
        });
        self.peers.insert(task.id(), normal(peer.ip()));
    }

    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "a connection's task failed"
                );
                error.id()
            }
        };
        self.peers.remove(&id);
    }
}

/// A connection of HTTP/1.
fn by_request(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<Service>,
) -> impl GracefulConnection<Error = hyper::Error> + Send {
    let (stream, wire) = wire::split(stream);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, wire) = (service.clone(), wire.clone());
        async move {
            let answer = service.answer_on(Some(&wire), peer, request.map(Body::new)).await;
            Ok::<_, Infallible>(answer)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD as usize)
        .serve_connection(TokioIo::new(stream), answer)
}

/// A connection of HTTP/2.
fn by_call(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
) -> impl GracefulConnection<Error = hyper::Error> + Send {
    let (stream, wire) = wire::split(stream);
    let app = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(wire.clone());
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(CALLS)
        .max_header_list_size(HEAD)
        .serve_connection(TokioIo::new(stream), app)
}
