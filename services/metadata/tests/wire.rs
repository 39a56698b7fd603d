//! The HTTP listener, over connections on the loopback interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

#[path = "fixture/machines.rs"]
mod machines;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metadata::http::{NotStored, PhoneHomeCall};
use metadata::{Index, PhoneHome, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use machines::{Feed as _, address, node1, service};

/// Longer than every step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<anyhow::Result<()>>,
    reports: Arc<Gated>,
}

/// Counts calls that arrive, and stores each once the test opens the gate.
struct Gated {
    arrived: Semaphore,
    gate: Semaphore,
}

#[async_trait::async_trait]
impl PhoneHome for Gated {
    async fn report(&self, _: PhoneHomeCall) -> Result<(), NotStored> {
        self.arrived.add_permits(1);
        let open = self.gate.acquire().await.map_err(|closed| NotStored(closed.into()))?;
        open.forget();
        Ok(())
    }
}

/// A server for a machine at 127.0.0.1.
async fn server() -> Server {
    let mut machine = node1();
    machine.nics[0].addresses.push(address("127.0.0.1", 8, false));
    let index = Arc::new(Index::default());
    index.replace([machine]);
    let reports = Arc::new(Gated { arrived: Semaphore::new(0), gate: Semaphore::new(0) });
    let service = Arc::new(service(index, reports.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(serve(listener, service, stop.clone()));
    Server { address, stop, served, reports }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Reads until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut text)).await;
    // A server that closes the connection with unread bytes resets it.
    match read.expect("the server closes the connection") {
        Ok(_) => text,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => text,
        Err(error) => panic!("{error}"),
    }
}

async fn exchange(request: &str) -> String {
    let mut stream = server().await.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_and_disconnected() {
    let answer = exchange("GET /latest/meta-data/instance-id HTTP/1.0\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\ni-0001"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_is_answered() {
    let server = server().await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /phone-home HTTP/1.0\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    tokio::time::timeout(TIMEOUT, server.reports.arrived.acquire())
        .await
        .unwrap()
        .unwrap()
        .forget();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.reports.gate.add_permits(1);
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_stays_open_until_the_client_closes_it() {
    let get = "GET /latest/meta-data/instance-id HTTP/1.1\r\nHost: x\r\n";
    let answers = exchange(&format!("{get}\r\n{get}Connection: close\r\n\r\n")).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answers}");
    assert!(answers.contains("connection: close\r\n"), "{answers}");
}

#[tokio::test]
async fn head_has_the_headers_of_get() {
    let close = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let head = exchange(&format!("HEAD /latest/meta-data/instance-id {close}")).await;
    let get = exchange(&format!("GET /latest/meta-data/instance-id {close}")).await;
    let without_date = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("date:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_date(&head), without_date(get.strip_suffix("i-0001").unwrap()));
    assert!(head.contains("content-length: 6\r\n"), "{head}");
}

#[tokio::test]
async fn no_response_is_chunked_or_compressed() {
    let accept = "Accept-Encoding: gzip\r\nTE: chunked\r\nConnection: close\r\n\r\n";
    for path in ["/latest/meta-data/", "/latest/user-data", "/nothing"] {
        let answer = exchange(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{accept}")).await;
        assert!(answer.contains("content-length: "), "{answer}");
        assert!(!answer.contains("encoding"), "{answer}");
    }
}

#[tokio::test]
async fn an_incomplete_head_times_out() {
    let answer = exchange("GET /latest/meta-data/instance-id HTTP/1.1\r\nHost:").await;
    assert!(!answer.contains("200 OK"), "{answer}");
}

#[tokio::test]
async fn a_head_of_a_megabyte_is_refused() {
    let long = "a".repeat(1 << 20);
    let server = server().await;
    let mut stream = server.connect().await;
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n");
    let _cut_short = stream.write_all(head.as_bytes()).await;
    assert!(!rest(&mut stream).await.contains("200 OK"));
}

#[tokio::test]
async fn an_address_has_at_most_32_connections() {
    let server = server().await;
    let mut held = Vec::new();
    for _ in 0..32 {
        held.push(server.connect().await);
    }
    assert_eq!(rest(&mut server.connect().await).await, "");
    let first = &mut held[0];
    first.write_all(b"GET /latest/meta-data/mac HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(rest(first).await.ends_with("52:54:00:00:00:01"));
}

#[tokio::test]
async fn a_stop_lets_an_open_request_finish_and_accepts_no_other() {
    let Server { address, stop, served, reports } = server().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let call = b"POST /phone-home HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(call).await.unwrap();
    tokio::time::timeout(TIMEOUT, reports.arrived.acquire()).await.unwrap().unwrap().forget();
    stop.cancel();
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, refused).await.expect("the listener is closed");
    assert!(!served.is_finished());
    reports.gate.add_permits(1);
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
    tokio::time::timeout(TIMEOUT, served).await.unwrap().unwrap().unwrap();
}
