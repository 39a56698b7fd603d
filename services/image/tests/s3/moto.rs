//! moto, an S3 server in memory, on a free port. It checks no signatures.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::s3_bucket::S3Bucket;

/// The folder with the server.
static PEERS: LazyLock<PathBuf> = LazyLock::new(|| {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let peers = crate_root.join("../../target/peers");
    let script = crate_root.join("../image/tests/peers.sh");
    let done = Command::new(script).arg(&peers).status().unwrap();
    assert!(done.success(), "tests/peers.sh could not install moto: {done}");
    peers.canonicalize().unwrap()
});

/// The only bucket.
const BUCKET: &str = "images";

/// A server with its bucket.
#[derive(Debug)]
pub(crate) struct Moto {
    pub(crate) bucket: S3Bucket,
    _process: Server,
    _folder: TempDir,
}

/// The process of a server. It ends when it is dropped.
#[derive(Debug)]
struct Server(Child);

/// The certificate of a server and its key, in PEM.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Moto {
    /// Starts a server with a bucket.
    pub(crate) fn start() -> Self {
        let moto = Self::spawn(None);
        moto.bucket.create();
        moto
    }

    /// Starts a server with TLS, and without a bucket.
    pub(crate) fn with_tls(certificate: &Certificate) -> Self {
        Self::spawn(Some(certificate))
    }

    fn spawn(tls: Option<&Certificate>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut command = Command::new(PEERS.join("image-venv/bin/moto_server"));
        command.args(["-H", "127.0.0.1", "-p", "0"]);
        if let Some(Certificate { certificate, key }) = tls {
            fs::write(path("certificate.pem"), certificate).unwrap();
            fs::write(path("key.pem"), key).unwrap();
            command.arg("-s").arg("-c").arg(path("certificate.pem"));
            command.arg("-k").arg(path("key.pem"));
        }
        let log = fs::File::create(path("log")).unwrap();
        let mut server = Server(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let bucket = S3Bucket::of(server.listening(&path("log")), BUCKET);
        Self { bucket, _process: server, _folder: folder }
    }
}

impl Server {
    /// Waits until the server logs its address, and returns it.
    fn listening(&mut self, log: &Path) -> SocketAddr {
        let deadline = Instant::now() + Duration::from_secs(300);
        loop {
            let log = fs::read_to_string(log).unwrap_or_default();
            let (lines, _) = log.rsplit_once('\n').unwrap_or_default();
            let line = lines.lines().find_map(|line| line.split_once("Running on "));
            let address = line.and_then(|(_, url)| url.trim().split_once("://"));
            if let Some(address) = address.and_then(|(_, address)| address.parse().ok()) {
                return address;
            }
            assert!(self.0.try_wait().unwrap().is_none(), "moto ended: {log}");
            assert!(Instant::now() < deadline, "moto does not listen: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
