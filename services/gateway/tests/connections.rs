//! Requests over connections, as clients of other people make them.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use gateway::{Backend, Gateway, GatewaySettings, ial, imageapi, mirror};
use runtime::Clock;
use runtime::revocation::Revocations;
use runtime::serve::{self, Transport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The bytes of a body above the limits of all doors. No system buffers that many for a connection.
const LARGE: usize = 15 << 20;

/// Serves all doors on loopback. No service answers behind them.
async fn serve() -> (SocketAddr, DropGuard) {
    let settings = GatewaySettings::default();
    let (clock, stop) = (Clock::system(), CancellationToken::new());
    let revocations = Revocations::default();
    let gateway = Gateway::new(Backend::new([]), revocations, settings, &mut Default::default());
    let settings = ial::IalSettings { is_catalogue_public: true, has_rate_limits: true, clock };
    let doors = ial::doors(&gateway, settings).into_iter().chain(imageapi::doors(&gateway));
    let app = gateway.router(doors.chain([mirror::door(&gateway)]), Default::default());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve::tcp(listener, Transport::AnonymousPlaintext, app, stop.clone()));
    (address, stop.drop_guard())
}

/// Begins a request. Its method is the first word of `line`.
async fn begin(address: SocketAddr, line: &str, framing: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}

/// Reads to the end of the connection, which must not be a reset.
async fn rest(mut connection: TcpStream) -> io::Result<String> {
    let mut rest = String::new();
    connection.read_to_string(&mut rest).await.map(|_| rest)
}

#[tokio::test]
async fn a_client_that_sends_its_whole_body_first_reads_the_refusal_of_the_body() {
    let (address, _stop) = serve().await;
    for (path, refusal) in [
        ("/v1/auth/verify", "HTTP/1.1 422 "),
        ("/imageapi/v1/mount", "HTTP/1.1 400 "),
        ("/api/v1/hardware", "HTTP/1.1 413 "),
    ] {
        let line = format!("POST {path}");
        let mut connection = begin(address, &line, &format!("Content-Length: {LARGE}")).await;
        connection.write_all(&vec![b' '; LARGE]).await.expect(path);
        let answer = rest(connection).await.expect(path);
        assert!(answer.starts_with(refusal) && answer.ends_with(['}', '\n']), "{path}: {answer}");
        assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    }
    let mut chunked = begin(address, "POST /v1/auth/verify", "Transfer-Encoding: chunked").await;
    let body = format!("{LARGE:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(LARGE));
    chunked.write_all(body.as_bytes()).await.unwrap();
    assert!(rest(chunked).await.unwrap().starts_with("HTTP/1.1 422 "));
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body_and_the_body_is_read_on() {
    let (address, _stop) = serve().await;
    for (path, bytes, refusal) in [
        ("/v1/auth/verify", LARGE, "HTTP/1.1 422 "),
        ("/v1/nothing", LARGE / 16, "HTTP/1.1 404 "),
        ("/imageapi/v1/mount", LARGE / 16, "HTTP/1.1 401 "),
        ("/api/v1/hardware", LARGE / 4, "HTTP/1.1 401 "),
    ] {
        let line = format!("POST {path}");
        let mut connection = begin(address, &line, &format!("Content-Length: {bytes}")).await;
        let mut answer = vec![0; refusal.len()];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, refusal.as_bytes(), "{path}");
        connection.write_all(&vec![b' '; bytes]).await.expect(path);
        rest(connection).await.expect(path);
    }
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_a_body_is_not_asked_for_a_refused_one() {
    let (address, _stop) = serve().await;
    for (path, bytes) in [("/v1/auth/verify", LARGE), ("/api/v1/hardware", 10)] {
        let framing = format!("Expect: 100-continue\r\nContent-Length: {bytes}");
        let mut connection = begin(address, &format!("POST {path}"), &framing).await;
        let mut answer = [0; 10];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 4", "{path}");
        // It closes the connection, as the answer announces.
        connection.shutdown().await.unwrap();
        assert!(!rest(connection).await.unwrap().contains("100 Continue"), "{path}");
    }
}

#[tokio::test]
async fn doors_are_behind_a_second_slash_too() {
    let (address, _stop) = serve().await;
    let get = async |path: &str| {
        let connection = begin(address, &format!("GET {path}"), "Connection: close").await;
        rest(connection).await.unwrap()
    };
    for path in [
        "/imageapi/v1/mount",
        "//imageapi/v1/mount",
        "//imageapi/v1//mount",
        "/nodes/n1/imageapi/v1/mount",
        "/nodes/n1//imageapi/v1/mount",
        "//nodes/n1/imageapi/v1/mount",
    ] {
        let answer = get(path).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        assert!(answer.contains("{\"code\":401,"), "the form of the ImageAPI: {path}: {answer}");
    }
    for path in ["///imageapi/v1/mount", "/imageapi//v1/mount", "//imageapi/v1x", "//imageapi"] {
        assert!(get(path).await.starts_with("HTTP/1.1 404 "), "{path}");
    }
}
