//! Certificates and ciphers of old BMCs, served by `openssl s_server`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use pinned_tls::legacy::{self, Peer, Trust};
use pinned_tls::words::Failure;
use pinned_tls::{CertificatePin, client_config};
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The file that servers serve, and its contents.
const FILE: &str = "bmc.txt";
const CONTENTS: &str = "a BMC";
/// Old ciphers, as OpenSSL allows them.
const RSA_KEY_EXCHANGE: [&str; 3] = ["-tls1_2", "-cipher", "AES256-GCM-SHA384:AES128-GCM-SHA256"];

/// A running server. Killed when dropped.
struct Server {
    process: Child,
    address: SocketAddr,
    digest: [u8; 32],
    _directory: TempDir,
}

impl Server {
    /// Starts a server with a new key, a certificate for it, and further arguments.
    fn start(key: &[&str], certificate: &[&str], arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let at = directory.path();
        openssl(at, &[&["genpkey", "-out", "key.pem"], key].concat());
        openssl(at, &["req", "-new", "-key", "key.pem", "-subj", "/CN=bmc", "-out", "request.pem"]);
        let sign =
            ["x509", "-req", "-in", "request.pem", "-signkey", "key.pem", "-out", "cert.pem"];
        openssl(at, &[&sign[..], certificate].concat());
        openssl(at, &["x509", "-in", "cert.pem", "-outform", "DER", "-out", "cert.der"]);
        let digest = digest(&SHA256, &std::fs::read(at.join("cert.der")).unwrap());
        std::fs::write(at.join(FILE), CONTENTS).unwrap();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-WWW", "-accept", "127.0.0.1:0", "-cert", "cert.pem"]);
        command.args(["-key", "key.pem"]).args(arguments).current_dir(at);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            line.unwrap().strip_prefix("ACCEPT 127.0.0.1:").map(|port| port.parse().unwrap())
        });
        let address = (Ipv4Addr::LOCALHOST, port.unwrap()).into();
        // The server would end if nobody read what it prints.
        std::thread::spawn(move || lines.count());
        let digest = digest.as_ref().try_into().unwrap();
        Self { process, address, digest, _directory: directory }
    }

    fn peer(&self) -> Peer {
        Peer { host: self.address.ip().to_string(), port: self.address.port() }
    }

    /// Fetches the file through rustls, with the certificate of the digest pinned.
    async fn fetch(&self, pin: CertificatePin) -> Result<String, rustls::Error> {
        let config = client_config(Arc::new(pin)).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::from(self.address.ip());
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => Ok(get(stream).await),
            Err(error) => Err(error.into_inner().unwrap().downcast_ref().cloned().unwrap()),
        }
    }

    async fn fetch_pinned(&self) -> Result<String, rustls::Error> {
        self.fetch(CertificatePin::new(Some(self.digest))).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn openssl(directory: &Path, arguments: &[&str]) {
    let made = Command::new("openssl").args(arguments).current_dir(directory).output().unwrap();
    assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
}

/// Requests the file, and returns its contents.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    stream.write_all(format!("GET /{FILE} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server ends connections without a message that says so.
    let _end = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap().split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn rsa(bits: &str) -> [String; 4] {
    ["-algorithm", "RSA", "-pkeyopt", &format!("rsa_keygen_bits:{bits}")].map(str::to_owned)
}

/// A server with an RSA key of this size, and further arguments.
fn with_rsa(bits: &str, certificate: &[&str], arguments: &[&str]) -> Server {
    let key = rsa(bits);
    let weak = ["-cipher", "DEFAULT:@SECLEVEL=0"];
    let arguments = match arguments.contains(&"-cipher") {
        true => arguments.to_vec(),
        false => [&weak[..], arguments].concat(),
    };
    Server::start(&key.each_ref().map(String::as_str), certificate, &arguments)
}

#[tokio::test]
async fn a_pinned_certificate_of_any_version_number_time_and_key_size_is_accepted() {
    let ec = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let p384 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"];
    // Without extensions `openssl x509` makes a certificate of version 1.
    let (version1, ended) = (["-set_serial", "-5"], ["-days", "-1"]);
    for (name, server) in [
        ("P-256, version 1", Server::start(&ec, &version1, &[])),
        ("P-384, version 1, TLS 1.2", Server::start(&p384, &version1, &["-tls1_2"])),
        ("RSA 2048, version 1", with_rsa("2048", &version1, &[])),
        ("RSA 1024, ended, TLS 1.3", with_rsa("1024", &ended, &["-tls1_3"])),
        ("RSA 1024, TLS 1.2", with_rsa("1024", &version1, &["-tls1_2"])),
        ("RSA 768", with_rsa("768", &version1, &["-tls1_2"])),
        ("RSA 1536", with_rsa("1536", &version1, &[])),
    ] {
        let fetched = server.fetch_pinned().await;
        assert_eq!(fetched.as_deref(), Ok(CONTENTS), "{name}");
        let other = CertificatePin::new(Some([7; 32]));
        assert!(server.fetch(other).await.is_err(), "{name}: another certificate");
    }
}

#[tokio::test]
async fn ciphers_with_rsa_key_exchange_need_legacy_tls() {
    let server = with_rsa("2048", &[], &RSA_KEY_EXCHANGE);
    let error = server.fetch_pinned().await.unwrap_err();
    assert!(matches!(Failure::of(&error), Failure::OldTls(_)), "{error}");
    let peer = server.peer();
    assert_eq!(legacy::certificate(&peer).await.unwrap(), server.digest);
    let stream = legacy::connect(&peer, Trust::Certificate(server.digest)).await.unwrap();
    assert_eq!(get(stream).await, CONTENTS);
}

#[tokio::test]
async fn old_versions_of_tls_need_legacy_tls() {
    for version in ["-tls1", "-tls1_1"] {
        let server = with_rsa("1024", &["-days", "-1"], &[version, "-cipher", "ALL:@SECLEVEL=0"]);
        let error = server.fetch_pinned().await.unwrap_err();
        assert!(matches!(Failure::of(&error), Failure::OldTls(_)), "{version}: {error}");
        let trust = Trust::Certificate(server.digest);
        let stream = legacy::connect(&server.peer(), trust).await.unwrap();
        assert_eq!(get(stream).await, CONTENTS, "{version}");
    }
}

#[tokio::test]
async fn legacy_tls_refuses_another_certificate_and_says_which() {
    let server = with_rsa("2048", &[], &RSA_KEY_EXCHANGE);
    let refused = legacy::connect(&server.peer(), Trust::Certificate([7; 32])).await.unwrap_err();
    let legacy::Error::OtherCertificate(received) = refused else { panic!("{refused}") };
    assert_eq!(received, Some(server.digest));
    let untrusted = legacy::connect(&server.peer(), Trust::Roots).await.unwrap_err().to_string();
    assert!(untrusted.contains("its certificate is refused: self-signed"), "{untrusted}");
}

#[tokio::test]
async fn legacy_tls_refuses_ciphers_without_a_certificate_or_encryption() {
    for cipher in ["aNULL:@SECLEVEL=0", "eNULL:@SECLEVEL=0"] {
        let server = with_rsa("2048", &[], &["-tls1_2", "-cipher", cipher]);
        let trust = Trust::Certificate(server.digest);
        let refused = legacy::connect(&server.peer(), trust).await.unwrap_err();
        assert!(matches!(refused, legacy::Error::Handshake(_)), "{cipher}: {refused}");
    }
}

#[tokio::test]
async fn legacy_tls_names_the_reason_without_a_connection() {
    use std::io::ErrorKind;
    use tokio::net::TcpListener;
    let refused = |host: &str, port| {
        let peer = Peer { host: host.into(), port };
        async move { legacy::connect(&peer, Trust::Certificate([7; 32])).await.unwrap_err() }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let error = refused("127.0.0.1", port).await;
    assert!(matches!(error, legacy::Error::NotTls), "{error}");
    plain.await.unwrap();
    let error = refused("127.0.0.1", port).await;
    assert!(matches!(error, legacy::Error::Connect(ErrorKind::ConnectionRefused)), "{error}");
    let error = refused("bmc.invalid", 443).await;
    assert!(matches!(error, legacy::Error::Connect(ErrorKind::NotFound)), "{error}");
}
