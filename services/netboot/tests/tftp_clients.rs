//! Other people's TFTP clients against the server: tftp-hpa, atftp, curl, busybox; and a line that loses packets.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use netboot::tftp::packet::{Code, Packet, Request};
use netboot::tftp::server::{Settings, Verdict};
use netboot::tftp::transfer::Outcome;
use netboot::tftp::{Directories, Ended, File, Files, Name, Refusal, Server};
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than anything here takes, shorter than anybody's patience.
const BOUND: Duration = Duration::from_secs(60);
/// The size of Debian's snponly.efi: no multiple of any block.
const LOADER: usize = 173_792;

/// A server on a port of its own, and a directory for a client to work in. Both end with it.
struct Site {
    port: u16,
    ended: mpsc::UnboundedReceiver<Ended>,
    served: tempfile::TempDir,
    work: tempfile::TempDir,
    _stop: DropGuard,
}

/// Directories that would even serve the file that never is.
struct AllNames(Directories);

#[async_trait::async_trait]
impl Files for AllNames {
    async fn open(&self, name: &Name, client: Ipv4Addr) -> Result<File, Refusal> {
        if *name == Name::Refused {
            return Ok(bytes::Bytes::from_static(b"a loader").into());
        }
        self.0.open(name, client).await
    }
}

impl Site {
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
        let files = Arc::new(AllNames(Directories::open([served.path()]).unwrap()));
        let socket = UdpSocket::bind((address, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (tell, ended) = mpsc::unbounded_channel();
        let observer = Arc::new(move |end| drop(tell.send(end)));
        let server = Server::new(socket, files, settings, observer).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self { port, ended, served, work: tempfile::tempdir().unwrap(), _stop: stop.drop_guard() }
    }

    fn got(&self) -> PathBuf {
        self.work.path().join("got")
    }

    /// Runs a client in the work directory, `{port}` standing for the server's.
    async fn run(&self, port: u16, line: &str) -> Output {
        let line = line.replace("{port}", &port.to_string());
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(self.work.path()).kill_on_drop(true);
        tokio::time::timeout(BOUND, command.output())
            .await
            .expect("the client ends")
            .expect("the client is installed")
    }

    async fn client(&self, line: &str) -> Output {
        self.run(self.port, line).await
    }

    /// What the server says of the next request that ends.
    async fn verdict(&mut self) -> Verdict {
        tokio::time::timeout(BOUND, self.ended.recv())
            .await
            .expect("the request ends")
            .unwrap()
            .verdict
    }

    async fn socket(&self) -> Talk {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Talk { socket, server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port) }
    }
}

