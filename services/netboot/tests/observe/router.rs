//! Router solicitations of a real client.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netboot::Metrics;
use netboot::dhcp_server::link_state::LinkState;
use netboot::ra::{self, Server};
use prometheus_client::registry::Registry;
use runtime::clock::Clock;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::network::{MAC, Network};

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Longer than a router waits before its first advertisement.
const BOUND: Duration = Duration::from_secs(60);
/// The solicitations of rdisc6 where an answer is expected, which ends them; there are 1.5 seconds between them.
const TRIES: u32 = 20;
/// The same where there may be no answer.
const TRIES_WITHOUT_REPLY: u32 = 2;

struct Site {
    network: Network,
    /// At the machine.
    loader: socket2::Socket,
    link_state: Arc<LinkState>,
    registry: Registry,
    _stop: DropGuard,
}

fn site() -> Site {
    let (network, link_state) = (Network::new(), Arc::<LinkState>::default());
    let mut registry = Registry::default();
    let metrics = Metrics::default();
    metrics.register(&mut registry);
    let socket = network.at_server(|| ra::open("v0")).unwrap();
    let stop = CancellationToken::new();
    let server = Server { link_state: link_state.clone(), metrics, clock: Clock::system() };
    tokio::spawn(server.run(socket, stop.clone()));
    let loader = network.at_machine(|| ra::open("eth0")).unwrap();
    Site { network, loader, link_state, registry, _stop: stop.drop_guard() }
}

impl Site {
    /// Sends solicitations like a loader, with the Ethernet address, which rdisc6 leaves out.
    async fn ask(&self) -> std::convert::Infallible {
        let own = [&[133, 0, 0, 0, 0, 0, 0, 0, 1, 1][..], &MAC.0].concat();
        loop {
            self.loader.send_to(&own, &SocketAddrV6::new(ALL_ROUTERS, 0, 0, 0).into()).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the output of rdisc6, which runs meanwhile with at most so many solicitations and accepts only advertisements
    /// with a hop limit of 255; none if it received none.
    async fn solicit(&self, tries: u32) -> Option<String> {
        let line = format!("rdisc6 -n -1 -r {tries} -w 1500 eth0");
        let said = tokio::select! {
            said = self.network.run(&line) => said,
            never = self.ask() => match never {},
        };
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        match said.status.code() {
            Some(0) => Some(text),
            Some(2) => None,
            _ => panic!("rdisc6: {text}{}", String::from_utf8_lossy(&said.stderr)),
        }
    }

    /// Returns the number of advertisements that were sent.
    fn advertised(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let mut lines = text.lines();
        let count =
            lines.find_map(|line| line.strip_prefix("netboot_router_advertisements_total "));
        count.expect(&text).parse().unwrap()
    }
}

#[tokio::test]
async fn a_booting_machine_gets_an_advertisement_that_advertises_nothing() {
    let site = site();
    assert_eq!(site.solicit(TRIES_WITHOUT_REPLY).await, None, "it is not booting");
    site.link_state.record_booting(MAC, Instant::now());
    let told = site.solicit(TRIES).await.expect("an answer");
    for wanted in
        ["Hop limit                 :    undefined", "Router lifetime           :            0"]
    {
        assert!(told.contains(wanted), "{told}");
    }
    assert!(!told.contains("Prefix"), "{told}");
    assert!(site.advertised() > 0);
}

/// dnsmasq answers solicitations, and sends periodic advertisements. The server stops once it has received one of these.
#[tokio::test]
async fn no_advertisement_is_sent_while_a_router_advertises() {
    let mut site = site();
    site.link_state.record_booting(MAC, Instant::now());
    let told = site.solicit(TRIES).await.expect("an answer of ours");
    assert!(!told.contains("2001:db8::/64"), "{told}");
    site.network.route();
    let routed = async {
        let mut quiet = 0;
        while quiet < 5 {
            site.link_state.record_booting(MAC, Instant::now());
            let before = site.advertised();
            // On a busy host the router may be too slow for rdisc6.
            let told = site.solicit(TRIES_WITHOUT_REPLY).await.unwrap_or_default();
            let theirs = told.contains("2001:db8::/64") && site.advertised() == before;
            quiet = if theirs { quiet + 1 } else { 0 };
        }
    };
    tokio::time::timeout(BOUND, routed).await.expect("we are quiet once the router is heard");
}
