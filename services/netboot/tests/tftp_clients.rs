//! The TFTP server with the clients tftp-hpa, atftp, curl and busybox, and over a line that loses packets.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use netboot::tftp::server::Settings;
use netboot::tftp::{Directories, FinishedRequest, RequestResult, RequestedFile, Server};
use tftp::{ErrorCode, TransferOutcome, error_packet};
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The longest time that any step may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The size of Debian's snponly.efi, which is no multiple of any block size.
const LOADER_BYTES: usize = 173_792;

/// A server on its own port, and a work directory for clients. Both end when this is dropped.
struct TestServer {
    port: u16,
    finished: mpsc::UnboundedReceiver<FinishedRequest>,
    served: tempfile::TempDir,
    work: tempfile::TempDir,
    _stop: DropGuard,
}

impl TestServer {
    async fn start() -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST).await
    }

    async fn start_on(address: Ipv4Addr) -> Self {
        Self::start_with(address, Settings::default()).await
    }

    async fn start_with(address: Ipv4Addr, settings: Settings) -> Self {
        let served = tempfile::tempdir().unwrap();
        std::fs::write(served.path().join("loader.efi"), loader()).unwrap();
        std::fs::write(served.path().join("notes.txt"), "one\ntwo\r\n").unwrap();
        // It would serve the refused file, if the server opened that.
        std::fs::write(served.path().join("netboot-not-allowed"), "a loader").unwrap();
        let files = Arc::new(Directories::open([served.path()]).unwrap());
        let socket = UdpSocket::bind((address, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (sender, finished) = mpsc::unbounded_channel();
        let observer = Arc::new(move |request| drop(sender.send(request)));
        let server = Server::new(socket, files, settings, observer).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self {
            port,
            finished,
            served,
            work: tempfile::tempdir().unwrap(),
            _stop: stop.drop_guard(),
        }
    }

    fn downloaded(&self) -> PathBuf {
        self.work.path().join("got")
    }

    /// Runs a client in the work directory, with `port` in place of `{port}`.
    async fn run(&self, port: u16, line: &str) -> Output {
        let line = line.replace("{port}", &port.to_string());
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(self.work.path()).kill_on_drop(true);
        tokio::time::timeout(TEST_TIMEOUT, command.output())
            .await
            .expect("the client ends")
            .expect("the client is installed")
    }

    async fn client(&self, line: &str) -> Output {
        self.run(self.port, line).await
    }

    /// Returns the result of the next request that ends.
    async fn result(&mut self) -> RequestResult {
        self.next().await.result
    }

    /// Returns the next request that ends.
    async fn next(&mut self) -> FinishedRequest {
        let next = tokio::time::timeout(TEST_TIMEOUT, self.finished.recv());
        next.await.expect("the request ends").unwrap()
    }

    async fn client_socket(&self) -> ClientSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        ClientSocket { socket, server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port) }
    }
}

/// Bytes in which any two blocks differ.
fn loader() -> Vec<u8> {
    (0..LOADER_BYTES as u32 / 4)
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect()
}

#[track_caller]
fn assert_content(path: &Path, expected: &[u8]) {
    assert!(std::fs::read(path).unwrap() == expected, "the file differs");
}

#[tokio::test]
async fn tftp_hpa_reads_a_file() {
    let mut server = TestServer::start().await;
    server.client("tftp -m binary 127.0.0.1 {port} -c get loader.efi got").await;
    assert_content(&server.downloaded(), &loader());
    assert_eq!(server.result().await, RequestResult::Transfer(TransferOutcome::Complete));
}

#[tokio::test]
async fn tftp_hpa_reads_text_with_the_line_ends_of_its_system() {
    let server = TestServer::start().await;
    server.client("tftp -m ascii 127.0.0.1 {port} -c get notes.txt got").await;
    assert_content(&server.downloaded(), b"one\ntwo\r\n");
}

