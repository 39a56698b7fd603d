//! Connections: accepted, told who is at the other end, and ended in order.
//!
//! One loop for all of them, because tonic's own offers HTTP/2 only and hides the client's certificate: TLS with
//! HTTP/1.1 and HTTP/2 on one port, the same in clear on loopback, and pipes inside the process. What is clear by nature
//! is asked by firmware and by probes, in HTTP/1: there nobody has to find out which of the two it is.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use futures_util::{Stream, StreamExt as _};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::forwarded::Trusted;
use crate::identity::{Caller, Role, role};

/// How long a client may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a silent HTTP/2 peer is left alone before it is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The pause after the system refused another connection.
const PAUSE: Duration = Duration::from_millis(50);
/// How many calls one connection may have open: in the process, one connection carries all of a client's.
const STREAMS: u32 = 4096;

/// What a listener asks of those who come.
#[derive(Clone, Debug)]
pub enum Door {
    /// TLS; who shows a certificate of the site has the role that it names.
    Tls(Arc<ServerConfig>),
    /// In clear, on loopback, where it was said aloud: whoever gets there is admin.
    Trusting,
    /// In clear, by nature: nobody is anybody.
    Open,
}

/// The two ends of a connection; in every request's extensions. A pipe inside the process has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Who called.
    pub remote: SocketAddr,
    /// Our own address that was called.
    pub local: SocketAddr,
}

impl Door {
    /// TLS with the certificate chain and the key in these files (PEM), for clients that show no certificate.
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

/// How much one who comes from outside may take.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// How many connections of one address there may be at once.
    pub of_one: usize,
    /// Proxies, which speak for many.
    pub exempt: Trusted,
    /// How many octets a request's head may have over HTTP/1, 8192 at least.
    pub head: usize,
}

/// Serves `app` to who comes through `door` until `stop`; then ends what is open in order.
pub async fn tcp(
    listener: TcpListener,
    door: Door,
    app: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    accept(listener, door, Server::new(app), stop).await
}

/// The same, within `bounds`: one connection too many is closed at once.
pub async fn bounded(
    listener: TcpListener,
    door: Door,
    bounds: Bounds,
    app: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    accept(listener, door, Server { bounds: Some(bounds), ..Server::new(app) }, stop).await
}

async fn accept(
    listener: TcpListener,
    door: Door,
    server: Server,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    let open = Arc::new(Mutex::new(HashMap::new()));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        while tasks.try_join_next().is_some() {}
        match accepted {
            Ok((stream, remote)) => {
                let Ok(local) = stream.local_addr() else { continue }; // it is gone again
                let Some(place) = server.place(&open, remote.ip().to_canonical()) else {
                    tracing::warn!(%remote, "too many connections; this one is closed");
                    continue;
                };
                let served =
                    server.connection().accept(stream, door.clone(), Ends { remote, local });
                tasks.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no connection accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    server.end(tasks).await;
    Ok(())
}

/// Serves `app` on the pipes of [`tinwright::in_process::pair`] until `stop`. Who calls there is the service itself.
pub async fn in_process(
    pipes: impl Stream<Item = io::Result<DuplexStream>>,
    app: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let server = Server::new(app);
    let mut tasks = JoinSet::new();
    let mut pipes = std::pin::pin!(pipes);
    while let Some(Some(pipe)) = stop.run_until_cancelled(pipes.next()).await {
        tasks.spawn(server.connection().run(pipe?, Caller(Some(Role::Service)), None));
    }
    // Nobody may call any more, but the process has not been told to end.
    stop.cancelled().await;
    server.end(tasks).await;
    Ok(())
}

struct Server {
    app: Router,
    graceful: GracefulShutdown,
    bounds: Option<Bounds>,
}

/// The open connections, by the address at their other end.
type Open = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// One connection's place among its address's. It is given back when this is dropped.
struct Place(Open, IpAddr);

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_one) = open.get_mut(&self.1) {
            *of_one = of_one.saturating_sub(1);
            if *of_one == 0 {
                open.remove(&self.1);
            }
        }
    }
}

impl Server {
    fn new(app: Router) -> Self {
        Self { app, graceful: GracefulShutdown::new(), bounds: None }
    }

    /// A place for one more connection from `address`, if there is one.
    fn place(&self, open: &Open, address: IpAddr) -> Option<Place> {
        let bounds = self.bounds.as_ref().filter(|bounds| !bounds.exempt.contains(address));
        let mut counted = open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = counted.get(&address).copied().unwrap_or(0);
        if bounds.is_some_and(|bounds| of_one >= bounds.of_one) {
            return None;
        }
        counted.insert(address, of_one + 1);
        Some(Place(open.clone(), address))
    }

    fn connection(&self) -> Connection {
        let head = self.bounds.as_ref().map(|bounds| bounds.head);
        Connection { app: self.app.clone(), open: self.graceful.watcher(), head, http1_only: false }
    }

    async fn end(self, mut tasks: JoinSet<()>) {
        self.graceful.shutdown().await;
        while tasks.join_next().await.is_some() {}
    }
}

struct Connection {
    app: Router,
    open: Watcher,
    head: Option<usize>,
    /// Whether it speaks HTTP/1 and nothing else.
    http1_only: bool,
}

impl Connection {
    async fn accept(self, stream: TcpStream, door: Door, ends: Ends) {
        // Else a small answer waits for the peer's delayed acknowledgement: 40 ms.
        let _best_effort = stream.set_nodelay(true);
        let tls = match door {
            Door::Tls(tls) => TlsAcceptor::from(tls),
            Door::Trusting => return self.run(stream, Caller(Some(Role::Admin)), Some(ends)).await,
            Door::Open => {
                let only = Self { http1_only: true, ..self };
                return only.run(stream, Caller(None), Some(ends)).await;
            }
        };
        match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates();
                let leaf = shown.and_then(|chain| chain.first());
                let caller = Caller(leaf.and_then(|leaf| role(leaf)));
                self.run(stream, caller, Some(ends)).await;
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
        ends: Option<Ends>,
    ) {
        let app = self.app.map_request(move |mut request: Request<_>| {
            request.extensions_mut().insert(caller);
            ends.map(|ends| request.extensions_mut().insert(ends));
            request
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .max_concurrent_streams(STREAMS);
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
        if let Some(head) = self.head {
            builder.http1().max_buf_size(head);
        }
        let builder = if self.http1_only { builder.http1_only() } else { builder };
        let connection = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(app));
        if let Err(error) = self.open.watch(connection.into_owned()).await {
            tracing::debug!(error = error.as_ref() as &dyn std::error::Error, "connection broke");
        }
    }
}
