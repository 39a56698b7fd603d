//! Two network namespaces: one for the server, one for the machines.
//!
//! ```text
//! network namespace ── br0 198.51.100.1, 169.254.169.254 ── the server
//!        │ veth
//! network namespace ── eth0 198.51.100.2 ── 198.18.0.0/15: the machines, behind relays
//! ```

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use rack::client::Client;
use rack::lab::Lab;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The router to the machines' network.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The machines' network, reserved for benchmarks (RFC 2544).
pub const MACHINES: &str = "198.18.0.0/15";

/// The two namespaces. Drop ends the processes in the server's namespace and removes both namespaces.
#[derive(Debug)]
pub struct Network {
    machines: Client,
    /// The server's namespace.
    pub lab: Lab,
}

impl Network {
    /// Creates the namespaces and the link between them.
    pub fn new() -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let machines = Client::new(&lab, 1, "02:ff:00:00:00:01")?;
        machines.configure(&ROUTER.to_string())?;
        // A local route makes every address of the network local; adding forty thousand addresses would be slow.
        machines.ip(&format!("route add local {MACHINES} dev lo"))?;
        let route = ["route", "add", MACHINES, "via", &ROUTER.to_string()];
        setup::run(lab.command("ip").args(route))?;
        Ok(Self { machines, lab })
    }

    /// Moves this thread into the machines' namespace; its next sockets are created there.
    pub fn enter(&self) -> anyhow::Result<()> {
        enter(self.machines.name())
    }

    /// Moves this thread into the server's namespace.
    pub fn enter_servers(&self) -> anyhow::Result<()> {
        enter(self.lab.name())
    }
}

/// Moves this thread into the network namespace `name`.
fn enter(name: &str) -> anyhow::Result<()> {
    let namespace = File::open(format!("/run/netns/{name}"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering the network namespace {name}"))
}
