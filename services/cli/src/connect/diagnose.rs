//! The cause of a broken connection, in one line, with what to do.
//!
//! The libraries report most causes as a broken connection. So the server is called once more, step by step: its port, its protocol, its
//! certificate, and its response to ours.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Uri;

use crate::context::Site;

/// The limit of each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for a server to refuse a certificate after the handshake.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The beginning of a connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// A request of HTTP/1.1, which gRPC is not served over.
const HTTP1_REQUEST: &[u8] = b"HEAD / HTTP/1.1\r\nhost: tinwright\r\nconnection: close\r\n\r\n";
/// The longest head of its response.
const MAX_HEAD_BYTES: u64 = 4096;
/// The first byte of an alert of TLS.
const TLS_ALERT: u8 = 21;

/// Returns the cause why the first server of `site` cannot be used at `now`; none if it can be, or if the cause is unknown.
pub(super) async fn cause(site: &Site, now: SystemTime) -> Option<String> {
    let server = Server::first(site)?;
    let Server { url, is_secure, .. } = server;
    if let Some(end) = is_secure.then(|| end(&site.certificate)).flatten().filter(|it| *it <= now) {
        let file = site.certificate.display();
        let days = now.duration_since(end).unwrap_or_default().as_secs() / 86_400;
        return Some(format!(
            "the certificate {file} expired {days} days ago: issue another one with `tinwright identity issue` on the server"
        ));
    }
    if let Some(cause) = other_server(site).await {
        return Some(cause);
    }
    let stream = match server.open().await {
        Ok(stream) => stream,
        Err(error) => return Some(unreachable(url, &error)),
    };
    let step =
        async { if is_secure { server.with_tls(stream).await } else { plain(url, stream).await } };
    tokio::time::timeout(STEP_TIMEOUT + REFUSAL_TIMEOUT, step).await.ok().flatten()
}

/// Returns the cause if the first server of `site` is one of HTTP that is not the API.
pub(super) async fn other_server(site: &Site) -> Option<String> {
    let server = Server::first(site)?;
    let is_other = tokio::time::timeout(STEP_TIMEOUT, server.is_other_http()).await;
    (is_other.ok().flatten() == Some(true)).then(|| not_the_api(server.url))
}

/// The server that is called.
#[derive(Clone, Debug)]
struct Server<'a> {
    site: &'a Site,
    url: &'a str,
    is_secure: bool,
    host: String,
    port: u16,
}

/// The time before the end of a certificate at which warnings begin.
const WARNING_TIME: Duration = Duration::from_secs(30 * 86_400);

/// Returns a warning if the caller's certificate for `site` ends within 30 days of `now`. One that has ended is an error elsewhere.
pub(super) fn end_warning(site: &Site, now: SystemTime) -> Option<String> {
    let is_used = site.servers.iter().any(|url| url.starts_with("https:"));
    let left = end(&site.certificate).filter(|_| is_used)?.duration_since(now).ok()?;
    (left < WARNING_TIME).then(|| {
        let (file, days) = (site.certificate.display(), left.as_secs() / 86_400);
        format!(
            "the certificate {file} expires in {days} days: have another one issued with `tinwright identity issue`"
        )
    })
}

/// Returns the end of the first certificate in `file`.
fn end(file: &Path) -> Option<SystemTime> {
    let der = CertificateDer::pem_slice_iter(&std::fs::read(file).ok()?).next()?.ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(parsed.validity().not_after.to_datetime().into())
}

fn unreachable(url: &str, error: &io::Error) -> String {
    let known = [
        (io::ErrorKind::ConnectionRefused, "nothing listens there"),
        (io::ErrorKind::TimedOut, "no answer"),
    ];
    let cause = known.iter().find(|(kind, _)| *kind == error.kind());
    let cause = cause.map_or_else(|| error.to_string(), |(_, text)| (*text).to_owned());
    format!("no server at {url}: {cause}: is it running, and is --server right?")
}

/// Returns the cause if a server that is called without TLS speaks it.
async fn plain(url: &str, mut stream: TcpStream) -> Option<String> {
    stream.write_all(PREFACE).await.ok()?;
    let mut first = [0];
    stream.read_exact(&mut first).await.ok()?;
    let other = url.replacen("http://", "https://", 1);
    (first[0] == TLS_ALERT).then(|| format!("the server at {url} speaks TLS: --server {other}"))
}

/// True if the other side has ended the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Returns the cause if the server ends the connection after the handshake, as it does with the connections of a revoked certificate.
fn closed(site: &Site, url: &str) -> String {
    let own = site.certificate.display();
    format!(
        "the server at {url} closes connections with the certificate {own}: was it revoked? See the server's log"
    )
}

