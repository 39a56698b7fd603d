//! A real etcd of one member, on a port of its own and a directory that goes when it does.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use store::Revision;
use store::etcd::{Etcd, Options, Tls};

/// Time limit for a start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Peer {
    dir: tempfile::TempDir,
    ports: [u16; 2],
    guard: Option<Guard>,
    child: Child,
}

/// A peer that speaks TLS, and only with those who show a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// Its arguments.
    pub(crate) flags: Vec<String>,
    /// Options of our connection.
    pub(crate) key: Tls,
}

impl Peer {
    pub(crate) async fn start() -> Self {
        Self::with(None).await
    }

    pub(crate) async fn guarded(guard: Guard) -> Self {
        Self::with(Some(guard)).await
    }

    async fn with(guard: Option<Guard>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports = [free_port(), free_port()];
        let child = spawn(dir.path().join("data"), ports, guard.as_ref());
        let mut peer = Self { dir, ports, guard, child };
        peer.ready().await;
        peer
    }

    pub(crate) fn url(&self) -> String {
        client_url(self.ports[0], self.guard.as_ref())
    }

    /// Returns the options of a connection to it.
    pub(crate) fn options(&self) -> Options {
        let tls = self.guard.as_ref().map(|guard| guard.key.clone());
        Options { tls, ..options([self.url()]) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// A store in it, reached directly.
    pub(crate) async fn store(&self) -> Etcd {
        Etcd::connect(self.options()).await.unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on what it had.
    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(self.data(), self.ports, self.guard.as_ref());
        self.ready().await;
    }

    /// Takes away all it had.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(self.data()).unwrap();
    }

    /// Stops it, and waits until all of it stands still: the signal alone may come after an answer.
    pub(crate) fn pause(&self) {
        let own = Pid::from_child(&self.child);
        kill_process(own, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(own), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    pub(crate) fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// Makes it forget what happened before `revision`.
    pub(crate) fn compact(&self, revision: Revision) {
        self.tell(&["compaction", &revision.0.to_string()]);
    }

    /// Runs its own client with the arguments.
    pub(crate) fn tell(&self, arguments: &[&str]) {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &self.url()]).args(arguments);
        let done = etcdctl.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    async fn ready(&mut self) {
        let ready = async {
            while Etcd::connect(self.options()).await.is_err() {
                assert!(self.child.try_wait().unwrap().is_none(), "etcd ended at its start");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(START_TIMEOUT, ready).await.expect("etcd starts");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_waited_for = self.child.wait();
    }
}

/// A store that knows `endpoints`.
pub(crate) async fn connect<const N: usize>(endpoints: [String; N]) -> Etcd {
    Etcd::connect(options(endpoints)).await.unwrap()
}

pub(crate) fn url(port: u16) -> String {
    format!("http://{}:{port}", loopback())
}

/// Returns the loopback address of this test process: no other process listens on it.
///
/// A port that is given to a program, and bound by it later, can be taken in between by any other program that uses
/// 127.0.0.1. So the address contains the process id, which has 22 bits at most (proc(5), `pid_max`).
pub(crate) fn loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high, middle, low)
}

/// Returns a port that this test process has not used yet. It is below the range that the kernel
/// chooses from (ip(7), `ip_local_port_range`).
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let mut ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    // A server on all addresses uses its port on this one, too.
    ports.find(|port| TcpListener::bind((loopback(), *port)).is_ok()).unwrap()
}

/// The options for these members, without TLS and login.
pub(crate) fn options<const N: usize>(endpoints: [String; N]) -> Options {
    Options {
        endpoints: endpoints.into(),
        prefix: "/tinwright/".into(),
        followed: String::new(),
        tls: None,
        login: None,
    }
}

fn client_url(port: u16, guard: Option<&Guard>) -> String {
    match guard {
        Some(_) => format!("https://{}:{port}", loopback()),
        None => url(port),
    }
}

fn spawn(data: PathBuf, [client, peer]: [u16; 2], guard: Option<&Guard>) -> Child {
    let (client, peer) = (client_url(client, guard), url(peer));
    let mut etcd = Command::new("etcd");
    etcd.arg("--unsafe-no-fsync").arg("--data-dir").arg(data);
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    etcd.args(guard.map(|guard| &guard.flags[..]).unwrap_or_default());
    etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("Debian's etcd-server")
}
