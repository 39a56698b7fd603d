//! TLS 1.0 and later with every cipher that OpenSSL has, by the program `openssl` (s_client(1)).
//!
//! For peers that have no cipher in common with rustls. The program does the handshake, verifies
//! the certificate, and then passes bytes on between its standard input and output and the peer.
//! Crate `openssl` would add minutes to the build of all of us for the few that need it.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use data_encoding::{BASE64, HEXLOWER};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader, ReadBuf,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::pin::sha256;

/// The program.
const PROGRAM: &str = "openssl";
/// All ciphers, except those without a certificate or without encryption. The level allows short
/// keys and SHA-1.
const CIPHERS: &str = "ALL:!aNULL:!eNULL:!PSK:!SRP:@SECLEVEL=0";
/// The oldest version of TLS.
const MIN_VERSION: &str = "TLSv1";
/// Maximum length of what the program prints before the handshake is complete.
const MAX_REPORT_BYTES: u64 = 64 * 1024;
/// Maximum length of what the program prints of a certificate.
const MAX_CERTIFICATE_BYTES: u64 = 256 * 1024;
/// The variables that name the roots of this host.
const ROOT_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// The name of a peer that has an address only. TLS requires one for the verification by digest,
/// which ignores it.
const NO_NAME: &str = "peer.invalid";
/// The lines of a certificate (RFC 7468).
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name or address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The verification of a peer's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Only the certificate with this SHA-256. Nothing else of it is judged.
    Certificate([u8; 32]),
    /// Every certificate for the peer's name or address that is signed by a root of this host.
    Roots,
}

/// A failed connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there.
    #[error("the program openssl is not installed on this server: legacy TLS needs it")]
    NotInstalled,
    /// The program cannot be started.
    #[error("the program openssl cannot be started")]
    NotStarted(#[source] io::Error),
    /// There is no connection, for a reason of this kind; `NotFound` for a name without an address.
    #[error("{0}")]
    Connect(io::ErrorKind),
    /// The peer has another certificate than the trusted one; with its SHA-256, if that was
    /// received.
    #[error("the peer has another certificate")]
    OtherCertificate(Option<[u8; 32]>),
    /// The certificate is signed by no root of this host, or is for another name; with the reason
    /// of OpenSSL.
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    /// The port does not speak TLS.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// The handshake failed, with this text of OpenSSL.
    #[error("TLS failed: {0}")]
    Handshake(String),
}

/// A connection to a peer whose certificate was verified. The program ends when it is dropped.
#[derive(Debug)]
pub struct Stream {
    input: ChildStdin,
    output: ChildStdout,
    /// Open, since the program would end if it could not print.
    _report: BufReader<ChildStderr>,
    _program: Child,
}

/// Connects to `peer`. Nothing is sent to it before its certificate was verified and the handshake
/// is complete.
pub async fn connect(peer: &Peer, trust: Trust) -> Result<Stream, Error> {
    let mut command = s_client(peer);
    command.args(["-brief", "-ign_eof", "-nocommands", "-verify_return_error"]);
    match trust {
        Trust::Certificate(digest) => {
            // A record for the certificate of the server itself (RFC 7671 §5.1), which ignores
            // names, times and signatures.
            let record = format!("3 0 1 {}", HEXLOWER.encode(&digest));
            command.args(["-dane_tlsa_domain", &server_name(&peer.host)]);
            command.args(["-dane_ee_no_namechecks", "-dane_tlsa_rrdata", &record]);
        }
        Trust::Roots => {
            let by =
                if peer.host.parse::<IpAddr>().is_ok() { "-verify_ip" } else { "-verify_hostname" };
            command.args([by, &peer.host]);
            let variable = |name| Some((name, std::env::var_os(name)?));
            command.envs(ROOT_VARIABLES.into_iter().filter_map(variable));
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = spawn(&mut command)?;
    let (Some(input), Some(output), Some(report)) =
        (program.stdin.take(), program.stdout.take(), program.stderr.take())
    else {
        return Err(Error::NotStarted(io::ErrorKind::BrokenPipe.into()));
    };
    let mut report = BufReader::new(report);
    match established(&mut report).await {
        Ok(()) => Ok(Stream { input, output, _report: report, _program: program }),
        Err(Error::OtherCertificate(_)) => {
            Err(Error::OtherCertificate(certificate(peer).await.ok()))
        }
        Err(error) => Err(error),
    }
}

/// Returns the SHA-256 of the certificate of `peer`, which proved in a handshake that it has its
/// key. Sends nothing after it.
pub async fn certificate(peer: &Peer) -> Result<[u8; 32], Error> {
    let mut command = s_client(peer);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = spawn(&mut command)?;
    let (output, report) = (program.stdout.take(), program.stderr.take());
    let (output, report) = tokio::join!(read(output), read(report));
    let status = program.wait().await.map_err(Error::NotStarted)?;
    let certificate = first_certificate(&output).filter(|_| status.success());
    certificate.map(|certificate| sha256(&certificate)).ok_or_else(|| failure(&report))
}

/// Returns the command that connects to `peer`, without verification.
fn s_client(peer: &Peer) -> Command {
    let Peer { host, port } = peer;
    let address =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut command = Command::new(PROGRAM);
    // Other variables of the server could change the configuration, or have the keys logged.
    command.env_clear().env("LC_ALL", "C");
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.args(["s_client", "-connect", &address, "-cipher", CIPHERS]);
    command.args(["-min_protocol", MIN_VERSION, "-legacy_server_connect"]).kill_on_drop(true);
    command
}

fn spawn(command: &mut Command) -> Result<Child, Error> {
    command.spawn().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing { Error::NotInstalled } else { Error::NotStarted(error) }
    })
}

