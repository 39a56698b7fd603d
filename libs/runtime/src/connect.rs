//! Channels to other processes. A process may have replicas: a channel goes on with the next one when its own is gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::transport::Endpoint;

use crate::Channel;

/// The longest time for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a silent peer is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// The time for the answer to that. What a feed of a silent peer told counts as current for as long as both.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a server.
type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// A server at one or more addresses: replicas, which answer alike.
///
/// A channel has one connection. The first one is to the first address that answers; each further one begins with the address
/// after that of the connection which ended, because its server is probably gone.
#[derive(Clone, Debug)]
pub struct Servers {
    /// At least one.
    addresses: Arc<[Address]>,
    /// The index of the address at which the next connection begins.
    next: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct Address {
    url: Uri,
    host: String,
    port: u16,
    /// None in clear.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.url)
    }
}

impl Servers {
    /// Returns the server at `urls`, http or https URLs with a host. The settings `tls` are for https.
    pub fn new(urls: &[Uri], tls: Option<ClientConfig>) -> anyhow::Result<Self> {
        let tls = tls.map(|tls| TlsConnector::from(Arc::new(tls)));
        let address = |url| Address::new(url, tls.as_ref()).with_context(|| format!("{url}"));
        let addresses = urls.iter().map(address).collect::<anyhow::Result<Arc<[_]>>>()?;
        anyhow::ensure!(!addresses.is_empty(), "no address of a server");
        Ok(Self { addresses, next: Arc::default() })
    }

    /// Returns a channel that connects at the first call, and again after a disconnect.
    pub fn channel(&self) -> anyhow::Result<Channel> {
        let (endpoint, servers) = (self.endpoint()?, self.clone());
        let connector = tower::service_fn(move |_: Uri| servers.clone().open());
        Ok(endpoint.connect_with_connector_lazy(connector).into())
    }

    /// Returns a channel that is connected, and connects again after a disconnect.
    pub async fn connect(&self) -> anyhow::Result<Channel> {
        let (endpoint, servers) = (self.endpoint()?, self.clone());
        let connector = tower::service_fn(move |_: Uri| servers.clone().open());
        Ok(endpoint.connect_with_connector(connector).await?.into())
    }

    fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let origin = self.addresses[0].url.clone();
        // With an https URL tonic would do TLS itself, and present one certificate for ever. Requests still have that scheme.
        let mut parts = origin.clone().into_parts();
        parts.scheme = Some(Scheme::HTTP);
        let attempts = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
        Ok(Endpoint::from(Uri::from_parts(parts)?)
            .origin(origin)
            .connect_timeout(CONNECT_TIMEOUT.saturating_mul(attempts))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT))
    }

    /// Connects to one of the addresses.
    async fn open(self) -> io::Result<TokioIo<Stream>> {
        let (count, first) = (self.addresses.len(), self.next.load(Ordering::Relaxed));
        let mut errors = Vec::new();
        for index in (first..first + count).map(|index| index % count) {
            let address = &self.addresses[index];
            match address.open().await {
                Ok(stream) => {
                    self.next.store((index + 1) % count, Ordering::Relaxed);
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => errors.push((address, error)),
            }
        }
        match errors.pop() {
            Some((_, only)) if errors.is_empty() => Err(only),
            Some(last) => {
                let kind = last.1.kind();
                errors.push(last);
                let texts: Vec<_> =
                    errors.iter().map(|(address, error)| format!("{address:?}: {error}")).collect();
                Err(io::Error::new(kind, texts.join("; ")))
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Address {
    fn new(url: &Uri, tls: Option<&TlsConnector>) -> anyhow::Result<Self> {
        let host = url.host().context("a URL without a host")?.trim_matches(['[', ']']).to_owned();
        let is_secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => anyhow::bail!("neither https:// nor http://"),
        };
        let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let tls = match is_secure {
            true => {
                let name = ServerName::try_from(host.clone())?;
                Some((tls.context("https without certificates")?.clone(), name))
            }
            false => None,
        };
        Ok(Self { url: url.clone(), host, port, tls })
    }

    async fn open(&self) -> io::Result<Stream> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            Ok(match &self.tls {
                Some((tls, name)) => Either::Right(tls.connect(name.clone(), stream).await?),
                None => Either::Left(stream),
            })
        });
        opened.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Returns the TLS settings of an HTTP/2 client with this certificate and key, which trusts servers of `authority` only. All of
/// them are PEM.
pub fn client_config(
    authority: &str,
    certificate: &str,
    key: &str,
) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(root.context("the certificate of the authority")?)?;
    }
    anyhow::ensure!(!roots.is_empty(), "the authority has no certificate");
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the private key")?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let chain = chain.context("the client's certificate")?;
    let mut config = config.with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Extension, Router};
    use http::Request;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use tonic::{Code, Status};
    use tower::{Service as _, ServiceExt as _};

    use super::*;
    use crate::authority::{RenewableCertificate, SiteAuthority};
    use crate::retry::describe_broken;
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
        let tls = Some(service.client_config().unwrap());
        let mut channel = Servers::new(&[peer], tls).unwrap().channel().unwrap();
        let request = Request::get("/").body(tonic::body::Body::empty()).unwrap();
        let response = channel.ready().await.unwrap().call(request).await.unwrap();
        let body = axum::body::Body::new(response.into_body());
        let body = axum::body::to_bytes(body, 1000).await.unwrap();
        assert_eq!(body, format!("{caller} {:?}", Some("https")));
    }

    /// Serves `name` on `listener` until it is cancelled; then also ends open connections.
    fn serve(listener: TcpListener, name: &'static str) -> CancellationToken {
        let (stop, app) = (CancellationToken::new(), Router::new().route("/", get(name)));
        let transport = Transport::TrustedPlaintext;
        tokio::spawn(serve::tcp(listener, transport, app, stop.clone()));
        stop
    }

    /// Returns the name of the server that answers, or its error.
    async fn answer(channel: &mut Channel) -> Result<String, String> {
        let request = Request::get("/").body(tonic::body::Body::empty()).unwrap();
        let channel = channel.ready().await.map_err(|error| format!("{error:?}"))?;
        let response = channel.call(request).await.map_err(|error| format!("{error:?}"))?;
        let body = axum::body::Body::new(response.into_body());
        let body = axum::body::to_bytes(body, 1000).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }

    /// Repeats the call until a server answers.
    async fn next_answer(channel: &mut Channel) -> String {
        loop {
            if let Ok(name) = answer(channel).await {
                return name;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_channel_goes_on_with_the_next_server_when_its_own_is_gone() {
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = |it: &TcpListener| -> Uri {
            format!("http://{}", it.local_addr().unwrap()).parse().unwrap()
        };
        let (a, b) = (bind().await, bind().await);
        let urls = ["http://127.0.0.1:1".parse().unwrap(), url(&a), url(&b)];
        let (stop_a, _stop_b) = (serve(a, "a"), serve(b, "b"));
        let mut channel = Servers::new(&urls, None).unwrap().channel().unwrap();
        assert_eq!(answer(&mut channel).await.as_deref(), Ok("a"));
        assert_eq!(answer(&mut channel).await.as_deref(), Ok("a"));
        stop_a.cancel();
        while answer(&mut channel).await.as_deref() == Ok("a") {}
        assert_eq!(next_answer(&mut channel).await, "b");
    }

    #[tokio::test]
    async fn without_any_server_the_error_names_all_addresses() {
        let urls: [Uri; 2] =
            ["http://127.0.0.1:1", "http://127.0.0.1:2"].map(|it| it.parse().unwrap());
        let error = Servers::new(&urls, None).unwrap().connect().await.unwrap_err();
        let text = format!("{error:#}");
        assert!(urls.iter().all(|url| text.contains(&format!("{url}: "))), "{text}");
        assert!(Servers::new(&[], None).is_err());
        let secure = "https://127.0.0.1:1".parse().unwrap();
        let error = Servers::new(&[secure], None).unwrap_err();
        assert!(format!("{error:#}").ends_with("https without certificates"), "{error:#}");
    }

    #[tokio::test]
    async fn a_server_that_closes_every_connection_is_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let _closing = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        let mut channel = Servers::new(&[url], None).unwrap().channel().unwrap();
        let request = Request::get("/").body(tonic::body::Body::empty()).unwrap();
        let error = match channel.ready().await {
            Ok(channel) => channel.call(request).await.err().unwrap(),
            Err(error) => error,
        };
        let status = describe_broken(Status::from_error(error));
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status:?}");
    }
}