fn not_the_api(url: &str) -> String {
    format!(
        "the server at {url} is not the API of Tinwright, but another server of HTTP, such as the gateway or the metrics: give --server the port of the API (42113, unless serve has --listen)"
    )
}

impl<'a> Server<'a> {
    /// Returns the first server of `site`, if it has one with a right URL.
    fn first(site: &'a Site) -> Option<Self> {
        let url = site.servers.first()?;
        let parsed: Uri = url.parse().ok()?;
        let is_secure = parsed.scheme_str() == Some("https");
        let host = parsed.host()?.trim_matches(['[', ']']).to_owned();
        let port = parsed.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Some(Self { site, url, is_secure, host, port })
    }

    async fn open(&self) -> io::Result<TcpStream> {
        let opened = TcpStream::connect((self.host.as_str(), self.port));
        tokio::time::timeout(STEP_TIMEOUT, opened).await?
    }

    /// True if it is a server of HTTP, with TLS or without, that does not serve gRPC; none if that is unknown.
    async fn is_other_http(&self) -> Option<bool> {
        let stream = self.open().await.ok()?;
        if !self.is_secure {
            return is_http_without_grpc(stream).await;
        }
        let mut config = self.site.tls().ok()?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(self.host.clone()).ok()?;
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => is_http_without_grpc(stream).await,
            // It may be one without TLS.
            Err(error) if is_other_protocol(&error) => {
                is_http_without_grpc(self.open().await.ok()?).await
            }
            Err(_) => None,
        }
    }

    async fn with_tls(&self, stream: TcpStream) -> Option<String> {
        let Self { site, url, host, .. } = self;
        let config = Arc::new(site.tls().ok()?);
        let name = ServerName::try_from(host.clone()).ok()?;
        let handshake = TlsConnector::from(config).connect(name, stream).await;
        let error = match handshake {
            Err(error) => error,
            Ok(mut stream) => {
                // With TLS 1.3 a server refuses a certificate after the client's handshake.
                let mut first = [0];
                let read = tokio::time::timeout(REFUSAL_TIMEOUT, stream.read(&mut first));
                match read.await.ok()? {
                    Ok(0) => return Some(closed(site, url)),
                    Ok(_) => return None,
                    Err(error) if is_end(&error) => return Some(closed(site, url)),
                    Err(error) => error,
                }
            }
        };
        let cause = error.get_ref()?.downcast_ref::<Error>()?;
        of_tls(cause, site, url, host)
    }
}

