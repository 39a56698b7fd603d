//! A server, and the program `tinwright-node` that is connected to it by a proxy.

use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use runtime::Role;
use runtime::authority::SiteAuthority;
use runtime::boot_token::{BootTokens, Purpose};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::host::Host;
use super::proxy::Proxy;
use crate::access::calls::Client;
use crate::nodes::door::ImageApi;
use crate::nodes::site::until_booted;
use crate::support::{RunningServer, start, until};

/// The name of the node.
pub const NODE: &str = "n1";

/// A server with one machine, on which the program runs.
pub struct RealNode<'a> {
    host: &'a Host,
    pub server: RunningServer,
    pub admin: Client,
    pub id: String,
    pub proxy: Proxy,
    boot_server: SocketAddr,
}

impl<'a> RealNode<'a> {
    /// Starts a server with the record of a machine, and prepares a boot of the machine.
    pub async fn start(host: &'a Host) -> Self {
        let server = start().await;
        let admin = Client::new(server.channel(Some(Role::Admin)).await);
        let interfaces = json!([{"mac": "02:00:00:00:00:01"}]);
        let hardware =
            json!({"name": NODE, "state": "STATE_PROVISIONABLE", "interfaces": interfaces});
        let created =
            admin.call("HardwareService/CreateHardware", json!({"hardware": hardware})).await;
        let id = created.unwrap()["hardware"]["id"].as_str().unwrap().to_owned();
        let proxy = Proxy::start(server.grpc).await;
        let boot_server = serve_authority(authority(&server).authority()).await;
        let node = Self { host, server, admin, id, proxy, boot_server };
        node.write_command_line(&node.token());
        node
    }

    /// Returns a token as in the boot script of a node.
    fn token(&self) -> String {
        let tokens = BootTokens::new(authority(&self.server).keys().clone()).unwrap();
        let (id, address) = (self.id.parse().unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        tokens.mint(Purpose::Node, id, 0, address, SystemTime::now()).unwrap()
    }

    /// Writes the kernel's command line of a boot with this token.
    pub fn write_command_line(&self, token: &str) {
        let fingerprint = authority(&self.server).fingerprint();
        let (boot, server) = (self.boot_server, self.proxy.address);
        let line = format!(
            "quiet boot_url=http://{boot}/v1/boot/T grpc_authority={server} boot_token={token} ca_sha256={fingerprint}\n"
        );
        fs::write(self.host.path("cmdline"), line).unwrap();
    }

    /// Starts the program, and waits until it serves.
    pub async fn start_agent(&self) -> Agent {
        let cmdline = self.host.text("cmdline");
        Agent::start(self.host, &["--cmdline", &cmdline]).await
    }

    /// Returns the record of the node; null if it has never connected.
    pub async fn get(&self) -> Value {
        let found = self.admin.call("NodeService/GetNode", json!({"name": NODE})).await;
        found.map(|it| it["node"].clone()).unwrap_or_default()
    }

    /// Waits until the node has a stream, or has none.
    pub async fn until_connected(&self, is_connected: bool) {
        let is_so = async || (self.get().await["connected"] == true) == is_connected;
        until(is_so, &format!("connected: {is_connected}")).await;
    }

    /// Creates a stack of one container, and an instance that runs it on the node. The machine is booted for it from now on.
    pub async fn assign_stack(&self, container: Value) {
        let stack = json!({"stack": {"name": "web", "containers": [container]}});
        self.admin.call("StackService/CreateStack", stack).await.unwrap();
        let instance = json!({"hardware_id": self.id, "image_stack": {"stack_id": "web"}});
        let create = json!({"instance": instance});
        self.admin.call("InstanceService/CreateInstance", create).await.unwrap();
        until_booted(&self.admin, 1).await;
    }

    /// Waits until the stack runs and the instance is active.
    pub async fn until_active(&self) {
        let list = async || {
            let listed = self.admin.call("InstanceService/ListInstances", json!({})).await.unwrap();
            listed["instances"][0]["state"].clone()
        };
        let is_active = async || {
            self.get().await["state"] == "NODE_STATE_RUNNING" && list().await == "STATE_ACTIVE"
        };
        until(is_active, "the stack runs and the instance is active").await;
    }

    /// Writes the certificate of an operator with its key, and that of the authority. Returns the paths of both.
    pub fn write_operator(&self) -> [String; 2] {
        let site = authority(&self.server);
        let own = site.client(&Role::Operator.into()).unwrap();
        let identity = format!("{}{}", own.certificate, own.key.expose());
        fs::write(self.host.path("operator.pem"), identity).unwrap();
        fs::write(self.host.path("authority.pem"), site.authority()).unwrap();
        ["operator.pem", "authority.pem"].map(|name| self.host.text(name))
    }

    /// Returns a client of the node's Unix socket.
    pub fn socket(&self) -> ImageApi {
        ImageApi::at_socket(self.host.path("socket"))
    }

    /// Returns a client of the gateway.
    pub fn gateway(&self) -> ImageApi {
        ImageApi::new(&self.server, Role::Operator)
    }
}

fn authority(server: &RunningServer) -> SiteAuthority {
    SiteAuthority::open(&server.secrets()).unwrap()
}

/// Answers each request with `authority`, a certificate in PEM, as netboot answers that for `ca.pem`.
async fn serve_authority(authority: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (mut head, mut part) = (Vec::new(), [0; 1024]);
            while !head.ends_with(b"\r\n\r\n") {
                let length = client.read(&mut part).await.unwrap();
                assert_ne!(length, 0, "the request is complete");
                head.extend_from_slice(&part[..length]);
            }
            assert!(head.starts_with(b"GET /v1/boot/T/ca.pem HTTP/1.1\r\n"), "{head:?}");
            let length = authority.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{authority}"
            );
            client.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

/// The program as a process. Drop kills it.
pub struct Agent {
    child: Child,
    log: PathBuf,
    log_start: usize,
}

impl Agent {
    /// Starts the program in the place `host`, and waits until it serves its Unix socket.
    pub async fn start(host: &Host, flags: &[&str]) -> Self {
        let program = setup::program("tinwright-node");
        assert!(
            program.is_absolute(),
            "tinwright-node is not built beside this test: cargo build --workspace --bins"
        );
        let mut command = Command::new(program);
        for (flag, name) in [
            ("--socket-path", "socket"),
            ("--state-directory", "state"),
            ("--mount-directory", "mounts"),
            ("--log-directory", "logs"),
        ] {
            command.arg(flag).arg(host.path(name));
        }
        let log = host.path("agent.log");
        let log_start = fs::read(&log).map_or(0, |text| text.len());
        let file = OpenOptions::new().append(true).create(true).open(&log).unwrap();
        // A stop that comes before a container's program has set its signal handler is discarded by the kernel.
        command.args(["--scheme", "unix", "--stop-grace", "1s"]).args(flags);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let agent = Self { child: child.unwrap(), log, log_start };
        agent.until_logged("node ready").await;
        agent
    }

    /// Waits until this process has logged `text`.
    pub async fn until_logged(&self, text: &str) {
        until(async || self.own_log().contains(text), &format!("logged: {text}")).await;
    }

    /// Returns what this process has logged.
    pub fn own_log(&self) -> String {
        let text = fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&text[self.log_start..]).into_owned()
    }

    /// Kills the process.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the agent\n{}", self.own_log());
        }
        // It has ended already if the test ended it.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
