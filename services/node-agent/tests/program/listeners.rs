//! The listeners: http, https and the Unix socket.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::agent::{Agent, command};
use crate::client::{Client, exchange};
use crate::host::{Host, on_host};

const LIST: &[u8] = b"GET /imageapi/v1/mount HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn the_socket_is_for_its_owner_and_a_left_over_one_is_replaced() {
    on_host(|host| {
        let agent = Agent::start(host);
        let mode = fs::metadata(host.path("socket")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        agent.kill();
        assert!(host.path("socket").exists());
        let agent = Agent::start(host);
        assert_eq!(agent.client.list("/mount").len(), 0);
        assert!(agent.stop().success());
        assert!(!host.path("socket").exists());
    });
}

#[test]
fn http_is_served_on_loopback_and_refused_elsewhere() {
    on_host(|host| {
        let agent = Agent::with_flags(host, &["--scheme", "http", "--scheme", "unix"]);
        let tcp = Client::Tcp(agent.address("http"));
        let mount = tcp.post("/mount", &crate::bodies::bind("/"));
        assert_eq!(agent.client.list("/mount"), std::slice::from_ref(&mount));
        tcp.send("DELETE", &format!("/mount?id={}&force=on", mount["id"]));
        agent.stop();
        let error = failure(host, &["--scheme", "http", "--host", "0.0.0.0"]);
        assert!(error.contains("needs --allow-insecure-http"), "{error}");
        let agent = Agent::with_flags(
            host,
            &["--scheme", "http", "--host", "0.0.0.0", "--allow-insecure-http"],
        );
        agent.stop();
    });
}

#[test]
fn without_a_certificate_the_default_schemes_end_the_program() {
    on_host(|host| {
        let error = failure(host, &[]);
        assert!(error.contains("--tls-certificate"), "{error}");
        assert!(!host.path("state").exists(), "nothing was begun");
    });
}

#[test]
fn idle_connections_of_http_are_closed() {
    on_host(|host| {
        let agent = Agent::with_flags(host, &["--scheme", "http", "--cleanup-timeout", "200ms"]);
        let mut idle = TcpStream::connect(agent.address("http")).unwrap();
        let mut answer = Vec::new();
        idle.read_to_end(&mut answer).unwrap();
        assert_eq!(agent.stop().code(), Some(0));
    });
}

/// Runs the program until it ends with status 1, and returns its last line.
fn failure(host: &Host, flags: &[&str]) -> String {
    let output = command(host).args(flags).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

/// An authority, and what it issued.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for `name` and its key, and returns the names of the files.
    fn issue(&self, host: &Host, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        fs::write(host.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(host.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        (host.text(&format!("{name}.pem")), host.text(&format!("{name}.key")))
    }

    fn pem(&self, host: &Host) -> String {
        fs::write(host.path("ca.pem"), self.0.pem()).unwrap();
        host.text("ca.pem")
    }

    /// Asks `agent` for its mounts over TLS, and returns the status.
    fn list(
        &self,
        agent: &Agent,
        client: Option<&(String, String)>,
        version: &'static SupportedProtocolVersion,
    ) -> std::io::Result<u16> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder =
            builder.with_protocol_versions(&[version]).unwrap().with_root_certificates(roots);
        let config = match client {
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
                    .unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(agent.address("https"))?;
        exchange(StreamOwned::new(connection, stream), LIST).map(|answer| answer.status)
    }
}

#[test]
fn https_asks_for_client_certificates_if_it_has_an_authority_and_for_names_if_it_has_any() {
    on_host(|host| {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let (certificate, key) = authority.issue(host, "localhost");
        let (good, other) = (authority.issue(host, "operator"), authority.issue(host, "guest"));
        let foreign = stranger.issue(host, "stranger");
        let ca = authority.pem(host);
        let tls = ["--scheme", "https", "--tls-certificate", &certificate, "--tls-key", &key];
        let versions = [&rustls::version::TLS12, &rustls::version::TLS13];

        let agent = Agent::with_flags(host, &tls);
        for version in versions {
            assert_eq!(authority.list(&agent, None, version).unwrap(), 200);
        }
        assert!(
            stranger.list(&agent, None, versions[1]).is_err(),
            "the server's certificate is checked"
        );
        agent.stop();

        let agent = Agent::with_flags(host, &[&tls[..], &["--tls-ca", &ca]].concat());
        for version in versions {
            assert_eq!(authority.list(&agent, Some(&other), version).unwrap(), 200);
            assert!(authority.list(&agent, None, version).is_err());
            assert!(authority.list(&agent, Some(&foreign), version).is_err());
        }
        agent.stop();

        let names = ["--tls-ca", &ca, "--tls-client-name", "operator"];
        let agent = Agent::with_flags(host, &[&tls[..], &names].concat());
        for version in versions {
            assert_eq!(authority.list(&agent, Some(&good), version).unwrap(), 200);
            assert!(authority.list(&agent, Some(&other), version).is_err());
        }
        assert!(agent.own_log().contains("has none of the accepted names"));
        agent.stop();
    });
}

#[test]
fn the_log_level_is_that_of_the_original() {
    on_host(|host| {
        let started = |level: &str| {
            let mut command = command(host);
            command.env("IMAGEAPI_LOGLEVEL", level).args(["--scheme", "https"]);
            let output = command.stderr(Stdio::piped()).output().unwrap();
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        assert!(started("info").contains("INFO is used"));
        assert!(!started("ERROR").contains("INFO is used"));
        let help =
            Command::new(env!("CARGO_BIN_EXE_tinwright-node")).arg("--help").output().unwrap();
        assert!(help.status.success());
    });
}
