//! Syslog of other programs.

use fleet::Fleet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use netboot::Metrics;
use netboot::machine_view::Index;
use netboot::syslog::lines::Line;
use netboot::syslog::{Lines, server::Server};
use prometheus_client::registry::Registry;
use runtime::Clock;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1 as hw;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::network::{MAC, MACHINE, Network, SERVER};

/// The machine with a record.
const ID: &str = "01a20370-0000-7000-8000-000000000001";
/// The timeout of each test.
const BOUND: Duration = Duration::from_secs(60);

struct Site {
    network: Network,
    lines: Arc<Lines>,
    registry: Registry,
    _stop: DropGuard,
}

/// Starts a receiver with one machine.
fn site() -> Site {
    let (network, index) = (Network::new(), Arc::new(Index::default()));
    let fleet = Fleet::new(vec![index.clone()]);
    let address = hw::Address { address: MACHINE.into(), ..hw::Address::default() };
    let interface = hw::Interface {
        mac: MAC.to_string(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        ..hw::Interface::default()
    };
    let machine =
        hw::Hardware { id: ID.into(), interfaces: vec![interface], ..hw::Hardware::default() };
    fleet.hardware(FeedEvent::Snapshot(vec![machine]));
    let socket = network.at_server(|| std::net::UdpSocket::bind((SERVER, 514))).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = tokio::net::UdpSocket::from_std(socket).unwrap();
    let lines = Arc::new(Lines::new(SystemTime::now()));
    let (mut registry, stop) = (Registry::default(), CancellationToken::new());
    let metrics = Metrics::default();
    metrics.register(&mut registry);
    let server = Server {
        index,
        allocator: None,
        lines: lines.clone(),
        metrics,
        debug: false,
        clock: Clock::system(),
    };
    tokio::spawn(server.run(socket, stop.clone()));
    Site { network, lines, registry, _stop: stop.drop_guard() }
}

impl Site {
    /// Runs a sender, and returns the first `count` lines of `machine`.
    async fn said(&self, line: &str, machine: &str, count: usize) -> Vec<Line> {
        let mut news = self.lines.latest.subscribe();
        let sent = self.network.run(line).await;
        assert!(sent.status.success(), "{line}: {}", String::from_utf8_lossy(&sent.stderr));
        let come = async {
            loop {
                let lines = self.lines.after(machine, 0, 9999);
                if lines.len() >= count {
                    return lines;
                }
                news.changed().await.unwrap();
            }
        };
        tokio::time::timeout(BOUND, come).await.expect("the lines come")
    }
}

#[tokio::test]
async fn loggers_messages_are_read_in_both_forms_and_debug_is_dropped() {
    let site = site();
    let send = "logger -n 198.51.100.1 -P 514 -d";
    let line = format!(
        "{send} -p user.debug --rfc3164 no && \
         {send} -t prog --id=77 -p daemon.err --rfc5424 --sd-id x@1 --sd-param 'a=\"1\"' hi && \
         {send} -t other -p kern.warning --rfc3164 'two: three'"
    );
    let lines = site.said(&line, ID, 2).await;
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let m = &line.message;
            let priority = (m.priority.facility(), m.priority.severity());
            (priority, m.app.as_str(), m.process.as_str(), m.text.as_str())
        })
        .collect();
    assert_eq!(seen[0], (("daemon", "err"), "prog", "77", "hi"));
    // The kernel's facility is not for programs to use, so logger sends it as user.
    assert_eq!(seen[1], (("user", "warning"), "other", "", "two: three"));
    assert!(lines[0].message.sent.is_some());
    assert_eq!(lines.len(), 2);
}

#[tokio::test]
async fn lines_without_priority_with_a_wrong_one_and_of_unknown_senders_are_stored() {
    let site = site();
    let stranger = site.network.at_machine(|| std::net::UdpSocket::bind("198.51.100.77:0"));
    stranger.unwrap().send_to(b"who am I", (SERVER, 514)).unwrap();
    let send = "> /dev/udp/198.51.100.1/514";
    let line = format!(
        "bash -c \"printf '<14>hello' {send}; printf '<192>x' {send}; printf '<>y' {send}; \
         printf '<0000014>z' {send}\""
    );
    site.said(&line, ID, 4).await;
    let unknown = site.said("true", "", 1).await;
    assert_eq!(unknown[0].message.text, "who am I");
    let known: Vec<_> = site.lines.after(ID, 0, 99).into_iter().map(|l| l.message.text).collect();
    assert_eq!(known, ["hello", "<192>x", "<>y", "<0000014>z"]);
    let mut counted = String::new();
    prometheus_client::encoding::text::encode(&mut counted, &site.registry).unwrap();
    for wanted in ["netboot_syslog_lines_total{known=\"true\"} 4", "{known=\"false\"} 1"] {
        assert!(counted.contains(wanted), "{counted}");
    }
}

#[tokio::test]
async fn a_flood_is_limited_and_the_dropped_lines_are_reported() {
    let site = site();
    let socket = site.network.at_machine(|| std::net::UdpSocket::bind((MACHINE, 0))).unwrap();
    let mut news = site.lines.latest.subscribe();
    let flood = async {
        loop {
            for _ in 0..100 {
                socket.send_to(b"<14>flood", (SERVER, 514)).unwrap();
            }
            let lines = site.lines.after(ID, 0, 9999);
            let said = lines.iter().find(|line| line.message.text.ends_with(" lines dropped"));
            if let Some(line) = said {
                return line.clone();
            }
            // While all are dropped there is no news: the flood has to go on.
            let _more = tokio::time::timeout(Duration::from_millis(20), news.changed()).await;
        }
    };
    let line = tokio::time::timeout(BOUND, flood).await.expect("it is said");
    assert_eq!(line.message.app, "netboot");
}
