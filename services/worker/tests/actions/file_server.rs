//! A web server with one file, which disconnects, stalls or refuses requests as configured.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The response to one request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// Another status than 200 or 206, with extra header lines.
    pub(crate) refuse: Option<&'static str>,
    /// Number of bytes of the body to send.
    pub(crate) send: usize,
    /// True to leave the connection open after these bytes.
    pub(crate) stall: bool,
    pub(crate) etag: Option<&'static str>,
    /// True to support Range.
    pub(crate) ranges: bool,
    /// True to send Content-Length.
    pub(crate) length: bool,
    /// Bytes per write to the socket.
    pub(crate) piece: usize,
    /// Another file instead of the server's.
    pub(crate) instead: Option<Vec<u8>>,
}

impl Default for Reply {
    fn default() -> Self {
        let (etag, piece) = (Some("\"one\""), 1 << 20);
        Self {
            refuse: None,
            send: usize::MAX,
            stall: false,
            etag,
            ranges: true,
            length: true,
            piece,
            instead: None,
        }
    }
}

impl Reply {
    pub(crate) fn cut(send: usize) -> Self {
        Self { send, ..Self::default() }
    }

    pub(crate) fn refuse(status: &'static str) -> Self {
        Self { refuse: Some(status), ..Self::default() }
    }
}

/// The server; it stops when dropped.
pub(crate) struct FileServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl FileServer {
    /// Serves `file` under `name`. Each request gets the next of `replies`; later ones get the default.
    pub(crate) async fn serve(
        name: &str,
        file: Vec<u8>,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/{name}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (request_log, mut replies) =
            (requests.clone(), replies.into_iter().collect::<VecDeque<_>>());
        let task = tokio::spawn(async move {
            let file = Arc::new(file);
            while let Ok((stream, _)) = listener.accept().await {
                let reply = replies.pop_front().unwrap_or_default();
                tokio::spawn(respond(stream, file.clone(), reply, request_log.clone()));
            }
        });
        Self { url, requests, task }
    }

    /// Serves `file` over TLS.
    pub(crate) async fn serve_tls(name: &str, file: Vec<u8>, tls: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/{name}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (request_log, file) = (requests.clone(), Arc::new(file));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = tls.accept(stream).await {
                    respond(stream, file.clone(), Reply::default(), request_log.clone()).await;
                }
            }
        });
        Self { url, requests, task }
    }

    /// Returns the requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let path = |head: &String| head.split(' ').nth(1).unwrap_or_default().to_owned();
        requests.iter().map(path).collect()
    }

    /// Returns the requested ranges so far; empty for requests without one.
    pub(crate) fn ranges(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let range = |head: &String| {
            let line = head.lines().find_map(|line| line.strip_prefix("range: "));
            line.unwrap_or_default().to_owned()
        };
        requests.iter().map(range).collect()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn respond(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    file: Arc<Vec<u8>>,
    reply: Reply,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let head = request(&mut stream).await;
    let position = head
        .lines()
        .find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok());
    let validator =
        head.lines().find_map(|line| line.strip_prefix("if-range: ")).map(str::to_owned);
    requests.lock().unwrap().push(head);
    if let Some(status) = reply.refuse {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return stream.write_all(text.as_bytes()).await.unwrap_or_default();
    }
    let file = reply.instead.as_ref().unwrap_or(&file);
    let from = position.filter(|_| reply.ranges && validator.as_deref() == reply.etag);
    let body = &file[from.unwrap_or(0)..];
    let mut lines = vec![match from {
        Some(from) => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
            file.len() - 1,
            file.len()
        ),
        None => "HTTP/1.1 200 OK".to_owned(),
    }];
    lines.extend(reply.etag.map(|etag| format!("ETag: {etag}")));
    lines.extend(reply.length.then(|| format!("Content-Length: {}", body.len())));
    lines.push("Connection: close\r\n\r\n".to_owned());
    let _gone = send(
        &mut stream,
        lines.join("\r\n").as_bytes(),
        &body[..reply.send.min(body.len())],
        reply.piece,
    )
    .await;
    if reply.stall {
        // Waits until the client closes the connection.
        let _closed = stream.read(&mut [0]).await;
    }
    let _gone = stream.shutdown().await;
}

async fn send(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: &[u8],
    body: &[u8],
    piece: usize,
) -> std::io::Result<()> {
    stream.write_all(head).await?;
    for piece in body.chunks(piece.max(1)) {
        stream.write_all(piece).await?;
    }
    stream.flush().await
}

async fn request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap().to_lowercase().replace("\r\n", "\n")
}