/// True if the other side answers a request of HTTP/1.1 as a server without gRPC does; none if nothing comes in time.
async fn is_http_without_grpc(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<bool> {
    let mut head = Vec::new();
    let exchange = async {
        stream.write_all(HTTP1_REQUEST).await?;
        stream.flush().await?;
        let mut stream = stream.take(MAX_HEAD_BYTES);
        while stream.read_buf(&mut head).await? > 0 && !head.windows(4).any(|it| it == b"\r\n\r\n")
        {
        }
        io::Result::Ok(())
    };
    // What was received before an error or the time limit counts, too.
    let ended = tokio::time::timeout(REFUSAL_TIMEOUT, exchange).await;
    if head.is_empty() && !matches!(ended, Ok(Ok(()))) {
        return None;
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    Some(head.starts_with("http/1.") && !head.contains("application/grpc"))
}

/// True if the other side of a handshake does not speak TLS.
fn is_other_protocol(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    matches!(cause, Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls has many more errors, which its own text describes"
)]
fn of_tls(error: &Error, site: &Site, url: &str, host: &str) -> Option<String> {
    let (ca, own) = (site.ca.display(), site.certificate.display());
    Some(match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            let other = url.replacen("https://", "http://", 1);
            format!("the server at {url} does not speak TLS: --server {other}")
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => {
            format!("the certificate of the server at {url} has expired: look at the server's log")
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "the certificate of the server at {url} is not for {host}: start it with --advertise {host}"
        ),
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            format!(
                "the server at {url} belongs to another site: {ca} has not signed its certificate; give the right --context or --secrets"
            )
        }
        Error::AlertReceived(alert) => {
            let reason = match alert {
                AlertDescription::CertificateExpired => "it has expired",
                AlertDescription::CertificateRevoked => "it was revoked",
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError
                | AlertDescription::AccessDenied => {
                    "it was revoked, or its authority was dropped, or it is of another site: have another one issued with `tinwright identity issue`"
                }
                _ => return None,
            };
            format!("the server at {url} refuses the certificate {own}: {reason}")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use runtime::authority::SiteAuthority;
    use tokio::net::TcpListener;

    use super::*;

    /// Makes a site in a folder of its own, with the files of an operator. Returns it as the site of the server at `url`.
    fn site(url: &str) -> (tempfile::TempDir, Site) {
        let folder = tempfile::tempdir().unwrap();
        SiteAuthority::open(folder.path()).unwrap().ensure_admin_certificate().unwrap();
        let site = Site { servers: vec![url.to_owned()], ..Site::in_directory(folder.path()) };
        (folder, site)
    }

    /// Answers each of some connections with `answer`, and returns the address.
    async fn listen(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            for _ in 0..5 {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut request = [0; 64];
                    let _read = stream.read(&mut request).await.unwrap();
                    stream.write_all(answer).await.unwrap();
                    stream.shutdown().await.unwrap();
                    tokio::time::sleep(STEP_TIMEOUT).await;
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_port_without_a_listener_is_reported() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (_folder, site) = site(&format!("http://{closed}"));
        let cause = cause(&site, SystemTime::now()).await.unwrap();
        let wanted = format!(
            "no server at http://{closed}: nothing listens there: is it running, and is --server right?"
        );
        assert_eq!(cause, wanted);
    }

    #[tokio::test]
    async fn a_server_of_the_other_protocol_is_named_with_the_right_url() {
        let address =
            listen(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/grpc\r\n\r\n").await;
        let (_folder, secure) = site(&format!("https://{address}"));
        let cause_of = async |site: &Site| cause(site, SystemTime::now()).await.unwrap();
        let wanted = format!(
            "the server at https://{address} does not speak TLS: --server http://{address}"
        );
        assert_eq!(cause_of(&secure).await, wanted);
        let address = listen(&[TLS_ALERT, 3, 3, 0, 2, 2, 70]).await;
        let (_folder, plain) = site(&format!("http://{address}"));
        let wanted =
            format!("the server at http://{address} speaks TLS: --server https://{address}");
        assert_eq!(cause_of(&plain).await, wanted);
        let address = listen(b"HTTP/1.1 404 Not Found\r\n\r\n").await;
        for scheme in ["http", "https"] {
            let (_folder, other) = site(&format!("{scheme}://{address}"));
            let wanted = format!("the server at {scheme}://{address} is not the API of Tinwright");
            assert!(cause_of(&other).await.starts_with(&wanted));
        }
    }

    #[tokio::test]
    async fn a_server_of_http_without_grpc_is_not_the_api() {
        const OTHER: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        const API: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n\r\n";
        for (response, is_other) in [(OTHER, true), (API, false)] {
            let (mut client, server) = tokio::io::duplex(1000);
            client.write_all(response).await.unwrap();
            client.shutdown().await.unwrap();
            assert_eq!(is_http_without_grpc(server).await, Some(is_other));
        }
        assert_eq!(is_http_without_grpc(tokio::io::empty()).await, Some(false));
        assert_eq!(is_http_without_grpc(tokio::io::duplex(1000).0).await, None);
    }

    #[tokio::test]
    async fn an_expired_certificate_is_seen_without_the_server() {
        let (_folder, site) = site("https://127.0.0.1:1");
        let later = SystemTime::now() + Duration::from_secs(500 * 86_400);
        let cause = cause(&site, later).await.unwrap();
        assert!(
            cause.contains("admin.pem expired ") && cause.contains(" days ago: issue"),
            "{cause}"
        );
    }

    #[test]
    fn a_certificate_that_ends_within_thirty_days_is_said() {
        let (_folder, site) = site("https://127.0.0.1:1");
        let end = end(&site.certificate).unwrap();
        let warning = |days: u64| end_warning(&site, end - Duration::from_secs(days * 86_400));
        assert_eq!((warning(31), end_warning(&site, end + STEP_TIMEOUT)), (None, None));
        let text = warning(12).unwrap();
        assert!(text.contains("admin.pem expires in 12 days: have another"), "{text}");
        let plain = Site { servers: vec!["http://127.0.0.1:1".into()], ..site.clone() };
        assert_eq!(end_warning(&plain, end - STEP_TIMEOUT), None, "no certificate is presented");
    }

    #[test]
    fn refusals_name_the_certificate_and_the_server() {
        let (_folder, site) = site("https://a:1");
        let text = |error| of_tls(&error, &site, "https://a:1", "a").unwrap();
        let other = text(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(
            other.starts_with("the server at https://a:1 belongs to another site: "),
            "{other}"
        );
        let revoked = text(Error::AlertReceived(AlertDescription::CertificateRevoked));
        assert!(revoked.ends_with("admin.pem: it was revoked"), "{revoked}");
        let name = text(Error::InvalidCertificate(CertificateError::NotValidForName));
        assert!(name.ends_with("is not for a: start it with --advertise a"), "{name}");
        assert!(of_tls(&Error::HandshakeNotComplete, &site, "", "").is_none());
    }
}