/// Octets in which any two blocks differ.
fn loader() -> Vec<u8> {
    (0..LOADER as u32 / 4).flat_map(|word| word.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

#[track_caller]
fn same(got: &Path, expected: &[u8]) {
    assert!(std::fs::read(got).unwrap() == expected, "the file differs");
}

#[tokio::test]
async fn tftp_hpa_reads_a_file() {
    let mut site = Site::start().await;
    site.client("tftp -m binary 127.0.0.1 {port} -c get loader.efi got").await;
    same(&site.got(), &loader());
    assert_eq!(site.verdict().await, Verdict::Served(Outcome::Complete));
}

#[tokio::test]
async fn tftp_hpa_reads_text_in_its_own_line_ends() {
    let site = Site::start().await;
    site.client("tftp -m ascii 127.0.0.1 {port} -c get notes.txt got").await;
    same(&site.got(), b"one\ntwo\r\n");
}

#[tokio::test]
async fn atftp_reads_a_file_with_every_option_it_has() {
    let site = Site::start().await;
    for options in [
        "",
        "--option|blksize 1428|",
        "--option|windowsize 16|--option|tsize 0|--option|timeout 2|",
    ] {
        let mut command = Command::new("atftp");
        command.args(options.split('|').filter(|word| !word.is_empty()));
        command.args(["-g", "-r", "loader.efi", "-l", "got", "127.0.0.1", &site.port.to_string()]);
        command.current_dir(site.work.path()).kill_on_drop(true);
        let output = tokio::time::timeout(BOUND, command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{options}: {output:?}");
        same(&site.got(), &loader());
        std::fs::remove_file(site.got()).unwrap();
    }
}

#[tokio::test]
async fn curl_reads_a_file_in_blocks_of_any_size() {
    let site = Site::start().await;
    for size in [8, 512, 1024, 1428, 65464] {
        let line =
            format!("curl -s -o got --tftp-blksize {size} tftp://127.0.0.1:{{port}}/loader.efi");
        assert!(site.client(&line).await.status.success(), "{size}");
        same(&site.got(), &loader());
    }
}

#[tokio::test]
async fn curl_reads_a_file_named_with_its_interface() {
    let site = Site::start().await;
    let line = "curl -s -o got tftp://127.0.0.1:{port}/52-54-00-00-00-01/loader.efi";
    assert!(site.client(line).await.status.success());
    same(&site.got(), &loader());
}

#[tokio::test]
async fn busybox_reads_a_file() {
    let site = Site::start().await;
    assert!(
        site.client("busybox tftp -g -b 1428 -r loader.efi -l got 127.0.0.1 {port}")
            .await
            .status
            .success()
    );
    same(&site.got(), &loader());
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let site = Site::start().await; // curl takes a size of 0 for an error
    let line = "busybox tftp -g -r 52-54-00-00-00-01/autoexec.ipxe -l got 127.0.0.1 {port}";
    assert!(site.client(line).await.status.success());
    same(&site.got(), b"");
}

#[tokio::test]
async fn a_refused_machine_is_told_that_there_is_no_such_file() {
    let mut site = Site::start().await;
    let output = site.client("curl -s -o got tftp://127.0.0.1:{port}/netboot-not-allowed").await;
    assert_eq!(output.status.code(), Some(68), "curl's code for error 1");
    assert_eq!(site.verdict().await, Verdict::Refused(Code::NOT_FOUND.0));
}

#[tokio::test]
async fn nobody_climbs_out_or_writes() {
    let mut site = Site::start().await;
    site.client("tftp -m binary 127.0.0.1 {port} -c get ../../etc/passwd got").await;
    assert_eq!(site.verdict().await, Verdict::Refused(Code::ACCESS_VIOLATION.0));
    std::fs::write(site.got(), "mine").unwrap();
    let output = site.client("curl -s -T got tftp://127.0.0.1:{port}/got").await;
    assert_eq!(output.status.code(), Some(69), "curl's code for error 2");
    assert!(!site.served.path().join("got").exists());
}

/// A client of our own, packet by packet.
struct Talk {
    socket: UdpSocket,
    server: SocketAddrV4,
}

impl Talk {
    async fn say(&self, packet: &Packet, to: std::net::SocketAddr) {
        self.socket.send_to(&packet.encode(), to).await.unwrap();
    }

    async fn ask(&self, options: &[(&str, &str)]) {
        let options = options
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let request = Request {
            name: b"loader.efi".into(),
            mode: b"octet".into(),
            options: options.collect(),
        };
        self.say(&Packet::Read(request), self.server.into()).await;
    }

    async fn hear(&self) -> (Packet, std::net::SocketAddr) {
        let mut buffer = [0; 2048];
        let heard = tokio::time::timeout(BOUND, self.socket.recv_from(&mut buffer)).await;
        let (length, from) = heard.expect("the server answers").unwrap();
        (Packet::parse(&buffer[..length]).unwrap(), from)
    }
}

#[tokio::test]
async fn asking_for_the_size_and_giving_up_is_no_failure() {
    let mut site = Site::start().await;
    let talk = site.socket().await;
    talk.ask(&[("tsize", "0"), ("blksize", "1468"), ("windowsize", "4")]).await;
    let (answer, from) = talk.hear().await;
    let granted = [("tsize", "173792"), ("blksize", "1428"), ("windowsize", "4")];
    let granted =
        granted.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(answer, Packet::OptionAck(granted.into()));
    talk.say(&Packet::error(Code::OPTIONS_REFUSED, "User aborted"), from).await;
    assert_eq!(site.verdict().await, Verdict::Served(Outcome::SizeProbe));
}

#[tokio::test]
async fn a_repeated_request_is_answered_by_the_transfer_it_began() {
    let site = Site::start().await;
    let talk = site.socket().await;
    talk.ask(&[]).await;
    let first = talk.hear().await;
    talk.ask(&[]).await;
    assert_eq!(talk.hear().await, first);
}

#[tokio::test]
async fn a_stranger_on_a_transfers_port_is_sent_away_and_the_transfer_goes_on() {
    let site = Site::start().await;
    let (talk, stranger) = (site.socket().await, site.socket().await);
    talk.ask(&[]).await;
    let (_, transfer) = talk.hear().await;
    stranger.say(&Packet::Ack(1), transfer).await;
    let (answer, _) = stranger.hear().await;
    assert_eq!(answer, Packet::error(Code::UNKNOWN_TRANSFER, "unknown transfer"));
    talk.say(&Packet::Ack(1), transfer).await;
    assert!(matches!(talk.hear().await.0, Packet::Data { block: 2, .. }));
}

#[tokio::test]
async fn the_address_that_was_asked_is_the_one_that_answers() {
    let site = Site::start_on(Ipv4Addr::UNSPECIFIED).await;
    let talk = Talk {
        server: SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 5), site.port),
        ..site.socket().await
    };
    talk.ask(&[]).await;
    let (_, from) = talk.hear().await;
    assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, 5));
    assert_ne!(from.port(), site.port);
    talk.say(&Packet::Data { block: 1, data: vec![] }, talk.server.into()).await;
    let (answer, from) = talk.hear().await;
    assert!(matches!(answer, Packet::Error { code: Code::ILLEGAL_OPERATION, .. }));
    assert_eq!(from, talk.server.into());
}