/// Returns the name that the handshake names the peer by, the same as in HTTP.
fn server_name(host: &str) -> String {
    if host.contains(':') { NO_NAME.into() } else { host.into() }
}

/// Reads the report of the program until it says that the peer is verified.
async fn established(report: &mut BufReader<ChildStderr>) -> Result<(), Error> {
    let (mut all, mut limited) = (String::new(), report.take(MAX_REPORT_BYTES));
    let mut is_complete = false;
    loop {
        let mut line = Vec::new();
        let length = limited.read_until(b'\n', &mut line).await.map_err(Error::NotStarted)?;
        if length == 0 {
            return Err(failure(&all));
        }
        let line = String::from_utf8_lossy(&line);
        is_complete |= line.starts_with("CONNECTION ESTABLISHED");
        if is_complete && line.starts_with("Verification: OK") {
            return Ok(());
        }
        all.push_str(&line);
    }
}

/// Reads a pipe to its end, as far as it is not too long.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _partial = pipe.take(MAX_CERTIFICATE_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the first certificate in `text`.
fn first_certificate(text: &str) -> Option<Vec<u8>> {
    let (base64, _) = text.split_once(BEGIN)?.1.split_once(END)?;
    let base64: String = base64.split_whitespace().collect();
    BASE64.decode(base64.as_bytes()).ok()
}

/// Returns the failure that the program reports.
fn failure(report: &str) -> Error {
    let has = |text: &str| report.contains(text);
    let kinds = [
        ("Connection refused", io::ErrorKind::ConnectionRefused),
        ("No route to host", io::ErrorKind::HostUnreachable),
        ("Network is unreachable", io::ErrorKind::NetworkUnreachable),
        ("Connection timed out", io::ErrorKind::TimedOut),
        ("Connection reset", io::ErrorKind::ConnectionReset),
        ("BIO_lookup", io::ErrorKind::NotFound),
    ];
    if let Some((_, kind)) = kinds.iter().find(|(text, _)| has(text)) {
        return Error::Connect(*kind);
    }
    if has("no matching DANE TLSA records") {
        return Error::OtherCertificate(None);
    }
    // The certificate of a peer that is trusted by a root.
    let refused = report.lines().find_map(|line| line.strip_prefix("verify error:num="));
    if let Some((_, reason)) = refused.and_then(|refused| refused.split_once(':')) {
        return Error::Certificate(reason.to_owned());
    }
    let reason = report.lines().find_map(|line| line.split_once(":error:")?.1.split(':').nth(3));
    match reason {
        Some("wrong version number" | "packet length too long" | "http request") => Error::NotTls,
        Some("unexpected eof while reading") => Error::Connect(io::ErrorKind::UnexpectedEof),
        Some(reason) => Error::Handshake(reason.to_owned()),
        None => Error::Handshake("openssl gave no reason".into()),
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(context)
    }
}
