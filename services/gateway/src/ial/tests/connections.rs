//! Connections of clients with a key, beside others from their address.

use std::net::{Ipv4Addr, SocketAddr};

use runtime::serve::{AnonymousLimits, ConnectionLimits, Transport, limited_tcp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the door on loopback, with one connection of an unknown client. A call to a service other
/// than identity waits twice for `steps`.
async fn serve(steps: Arc<Barrier>) -> (SocketAddr, DropGuard) {
    let services = Router::new().fallback(async move |request: Request| {
        if !request.uri().path().ends_with("/Authenticate") {
            steps.wait().await;
            steps.wait().await;
        }
        service(request).await
    });
    let app = gateway_of(services, true, Clock::system());
    let anonymous = AnonymousLimits {
        total: 64,
        per_source: 1,
        max_concurrent_streams: 8,
        window_bytes: 65_535,
        lifetime: TIMEOUT,
    };
    let limits = ConnectionLimits { anonymous: Some(anonymous), ..ConnectionLimits::default() };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(limited_tcp(listener, Transport::AnonymousPlaintext, limits, app, stop.clone()));
    (address, stop.drop_guard())
}

/// Begins a call over a connection of its own.
async fn begin(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n");
    let length = body.len();
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// Reads the first line of the answer up to the status. Panics if the connection ends before.
async fn status(connection: &mut TcpStream) -> String {
    let mut line = [0; 12];
    tokio::time::timeout(TIMEOUT, connection.read_exact(&mut line)).await.unwrap().unwrap();
    String::from_utf8(line.to_vec()).unwrap()
}

#[tokio::test]
async fn a_client_is_known_from_its_key_on_and_not_only_from_its_answer() {
    let steps = Arc::new(Barrier::new(2));
    let step = || tokio::time::timeout(TIMEOUT, steps.wait());
    let (address, _stop) = serve(steps.clone()).await;
    let call = wrapped(json!({"server_id": "srv-1", "location_id": "kir1"}));
    let mut open = begin(address, STATUS, &call).await;
    step().await.unwrap();
    // Each takes the place of the one before it, and would take that of an unknown client.
    for _ in 0..3 {
        let mut stranger = begin(address, "/v1/nothing", &json!({})).await;
        assert_eq!(status(&mut stranger).await, "HTTP/1.1 404");
    }
    step().await.unwrap();
    assert_eq!(status(&mut open).await, "HTTP/1.1 404");
}
