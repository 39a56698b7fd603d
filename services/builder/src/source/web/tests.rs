//! Tests of requests to local servers, and to none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Redirect, Response};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;

/// Only this address is allowed.
const ALLOWED: &str = "127.0.0.1/32";

fn web(downloads: Downloads) -> Web {
    let allow_networks = vec![ALLOWED.parse().unwrap()];
    Web::new(&Downloads { allow_networks, ..downloads }, Timing::default()).unwrap()
}

fn remote(url: &str) -> Remote {
    let (url, server) = (url.parse().unwrap(), ServerKind::Public);
    Remote { url, field: "source.url", server, authorization: None }
}

/// Requests `url`. Returns the text or the failure.
async fn text(web: &Web, url: &str) -> Result<String, Failure> {
    match web.text(&remote(url)).await {
        Ok(text) => Ok(text),
        Err(Cut::Again(failure)) => panic!("temporary: {failure}"),
        Err(Cut::End(failure)) => Err(failure),
    }
}

/// Serves `answer` at a port of `address`.
async fn serve(
    address: &str,
    answer: impl Fn(Request) -> Response + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = move |request| std::future::ready(answer(request));
    let router = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Serves at an address that is not allowed. Returns the address and the number of connections.
async fn refused_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, count)
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused_and_not_followed() {
    let (private, connections) = refused_server().await;
    let location = format!("http://{private}/secret?token=1");
    let target = location.clone();
    let start = serve("127.0.0.1", move |_| Redirect::temporary(&target).into_response()).await;
    let failure = text(&web(Downloads::default()), &format!("http://{start}/a")).await.unwrap_err();
    let expected = format!(
        "source.url: http://{start}/a: redirected to http://{private}/secret: not a public address"
    );
    assert_eq!(failure, Failure::permanent(expected));
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn all_spellings_of_a_private_address_are_refused() {
    let (private, connections) = refused_server().await;
    let port = private.port();
    for host in ["127.0.0.2", "2130706434", "0x7f.2", "0177.0.0.2", "127.2", "[::ffff:127.0.0.2]"] {
        let url = format!("http://{host}:{port}/");
        let failure = text(&web(Downloads::default()), &url).await.unwrap_err();
        assert!(failure.reason.ends_with("not a public address"), "{failure}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_with_one_private_address_is_refused() {
    let server = serve("127.0.0.1", |_| "text".into_response()).await;
    let mut web = web(Downloads::default());
    let addresses = ["127.0.0.1", "10.0.0.1"].map(|it| it.parse().unwrap());
    web.resolver = Resolver::Fixed([("two.example".into(), addresses.to_vec())].into());
    let url = format!("http://two.example:{}/", server.port());
    let failure = text(&web, &url).await.unwrap_err();
    assert_eq!(failure.reason, format!("source.url: {url}: not a public address"));
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let server = serve("127.0.0.1", |request| {
        format!("{:?}", request.headers().get("host")).into_response()
    })
    .await;
    let mut web = web(Downloads::default());
    // No other resolver has this name.
    let addresses = vec!["127.0.0.1".parse().unwrap()];
    web.resolver = Resolver::Fixed([("pinned.example".into(), addresses)].into());
    let host = format!("pinned.example:{}", server.port());
    let answer = text(&web, &format!("http://{host}/")).await.unwrap();
    assert_eq!(answer, format!("Some({host:?})"));
}

#[tokio::test]
async fn a_mirror_may_be_at_a_private_address_but_not_redirect_to_another() {
    let (private, connections) = refused_server().await;
    let location = format!("http://{private}/");
    let mirror = serve("127.0.0.3", move |request| match request.uri().path() {
        "/away" => Redirect::temporary(&location).into_response(),
        _ => "text".into_response(),
    })
    .await;
    let web = web(Downloads::default());
    let place =
        |path: &str, server| Remote { server, ..remote(&format!("http://{mirror}/{path}")) };
    assert_eq!(web.text(&place("a", ServerKind::Mirror)).await.unwrap(), "text");
    assert!(matches!(web.text(&place("a", ServerKind::Public)).await, Err(Cut::End(_))));
    assert!(matches!(web.text(&place("away", ServerKind::Mirror)).await, Err(Cut::End(_))));
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn five_redirects_are_followed_and_six_are_not() {
    let answer = |request: Request| match request.uri().path().trim_start_matches('/').parse() {
        Ok(0) | Err(_) => "text".into_response(),
        Ok(left) => Redirect::temporary(&format!("/{}", left - 1_u32)).into_response(),
    };
    let server = serve("127.0.0.1", answer).await;
    let web = web(Downloads::default());
    assert_eq!(text(&web, &format!("http://{server}/5")).await.unwrap(), "text");
    let failure = text(&web, &format!("http://{server}/6")).await.unwrap_err();
    assert!(failure.reason.ends_with("more than 5 redirects"), "{failure}");
}

#[tokio::test]
async fn a_proxy_gets_the_request_but_not_one_for_a_private_address() {
    let proxy = serve("127.0.0.1", |request| request.uri().to_string().into_response()).await;
    let proxy = Some(format!("http://{proxy}").parse().unwrap());
    let mut web = web(Downloads { proxy, ..Downloads::default() });
    // Only the proxy resolves names.
    web.resolver = Resolver::Fixed([].into());
    assert_eq!(text(&web, "http://a.example/b").await.unwrap(), "http://a.example/b");
    let failure = text(&web, "http://169.254.169.254/b").await.unwrap_err();
    assert!(failure.reason.ends_with("not a public address"), "{failure}");
}

#[tokio::test]
async fn a_text_that_is_too_large_or_missing_is_refused() {
    let server = serve("127.0.0.1", |request| match request.uri().path() {
        "/large" => vec![b'x'; MAX_TEXT_BYTES + 1].into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    })
    .await;
    let web = web(Downloads::default());
    for (path, problem) in [
        ("large", "the file has more than 4194304 bytes"),
        ("none?token=secret", "the server answered 404 Not Found"),
    ] {
        let failure = text(&web, &format!("http://{server}/{path}")).await.unwrap_err();
        let path = path.trim_end_matches("?token=secret");
        assert_eq!(failure.reason, format!("source.url: http://{server}/{path}: {problem}"));
    }
}

/// Serves over TLS.
struct TlsListener(TcpListener, TlsAcceptor);

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = self.0.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[tokio::test]
async fn the_name_in_the_certificate_is_checked_at_the_pinned_address() {
    let names = vec!["pinned.example".to_owned()];
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let place = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(place.path(), cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider);
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let listener = TlsListener(listener, TlsAcceptor::from(Arc::new(server)));
    let router = Router::new().fallback(|| async { "text" });
    tokio::spawn(async move { axum::serve(listener, router).await });

    let mut web = web(Downloads { ca: Some(place.path().to_owned()), ..Downloads::default() });
    let names = ["pinned.example", "other.example"];
    let names = names.map(|name| (name.to_owned(), vec!["127.0.0.1".parse().unwrap()]));
    web.resolver = Resolver::Fixed(names.into());
    let get = async |name: &str| web.text(&remote(&format!("https://{name}:{port}/"))).await;
    assert_eq!(get("pinned.example").await.unwrap(), "text");
    assert!(matches!(get("other.example").await, Err(Cut::Again(_))));
}

#[test]
fn a_redirect_from_https_to_http_is_refused() {
    let next = |from: &str, location: &str| {
        let response = http::Response::builder().status(302).header(LOCATION, location).body("");
        target(&from.parse().unwrap(), &response.unwrap().into()).unwrap().map(String::from)
    };
    let refused = Err("redirected from https to http");
    assert_eq!(next("https://a.example/b", "http://a.example/c"), refused);
    assert_eq!(next("https://a.example/b", "/c"), Ok("https://a.example/c".into()));
    assert_eq!(next("http://a.example/b", "https://b.example/"), Ok("https://b.example/".into()));
}

#[test]
fn a_file_without_certificates_is_refused() {
    let place = tempfile::NamedTempFile::new().unwrap();
    let ca = Some(place.path().to_owned());
    let error = Web::new(&Downloads { ca, ..Downloads::default() }, Timing::default()).unwrap_err();
    assert!(error.to_string().ends_with(": no certificate"), "{error}");
}
