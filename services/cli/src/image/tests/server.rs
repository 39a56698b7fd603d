//! A web server on loopback with the files of publishers, that can fail as real ones do.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A failure of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection ends after this number of bytes of the body.
    CutAfter(usize),
    /// A response with this status.
    Status(u16),
    /// The whole file, although a range was requested.
    WithoutRanges,
}

/// The state of a server.
#[derive(Debug, Default)]
struct State {
    files: HashMap<String, Vec<u8>>,
    /// Failures of the next requests of each file.
    faults: HashMap<String, Vec<Fault>>,
    /// The requests so far: path, and range if there was one.
    requests: Vec<String>,
}

/// The server, which ends with the runtime of its test.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) url: String,
    /// The certificate to trust, in PEM.
    pub(super) certificate: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// Starts a server, which speaks TLS if `tls`.
    pub(super) async fn start(tls: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let scheme = if tls { "https" } else { "http" };
        let state = Arc::<Mutex<State>>::default();
        let server = Self { url: format!("{scheme}://{address}"), certificate: cert.pem(), state };
        let served = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, acceptor) = (served.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match tls {
                        false => server.answer(stream).await,
                        true => {
                            // A client that does not trust the certificate ends the handshake.
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            server.answer(stream).await;
                        }
                    }
                });
            }
        });
        server
    }

    /// Publishes a file.
    pub(super) fn publish(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.state.lock().unwrap().files.insert(path.to_owned(), content.into());
    }

    /// Lets the next requests of a file fail.
    pub(super) fn fail(&self, path: &str, faults: &[Fault]) {
        let faults = faults.iter().rev().copied().collect();
        self.state.lock().unwrap().faults.insert(path.to_owned(), faults);
    }

    /// Returns the requests since the last call.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let response = self.response(&String::from_utf8(head).unwrap());
        // The client may have gone.
        drop(stream.write_all(&response).await);
        drop(stream.shutdown().await);
    }

    /// Returns the bytes that are sent.
    fn response(&self, head: &str) -> Vec<u8> {
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let range = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_range = name.eq_ignore_ascii_case("range");
            is_range.then(|| value.strip_prefix("bytes=").unwrap().trim_end_matches('-'))
        });
        let start: usize = range.map_or(0, |start| start.parse().unwrap());
        let mut state = self.state.lock().unwrap();
        state.requests.push(match range {
            None => path.clone(),
            Some(start) => format!("{path} from {start}"),
        });
        let fault = state.faults.get_mut(&path).and_then(Vec::pop);
        let (status, extra, body) = match (state.files.get(&path), fault) {
            (_, Some(Fault::Status(status))) => (status, String::new(), Vec::new()),
            (None, _) => (404, String::new(), b"<html>not here</html>".to_vec()),
            (Some(file), Some(Fault::WithoutRanges)) => (200, String::new(), file.clone()),
            (Some(file), _) if start > 0 && start >= file.len() => {
                (416, format!("content-range: bytes */{}\r\n", file.len()), Vec::new())
            }
            (Some(file), _) if range.is_some() => {
                let (last, length) = (file.len() - 1, file.len());
                let range = format!("content-range: bytes {start}-{last}/{length}\r\n");
                (206, range, file[start..].to_vec())
            }
            (Some(file), _) => (200, String::new(), file.clone()),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{extra}connection: close\r\n\r\n"
        );
        let sent = match fault {
            Some(Fault::CutAfter(bytes)) => &body[..bytes.min(length)],
            _ => &body[..],
        };
        [head.as_bytes(), sent].concat()
    }
}