#[tokio::test]
async fn one_port_is_enough_for_every_client() {
    let settings = Settings { single_port: true, ..Settings::default() };
    let mut site = Site::start_with(Ipv4Addr::LOCALHOST, settings).await;
    for line in [
        "busybox tftp -g -b 1428 -r loader.efi -l got 127.0.0.1 {port}",
        "tftp -m binary 127.0.0.1 {port} -c get loader.efi got",
        "curl -s -o got --tftp-blksize 512 tftp://127.0.0.1:{port}/loader.efi",
    ] {
        site.client(line).await;
        same(&site.got(), &loader());
        assert_eq!(site.verdict().await, Verdict::Served(Outcome::Complete));
        std::fs::remove_file(site.got()).unwrap();
    }
    let talk = site.socket().await;
    talk.ask(&[("windowsize", "8")]).await;
    assert_eq!(talk.hear().await.1, talk.server.into());
}

#[tokio::test]
async fn one_client_has_at_most_eight_transfers_at_a_time() {
    let site = Site::start().await;
    for _ in 0..8 {
        let talk = site.socket().await;
        talk.ask(&[]).await;
        assert!(matches!(talk.hear().await.0, Packet::Data { .. }));
    }
    let talk = site.socket().await;
    talk.ask(&[]).await;
    assert_eq!(talk.hear().await.0, Packet::error(Code::UNDEFINED, "busy"));
}

/// A line to a server, for one client. Ends with the test's runtime.
struct Line {
    port: u16,
    /// Octets that the server sent.
    sent: Arc<AtomicUsize>,
    /// Whether what the client said last was lost.
    mute: Arc<AtomicBool>,
}

