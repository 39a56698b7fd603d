//! A host on the machines' network: an interface with a given MAC, in its own namespace.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Command, Output};

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::SERVER;
use crate::lab::Lab;
use crate::server::Server;
use setup::run;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::{Holder, RedeemRequest};
use tonic::Status;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// A namespace with one interface, `eth0`, on the lab's bridge. Drop removes it.
#[derive(Debug)]
pub struct Client {
    name: String,
    /// The bridge's namespace, and the end of the link in it.
    bridge: String,
    link: String,
}

impl Client {
    /// Creates the namespace. The interface has this MAC and no address.
    pub fn new(lab: &Lab, number: u8, mac: &str) -> anyhow::Result<Self> {
        let name = format!("{}c{number}", lab.name());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let client = Self { name, bridge: lab.name().into(), link: format!("v{number}") };
        let Self { name, bridge, link: ours } = &client;
        let link = ["link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", name];
        run(Command::new("ip").args(["-n", bridge]).args(link))?;
        run(Command::new("ip").args(["-n", bridge, "link", "set", ours, "master", "br0", "up"]))?;
        client.ip(&format!("link set eth0 address {mac} up"))?;
        client.ip("link set lo up")?;
        Ok(client)
    }

    /// Returns the namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` with the arguments in `line`, inside the namespace.
    pub fn ip(&self, line: &str) -> anyhow::Result<()> {
        run(Command::new("ip").args(["-n", &self.name]).args(line.split_whitespace()))
    }

    /// Adds `address` to the interface, and a default route to the server.
    pub fn configure(&self, address: &str) -> anyhow::Result<()> {
        self.ip(&format!("addr add {address}/24 dev eth0"))?;
        self.ip(&format!("route replace default via {} dev eth0", SERVER))
    }

    /// Runs `program` inside the namespace to its end.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Output> {
        let mut command = self.command(program);
        command.args(arguments).output().with_context(|| format!("running {program}"))
    }

    /// Returns a command that runs `program` inside the namespace, with the pid of the spawned process.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name))?;
        let inside = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).map(|()| work())
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        Ok(done.map_err(|_| anyhow::anyhow!("the thread in the namespace panicked"))??)
    }

    /// Sends a GET request from the address `source`. Returns status and body.
    pub fn get(&self, source: &str, url: &str) -> anyhow::Result<(u16, String)> {
        let arguments = ["-s", "-m", "10", "--interface", source, "-w", "\n%{http_code}", url];
        let output = self.run("curl", arguments)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').context("no status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// Requests a certificate for `key` with the boot token `token`, from the address `source`. Returns the certificate.
    pub fn redeem(
        &self,
        server: &Server,
        source: &str,
        token: &str,
        key: &KeyPair,
    ) -> anyhow::Result<Result<String, Status>> {
        self.redeem_in_boot(server, source, token, key, "boot")
    }

    /// Does the same as a program in the boot `boot_id` of the machine.
    pub fn redeem_in_boot(
        &self,
        server: &Server,
        source: &str,
        token: &str,
        key: &KeyPair,
        boot_id: &str,
    ) -> anyhow::Result<Result<String, Status>> {
        let request = RedeemRequest {
            boot_token: token.to_owned(),
            csr: CertificateParams::default().serialize_request(key)?.der().to_vec(),
            holder: Some(Holder { boot_id: boot_id.into(), process_id: "process".into() }),
        };
        let authority = std::fs::read_to_string(server.data.join("secrets/ca.pem"))?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        let endpoint = Endpoint::from_shared(format!("https://{SERVER}:42113"))?.tls_config(tls)?;
        let endpoint = endpoint.local_address(Some(source.parse()?));
        self.within(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut worker = WorkerServiceClient::new(endpoint.connect().await?);
                let redeemed = worker.redeem(request).await;
                Ok(redeemed.map(|response| response.into_inner().certificate))
            })
        })?
    }
}

impl Drop for Client {
    /// The kernel removes a deleted namespace's links later, so that the next client with the same
    /// number could still find its link: it is removed first.
    fn drop(&mut self) {
        let link = run(Command::new("ip").args(["-n", &self.bridge, "link", "del", &self.link]));
        let namespace = run(Command::new("ip").args(["netns", "del", &self.name]));
        for error in [link, namespace].into_iter().filter_map(Result::err) {
            eprintln!("rack: {error:#}");
        }
    }
}