#[tokio::test]
async fn atftp_reads_a_file_with_each_of_its_options() {
    let server = TestServer::start().await;
    for options in [
        "",
        "--option|blksize 1428|",
        "--option|windowsize 16|--option|tsize 0|--option|timeout 2|",
    ] {
        let mut command = Command::new("atftp");
        command.args(options.split('|').filter(|word| !word.is_empty()));
        command.args([
            "-g",
            "-r",
            "loader.efi",
            "-l",
            "got",
            "127.0.0.1",
            &server.port.to_string(),
        ]);
        command.current_dir(server.work.path()).kill_on_drop(true);
        let output = tokio::time::timeout(TEST_TIMEOUT, command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{options}: {output:?}");
        assert_content(&server.downloaded(), &loader());
        std::fs::remove_file(server.downloaded()).unwrap();
    }
}

#[tokio::test]
async fn curl_reads_a_file_in_blocks_of_any_size() {
    let server = TestServer::start().await;
    for size in [8, 512, 1024, 1428, 65464] {
        let line =
            format!("curl -s -o got --tftp-blksize {size} tftp://127.0.0.1:{{port}}/loader.efi");
        assert!(server.client(&line).await.status.success(), "{size}");
        assert_content(&server.downloaded(), &loader());
    }
}

#[tokio::test]
async fn curl_reads_a_file_below_the_mac_address() {
    let server = TestServer::start().await;
    let line = "curl -s -o got tftp://127.0.0.1:{port}/52-54-00-00-00-01/loader.efi";
    assert!(server.client(line).await.status.success());
    assert_content(&server.downloaded(), &loader());
}

#[tokio::test]
async fn busybox_reads_a_file() {
    let server = TestServer::start().await;
    assert!(
        server
            .client("busybox tftp -g -b 1428 -r loader.efi -l got 127.0.0.1 {port}")
            .await
            .status
            .success()
    );
    assert_content(&server.downloaded(), &loader());
}

#[tokio::test]
async fn an_empty_file_is_served() {
    let server = TestServer::start().await; // not with curl: it takes a size of 0 for an error
    let line = "busybox tftp -g -r 52-54-00-00-00-01/autoexec.ipxe -l got 127.0.0.1 {port}";
    assert!(server.client(line).await.status.success());
    assert_content(&server.downloaded(), b"");
}

#[tokio::test]
async fn the_file_for_refused_machines_is_not_found() {
    let mut server = TestServer::start().await;
    let output = server.client("curl -s -o got tftp://127.0.0.1:{port}/netboot-not-allowed").await;
    assert_eq!(output.status.code(), Some(68), "curl's code for error 1");
    assert_eq!(server.result().await, RequestResult::Refused(ErrorCode::NOT_FOUND.0));
}

#[tokio::test]
async fn no_client_reads_outside_the_directory_or_writes() {
    let mut server = TestServer::start().await;
    server.client("tftp -m binary 127.0.0.1 {port} -c get ../../etc/passwd got").await;
    assert_eq!(server.result().await, RequestResult::Refused(ErrorCode::ACCESS_VIOLATION.0));
    std::fs::write(server.downloaded(), "mine").unwrap();
    let output = server.client("curl -s -T got tftp://127.0.0.1:{port}/got").await;
    assert_eq!(output.status.code(), Some(69), "curl's code for error 2");
    assert!(!server.served.path().join("got").exists());
}

#[tokio::test]
async fn a_file_is_served_although_octets_of_another_packet_follow_its_name() {
    let mut server = TestServer::start().await;
    for name in [
        &b"loader.efi\xff"[..],
        b"loader.efia\x11",
        b"\\loader.efi\r\n",
        b"//loader.efi ",
        b"52-54-00-00-00-01/loader.efiR\x06\x01\x04gi/1",
        b"LOADER.EFI",
        b"Loader.efi\xff\x01",
    ] {
        let client = server.client_socket().await;
        client.send(&[b"\0\x01", name, b"\0octet\0"].concat(), client.server.into()).await;
        let (response, from) = client.receive().await;
        assert_eq!(response[4..], loader()[..512], "{}", name.escape_ascii());
        client.send(&error_packet(ErrorCode::UNDEFINED, "enough"), from).await;
        let finished = server.next().await;
        let Some(RequestedFile::File { path, .. }) = finished.file else { panic!("{finished:?}") };
        assert!(path.eq_ignore_ascii_case("loader.efi"), "{path}");
    }
}

#[tokio::test]
async fn a_longer_name_is_another_file() {
    let mut server = TestServer::start().await;
    for (name, code) in [
        (&b"loader.efi.sig"[..], ErrorCode::NOT_FOUND),
        (b"loader.efi~", ErrorCode::NOT_FOUND),
        (b"loader.efixyz\x11", ErrorCode::NOT_FOUND),
        (b"netboot-not-allowed\xff", ErrorCode::NOT_FOUND),
        (b"../notes.txt\xff", ErrorCode::ACCESS_VIOLATION),
        (b"\xff", ErrorCode::ACCESS_VIOLATION),
    ] {
        let client = server.client_socket().await;
        client.send(&[b"\0\x01", name, b"\0octet\0"].concat(), client.server.into()).await;
        assert!(client.receive().await.0.starts_with(b"\0\x05"), "{}", name.escape_ascii());
        assert_eq!(
            server.result().await,
            RequestResult::Refused(code.0),
            "{}",
            name.escape_ascii()
        );
    }
}

/// A client that sends and receives single packets.
struct ClientSocket {
    socket: UdpSocket,
    server: SocketAddrV4,
}

impl ClientSocket {
    async fn send(&self, packet: &[u8], to: std::net::SocketAddr) {
        self.socket.send_to(packet, to).await.unwrap();
    }

    async fn request(&self, options: &[(&str, &str)]) {
        let options = options.iter().map(|(name, value)| format!("{name}\0{value}\0"));
        let request = format!("\0\x01loader.efi\0octet\0{}", options.collect::<String>());
        self.send(request.as_bytes(), self.server.into()).await;
    }

    async fn receive(&self) -> (Vec<u8>, std::net::SocketAddr) {
        let mut buffer = [0; 2048];
        let received = tokio::time::timeout(TEST_TIMEOUT, self.socket.recv_from(&mut buffer)).await;
        let (length, from) = received.expect("the server responds").unwrap();
        (buffer[..length].to_vec(), from)
    }
}

#[tokio::test]
async fn a_client_that_ends_after_the_option_acknowledgement_is_a_size_probe() {
    let mut server = TestServer::start().await;
    let client = server.client_socket().await;
    client.request(&[("tsize", "0"), ("blksize", "1468"), ("windowsize", "4")]).await;
    let (response, from) = client.receive().await;
    assert_eq!(response, b"\0\x06tsize\x00173792\0blksize\x001428\0windowsize\x004\0");
    client.send(&error_packet(ErrorCode::OPTIONS_REFUSED, "User aborted"), from).await;
    assert_eq!(server.result().await, RequestResult::Transfer(TransferOutcome::SizeProbe));
}

#[tokio::test]
async fn a_repeated_request_is_answered_by_its_running_transfer() {
    let server = TestServer::start().await;
    let client = server.client_socket().await;
    client.request(&[]).await;
    let first = client.receive().await;
    client.request(&[]).await;
    assert_eq!(client.receive().await, first);
}

#[tokio::test]
async fn another_client_at_a_transfers_port_gets_an_error_and_the_transfer_goes_on() {
    let server = TestServer::start().await;
    let (client, other) = (server.client_socket().await, server.client_socket().await);
    client.request(&[]).await;
    let (_, transfer) = client.receive().await;
    other.send(b"\0\x04\0\x01", transfer).await;
    let (response, _) = other.receive().await;
    assert_eq!(response, error_packet(ErrorCode::UNKNOWN_TRANSFER, "unknown transfer"));
    client.send(b"\0\x04\0\x01", transfer).await;
    assert!(client.receive().await.0.starts_with(b"\0\x03\0\x02"), "block 2");
}

#[tokio::test]
async fn a_transfer_is_sent_from_the_address_that_received_the_request() {
    let server = TestServer::start_on(Ipv4Addr::UNSPECIFIED).await;
    let client = ClientSocket {
        server: SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 5), server.port),
        ..server.client_socket().await
    };
    client.request(&[]).await;
    let (_, from) = client.receive().await;
    assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, 5));
    assert_ne!(from.port(), server.port);
    client.send(b"\0\x03\0\x01", client.server.into()).await;
    let (response, from) = client.receive().await;
    assert!(response.starts_with(b"\0\x05\0\x04"), "illegal operation");
    assert_eq!(from, client.server.into());
}

