//! Connections: accepted, told who is at the other end, and ended in order.
//!
//! One loop for all of them, because tonic's own offers HTTP/2 only and hides the client's certificate: TLS with
//! HTTP/1.1 and HTTP/2 on one port, the same in clear on loopback, and pipes inside the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use futures_util::{Stream, StreamExt as _};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

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

/// Serves `app` to who comes through `door` until `stop`; then ends what is open in order.
pub async fn tcp(
    listener: TcpListener,
    door: Door,
    app: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let server = Server::new(app);
    let mut tasks = JoinSet::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        while tasks.try_join_next().is_some() {}
        match accepted {
            Ok((stream, remote)) => {
                let Ok(local) = stream.local_addr() else { continue }; // it is gone again
                tasks.spawn(server.connection().accept(
                    stream,
                    door.clone(),
                    Ends { remote, local },
                ));
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
}

impl Server {
    fn new(app: Router) -> Self {
        Self { app, graceful: GracefulShutdown::new() }
    }

    fn connection(&self) -> Connection {
        Connection { app: self.app.clone(), open: self.graceful.watcher() }
    }

    async fn end(self, mut tasks: JoinSet<()>) {
        self.graceful.shutdown().await;
        while tasks.join_next().await.is_some() {}
    }
}

struct Connection {
    app: Router,
    open: Watcher,
}

impl Connection {
    async fn accept(self, stream: TcpStream, door: Door, ends: Ends) {
        // Else a small answer waits for the peer's delayed acknowledgement: 40 ms.
        let _best_effort = stream.set_nodelay(true);
        let tls = match door {
            Door::Tls(tls) => TlsAcceptor::from(tls),
            Door::Trusting => return self.run(stream, Caller(Some(Role::Admin)), Some(ends)).await,
            Door::Open => return self.run(stream, Caller(None), Some(ends)).await,
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
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(io), TowerToHyperService::new(app));
        if let Err(error) = self.open.watch(connection.into_owned()).await {
            tracing::debug!(error = error.as_ref() as &dyn std::error::Error, "connection broke");
        }
    }
}
