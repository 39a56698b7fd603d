//! Clients without a certificate: they keep nobody else out.

use std::convert::Infallible;
use std::future::poll_fn;
use std::iter::repeat_n;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use all_in_one::open_files;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use runtime::Channel;
use runtime::authority::SiteAuthority;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::Request;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::door::client_output;
use super::process::{Place, Process, arguments, free_address, soon};

/// Returns the site's certificate authority in PEM.
fn authority(process: &Process) -> String {
    SiteAuthority::open(&process.place.secrets()).unwrap().authority().to_owned()
}

/// Returns a channel without a certificate.
async fn anonymous(process: &Process) -> Channel {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority(process)));
    let endpoint = Endpoint::from_shared(format!("https://{}", process.place.grpc)).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap().into()
}

/// Returns TLS for clients without a certificate.
fn connector(process: &Process) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority(process).as_bytes()).unwrap()).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(tls))
}

/// Connects to `server` from `address` without a certificate.
async fn connect(
    tls: &TlsConnector,
    server: SocketAddr,
    address: Ipv4Addr,
) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let stream = socket.connect(server).await.unwrap();
    tls.connect(server.ip().into(), stream).await.unwrap()
}

#[tokio::test]
async fn a_thousand_silent_connections_are_closed_and_keep_nobody_out() {
    open_files::raise();
    let process = Place::new().start(&[]).await;
    let tls = connector(&process);
    let mut silent = Vec::new();
    for host in 2..22 {
        for _ in 0..60 {
            let address = Ipv4Addr::new(127, 0, 0, host);
            silent.push(soon(connect(&tls, process.place.grpc, address)).await);
        }
    }
    let mut health = HealthClient::new(anonymous(&process).await);
    soon(health.check(HealthCheckRequest::default())).await.unwrap();
    let mut hardware = HardwareServiceClient::new(process.channel().await);
    soon(hardware.list_hardware(hw::ListHardwareRequest::default())).await.unwrap();
    for mut connection in silent {
        // A connection that is closed without TLS's farewell is an error.
        let _closed = soon(connection.read_to_end(&mut Vec::new())).await;
    }
}

/// A connection to the gateway that is open before its first request.
type Connection = BufReader<TlsStream<TcpStream>>;

/// Delay after a refusal with 429.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A process with a gateway, and the key of a viewer.
struct Gateway {
    process: Process,
    address: SocketAddr,
    key: String,
}

impl Gateway {
    async fn start() -> Self {
        let address = free_address();
        let listen = address.to_string();
        let process = Place::new().start(&arguments(&["--gateway-listen", &listen])).await;
        let create = ["identity", "credential", "create", "--role", "viewer"];
        let issued = client_output(&process, &create);
        let key = issued.trim().rsplit_once("shown only once: ").unwrap().1.to_owned();
        Self { process, address, key }
    }

    fn client(&self) -> reqwest::ClientBuilder {
        let authority = authority(&self.process);
        let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
        reqwest::Client::builder().no_proxy().tls_certs_only([authority])
    }

    /// Sends a request with the key. Returns the status of the response.
    async fn status(&self, client: &reqwest::Client) -> u16 {
        let request = client.get(format!("https://{}/api/v1/hardware", self.address));
        request.header("x-api-key", &self.key).send().await.unwrap().status().as_u16()
    }

    /// Sends the same request over `connection`, again after each 429. Returns the other status.
    /// Panics if the connection ends before.
    async fn status_over(&self, connection: &mut Connection) -> u16 {
        let (address, key) = (self.address, &self.key);
        let head = format!("GET /api/v1/hardware HTTP/1.1\r\nhost: {address}\r\nx-api-key: {key}");
        let request = format!("{head}\r\n\r\n");
        loop {
            connection.write_all(request.as_bytes()).await.unwrap();
            connection.flush().await.unwrap();
            match response_status(connection).await {
                429 => tokio::time::sleep(RETRY_DELAY).await,
                status => return status,
            }
        }
    }
}

/// Reads a response with a Content-Length, and returns its status.
async fn response_status(connection: &mut Connection) -> u16 {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(connection.read_line(&mut head).await.unwrap(), 0, "the end after {head:?}");
    }
    let head = head.to_ascii_lowercase();
    let (_, length) = head.split_once("\r\ncontent-length: ").expect(&head);
    let length = length.lines().next().unwrap().parse().unwrap();
    connection.read_exact(&mut vec![0; length]).await.unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn silent_connections_to_the_gateway_from_four_addresses_keep_out_no_client_with_a_key() {
    open_files::raise();
    let gateway = Gateway::start().await;
    let mut silent = Vec::new();
    for _ in 0..1024 {
        for host in 2..6 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
            silent.push(soon(socket.connect(gateway.address)).await.unwrap());
        }
    }
    // From one of the four, too: a neighbour of who holds them.
    for host in [1, 2] {
        let client = gateway.client().local_address(IpAddr::from([127, 0, 0, host]));
        let client = client.build().unwrap();
        assert_eq!(soon(gateway.status(&client)).await, 200, "127.0.0.{host}");
    }
    assert_eq!(silent.len(), 4096);
}

#[tokio::test]
async fn four_hundred_connections_at_once_with_a_key_get_four_hundred_answers() {
    open_files::raise();
    let gateway = Gateway::start().await;
    let tls = connector(&gateway.process);
    // All of them are of unknown clients until the first request. A busy machine has the time for
    // the handshakes of a few at once.
    let opened = stream::iter(0..400)
        .map(|_| connect(&tls, gateway.address, Ipv4Addr::LOCALHOST))
        .buffer_unordered(32);
    let mut connections: Vec<Connection> = soon(opened.map(BufReader::new).collect()).await;
    // Of the requests of one address, 128 may be open at a time. The others are refused with 429.
    let requests = connections.iter_mut().map(|connection| gateway.status_over(connection));
    assert_eq!(soon(join_all(requests)).await, [200; 400]);
}

/// Calls Redeem with a request of 4 MiB whose last byte never comes. Returns the code of the response.
async fn unfinished_redeem(mut channel: Channel) -> Option<Code> {
    let length: u32 = 4 * 1024 * 1024;
    let head = [&[0][..], &length.to_be_bytes()].concat();
    let parts = [vec![1; 64 * 1024 - 1]].into_iter().chain(repeat_n(vec![1; 64 * 1024], 63));
    let parts = stream::iter([head].into_iter().chain(parts)).chain(stream::pending());
    let body = axum::body::Body::from_stream(parts.map(Ok::<_, Infallible>));
    let request = Request::post("/tinwright.workflow.v1.WorkerService/Redeem")
        .header("content-type", "application/grpc")
        .body(Body::new(body))
        .unwrap();
    poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let response = channel.call(request).await.unwrap();
    Status::from_header_map(response.headers()).map(|status| status.code())
}

#[tokio::test]
async fn redeem_with_two_hundred_unfinished_requests_takes_no_memory() {
    let process = Place::new().start(&[]).await;
    let channel = anonymous(&process).await;
    let before = process.memory("VmRSS");
    let mut calls: JoinSet<_> = (0..200).map(|_| unfinished_redeem(channel.clone())).collect();
    while let Some(code) = soon(calls.join_next()).await {
        assert_eq!(code.unwrap(), Some(Code::OutOfRange));
    }
    let grown = process.memory("VmHWM").saturating_sub(before);
    assert!(grown < 32 * 1024 * 1024, "{grown} bytes");
}
