//! Serves connections: accepts them, adds the caller to each request, and ends them in order.
//!
//! One loop for all of them, because tonic's own offers HTTP/2 only and hides the client's certificate: TLS with
//! HTTP/1.1 and HTTP/2 on one port, and the same in plaintext on loopback. Listeners for firmware
//! and probes are plaintext and HTTP/1 only, so that the version need not be detected.

mod anonymous;
mod first_bytes;
mod limits;
mod plaintext;
mod refused;
mod sources;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Body;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulConnection;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

pub use self::anonymous::{AnonymousLimits, UnknownClient};
use self::first_bytes::FirstBytes;
pub use self::limits::ConnectionLimits;
use self::limits::{OpenConnections, Place};
pub use self::plaintext::HopLimit;
use self::plaintext::Plaintext;
use self::refused::refused_later;
use crate::identity::{Caller, Role};
use crate::serial::Serial;

/// The longest time for a TLS handshake, and for the head of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a silent HTTP/2 peer is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// The delay after the system refused another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The longest time for the open requests of an anonymous connection that is ended.
const ANONYMOUS_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Plaintext on loopback, such as behind a proxy on this host; no caller has a role.
    AnonymousPlaintext,
    /// Plaintext for firmware and probes: HTTP/1, and no caller has a role. Requests have a [`HopLimit`].
    Plaintext,
    /// Plaintext for calls of machines: HTTP/2, and no caller has a role.
    PlaintextCalls,
}

/// The addresses of a connection; in every request's extensions. A call inside the process has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAddresses {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
}

/// The end of a connection; in the extensions of its requests, unless they are from firmware, or inside the process.
#[derive(Clone, Debug)]
pub struct ConnectionEnd(CancellationToken);

impl ConnectionEnd {
    /// Waits until the connection has ended, in order or not.
    pub async fn reached(&self) {
        self.0.cancelled().await;
    }
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
    let server = Server::new(app, limits.clone(), stop.clone());
    // Else a small answer waits for the peer's delayed acknowledgement: 40 ms. Accepted sockets inherit it on Linux.
    let _best_effort = SockRef::from(&listener).set_tcp_nodelay(true);
    if let Some(timeout) = server.limits.acknowledge_timeout {
        SockRef::from(&listener).set_tcp_user_timeout(Some(timeout))?;
    }
    // Only on a wildcard address each connection has to be asked for its local address.
    let bound = listener.local_addr().ok().filter(|own| !own.ip().to_canonical().is_unspecified());
    let mut tasks = JoinSet::new();
    let mut open = OpenConnections::new(limits);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        while let Some(ended) = tasks.try_join_next() {
            report_panic(ended);
        }
        match accepted {
            Ok((stream, remote)) => {
                let local = bound.or_else(|| stream.local_addr().ok());
                let Some(local) = local else { continue }; // it is closed already
                let Some(place) = open.admit(remote, tasks.len()) else { continue };
                server.begin(
                    &mut tasks,
                    stream,
                    &transport,
                    ConnectionAddresses { remote, local },
                    place,
                );
            }
            Err(error) => {
                tracing::warn!(error = crate::cause(&error), "no connection accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    end(tasks).await;
    Ok(())
}

/// Waits for the end of all connections.
async fn end(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        report_panic(ended);
    }
}

fn report_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(error = crate::cause(&error), "a connection's task panicked");
    }
}

struct Server<A> {
    app: A,
    limits: Arc<ConnectionLimits>,
    stop: CancellationToken,
    /// The settings for connections that speak HTTP/1 only.
    http1: http1::Builder,
}

impl<A: App> Server<A> {
    fn new(app: A, limits: ConnectionLimits, stop: CancellationToken) -> Self {
        let mut http1 = http1::Builder::new();
        // Some clients close their sending side (nc does), and then wait for the answer.
        http1.half_close(true).timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
        http1.max_buf_size(limits.max_head_bytes);
        Self { app, limits: Arc::new(limits), stop, http1 }
    }

    /// Begins to serve `stream`.
    fn begin(
        &self,
        tasks: &mut JoinSet<()>,
        stream: TcpStream,
        transport: &Transport,
        peers: ConnectionAddresses,
        place: Place,
    ) {
        let caller = matches!(transport, Transport::TrustedPlaintext).then(|| Role::Admin.into());
        let connection = Connection {
            app: self.app.clone(),
            limits: self.limits.clone(),
            // One lock for each connection, instead of one for all of them.
            stop: self.stop.child_token(),
            http2_only: matches!(transport, Transport::PlaintextCalls),
        };
        match transport {
            Transport::Tls(tls) => {
                tasks.spawn(connection.agree(TlsAcceptor::from(tls.clone()), stream, peers, place));
            }
            Transport::TrustedPlaintext
            | Transport::AnonymousPlaintext
            | Transport::PlaintextCalls => {
                tasks.spawn(connection.run(stream, caller, peers, place));
            }
            Transport::Plaintext => {
                let (stream, hop_limit) = Plaintext::new(stream);
                let Connection { app, stop, .. } = connection;
                let app = service_fn(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(peers);
                    request.extensions_mut().insert(hop_limit.clone());
                    app.clone().call(request)
                });
                let http = self.http1.serve_connection(TokioIo::new(stream), app);
                tasks.spawn(async move {
                    if let Err(error) = until_stopped(http, &stop, &place).await {
                        broke(&error);
                    }
                });
            }
        }
    }
}