#[tokio::test]
async fn every_client_works_with_a_single_port() {
    let settings = Settings { single_port: true, ..Settings::default() };
    let mut server = TestServer::start_with(Ipv4Addr::LOCALHOST, settings).await;
    for line in [
        "busybox tftp -g -b 1428 -r loader.efi -l got 127.0.0.1 {port}",
        "tftp -m binary 127.0.0.1 {port} -c get loader.efi got",
        "curl -s -o got --tftp-blksize 512 tftp://127.0.0.1:{port}/loader.efi",
    ] {
        server.client(line).await;
        assert_content(&server.downloaded(), &loader());
        assert_eq!(server.result().await, RequestResult::Transfer(TransferOutcome::Complete));
        std::fs::remove_file(server.downloaded()).unwrap();
    }
    let client = server.client_socket().await;
    client.request(&[("windowsize", "8")]).await;
    assert_eq!(client.receive().await.1, client.server.into());
}

#[tokio::test]
async fn one_client_has_at_most_eight_transfers_at_a_time() {
    let mut server = TestServer::start().await;
    let mut transfers = Vec::new();
    for _ in 0..8 {
        let client = server.client_socket().await;
        client.request(&[]).await;
        let (response, port) = client.receive().await;
        assert!(response.starts_with(b"\0\x03"), "a block");
        transfers.push((client, port));
    }
    let ninth = server.client_socket().await;
    ninth.request(&[]).await;
    assert_eq!(ninth.receive().await.0, error_packet(ErrorCode::UNDEFINED, "busy"));

    let (first, port) = transfers.swap_remove(0);
    first.send(&error_packet(ErrorCode::UNDEFINED, "User aborted"), port).await;
    assert!(matches!(server.result().await, RequestResult::Transfer(TransferOutcome::Aborted(_))));
    // The result is reported shortly before the transfer's place is free.
    let freed = async {
        loop {
            ninth.request(&[]).await;
            if ninth.receive().await.0.starts_with(b"\0\x03") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, freed).await.expect("the ended transfer frees its place");
}

/// A line to a server, for one client. Ends with the test's runtime.
struct LossyLine {
    port: u16,
    /// Bytes that the server sent.
    sent_bytes: Arc<AtomicUsize>,
    /// True if the client's last packet was lost.
    last_packet_lost: Arc<AtomicBool>,
}

impl LossyLine {
    /// Delivers a packet if `passes` returns true; it is called for both directions. Packets to the client go through a
    /// queue of `queue_length`, which is emptied once in `interval`.
    async fn to(
        server: SocketAddrV4,
        mut passes: impl FnMut() -> bool + Send + 'static,
        (queue_length, interval): (usize, Duration),
    ) -> Self {
        let near = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (port, sent_bytes) = (near.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let last_packet_lost = Arc::new(AtomicBool::new(false));
        let lost = last_packet_lost.clone();
        let (queue, mut waiting) = mpsc::channel::<(Vec<u8>, SocketAddr)>(queue_length);
        let (to_client, counter) = (near.clone(), sent_bytes.clone());
        tokio::spawn(async move {
            let mut datagrams = Vec::new();
            while waiting.recv_many(&mut datagrams, queue_length).await > 0 {
                for (datagram, client) in datagrams.drain(..) {
                    to_client.send_to(&datagram, client).await.unwrap();
                }
                tokio::time::sleep(interval).await;
            }
        });
        tokio::spawn(async move {
            let (mut client, mut transfer) = (None, server.into());
            let (mut out, mut back) = ([0; 2048], [0; 2048]);
            loop {
                tokio::select! {
                    Ok((length, from)) = near.recv_from(&mut out) => {
                        client = Some(from);
                        let passes = passes();
                        lost.store(!passes, Ordering::Relaxed);
                        if passes { far.send_to(&out[..length], transfer).await.unwrap(); }
                    }
                    Ok((length, from)) = far.recv_from(&mut back) => {
                        transfer = from;
                        counter.fetch_add(length, Ordering::Relaxed);
                        if let Some(client) = client.filter(|_| passes()) {
                            let _full = queue.try_send((back[..length].to_vec(), client));
                        }
                    }
                }
            }
        });
        Self { port, sent_bytes, last_packet_lost }
    }

    /// Loses two of every `2 * every + 1` packets. This must differ from the number of packets in a retransmission, or the same
    /// block would be lost each time.
    async fn losing(server: SocketAddrV4, every: usize) -> Self {
        let mut count = 0_usize;
        let passes = move || {
            count += 1;
            let place = count % (2 * every + 1);
            place != 0 && place != every
        };
        Self::to(server, passes, (1024, Duration::ZERO)).await
    }

    /// Returns the expected result of a complete download. If the client's last acknowledgement is lost, the server times out.
    /// To be called after the server has reported its result: then no packet is on the line.
    fn expected_result(&self) -> RequestResult {
        let lost = self.last_packet_lost.load(Ordering::Relaxed);
        RequestResult::Transfer(if lost {
            TransferOutcome::TimedOut
        } else {
            TransferOutcome::Complete
        })
    }

    /// Returns the bytes that the server sent per byte of the loader.
    fn overhead(&self) -> f64 {
        self.sent_bytes.load(Ordering::Relaxed) as f64 / LOADER_BYTES as f64
    }
}

impl TestServer {
    fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)
    }

    /// Reads the loader with atftp in windows of eight blocks over `line`.
    async fn atftp_reads_windows(&mut self, line: &LossyLine) {
        let mut command = Command::new("atftp");
        command.args(["--option", "blksize 1428", "--option", "windowsize 8"]);
        command.args(["-g", "-r", "loader.efi", "-l", "got", "127.0.0.1", &line.port.to_string()]);
        command.current_dir(self.work.path()).kill_on_drop(true);
        let output = tokio::time::timeout(TEST_TIMEOUT, command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_content(&self.downloaded(), &loader());
        let result = self.result().await;
        assert_eq!(result, line.expected_result());
    }
}

#[tokio::test]
async fn busybox_reads_a_file_over_a_line_that_loses_packets() {
    let mut server = TestServer::start().await;
    // 244 packets: seven are lost, some of either direction.
    let line = LossyLine::losing(server.address(), 31).await;
    let busybox = "busybox tftp -g -b 1428 -r loader.efi -l got 127.0.0.1 {port}";
    let output = server.run(line.port, busybox).await;
    assert!(output.status.success(), "{output:?}");
    assert_content(&server.downloaded(), &loader());
    let result = server.result().await;
    assert_eq!(result, line.expected_result());
}

#[tokio::test]
async fn atftp_reads_windows_over_a_line_that_loses_packets() {
    let mut server = TestServer::start().await;
    // The bounds leave room for retransmissions on a busy host.
    for (every, most) in [(29, 2.0), (10, 2.0), (6, 2.5)] {
        let line = LossyLine::losing(server.address(), every).await;
        server.atftp_reads_windows(&line).await;
        let overhead = line.overhead();
        assert!(
            overhead < most,
            "{overhead} bytes for each, with about every {every}th packet lost"
        );
    }
}

#[tokio::test]
async fn atftp_reads_windows_that_are_larger_than_a_buffer_on_the_way() {
    let mut server = TestServer::start().await;
    let line = LossyLine::to(server.address(), || true, (3, Duration::from_millis(1))).await;
    server.atftp_reads_windows(&line).await;
    let overhead = line.overhead();
    // If each window were sent at once, five of its eight blocks would be sent again.
    assert!(overhead < 2.0, "{overhead} bytes for each");
}
