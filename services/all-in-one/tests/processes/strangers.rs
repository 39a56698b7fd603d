//! Clients without a certificate: they keep nobody else out.

use std::convert::Infallible;
use std::future::poll_fn;
use std::iter::repeat_n;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use all_in_one::open_files;
use futures_util::{StreamExt as _, stream};
use runtime::Channel;
use runtime::authority::SiteAuthority;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::io::AsyncReadExt as _;
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

use super::process::{Place, Process, soon};

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
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority(&process).as_bytes()).unwrap()).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(tls));
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
