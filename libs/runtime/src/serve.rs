//! Serves connections: accepts them, adds the caller to each request, and ends them in order.
//!
//! One loop for all of them, because tonic's own offers HTTP/2 only and hides the client's certificate: TLS with
//! HTTP/1.1 and HTTP/2 on one port, the same in plaintext on loopback, and pipes inside the process. Listeners for firmware
//! and probes are plaintext and HTTP/1 only, so that the version need not be detected.

mod plaintext;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Body;
use futures_util::{Stream, StreamExt as _};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

pub use self::plaintext::HopLimit;
use self::plaintext::Plaintext;
use crate::client_address::TrustedProxies;
use crate::identity::{Caller, Role, role_in_certificate};

/// The longest time for a TLS handshake, and for the head of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a silent HTTP/2 peer is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// The delay after the system refused another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The most calls that one connection may have open, unless limited: in the process, one connection carries all of a client's.
const MAX_CONCURRENT_STREAMS: u32 = 4096;
/// The largest head of an HTTP/1 request, unless limited: what hyper allows by itself.
const MAX_HEAD_BYTES: usize = 408 * 1024;

/// A service that answers requests: a router, or middleware around one. It is always ready, so `poll_ready` is not called.
pub trait App:
    Service<
        Request<Incoming>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> App for S
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
}

/// The transport security of a listener.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TLS; a client with a certificate of the site has the role that it names.
    Tls(Arc<ServerConfig>),
    /// Plaintext where the configuration says so, on loopback: every caller is an admin.
    TrustedPlaintext,
    /// Plaintext for firmware and probes: HTTP/1, and no caller has a role. Requests have a [`HopLimit`].
    Plaintext,
    /// Plaintext for calls of machines: HTTP/1 or HTTP/2, and no caller has a role.
    PlaintextCalls,
}

/// The addresses of a connection; in every request's extensions. A pipe inside the process has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
}

impl Transport {
    /// Reads TLS's certificate chain and key out of these files (PEM). Clients are not asked for certificates.
    pub fn from_key_pair(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("reading certificates in {}", certificate.display()))?;
        let key_der = PrivateKeyDer::from_pem_file(key)
            .with_context(|| format!("reading a private key in {}", key.display()))?;
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key_der);
        let both = || format!("{} with {}", certificate.display(), key.display());
        Ok(Self::Tls(Arc::new(tls.with_context(both)?)))
    }
}

/// Limits on connections from outside. By default their number is not limited.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// The most connections at a time.
    pub total: usize,
    /// The most connections from one address at a time.
    pub per_address: usize,
    /// Proxies, which have connections for many clients: `per_address` is not for them.
    pub exempt: TrustedProxies,
    /// The largest head of an HTTP/1 request, 8192 at least.
    pub max_head_bytes: usize,
    /// The longest time for the head of an HTTP/1 request, and between two of them.
    pub head_timeout: Duration,
    /// The most calls that one HTTP/2 connection may have open.
    pub max_concurrent_streams: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: usize::MAX,
            per_address: usize::MAX,
            exempt: TrustedProxies::default(),
            max_head_bytes: MAX_HEAD_BYTES,
            head_timeout: HANDSHAKE_TIMEOUT,
            max_concurrent_streams: MAX_CONCURRENT_STREAMS,
        }
    }
}

/// Serves `app` on `listener` until `stop`; then ends open connections in order.
pub async fn tcp(
    listener: TcpListener,
    transport: Transport,
    app: impl App,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    limited_tcp(listener, transport, ConnectionLimits::default(), app, stop).await
}

