//! HTTP with one BMC: by reqwest and rustls, or over legacy TLS by hyper.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pinned_tls::legacy::{self, Peer};
use pinned_tls::{CertificatePin, client_config};
use reqwest::header::{HOST, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::Error;
use super::error::{CONNECT_TIMEOUT, REQUEST_TIMEOUT};
use super::unreachable::{self, CurrentError};

/// Maximum length of a body. A system with all its parts has some tens of KiB.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A request with all its headers.
#[derive(Debug)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// None: no body, which is not the same as an empty object.
    pub(super) body: Option<String>,
}

/// A response with its whole body.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// A client for one BMC.
#[derive(Debug)]
pub(super) enum Http {
    /// Without TLS, or with that of rustls.
    Current(Client, Option<Arc<CertificatePin>>),
    /// Over the TLS of the program `openssl`.
    Legacy(Legacy),
}

/// A client over legacy TLS: one connection, and one request at a time.
#[derive(Debug)]
pub(super) struct Legacy {
    peer: Peer,
    /// None: every certificate that is signed by a root of this host.
    pin: Option<Arc<CertificatePin>>,
    connection: Mutex<Option<LegacyConnection>>,
}

#[derive(Debug)]
struct LegacyConnection {
    sender: SendRequest<Full<Bytes>>,
    _task: AbortOnDropHandle<()>,
}

impl Http {
    /// Creates a client for `root` that trusts `pin`, or else the roots of this host.
    pub(super) fn new(
        root: &Url,
        pin: Option<Arc<CertificatePin>>,
        is_legacy: bool,
    ) -> Result<Self, Error> {
        if is_legacy && root.scheme() == "https" {
            let host = root.host_str().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let peer = Peer { host, port: root.port_or_known_default().unwrap_or_default() };
            return Ok(Self::Legacy(Legacy { peer, pin, connection: Mutex::default() }));
        }
        let builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT);
        let builder = match &pin {
            Some(pin) => builder.tls_backend_preconfigured(client_config(pin.clone())?),
            None => builder,
        };
        let client = builder.build().map_err(|error| unreachable::of_client(&error))?;
        Ok(Self::Current(client, pin))
    }

    /// Sends `request`, and waits for the whole response.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        match self {
            Self::Current(client, pin) => {
                let response = Box::pin(send_current(client, request)).await;
                response.map_err(|error| unreachable::of_current(error, pin.as_deref()))
            }
            Self::Legacy(client) => Box::pin(client.send(request)).await,
        }
    }
}

async fn send_current(client: &Client, request: HttpRequest) -> Result<HttpResponse, CurrentError> {
    let HttpRequest { method, url, headers, body } = request;
    let mut request = client.request(method, url).headers(headers);
    if let Some(body) = body {
        request = request.body(body);
    }
    let mut response = request.send().await.map_err(CurrentError::Request)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(CurrentError::Request)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(CurrentError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(HttpResponse { status, headers, body })
}

impl Legacy {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let mut connection = self.connection.lock().await;
        // A connection that failed, or that was abandoned with a response on its way, is not used
        // again.
        let mut current = match connection.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        if current.sender.ready().await.is_err() {
            current = self.connect().await?;
        }
        let exchange = self.exchange(&mut current.sender, request);
        let response =
            timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| Error::NoResponse)??;
        *connection = Some(current);
        Ok(response)
    }

    async fn connect(&self) -> Result<LegacyConnection, Error> {
        let stream = timeout(CONNECT_TIMEOUT, self.open()).await;
        let stream = stream.map_err(|_| Error::NoConnection)??;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let task = tokio::spawn(async {
            let _ended = connection.await;
        });
        Ok(LegacyConnection { sender, _task: AbortOnDropHandle::new(task) })
    }

    /// Opens a connection to the trusted peer. The first certificate is trusted if none is yet.
    async fn open(&self) -> Result<legacy::Stream, Error> {
        let failed = |error| unreachable::of_legacy(error, &self.peer, self.pin.as_deref());
        let trust = match &self.pin {
            None => legacy::Trust::Roots,
            Some(pin) => {
                if pin.digest().is_none() {
                    pin.accepts(legacy::certificate(&self.peer).await.map_err(failed)?);
                }
                legacy::Trust::Certificate(pin.digest().unwrap_or_default())
            }
        };
        legacy::connect(&self.peer, trust).await.map_err(failed)
    }

    async fn exchange(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        request: HttpRequest,
    ) -> Result<HttpResponse, Error> {
        let HttpRequest { method, url, mut headers, body } = request;
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        if let Ok(host) = HeaderValue::from_str(&host) {
            headers.insert(HOST, host);
        }
        let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
        let target = format!("{}{query}", url.path());
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let mut request = hyper::Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        *request.uri_mut() =
            target.parse().map_err(|_| Error::Protocol(format!("{target:?} is not a path")))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => broken(&error),
            Err(_) => unreachable::too_long(),
        })?;
        let body = body.to_bytes().to_vec();
        Ok(HttpResponse { status: parts.status, headers: parts.headers, body })
    }
}

fn broken(error: &hyper::Error) -> Error {
    Error::Connection(format!("the connection over legacy TLS broke: {error}"))
}
