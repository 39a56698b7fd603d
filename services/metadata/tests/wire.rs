//! The listener, over real sockets on the loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

#[path = "fixture/machines.rs"]
mod machines;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metadata::http::{Call, NotStored};
use metadata::token::Tokens;
use metadata::{Config, Index, PhoneHome, Service, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use machines::{Feed as _, address, node1};

/// Longer than anything here takes, so that a failure is one and not a hang.
const LONG: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<io::Result<()>>,
    home: Arc<Gated>,
}

/// Says when a call arrives, and stores it once the test opens the gate.
struct Gated {
    arrived: Semaphore,
    gate: Semaphore,
}

#[async_trait::async_trait]
impl PhoneHome for Gated {
    async fn report(&self, _: Call) -> Result<(), NotStored> {
        self.arrived.add_permits(1);
        let open = self.gate.acquire().await.map_err(|closed| NotStored(closed.into()))?;
        open.forget();
        Ok(())
    }
}

/// A server for a machine that asks from 127.0.0.1.
async fn server() -> Server {
    let mut machine = node1();
    machine.nics[0].addresses.push(address("127.0.0.1", 8, false));
    let index = Arc::new(Index::default());
    index.replace([machine]);
    let home = Arc::new(Gated { arrived: Semaphore::new(0), gate: Semaphore::new(0) });
    let service =
        Arc::new(Service::new(index, Tokens::new(&[7; 32]), home.clone(), Config::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(serve(listener, service, stop.clone()));
    Server { address, stop, served, home }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Everything until the server hangs up.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(LONG, stream.read_to_string(&mut text)).await;
    // A server that hangs up on unread bytes resets the connection.
    match read.expect("the server hangs up") {
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
async fn a_client_of_1996_is_answered_and_let_go() {
    let answer = exchange("GET /latest/meta-data/instance-id HTTP/1.0\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\ni-0001"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_has_said_all_it_will_is_answered() {
    let server = server().await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /phone-home HTTP/1.0\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    tokio::time::timeout(LONG, server.home.arrived.acquire()).await.unwrap().unwrap().forget();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.home.gate.add_permits(1);
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_is_kept_until_the_client_wants_it_closed() {
    let get = "GET /latest/meta-data/instance-id HTTP/1.1\r\nHost: x\r\n";
    let answers = exchange(&format!("{get}\r\n{get}Connection: close\r\n\r\n")).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answers}");
    assert!(answers.contains("connection: close\r\n"), "{answers}");
}

#[tokio::test]
async fn head_says_all_but_the_body() {
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
async fn no_answer_is_chunked_or_packed() {
    let accept = "Accept-Encoding: gzip\r\nTE: chunked\r\nConnection: close\r\n\r\n";
    for path in ["/latest/meta-data/", "/latest/user-data", "/nothing"] {
        let answer = exchange(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{accept}")).await;
        assert!(answer.contains("content-length: "), "{answer}");
        assert!(!answer.contains("encoding"), "{answer}");
    }
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for() {
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
async fn one_connection_too_many_of_an_address_is_closed() {
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
async fn a_stop_lets_a_request_finish_and_takes_no_other() {
    let Server { address, stop, served, home } = server().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let call = b"POST /phone-home HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(call).await.unwrap();
    tokio::time::timeout(LONG, home.arrived.acquire()).await.unwrap().unwrap().forget();
    stop.cancel();
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, refused).await.expect("the listener is closed");
    assert!(!served.is_finished());
    home.gate.add_permits(1);
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
    tokio::time::timeout(LONG, served).await.unwrap().unwrap().unwrap();
}