/// Does the same within `limits`: a connection above them is closed at once.
pub async fn limited_tcp(
    listener: TcpListener,
    transport: Transport,
    limits: ConnectionLimits,
    app: impl App,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let server = Server::new(app, limits);
    // Else a small answer waits for the peer's delayed acknowledgement: 40 ms. Accepted sockets inherit it on Linux.
    let _best_effort = SockRef::from(&listener).set_tcp_nodelay(true);
    // Only on a wildcard address each connection has to be asked for its local address.
    let bound = listener.local_addr().ok().filter(|own| !own.ip().to_canonical().is_unspecified());
    let mut tasks = JoinSet::new();
    let mut open = HashMap::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        while tasks.try_join_next().is_some() {}
        match accepted {
            Ok((stream, remote)) => {
                let local = bound.or_else(|| stream.local_addr().ok());
                let Some(local) = local else { continue }; // it is closed already
                let address = remote.ip().to_canonical();
                let Some(slot) = server.slot(&mut open, address, tasks.len()) else {
                    tracing::warn!(%remote, "too many connections; this one is closed");
                    continue;
                };
                server.begin(&mut tasks, stream, &transport, Peers { remote, local }, slot);
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no connection accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    server.end(tasks).await;
    Ok(())
}

/// Serves `app` on the pipes of [`tinwright::in_process::pair`] until `stop`. Their caller is the service itself.
pub async fn in_process(
    pipes: impl Stream<Item = io::Result<DuplexStream>>,
    app: impl App,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let server = Server::new(app, ConnectionLimits::default());
    let mut tasks = JoinSet::new();
    let mut pipes = std::pin::pin!(pipes);
    while let Some(Some(pipe)) = stop.run_until_cancelled(pipes.next()).await {
        tasks.spawn(server.connection().run(pipe?, Caller(Some(Role::Service)), None));
    }
    // No client is left, but the process goes on.
    stop.cancelled().await;
    server.end(tasks).await;
    Ok(())
}

struct Server<A> {
    app: A,
    graceful: GracefulShutdown,
    limits: ConnectionLimits,
    /// The settings for connections that speak HTTP/1 only.
    http1: http1::Builder,
}

/// One of the open connections from an address, which share it: its references are their number.
type Slot = Arc<()>;

impl<A: App> Server<A> {
    fn new(app: A, limits: ConnectionLimits) -> Self {
        let mut http1 = http1::Builder::new();
        // Some clients close their sending side (nc does), and then wait for the answer.
        http1.half_close(true).timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
        http1.max_buf_size(limits.max_head_bytes);
        Self { app, graceful: GracefulShutdown::new(), limits, http1 }
    }

    /// Returns a slot for one more connection from `address`, unless there are too many besides these `total` in all.
    fn slot(
        &self,
        open: &mut HashMap<IpAddr, Slot>,
        address: IpAddr,
        total: usize,
    ) -> Option<Slot> {
        // Addresses without connections are removed once they are the larger part.
        if open.len() > 2 * total + 16 {
            open.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        let slot = open.entry(address).or_default();
        let limits = &self.limits;
        let is_full = Arc::strong_count(slot) > limits.per_address;
        let is_refused = total >= limits.total || is_full && !limits.exempt.contains(address);
        (!is_refused).then(|| slot.clone())
    }

    /// Begins to serve `stream`.
    fn begin(
        &self,
        tasks: &mut JoinSet<()>,
        stream: TcpStream,
        transport: &Transport,
        peers: Peers,
        slot: Slot,
    ) {
        match transport {
            Transport::Tls(tls) => {
                let (tls, connection) = (TlsAcceptor::from(tls.clone()), self.connection());
                tasks.spawn(async move {
                    connection.agree(tls, stream, peers).await;
                    drop(slot);
                });
            }
            Transport::TrustedPlaintext | Transport::PlaintextCalls => {
                let is_trusted = matches!(transport, Transport::TrustedPlaintext);
                let (caller, connection) =
                    (Caller(is_trusted.then_some(Role::Admin)), self.connection());
                tasks.spawn(async move {
                    connection.run(stream, caller, Some(peers)).await;
                    drop(slot);
                });
            }
            Transport::Plaintext => {
                let (stream, hop_limit) = Plaintext::new(stream);
                let app = with_caller(self.app.clone(), Caller(None), Some(peers));
                let app = service_fn(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(hop_limit.clone());
                    hyper::service::Service::call(&app, request)
                });
                let connection = self.http1.serve_connection(TokioIo::new(stream), app);
                let served = self.graceful.watch(connection);
                tasks.spawn(async move {
                    if let Err(error) = served.await {
                        broke(&error);
                    }
                    drop(slot);
                });
            }
        }
    }

    fn connection(&self) -> Connection<A> {
        Connection {
            app: self.app.clone(),
            open: self.graceful.watcher(),
            limits: self.limits.clone(),
        }
    }

    async fn end(self, mut tasks: JoinSet<()>) {
        self.graceful.shutdown().await;
        while tasks.join_next().await.is_some() {}
    }
}

/// A connection that may speak HTTP/1 or HTTP/2.
struct Connection<A> {
    app: A,
    open: Watcher,
    limits: ConnectionLimits,
}

impl<A: App> Connection<A> {
    async fn agree(self, tls: TlsAcceptor, stream: TcpStream, peers: Peers) {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates();
                let leaf = shown.and_then(|chain| chain.first());
                let caller = Caller(leaf.and_then(|leaf| role_in_certificate(leaf)));
                self.run(stream, caller, Some(peers)).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no TLS agreed on");
            }
            Err(_) => tracing::debug!("TLS took too long"),
        }
    }

    async fn run(
        self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        caller: Caller,
        peers: Option<Peers>,
    ) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
            .max_concurrent_streams(self.limits.max_concurrent_streams);
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_buf_size(self.limits.max_head_bytes);
        let app = with_caller(self.app, caller, peers);
        let connection = builder.serve_connection(TokioIo::new(io), app);
        if let Err(error) = self.open.watch(connection.into_owned()).await {
            broke(error.as_ref());
        }
    }
}

