//! Connections over real sockets.

mod revoked;

use std::io;
use std::sync::Mutex;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Barrier;

use super::anonymous::OpenRequest;
use super::*;
use crate::client_address::TrustedProxies;

/// More than the kernel holds for a reader.
const LARGE: usize = 16 * 1024 * 1024;

/// A server whose answer takes a while to be made.
async fn server(
    stop: CancellationToken,
) -> (SocketAddr, tokio::task::JoinHandle<anyhow::Result<()>>) {
    let app = Router::new().route(
        "/",
        get(async || {
            tokio::time::sleep(Duration::from_millis(50)).await;
            vec![b'a'; LARGE]
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(tcp(listener, Transport::Plaintext, app, stop)))
}

#[tokio::test]
async fn a_client_that_closed_its_sending_side_gets_its_response() {
    let stop = CancellationToken::new();
    let (address, _served) = server(stop.clone()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n"));
    assert!(answer.len() > LARGE && answer.ends_with(b"aaaa"));
    stop.cancel();
}

#[tokio::test]
async fn a_slow_reader_gets_the_whole_last_response_and_then_the_end() {
    let stop = CancellationToken::new();
    let (address, served) = server(stop.clone()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let (mut answer, mut part) = (Vec::new(), vec![0; LARGE / 16]);
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        match stream.read(&mut part).await.unwrap() {
            0 => break,
            some => answer.extend_from_slice(&part[..some]),
        }
    }
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert_eq!(answer.len() - head, LARGE);
    stop.cancel();
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_accepted_connection_has_no_delay() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_tcp_nodelay(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (called, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    called.unwrap();
    let (stream, _) = accepted.unwrap();
    assert!(stream.nodelay().unwrap());
    assert_eq!(stream.local_addr().unwrap(), address);
}

/// The first bytes of an HTTP/2 client: the preface, and settings without an entry.
const HTTP2_CLIENT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// More than any time limit of these tests.
const FOREVER: Duration = Duration::from_secs(60);

/// Serves a router that answers `ok` within `limits`.
async fn limited(transport: Transport, limits: ConnectionLimits) -> SocketAddr {
    let app = Router::new().route("/", get(async || "ok").post(async || "ok"));
    let app = app.route("/login", get(log_in));
    let app = app.route("/slow", get(async || tokio::time::sleep(FOREVER / 2).await));
    serving(app, transport, limits).await
}

/// Serves `app` within `limits`.
async fn serving(app: Router, transport: Transport, limits: ConnectionLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(limited_tcp(listener, transport, limits, app, CancellationToken::new()));
    address
}

/// Answers the request of a client that authenticates itself.
async fn log_in(request: Request<Body>) -> &'static str {
    if let Some(unknown) = request.extensions().get::<UnknownClient>() {
        unknown.identified();
    }
    "ok"
}

fn anonymous(limits: AnonymousLimits) -> ConnectionLimits {
    ConnectionLimits { anonymous: Some(limits), ..ConnectionLimits::default() }
}

const ANONYMOUS: AnonymousLimits = AnonymousLimits {
    total: 64,
    per_source: 64,
    max_concurrent_streams: 8,
    window_bytes: 65_535,
    lifetime: Duration::from_secs(600),
};

/// Returns all that comes until the connection is closed.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A connection that is closed before all was read is reset.
    let _reset = tokio::time::timeout(FOREVER, stream.read_to_end(&mut all)).await.unwrap();
    all
}

/// Connects as an HTTP/2 client. Returns the payload of the server's settings, or none if it is refused.
async fn http2(address: SocketAddr) -> Option<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(HTTP2_CLIENT).await.ok()?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let [_, _, length, kind, ..] = head;
    assert_eq!(kind, 4, "settings");
    let mut settings = vec![0; length.into()];
    stream.read_exact(&mut settings).await.unwrap();
    Some((stream, settings))
}

/// True if the HTTP/2 server still answers.
async fn is_open(stream: &mut TcpStream) -> bool {
    let ping = b"\0\0\x08\x06\0\0\0\0\0somebody";
    let mut answer = Vec::new();
    if stream.write_all(ping).await.is_err() {
        return false;
    }
    while !answer.ends_with(b"somebody") {
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Requests `/` and reads the answer. The connection stays open.
async fn http1(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    request(&mut stream, "/").await.then_some(stream)
}

/// Requests `path`. True if the answer comes.
async fn request(stream: &mut TcpStream, path: &str) -> bool {
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(head.as_bytes()).await.is_ok() && is_answered(stream).await
}

/// True if the answer to a request comes.
async fn is_answered(stream: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    while !answer.ends_with(b"ok") {
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(_) => return false,
        }
    }
    true
}

#[tokio::test]
async fn a_post_over_http1_gets_no_service_where_calls_are_plaintext() {
    let address = limited(Transport::PlaintextCalls, ConnectionLimits::default()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let post = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(post).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(!answer.starts_with(b"HTTP/1"), "{}", String::from_utf8_lossy(&answer));
    assert!(http2(address).await.is_some());
}

#[tokio::test]
async fn a_panic_in_the_task_of_a_connection_is_logged_as_an_error() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _log = tracing::subscriber::set_default(subscriber);
    let app = Router::new().route("/", get(async || -> &'static str { panic!("a defect") }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(tcp(listener, Transport::Plaintext, app, CancellationToken::new()));
    assert!(http1(address).await.is_none());
    let logged = async {
        while !log.text().contains("a connection's task panicked") {
            // Ended connections are looked at when another one comes.
            assert!(http1(address).await.is_none());
        }
    };
    tokio::time::timeout(FOREVER, logged).await.unwrap();
    assert!(log.text().contains("ERROR"), "{}", log.text());
}

#[tokio::test]
async fn one_connection_more_than_the_total_is_closed_until_another_one_ends() {
    let limits = ConnectionLimits { total: 2, ..ConnectionLimits::default() };
    let address = limited(Transport::Plaintext, limits).await;
    let first = http1(address).await.unwrap();
    let _second = http1(address).await.unwrap();
    assert!(http1(address).await.is_none());
    drop(first);
    let served = async {
        while http1(address).await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FOREVER, served).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_say_which_http_it_speaks_is_closed() {
    let address = limited(Transport::TrustedPlaintext, ConnectionLimits::default()).await;
    for begin in [&b""[..], b"P", b"PRI * HTTP/2.0"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        assert_eq!(rest(&mut stream).await, b"");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_request_is_answered_after_the_deadline_for_first_bytes() {
    let address = limited(Transport::TrustedPlaintext, ConnectionLimits::default()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /slow HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.starts_with(b"HTTP/1.0 200"));
}

#[tokio::test]
async fn the_oldest_anonymous_connection_makes_room_for_another() {
    let limits = anonymous(AnonymousLimits { total: 2, ..ANONYMOUS });
    let address = limited(Transport::PlaintextCalls, limits).await;
    let [mut a, mut b, mut c] = [http2(address).await, http2(address).await, http2(address).await]
        .map(|connected| connected.unwrap().0);
    assert!(is_open(&mut c).await && is_open(&mut b).await);
    rest(&mut a).await;
    drop(b);
    let (mut d, _) = http2(address).await.unwrap();
    assert!(is_open(&mut c).await && is_open(&mut d).await, "a closed one has no place");
}

#[tokio::test]
async fn a_further_anonymous_connection_replaces_the_oldest_of_its_source_unless_that_is_exempt() {
    let one = AnonymousLimits { per_source: 1, ..ANONYMOUS };
    let address = limited(Transport::PlaintextCalls, anonymous(one)).await;
    let (mut first, _) = http2(address).await.unwrap();
    let (mut second, _) = http2(address).await.unwrap();
    rest(&mut first).await;
    assert!(is_open(&mut second).await);
    let exempt = TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]).unwrap();
    let limits = ConnectionLimits { exempt, ..anonymous(one) };
    let address = limited(Transport::PlaintextCalls, limits).await;
    let (mut first, _) = http2(address).await.unwrap();
    assert!(http2(address).await.is_some());
    assert!(is_open(&mut first).await);
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 1)
}

/// Begins a request over the connection of `place`.
fn begin(place: &Place) -> OpenRequest {
    place.unknown_client().unwrap().begin_request()
}

#[test]
fn an_ipv6_network_is_one_source_if_the_limits_say_so() {
    let limits = AnonymousLimits { per_source: 2, ..ANONYMOUS };
    let limits = ConnectionLimits { ipv6_prefix_length: 64, ..anonymous(limits) };
    let mut open = OpenConnections::new(limits);
    let mut places = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1"]
        .map(|address| open.admit(at(address), 0).unwrap());
    let _third = open.admit(at("2001:db8::3"), 4).unwrap();
    let are_evicted = places.each_mut().map(|place| place.is_evicted());
    assert_eq!(are_evicted, [true, false, false, false]);
    let each = ConnectionLimits { per_source: 1, ..ConnectionLimits::default() };
    let mut open =
        OpenConnections::new(ConnectionLimits { ipv6_prefix_length: 64, ..each.clone() });
    let _first = open.admit(at("2001:db8::1"), 0).unwrap();
    assert!(open.admit(at("2001:db8::2"), 1).is_none());
    assert!(open.admit(at("2001:db8:0:1::2"), 1).is_some());
    let mut open = OpenConnections::new(each);
    let _first = open.admit(at("2001:db8::1"), 0).unwrap();
    assert!(open.admit(at("2001:db8::1"), 1).is_none());
    assert!(open.admit(at("2001:db8::2"), 1).is_some(), "a machine of the same network");
}

#[test]
fn the_addresses_of_an_ipv6_network_share_a_limit_besides_their_own() {
    let exempt = TrustedProxies::new(["2001:db8::f/128".parse().unwrap()]).unwrap();
    let limits = ConnectionLimits { per_source: 1, per_ipv6_network: 2, ..Default::default() };
    let mut open = OpenConnections::new(ConnectionLimits { exempt, ..limits });
    let _proxy = open.admit(at("2001:db8::f"), 0).unwrap();
    let _first = open.admit(at("2001:db8::1"), 1).unwrap();
    assert!(open.admit(at("2001:db8::1"), 2).is_none(), "the limit of the address");
    let second = open.admit(at("2001:db8::2"), 2).unwrap();
    assert!(open.admit(at("2001:db8::3"), 3).is_none(), "the limit of the network");
    let others = ["2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", "::ffff:192.0.2.3", "2001:db8::f"];
    let others = others.map(|address| open.admit(at(address), 3));
    assert!(others.iter().all(Option::is_some), "others");
    drop(second);
    assert!(open.admit(at("2001:db8::3"), 7).is_some(), "after another one ended");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_makes_room_before_a_busy_one_which_is_busy_for_two_seconds() {
    let (remote, limits) = (at("192.0.2.1"), AnonymousLimits { per_source: 2, ..ANONYMOUS });
    let mut open = OpenConnections::new(anonymous(limits));
    let [first, second] = [0, 1].map(|total| open.admit(remote, total).unwrap());
    let _request = begin(&first);
    let third = open.admit(remote, 2).unwrap();
    assert!(second.is_evicted() && !first.is_evicted(), "the idle one");
    tokio::time::advance(Duration::from_secs(2)).await;
    let _fourth = open.admit(remote, 2).unwrap();
    assert!(first.is_evicted() && !third.is_evicted(), "the oldest one");
}

#[tokio::test(start_paused = true)]
async fn if_all_connections_of_a_source_are_busy_the_first_request_makes_room_for_another() {
    let (remote, limits) = (at("192.0.2.1"), AnonymousLimits { per_source: 2, ..ANONYMOUS });
    let mut open = OpenConnections::new(anonymous(limits));
    let [first, second] = [0, 1].map(|total| open.admit(remote, total).unwrap());
    let _hanging = begin(&second);
    tokio::time::advance(Duration::from_secs(1)).await;
    let _later = begin(&first);
    assert!(open.admit(remote, 2).is_some());
    assert!(second.is_evicted() && !first.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn above_the_total_a_connection_of_the_source_that_has_the_most_makes_room_for_another() {
    let mut open = OpenConnections::new(anonymous(AnonymousLimits { total: 4, ..ANONYMOUS }));
    let [client, a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2"]
        .map(|address| open.admit(at(address), 0).unwrap());
    let _first_request = begin(&c);
    tokio::time::advance(Duration::from_secs(1)).await;
    let _second_request = begin(&a);
    let _d = open.admit(at("192.0.2.3"), 4).unwrap();
    assert!(b.is_evicted(), "the one that is not busy");
    let _e = open.admit(at("192.0.2.4"), 4).unwrap();
    assert!(c.is_evicted() && !a.is_evicted(), "the first request of the busy ones");
    assert!(!client.is_evicted(), "the oldest of all");
    let _f = open.admit(at("192.0.2.5"), 4).unwrap();
    assert!(client.is_evicted(), "the oldest, once no source has more than the others");
}

#[tokio::test]
async fn a_connection_is_not_evicted_in_the_middle_of_its_request() {
    let steps = Arc::new(Barrier::new(2));
    let waits = steps.clone();
    let held = async move || {
        waits.wait().await;
        waits.wait().await;
        "ok"
    };
    let limits = anonymous(AnonymousLimits { per_source: 2, ..ANONYMOUS });
    let app = Router::new().route("/", get(held));
    let address = serving(app, Transport::AnonymousPlaintext, limits).await;
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let step = || tokio::time::timeout(FOREVER, steps.wait());
    step().await.unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    let _further = TcpStream::connect(address).await.unwrap();
    assert_eq!(rest(&mut silent).await, b"");
    let (answered, _) = tokio::join!(is_answered(&mut busy), step());
    assert!(answered);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_authenticated_itself_is_not_anonymous_any_more() {
    let lifetime = Duration::from_secs(5);
    let limits = AnonymousLimits { total: 2, per_source: 2, lifetime, ..ANONYMOUS };
    let address = limited(Transport::TrustedPlaintext, ConnectionLimits::default()).await;
    assert!(request(&mut TcpStream::connect(address).await.unwrap(), "/login").await, "no limits");
    let limits = ConnectionLimits { head_timeout: FOREVER, ..anonymous(limits) };
    let address = limited(Transport::AnonymousPlaintext, limits).await;
    let mut known = TcpStream::connect(address).await.unwrap();
    assert!(request(&mut known, "/login").await);
    let [mut a, mut b, mut c] = [http2(address).await, http2(address).await, http2(address).await]
        .map(|connected| connected.unwrap().0);
    rest(&mut a).await;
    assert!(is_open(&mut b).await && is_open(&mut c).await, "it has no place among them");
    rest(&mut b).await;
    assert!(request(&mut known, "/").await, "after the lifetime of the others");
}

/// Answers the request of a client that is known after 8 s, 30 s later.
async fn log_in_late(request: Request<Body>) -> &'static str {
    tokio::time::sleep(Duration::from_secs(8)).await;
    request.extensions().get::<UnknownClient>().unwrap().identified();
    tokio::time::sleep(Duration::from_secs(30)).await;
    "ok"
}

#[tokio::test(start_paused = true)]
async fn a_client_that_becomes_known_while_its_connection_ends_gets_its_answer() {
    let limits = anonymous(AnonymousLimits { lifetime: Duration::from_secs(5), ..ANONYMOUS });
    let app = Router::new().route("/", get(log_in_late));
    let address = serving(app, Transport::AnonymousPlaintext, limits).await;
    assert!(request(&mut TcpStream::connect(address).await.unwrap(), "/").await);
}

#[tokio::test]
async fn limits_of_anonymous_connections_are_not_for_those_with_a_role() {
    let window_bytes = 256 * 1024;
    let one = AnonymousLimits { total: 1, per_source: 1, window_bytes, ..ANONYMOUS };
    let address = limited(Transport::TrustedPlaintext, anonymous(one)).await;
    let [(mut a, ours), (mut b, _)] =
        [http2(address).await, http2(address).await].map(Option::unwrap);
    assert!(is_open(&mut a).await && is_open(&mut b).await);
    let address = limited(Transport::PlaintextCalls, anonymous(one)).await;
    let (_, theirs) = http2(address).await.unwrap();
    assert_eq!(setting(&ours, MAX_CONCURRENT_STREAMS), Some(4096));
    assert_eq!(setting(&theirs, MAX_CONCURRENT_STREAMS), Some(8));
    assert_eq!(setting(&theirs, INITIAL_WINDOW_SIZE), Some(window_bytes));
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_connection_ends_after_its_lifetime() {
    let limits = anonymous(AnonymousLimits { lifetime: Duration::from_secs(5), ..ANONYMOUS });
    let address = limited(Transport::PlaintextCalls, limits).await;
    let (mut stream, _) = http2(address).await.unwrap();
    // Without a limit it would end after 40 s, because its client answers no ping.
    tokio::time::timeout(Duration::from_secs(30), rest(&mut stream)).await.unwrap();
}

/// Identifiers of settings (RFC 9113 §6.5.2).
const MAX_CONCURRENT_STREAMS: u8 = 3;
const INITIAL_WINDOW_SIZE: u8 = 4;

/// Returns the value of the setting `id` in the payload of a settings frame.
fn setting(settings: &[u8], id: u8) -> Option<u32> {
    let (entries, _) = settings.as_chunks::<6>();
    let entry = entries.iter().find(|entry| entry[..2] == [0, id])?;
    Some(u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]))
}

/// Log lines of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
