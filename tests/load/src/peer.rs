//! Runs the servers that ours is compared with, each in its own network, configured as their manuals recommend.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rack::SERVER;
use rack::lab::wait;

use crate::fleet;
use crate::network::{MACHINES, Network};
use crate::process::{self, Measured, Process};
use crate::site::LOADER;

/// Maximum time a peer may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// File with the peer's output.
const LOG_FILE: &str = "peer.log";

/// A running peer. Drop ends it and removes its network.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    network: Network,
}

impl Peer {
    /// Returns the process and network for measurements.
    pub fn measured(&self) -> Measured<'_> {
        Measured { network: &self.network, process: &self.process }
    }

    /// Waits until `ready` returns a value.
    pub fn ready<T>(&self, mut ready: impl FnMut(Measured<'_>) -> Option<T>) -> anyhow::Result<()> {
        wait("the peer", START_TIMEOUT, || ready(self.measured()))
            .with_context(|| {
                std::fs::read_to_string(self.network.lab.path(LOG_FILE)).unwrap_or_default()
            })
            .map(drop)
    }

    /// Calls `prepare` to write the peer's files, then starts it on the server's core with the arguments that `command` adds.
    fn start(
        prepare: impl FnOnce(&Network) -> anyhow::Result<()>,
        command: impl FnOnce(&Network, &mut Command),
    ) -> anyhow::Result<Self> {
        let network = Network::new()?;
        prepare(&network)?;
        let mut line = network.lab.command("taskset");
        line.args(["--cpu-list", &process::core::SERVER.to_string()]);
        command(&network, &mut line);
        let process = Process::start(&mut line, &network.lab.path(LOG_FILE))?;
        Ok(Self { process, network })
    }

    /// Starts dnsmasq with reservations for the first `count` machines.
    pub fn dnsmasq(count: usize) -> anyhow::Result<Self> {
        let prepare = |network: &Network| {
            let (leases, log) = (network.lab.path("leases"), network.lab.path("dnsmasq.log"));
            let (base, _) = MACHINES.split_once('/').unwrap_or_default();
            let mut text = format!(
                "port=0\nkeep-in-foreground\nuser=root\npid-file=\ninterface=br0\nbind-interfaces\nno-ping\nquiet-dhcp\n\
                 log-facility={}\ndhcp-leasefile={}\ndhcp-lease-max=100000\ndhcp-authoritative\n\
                 dhcp-range={base},static,255.254.0.0,24h\ndhcp-boot={LOADER},,{SERVER}\n\
                 dhcp-option=3,{relay}\ndhcp-option=6,{relay}\n",
                log.display(),
                leases.display(),
                relay = fleet::RELAY,
            );
            for n in 0..count {
                let (mac, address) = (fleet::mac(n), fleet::address(n));
                writeln!(text, "dhcp-host={mac},{address},node-{n:05},24h")?;
            }
            Ok(fs::write(network.lab.path("dnsmasq.conf"), text)?)
        };
        Self::start(prepare, |network, command| {
            let file = network.lab.path("dnsmasq.conf");
            command.arg("dnsmasq").arg(format!("--conf-file={}", file.display()));
        })
    }

    /// Starts tftpd-hpa, unpacked in `folder`, with a file `name`.
    pub fn tftpd_hpa(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<Self> {
        Self::start(
            |network| with_file(network, name, bytes),
            |network, command| {
                command.arg(folder.join("usr/sbin/in.tftpd"));
                command.args(["--foreground", "--listen", "--secure", "--user", "root"]);
                command.args(["--address", &SERVER.to_string()]).arg(network.lab.path("files"));
            },
        )
    }

    /// Starts atftpd, unpacked in `folder`, with a file `name`.
    pub fn atftpd(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<Self> {
        Self::start(
            |network| with_file(network, name, bytes),
            |network, command| {
                command.arg(folder.join("usr/sbin/atftpd"));
                command.args(["--daemon", "--no-fork", "--user", "root.root"]);
                command.args(["--bind-address", &SERVER.to_string()]);
                command.arg(network.lab.path("files"));
            },
        )
    }

    /// Starts nginx, unpacked in `folder`, with one worker and no access log, on the ports of our boot HTTP and metadata. It
    /// serves the folder that `fill` fills, with sendfile(2) or without.
    pub fn nginx(
        folder: &Path,
        sendfile: bool,
        fill: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let sendfile = if sendfile { "on" } else { "off" };
        let prepare = |network: &Network| {
            let root = network.lab.path("files");
            fs::create_dir_all(&root)?;
            fill(&root)?;
            let text = format!(
                "daemon off; master_process off; error_log stderr; pid {};\nevents {{ worker_connections 4096; }}\nhttp {{\n\
                 client_body_temp_path {work}/body; proxy_temp_path {work}/proxy; fastcgi_temp_path {work}/fastcgi;\n\
                 uwsgi_temp_path {work}/uwsgi; scgi_temp_path {work}/scgi;\n\
                 access_log off; sendfile {sendfile}; tcp_nopush on; default_type text/plain;\n\
                 keepalive_requests 1000000000; keepalive_timeout 600s;\n\
                 server {{ listen {SERVER}:7080; listen 169.254.169.254:80; root {}; }}\n}}\n",
                network.lab.path("nginx.pid").display(),
                root.display(),
                work = network.lab.dir().display(),
            );
            Ok(fs::write(network.lab.path("nginx.conf"), text)?)
        };
        Self::start(prepare, |network, command| {
            command
                .arg(folder.join("usr/sbin/nginx"))
                .arg("-c")
                .arg(network.lab.path("nginx.conf"));
        })
    }
}

fn with_file(network: &Network, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = network.lab.path("files");
    fs::create_dir(&folder)?;
    Ok(fs::write(folder.join(name), bytes)?)
}