/// `app` with the caller and the addresses of the connection in the extensions of each request.
fn with_caller<A: App>(
    app: A,
    caller: Caller,
    peers: Option<Peers>,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Send + 'static,
> + Send
+ 'static {
    service_fn(move |mut request: Request<Incoming>| {
        let mut app = app.clone();
        // A request without this extension has no role either.
        caller.0.map(|_| request.extensions_mut().insert(caller));
        peers.map(|peers| request.extensions_mut().insert(peers));
        app.call(request)
    })
}

fn broke(error: &(dyn std::error::Error + 'static)) {
    tracing::debug!(error, "connection broke");
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// More than the kernel holds for a reader.
    const LARGE: usize = 16 * 1024 * 1024;

    /// A server whose answer takes a while to be made.
    async fn server(
        stop: CancellationToken,
    ) -> (SocketAddr, tokio::task::JoinHandle<anyhow::Result<()>>) {
        let app = Router::new().route(
            "/",
            get(async || {
                tokio::time::sleep(Duration::from_millis(50)).await;
                vec![b'a'; LARGE]
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(tcp(listener, Transport::Plaintext, app, stop)))
    }

    #[tokio::test]
    async fn a_client_that_closed_its_sending_side_gets_its_response() {
        let stop = CancellationToken::new();
        let (address, _served) = server(stop.clone()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n"));
        assert!(answer.len() > LARGE && answer.ends_with(b"aaaa"));
        stop.cancel();
    }

    #[tokio::test]
    async fn a_slow_reader_gets_the_whole_last_response_and_then_the_end() {
        let stop = CancellationToken::new();
        let (address, served) = server(stop.clone()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let (mut answer, mut part) = (Vec::new(), vec![0; LARGE / 16]);
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            match stream.read(&mut part).await.unwrap() {
                0 => break,
                some => answer.extend_from_slice(&part[..some]),
            }
        }
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert_eq!(answer.len() - head, LARGE);
        stop.cancel();
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_accepted_connection_has_no_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        SockRef::from(&listener).set_tcp_nodelay(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (called, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        called.unwrap();
        let (stream, _) = accepted.unwrap();
        assert!(stream.nodelay().unwrap());
        assert_eq!(stream.local_addr().unwrap(), address);
    }
}
