//! Connections whose certificate is revoked, or whose authority is replaced.

use crate::Channel;
use axum::body::BodyDataStream;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tinwright::identity::v1::Revocation;
use tinwright::watch::FeedEvent;
use tower::ServiceExt as _;

use super::*;
use crate::authority::{RenewableCertificate, SiteAuthority};
use crate::connect::Servers;
use crate::revocation::Revocations;

/// A server whose answer never ends, and a client with the certificate of the services.
struct Site {
    folder: tempfile::TempDir,
    authority: Arc<SiteAuthority>,
    revocations: Revocations,
    server: Arc<RenewableCertificate>,
    service: Arc<RenewableCertificate>,
    url: http::Uri,
}

impl Site {
    async fn new() -> Self {
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
        let revocations = Revocations::default();
        let limits = ConnectionLimits {
            revocations: revocations.clone(),
            authority: Some(authority.clone()),
            ..ConnectionLimits::default()
        };
        tokio::spawn(limited_tcp(listener, transport, limits, app, CancellationToken::new()));
        // Without the authority's key the stored certificate is presented.
        let [key, away] = ["ca-key.pem", "away"].map(|name| folder.path().join(name));
        std::fs::rename(&key, &away).unwrap();
        let service = RenewableCertificate::service(authority.clone(), Role::Service.into());
        std::fs::rename(&away, &key).unwrap();
        Self { folder, authority, revocations, server, service: service.unwrap(), url }
    }

    /// Returns a channel with a connection of its own.
    fn open(&self) -> Channel {
        let tls = Some(self.service.client_config().unwrap());
        Servers::new(std::slice::from_ref(&self.url), tls).unwrap().channel().unwrap()
    }

    /// Makes a call, and returns the rest of its response.
    async fn stream(&self) -> BodyDataStream {
        let mut body = call(self.open()).await.unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "first");
        body
    }
}

/// Waits until `open` ends with an error or without one.
async fn ends(open: &mut BodyDataStream) {
    let next = tokio::time::timeout(Duration::from_secs(60), open.next()).await;
    assert!(next.expect("the stream ends").is_none_or(|part| part.is_err()));
}

/// Makes a call. Returns the body of the response.
async fn call(channel: Channel) -> Result<BodyDataStream, tower::BoxError> {
    let request = Request::get("/").body(tonic::body::Body::empty()).unwrap();
    Ok(Body::new(channel.oneshot(request).await?.into_body()).into_data_stream())
}

#[tokio::test]
async fn a_revoked_certificate_ends_open_streams_and_is_refused_from_then_on() {
    let site = Site::new().await;
    let mut body = site.stream().await;
    let other = Revocation { id: "certificate:0a".into(), ..Revocation::default() };
    site.revocations.apply(FeedEvent::Put(other));
    assert!(call(site.open()).await.is_ok());
    let pem = CertificateDer::from_pem_file(site.folder.path().join("service.pem")).unwrap();
    let id = Serial::in_certificate(&pem).unwrap().identity();
    site.revocations.apply(FeedEvent::Put(Revocation { id, ..Revocation::default() }));
    ends(&mut body).await;
    assert!(call(site.open()).await.is_err());
}

#[tokio::test]
async fn the_end_of_a_former_authority_ends_streams_of_its_certificates_and_no_others() {
    let site = Site::new().await;
    let mut former = site.stream().await;
    site.authority.prepare_authority().unwrap();
    site.authority.use_next_authority().unwrap();
    site.server.renew().unwrap();
    let mut second = site.stream().await;
    // The authority's key is there now: this certificate is of the new one.
    site.service.renew().unwrap();
    let mut current = site.stream().await;
    for open in [&mut former, &mut second, &mut current] {
        assert!(open.next().now_or_never().is_none());
    }
    site.authority.drop_old_authority().unwrap();
    for ended in [&mut former, &mut second] {
        ends(ended).await;
    }
    assert!(current.next().now_or_never().is_none());
    drop(site.stream().await);
}
