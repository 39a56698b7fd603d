//! Connections whose certificate is revoked.

use axum::body::BodyDataStream;
use futures_util::stream;
use tinwright::identity::v1::Revocation;
use tinwright::watch::FeedEvent;
use tonic::transport::Channel;
use tower::ServiceExt as _;

use super::*;
use crate::authority::{RenewableCertificate, SiteAuthority};
use crate::connect::Servers;
use crate::revocation::Revocations;

/// A server whose answer never ends, and a channel to it with the certificate of the services.
async fn site(revocations: Revocations) -> (tempfile::TempDir, Serial, impl Fn() -> Channel) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Arc::new(SiteAuthority::open(folder.path()).unwrap());
    let names = ["127.0.0.1".to_owned()];
    authority.ensure_service_certificate(&names).unwrap();
    let server = RenewableCertificate::server(authority.clone(), names.into()).unwrap();
    let transport = Transport::Tls(Arc::new(server.server_config().unwrap()));
    let endless = async || {
        Body::from_stream(stream::iter([Ok::<_, Infallible>("first")]).chain(stream::pending()))
    };
    let app = Router::new().route("/", get(endless));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let limits = ConnectionLimits { revocations, ..ConnectionLimits::default() };
    tokio::spawn(limited_tcp(listener, transport, limits, app, CancellationToken::new()));
    let pem = CertificateDer::from_pem_file(folder.path().join("service.pem")).unwrap();
    // Without the authority's key the stored certificate is presented.
    std::fs::remove_file(folder.path().join("ca-key.pem")).unwrap();
    let own = RenewableCertificate::service(authority, Role::Service.into()).unwrap();
    let open = move || {
        let tls = Some(own.client_config().unwrap());
        Servers::new(std::slice::from_ref(&url), tls).unwrap().channel().unwrap()
    };
    (folder, Serial::in_certificate(&pem).unwrap(), open)
}

/// Makes a call. Returns the body of the response.
async fn call(channel: Channel) -> Result<BodyDataStream, tonic::transport::Error> {
    let request = Request::get("/").body(tonic::body::Body::empty()).unwrap();
    Ok(Body::new(channel.oneshot(request).await?.into_body()).into_data_stream())
}

#[tokio::test]
async fn a_revoked_certificate_ends_open_streams_and_is_refused_from_then_on() {
    let revocations = Revocations::default();
    let (_folder, serial, open) = site(revocations.clone()).await;
    let mut body = call(open()).await.unwrap();
    assert_eq!(body.next().await.unwrap().unwrap(), "first");
    let other = Revocation { id: "certificate:0a".into(), ..Revocation::default() };
    revocations.apply(FeedEvent::Put(other));
    assert!(call(open()).await.is_ok());
    let revocation = Revocation { id: serial.identity(), ..Revocation::default() };
    revocations.apply(FeedEvent::Put(revocation));
    assert!(body.next().await.is_none_or(|part| part.is_err()));
    assert!(call(open()).await.is_err());
}
