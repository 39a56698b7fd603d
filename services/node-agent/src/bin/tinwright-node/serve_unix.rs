//! Connections of the Unix socket. They have no limits of time, as in the original: only the owner of the socket can connect.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;

use crate::unix_socket::UnixSocket;

/// The delay after the system refused another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves `router` on `socket` until `stop`; then ends open connections in order, and removes the socket's file.
pub(crate) async fn serve(
    socket: UnixSocket,
    router: Router,
    max_head_bytes: usize,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().half_close(true).max_buf_size(max_head_bytes);
    let (builder, graceful) = (Arc::new(builder), GracefulShutdown::new());
    while let Some(accepted) = stop.run_until_cancelled(socket.listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "no connection accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let served = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "connection broke");
            }
        });
    }
    drop(socket);
    graceful.shutdown().await;
    Ok(())
}
