//! moto, an S3 server in memory, on a free port. It checks no signatures.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

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
pub(crate) const BUCKET: &str = "images";
/// The secret of the access key.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";

/// A server. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Moto {
    process: Child,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

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
        moto.request("PUT", "");
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
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let key = format!("aws_access_key_id = AKID\naws_secret_access_key = {SECRET}\n");
        fs::write(path("key"), key).unwrap();
        let mut moto = Self { process, address: ([127, 0, 0, 1], 0).into(), folder };
        moto.address = moto.listening();
        moto
    }

    /// Returns the file with the access key.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Returns the keys of all objects.
    pub(crate) fn keys(&self) -> Vec<String> {
        values(&self.request("GET", "?list-type=2"), "Key")
    }

    /// Returns the keys of unfinished multipart uploads.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        values(&self.request("GET", "?uploads"), "Key")
    }

    /// Makes a request for the bucket. Returns the response.
    fn request(&self, method: &str, query: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = self.address;
        let text = format!(
            "{method} /{BUCKET}{query} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Content-Length: 0\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=AKID/20300101/us-east-1/s3/aws4_request\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        response
    }

    /// Waits until it logs its address, and returns it.
    fn listening(&mut self) -> SocketAddr {
        let deadline = Instant::now() + Duration::from_secs(300);
        loop {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let (lines, _) = log.rsplit_once('\n').unwrap_or_default();
            let line = lines.lines().find_map(|line| line.split_once("Running on "));
            let address = line.and_then(|(_, url)| url.trim().split_once("://"));
            if let Some(address) = address.and_then(|(_, address)| address.parse().ok()) {
                return address;
            }
            assert!(self.process.try_wait().unwrap().is_none(), "moto ended: {log}");
            assert!(Instant::now() < deadline, "moto does not listen: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Returns the texts of the elements `name` in the XML `text`.
fn values(text: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let rest = text.split(open.as_str()).skip(1);
    rest.filter_map(|it| Some(it.split_once(close.as_str())?.0.to_owned())).collect()
}
