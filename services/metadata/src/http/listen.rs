//! The accept loop: connections in, bounded in number and in patience.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
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
const HEAD: usize = 16 * 1024;
/// How long to wait when the system has no file descriptor left for a connection.
const BREATH: Duration = Duration::from_millis(100);

/// Answers on `listener` until `stop`, then lets the requests at hand finish.
///
/// The listener stands in the clear: no client of the EC2 tree can follow a redirect to TLS.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    stop: CancellationToken,
) -> io::Result<()> {
    let trusted = service.config.trusted_proxies.clone();
    let router = service.router();
    let graceful = GracefulShutdown::new();
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.tasks.join_next_with_id() => connections.forget(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => connections.begin(stream, peer, &trusted, &router, &graceful),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no connection accepted");
                    tokio::time::sleep(BREATH).await;
                }
            },
        }
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

/// The open connections, by the address at their other end.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    peers: HashMap<Id, IpAddr>,
}

impl Connections {
    /// Serves one more, or hangs up on one too many. A trusted proxy speaks for many machines.
    fn begin(
        &mut self,
        stream: TcpStream,
        peer: SocketAddr,
        trusted: &Trusted,
        router: &Router,
        graceful: &GracefulShutdown,
    ) {
        let address = normal(peer.ip());
        let of_one = self.peers.values().filter(|other| **other == address).count();
        let greedy = of_one >= CONNECTIONS_OF_ONE && !trusted.contains(address);
        if greedy || self.peers.len() >= CONNECTIONS {
            tracing::warn!(%peer, "too many connections; this one is closed");
            return;
        }
        // What was lost is speed, nothing else.
        let _best_effort = stream.set_nodelay(true);
        let connection = graceful.watch(connection(stream, peer, router.clone()));
        let task = self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, error = &error as &dyn std::error::Error, "connection ended");
            }
        });
        self.peers.insert(task.id(), address);
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

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + Send {
    let (stream, wire) = wire::split(stream);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(wire.clone());
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service)
}