impl Line {
    /// Carries what `passes` lets through, both ways counted together. Every `rest` the client takes what there is, and
    /// it has room for `room` datagrams.
    async fn to(
        server: SocketAddrV4,
        mut passes: impl FnMut() -> bool + Send + 'static,
        (room, rest): (usize, Duration),
    ) -> Self {
        let near = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (port, sent) = (near.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let mute = Arc::new(AtomicBool::new(false));
        let lost = mute.clone();
        let (queue, mut waiting) = mpsc::channel::<(Vec<u8>, SocketAddr)>(room);
        let (out, counted) = (near.clone(), sent.clone());
        tokio::spawn(async move {
            let mut taken = Vec::new();
            while waiting.recv_many(&mut taken, room).await > 0 {
                for (datagram, client) in taken.drain(..) {
                    out.send_to(&datagram, client).await.unwrap();
                }
                tokio::time::sleep(rest).await;
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
                        counted.fetch_add(length, Ordering::Relaxed);
                        if let Some(client) = client.filter(|_| passes()) {
                            let _full = queue.try_send((back[..length].to_vec(), client));
                        }
                    }
                }
            }
        });
        Self { port, sent, mute }
    }

    /// One that loses two of every `2 * every + 1` packets. What is sent again and again is never as long as that, or the same
    /// block would be lost for ever.
    async fn losing(server: SocketAddrV4, every: usize) -> Self {
        let mut count = 0_usize;
        let passes = move || {
            count += 1;
            let place = count % (2 * every + 1);
            place != 0 && place != every
        };
        Self::to(server, passes, (1024, Duration::ZERO)).await
    }

    /// What a transfer comes to by which the client has the whole file: where its last word is lost, the server cannot
    /// know. To be asked once the server has given its verdict: by then the line has passed all there was.
    fn verdict(&self) -> Verdict {
        let mute = self.mute.load(Ordering::Relaxed);
        Verdict::Served(if mute { Outcome::TimedOut } else { Outcome::Complete })
    }

    /// How many octets the server sent for each of the loader's.
    fn spent(&self) -> f64 {
        self.sent.load(Ordering::Relaxed) as f64 / LOADER as f64
    }
}

impl Site {
    fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)
    }

    /// atftp reads the loader in windows of eight over `line`.
    async fn reads_windows(&mut self, line: &Line) {
        let mut command = Command::new("atftp");
        command.args(["--option", "blksize 1428", "--option", "windowsize 8"]);
        command.args(["-g", "-r", "loader.efi", "-l", "got", "127.0.0.1", &line.port.to_string()]);
        command.current_dir(self.work.path()).kill_on_drop(true);
        let output = tokio::time::timeout(BOUND, command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        same(&self.got(), &loader());
        let verdict = self.verdict().await;
        assert_eq!(verdict, line.verdict());
    }
}

#[tokio::test]
async fn busybox_reads_a_file_over_a_line_that_loses_packets() {
    let mut site = Site::start().await;
    // 244 packets: seven are lost, some of either direction.
    let line = Line::losing(site.address(), 31).await;
    let busybox = "busybox tftp -g -b 1428 -r loader.efi -l got 127.0.0.1 {port}";
    let output = site.run(line.port, busybox).await;
    assert!(output.status.success(), "{output:?}");
    same(&site.got(), &loader());
    let verdict = site.verdict().await;
    assert_eq!(verdict, line.verdict());
}

#[tokio::test]
async fn atftp_reads_windows_over_a_line_that_loses_packets() {
    let mut site = Site::start().await;
    // A host that stands still for a moment makes the server ask again: so much is let pass.
    for (every, most) in [(29, 2.0), (10, 2.0), (6, 2.5)] {
        let line = Line::losing(site.address(), every).await;
        site.reads_windows(&line).await;
        let spent = line.spent();
        assert!(spent < most, "{spent} octets for each, with about every {every}th packet lost");
    }
}

#[tokio::test]
async fn atftp_reads_windows_that_its_buffer_has_no_room_for() {
    let mut site = Site::start().await;
    let line = Line::to(site.address(), || true, (3, Duration::from_millis(1))).await;
    site.reads_windows(&line).await;
    let spent = line.spent();
    // Of every window sent whole, five blocks of eight would be sent again.
    assert!(spent < 2.0, "{spent} octets for each");
}