/// A connection that may speak HTTP/1 or HTTP/2.
struct Connection<A> {
    app: A,
    limits: Arc<ConnectionLimits>,
    stop: CancellationToken,
    http2_only: bool,
}

impl<A: App> Connection<A> {
    async fn agree(
        self,
        tls: TlsAcceptor,
        stream: TcpStream,
        peers: ConnectionAddresses,
        place: Place,
    ) {
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        let Some(accepted) = place.unless_evicted(accepted).await else { return };
        match accepted {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates();
                let leaf = shown.and_then(|chain| chain.first()).cloned();
                let caller = leaf.as_deref().and_then(Caller::in_certificate);
                let (limits, stop) = (self.limits.clone(), self.stop.clone());
                let served = self.run(stream, caller, peers, place);
                let Some(leaf) = leaf else { return served.await };
                tokio::select! {
                    biased;
                    reason = refused_later(&limits, &leaf, &stop) => {
                        let serial = Serial::in_certificate(&leaf).map(tracing::field::display);
                        tracing::info!(serial, remote = %peers.remote, reason, "connection closed");
                    }
                    () = served => {}
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = crate::cause(&error), "no TLS agreed on");
            }
            Err(_) => tracing::debug!("TLS took too long"),
        }
    }

    async fn run(
        self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        caller: Option<Caller>,
        peers: ConnectionAddresses,
        mut place: Place,
    ) {
        if caller.is_some() {
            place.set_identified();
        }
        let limits = self.limits.anonymous.filter(|_| caller.is_none());
        let builder = self.builder(limits);
        let io = TokioIo::new(FirstBytes::new(io, self.limits.head_timeout));
        let end = CancellationToken::new();
        let _ended = end.clone().drop_guard();
        let facts = ConnectionFacts {
            caller,
            peers,
            end: ConnectionEnd(end),
            unknown: place.unknown_client(),
        };
        let http = builder.serve_connection(io, with_facts(self.app, facts));
        let served = place.unless_evicted(until_stopped(http, &self.stop, &place)).await;
        if let Some(Err(error)) = served {
            broke(error.as_ref());
        }
    }

    fn builder(&self, anonymous: Option<AnonymousLimits>) -> Builder<TokioExecutor> {
        let streams = anonymous.map(|limits| limits.max_concurrent_streams);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
            .max_concurrent_streams(streams.unwrap_or(self.limits.max_concurrent_streams));
        if let Some(AnonymousLimits { window_bytes, .. }) = anonymous {
            let mut http2 = builder.http2();
            http2.initial_connection_window_size(window_bytes);
            http2.initial_stream_window_size(window_bytes);
        }
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_buf_size(self.limits.max_head_bytes);
        if self.http2_only { builder.http2_only() } else { builder }
    }
}

/// Serves a connection until its end. After `stop`, and after the lifetime of an anonymous connection, open requests finish.
async fn until_stopped<C: GracefulConnection>(
    connection: C,
    stop: &CancellationToken,
    place: &Place,
) -> Result<(), C::Error> {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => {}
        () = place.expired() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        ended = connection => ended,
        () = place.anonymous_for(ANONYMOUS_CLOSE_TIMEOUT) => Ok(()),
    }
}

/// Facts about a connection that each of its requests has in its extensions.
struct ConnectionFacts {
    /// None if the client has no role. A request without this extension has none either.
    caller: Option<Caller>,
    peers: ConnectionAddresses,
    end: ConnectionEnd,
    unknown: Option<UnknownClient>,
}

/// `app` with the facts about the connection in the extensions of each request.
fn with_facts<A: App>(
    app: A,
    facts: ConnectionFacts,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Send + 'static,
> + Send
+ 'static {
    service_fn(move |mut request: Request<Incoming>| {
        let mut app = app.clone();
        let ConnectionFacts { caller, peers, end, unknown } = &facts;
        let extensions = request.extensions_mut();
        caller.clone().map(|caller| extensions.insert(caller));
        unknown.clone().map(|unknown| extensions.insert(unknown));
        extensions.insert(*peers);
        extensions.insert(end.clone());
        let open = unknown.as_ref().map(UnknownClient::begin_request);
        let response = app.call(request);
        async move {
            let _open = open;
            response.await
        }
    })
}

fn broke(error: &(dyn std::error::Error + 'static)) {
    tracing::debug!(error, "connection broke");
}

#[cfg(test)]
mod tests;
