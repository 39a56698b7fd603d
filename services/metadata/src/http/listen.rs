//! The accept loop: connections in, bounded in number and in patience.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
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
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::Service;
use super::wire;
use runtime::client_address::TrustedProxies;

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
    let mut http = http1::Builder::new();
    http.half_close(true).max_buf_size(HEAD as usize);
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let serve = |stream, peer| by_request(&http, stream, peer, service.clone());
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
    trusted: &TrustedProxies,
    serve: impl Fn(TcpStream, SocketAddr) -> C,
    stop: CancellationToken,
) -> Open
where
    C: GracefulConnection<Error = hyper::Error> + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let mut connections = Connections::default();
    // Its connections inherit it (tcp(7)). What is lost without is speed, nothing else.
    let _best_effort = SockRef::from(&listener).set_tcp_nodelay(true);
    let mut stopped = pin!(stop.cancelled());
    loop {
        tokio::select! {
            () = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => if let Some(place) = connections.admit(peer, trusted) {
                    connections.begin(peer, place, graceful.watch(serve(stream, peer)));
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

/// The open connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    peers: Arc<Mutex<Peers>>,
}

/// How many there are of each address at the other end, and in all.
#[derive(Default)]
struct Peers {
    of: HashMap<IpAddr, usize>,
    all: usize,
}

/// One connection's place among them. It is given back when this is dropped.
struct Place {
    peers: Arc<Mutex<Peers>>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.all -= 1;
        if let Entry::Occupied(mut of_one) = peers.of.entry(self.address) {
            *of_one.get_mut() -= 1;
            if *of_one.get() == 0 {
                of_one.remove();
            }
        }
    }
}

impl Connections {
    /// A place for one more, if there is room. A trusted proxy speaks for many machines.
    fn admit(&mut self, peer: SocketAddr, trusted: &TrustedProxies) -> Option<Place> {
        // Those that ended wake nobody: they are cleared away when the next one comes.
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "a connection's task failed");
            }
        }
        let address = peer.ip().to_canonical();
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = peers.of.get(&address).copied().unwrap_or_default();
        let greedy = of_one >= CONNECTIONS_OF_ONE && !trusted.contains(address);
        if greedy || peers.all >= CONNECTIONS {
            tracing::warn!(%peer, "too many connections; this one is closed");
            return None;
        }
        peers.all += 1;
        peers.of.insert(address, of_one + 1);
        Some(Place { peers: self.peers.clone(), address })
    }

    /// Serves one more.
    fn begin(
        &mut self,
        peer: SocketAddr,
        place: Place,
        connection: impl Future<Output = Result<(), hyper::Error>> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(%peer, error = &error as &dyn std::error::Error, "connection ended");
            }
        });
    }
}

/// A connection of HTTP/1.
fn by_request(
    http: &http1::Builder,
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<Service>,
) -> impl GracefulConnection<Error = hyper::Error> + Send + use<> {
    let (stream, wire) = wire::split(stream);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, wire) = (service.clone(), wire.clone());
        async move {
            let answer = service.answer_on(Some(&wire), peer, request.map(Body::new)).await;
            Ok::<_, Infallible>(answer)
        }
    });
    http.serve_connection(TokioIo::new(stream), answer)
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
