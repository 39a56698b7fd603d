//! Channels to other processes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

/// The longest time for connecting to a peer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a silent peer is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Returns a channel to `peer`, an http URL, in clear. It connects at the first call, and again after a disconnect.
pub fn plaintext(peer: &Uri) -> Channel {
    endpoint(peer.clone()).connect_lazy()
}

/// Returns a channel to `peer`, an https URL, with the settings `tls`. It connects at the first call, and again after a
/// disconnect.
pub fn tls(peer: &Uri, tls: ClientConfig) -> anyhow::Result<Channel> {
    let host = peer.host().context("a URL without a host")?.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host.clone()).with_context(|| host.clone())?;
    let (address, tls) =
        ((host, peer.port_u16().unwrap_or(443)), TlsConnector::from(Arc::new(tls)));
    let connector = tower::service_fn(move |_: Uri| {
        let (name, address, tls) = (name.clone(), address.clone(), tls.clone());
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(TokioIo::new(tls.connect(name, stream).await?))
        }
    });
    // With an https URL tonic would do TLS itself, and present one certificate for ever. Requests still have that scheme.
    let mut parts = peer.clone().into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    let endpoint = endpoint(Uri::from_parts(parts)?).origin(peer.clone());
    Ok(endpoint.connect_with_connector_lazy(connector))
}

fn endpoint(peer: Uri) -> Endpoint {
    Endpoint::from(peer)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Extension, Router};
    use http::Request;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use tower::{Service as _, ServiceExt as _};

    use super::*;
    use crate::authority::{RenewableCertificate, SiteAuthority};
    use crate::serve::{self, Transport};
    use crate::{Caller, Role};

    #[tokio::test]
    async fn a_channel_presents_the_certificate_of_the_services_over_https() {
        let folder = tempfile::tempdir().unwrap();
        let site = Arc::new(SiteAuthority::open(folder.path()).unwrap());
        let names = ["127.0.0.1".to_owned()];
        site.ensure_service_certificate(&names).unwrap();
        let server = RenewableCertificate::server(site.clone(), names.into()).unwrap();
        let transport = Transport::Tls(Arc::new(server.server_config().unwrap()));
        let app = Router::new().route(
            "/",
            get(async |Extension(caller): Extension<Caller>, request: axum::extract::Request| {
                format!("{caller} {:?}", request.uri().scheme_str())
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let _served = tokio::spawn(serve::tcp(listener, transport, app, CancellationToken::new()));

        let caller = Caller::new(Role::Service, "service:metadata.netboot").unwrap();
        let service = RenewableCertificate::service(site, caller.clone()).unwrap();
        let peer = url.parse().unwrap();
        let mut channel = tls(&peer, service.client_config().unwrap()).unwrap();
        let request = Request::get("/").body(tonic::body::Body::empty()).unwrap();
        let response = channel.ready().await.unwrap().call(request).await.unwrap();
        let body = axum::body::Body::new(response.into_body());
        let body = axum::body::to_bytes(body, 1000).await.unwrap();
        assert_eq!(body, format!("{caller} {:?}", Some("https")));
    }
}
