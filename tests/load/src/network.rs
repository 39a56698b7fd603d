//! A server's network and its machines', each a network namespace.
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

/// The machines' side of the link, a router to them.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The machines' network: one that is set aside for benches (RFC 2544), and large enough.
pub const MACHINES: &str = "198.18.0.0/15";

/// The two namespaces. Dropping it ends what runs in the server's, and takes both away.
#[derive(Debug)]
pub struct Network {
    machines: Client,
    /// The server's side.
    pub lab: Lab,
}

impl Network {
    /// A fresh one, with nothing running in it.
    pub fn new() -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let machines = Client::new(&lab, 1, "02:ff:00:00:00:01")?;
        machines.settle(&ROUTER.to_string())?;
        // Every address of the network is here: forty thousand of them need not be added one by one.
        machines.ip(&format!("route add local {MACHINES} dev lo"))?;
        let route = ["route", "add", MACHINES, "via", &ROUTER.to_string()];
        setup::run(lab.command("ip").args(route))?;
        Ok(Self { machines, lab })
    }

    /// Moves this thread to the machines' network: sockets it makes from here on are theirs.
    pub fn enter(&self) -> anyhow::Result<()> {
        enter(self.machines.name())
    }

    /// Moves this thread to the server's network.
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
