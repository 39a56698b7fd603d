//! A web server with a stored image and its map, which damages or cuts responses as configured.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use stored_image::CheckedMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Files and faults of the server.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) stored: Vec<u8>,
    pub(crate) map: Vec<u8>,
    /// Numbers of bytes after which the next responses with the stored file are cut.
    pub(crate) cuts: VecDeque<usize>,
    /// Offset of a byte of the stored file that is changed on the way.
    pub(crate) damaged: Option<usize>,
    /// True if the byte is also changed in responses to requests that caches must not answer.
    pub(crate) is_damaged_at_source: bool,
    /// True if ranges are not supported.
    pub(crate) sends_whole_file: bool,
    /// Cuts happen after a permit of this was taken.
    pub(crate) gate: Option<Arc<Semaphore>>,
}

/// A request, and the number of bytes of the file that were sent for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) range: Option<Range<usize>>,
    /// True if caches must not answer.
    pub(crate) is_uncached: bool,
    pub(crate) sent: usize,
}

/// The server; it stops when dropped.
pub(crate) struct ImageServer {
    pub(crate) origin: String,
    pub(crate) served: Arc<Mutex<Served>>,
    requests: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl ImageServer {
    /// Serves the stored image at `/images/os.raw.zst`, and its map at `/images/os.map`.
    pub(crate) async fn serve(served: Served) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::new(Mutex::new(served));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (files, log) = (served.clone(), requests.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond(stream, files.clone(), log.clone()));
            }
        });
        Self { origin, served, requests, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/images/os.raw.zst", self.origin)
    }

    pub(crate) fn map_url(&self) -> String {
        format!("{}/images/os.map", self.origin)
    }

    /// Returns the requests for the stored file since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.retain(|request| request.path == "/images/os.raw.zst");
        requests
    }
}

impl Drop for ImageServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the numbers of the blocks with frames in the ranges of `requests`.
pub(crate) fn requested_blocks(map: &CheckedMap, requests: &[Request]) -> Vec<usize> {
    let is_requested = |stored: &Range<u64>| {
        requests
            .iter()
            .filter_map(|request| request.range.as_ref())
            .any(|range| (range.start as u64) <= stored.start && stored.end <= range.end as u64)
    };
    let blocks = map.blocks().filter(|block| block.digest.is_some() && is_requested(&block.stored));
    blocks.map(|block| block.index).collect()
}

async fn respond(
    mut stream: TcpStream,
    served: Arc<Mutex<Served>>,
    requests: Arc<Mutex<Vec<Request>>>,
) {
    let head = read_head(&mut stream).await;
    let Some(path) = head.split(' ').nth(1).map(str::to_owned) else { return };
    let is_uncached = head.contains("\ncache-control: no-cache\n");
    let range = head.lines().find_map(|line| {
        let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<usize>().ok()? + 1)
    });
    let (response, body, gate) = response(&mut served.lock().unwrap(), &path, &range, is_uncached);
    let sent = body.len();
    requests.lock().unwrap().push(Request { path, range, is_uncached, sent });
    let _gone = stream.write_all(&[response.as_bytes(), &body].concat()).await;
    if let Some(gate) = gate {
        gate.acquire().await.unwrap().forget();
    }
    let _gone = stream.shutdown().await;
}

/// Returns the head of the response, what is sent of its body, and what to wait for before the end.
fn response(
    served: &mut Served,
    path: &str,
    range: &Option<Range<usize>>,
    is_uncached: bool,
) -> (String, Vec<u8>, Option<Arc<Semaphore>>) {
    let mut file = match path {
        "/images/os.raw.zst" => served.stored.clone(),
        "/images/os.map" => served.map.clone(),
        _ => return ("HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), Vec::new(), None),
    };
    let is_stored = path == "/images/os.raw.zst";
    if let Some(at) = served.damaged.filter(|_| is_stored) {
        file[at] ^= u8::from(!is_uncached || served.is_damaged_at_source);
    }
    let total = file.len();
    let range = range.clone().filter(|_| is_stored && !served.sends_whole_file);
    let (status, mut body) = match range {
        Some(Range { start, end }) => (
            format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}", end - 1),
            file[start..end].to_vec(),
        ),
        None => ("200 OK".to_owned(), file),
    };
    let length = body.len();
    let cut = if is_stored { served.cuts.pop_front() } else { None };
    body.truncate(cut.unwrap_or(length));
    let gate = cut.and_then(|_| served.gate.clone());
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    (head, body, gate)
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap().to_lowercase().replace("\r\n", "\n")
}
