//! Who is lent what, and who is known by it.
#![allow(clippy::unwrap_used)]

use fleet::Fleet;
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tokio_util::sync::{CancellationToken, DropGuard};

use dhcp::{ListenPort, Packet, Received};

use super::*;
use crate::bootscripts::BootScripts;
use crate::bootscripts::tests::hardware;
use crate::leases::{Claim, Granted};
use crate::timeline::{BootStep, BootSubject, Timeline};

pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
pub(crate) const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 9]);
/// The first address that is lent.
pub(crate) const LENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

/// A site that lends addresses, which knows a machine with the interface [`MAC`] and no address.
pub(crate) struct Site {
    pub(crate) boots: BootScripts,
    pub(crate) leases: Leases,
    pub(crate) unknown: Arc<Machines>,
    pub(crate) subnet: Subnet,
    _stop: DropGuard,
}

pub(crate) async fn site(unknown: Unknown, addresses: u8) -> Site {
    let mut machine = hardware(HardwareId::new(), MAC, "192.0.2.10");
    machine.name = "node-1".into();
    machine.state = tinwright::hardware::v1::State::Provisionable.into();
    machine.interfaces[0].dhcp = None;
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![machine]));
    fleet.instance(FeedEvent::Snapshot(vec![]));
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    let network = Ipv4Net::new_assert([192, 0, 2, 0].into(), 24);
    let last = LENT.octets()[3] + addresses - 1;
    let ranges = vec![format!("{LENT}-192.0.2.{last}").parse().unwrap()];
    let subnet = Subnet { unknown, ..Subnet::new(network, ranges) };
    let leases = Leases::new(Arc::new(MemoryStore::default()));
    let (stop, running) = (CancellationToken::new(), leases.clone());
    tokio::spawn(running.run(stop.clone()));
    leases.ready().await;
    let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
    let boots = BootScripts::new(index.clone(), tokens, crate::bootscripts::tests::site());
    let seen = Arc::new(Machines::default());
    let lending = Lending::new(vec![subnet.clone()], leases.clone(), index, seen.clone());
    let boots = boots.with_lending(Arc::new(lending));
    Site { boots, leases, unknown: seen, subnet, _stop: stop.drop_guard() }
}

/// What a client says that wants `address`, and believes to have been offered it if that is said.
fn request(mac: Mac, address: Ipv4Addr, offered: bool) -> Packet {
    let mut request = Packet::request(MessageType::Request, mac.0);
    let ours = offered.then_some([192, 0, 2, 1]);
    request.options.set(code::REQUESTED_ADDRESS, address.octets());
    request.options.set_some(code::SERVER_IDENTIFIER, ours);
    request
}

fn lend(site: &Site, request: &Packet, now: SystemTime) -> Result<Lent, DropReason> {
    let link = Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080");
    let received =
        Received { source: "0.0.0.0:68".parse().unwrap(), broadcast: true, port: ListenPort::Dhcp };
    let request = &Request::new(request.clone(), received, &link).unwrap();
    let known = site.boots.index().by_mac(Mac(request.mac));
    let record = known.as_ref().map(|known| known.reservation());
    let asked = Asked { request, record, link: &link };
    site.boots.lending().unwrap().lend(asked, now)
}

#[tokio::test]
async fn strangers_that_skip_the_discover_are_counted_like_those_that_do_not() {
    let (site, now) = (site(Unknown::Enrol, 50).await, SystemTime::now());
    let lent = (0..50).filter(|last| {
        let wanted = Ipv4Addr::new(192, 0, 2, LENT.octets()[3] + last);
        let request = request(Mac([2, 0, 0, 0, 1, *last]), wanted, true);
        match lend(&site, &request, now) {
            Ok(Lent::Address(lent)) => lent.address.is_some(),
            other => {
                assert_eq!(other, Err(DropReason::TooMany));
                false
            }
        }
    });
    assert_eq!(lent.count(), 20);
}

#[tokio::test]
async fn a_machine_of_ours_is_told_that_an_address_of_another_network_is_not_its() {
    let (site, now) = (site(Unknown::Enrol, 1).await, SystemTime::now());
    let elsewhere = Ipv4Addr::new(203, 0, 113, 5);
    for (mac, told) in [(MAC, true), (STRANGER, false)] {
        let lent = lend(&site, &request(mac, elsewhere, false), now).unwrap();
        let Lent::Address(lent) = lent else { panic!("{lent:?}") };
        assert_eq!((lent.address, lent.pool.unwrap().is_authoritative), (None, told), "{mac}");
    }
}

#[tokio::test]
async fn what_a_machine_says_from_the_address_it_is_lent_is_its() {
    let (site, now) = (site(Unknown::Ignore, 1).await, SystemTime::now());
    let (timeline, events) = Timeline::new(Metrics::default());
    let boots = site.boots.clone().with_timeline(timeline);
    assert!(boots.at(LENT.into(), now).is_none());
    let claim = Claim { address: LENT, mac: MAC, lasts: Duration::from_secs(60), at_port: None };
    assert!(matches!(site.leases.claim(claim, now).await, Granted::For(_)));
    let known = boots.at(LENT.into(), now).unwrap();
    assert_eq!(known.mac, MAC);
    boots.record_file(LENT.into(), "vmlinuz-x86_64", None, now);
    let event = events.next().unwrap();
    assert_eq!(event.subject, BootSubject::from(&*known));
    assert_eq!(event.step, BootStep::Kernel("vmlinuz-x86_64".into()));
    assert!(boots.at(LENT.into(), now + Duration::from_secs(120)).is_none(), "the lease ended");
}
