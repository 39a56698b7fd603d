//! Allocations, and machines identified by them.
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
use crate::leases::{Claim, ClaimResult};
use crate::timeline::{BootOwner, BootStep, Timeline};
use tinwright::netboot::v1::BootEventKind as Kind;

pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
pub(crate) const UNKNOWN_CLIENT: Mac = Mac([2, 0, 0, 0, 0, 9]);
/// The first address of the pool.
pub(crate) const FIRST_POOL_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

/// A site with a pool, and one machine with the interface [`MAC`] and no address.
pub(crate) struct Site {
    pub(crate) boots: BootScripts,
    pub(crate) leases: Leases,
    pub(crate) unknown: Arc<UnknownClients>,
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
    let last = FIRST_POOL_ADDRESS.octets()[3] + addresses - 1;
    let ranges = vec![format!("{FIRST_POOL_ADDRESS}-192.0.2.{last}").parse().unwrap()];
    let subnet = Subnet { unknown, ..Subnet::new(network, ranges) };
    let leases = Leases::new(Arc::new(MemoryStore::default()), Clock::system());
    let (stop, running) = (CancellationToken::new(), leases.clone());
    tokio::spawn(running.run(stop.clone()));
    leases.ready().await;
    let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
    let mut boots = BootScripts::new(index.clone(), tokens, crate::bootscripts::tests::site());
    let seen = Arc::new(UnknownClients::default());
    let allocator = Allocator::new(vec![subnet.clone()], leases.clone(), index, seen.clone());
    boots.allocator = Some(Arc::new(allocator));
    Site { boots, leases, unknown: seen, subnet, _stop: stop.drop_guard() }
}

/// A REQUEST for `address`; if `offered`, in answer to our offer.
fn request(mac: Mac, address: Ipv4Addr, offered: bool) -> Packet {
    let mut request = Packet::request(MessageType::Request, mac.0);
    let ours = offered.then_some([192, 0, 2, 1]);
    request.options.set(code::REQUESTED_ADDRESS, address.octets());
    request.options.set_some(code::SERVER_IDENTIFIER, ours);
    request
}

fn link() -> Link {
    Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080")
}

fn parsed(packet: &Packet) -> Request {
    let received =
        Received { source: "0.0.0.0:68".parse().unwrap(), broadcast: true, port: ListenPort::Dhcp };
    Request::new(packet.clone(), received, &link()).unwrap()
}

/// The allocation for `request`, its effects applied.
fn allocate(site: &Site, request: &Packet, now: Timestamps) -> Result<Allocation, DropReason> {
    let (request, link) = (&parsed(request), link());
    let known = site.boots.index.by_mac(Mac(request.mac));
    let record = known.as_ref().map(|known| &known.reservation);
    let applicant = Applicant { request, record, link: &link };
    let (allocator, mut effects) = (site.boots.allocator.as_ref().unwrap(), Default::default());
    let allocation = allocator.allocate(applicant, &mut effects, now)?;
    allocator.apply(request, &effects, now).unwrap();
    Ok(allocation)
}

#[tokio::test]
async fn a_client_without_option_93_is_listed_with_the_architecture_of_its_vendor_class() {
    let (site, now) = (site(Unknown::Report, 1).await, SystemTime::now());
    let mut packet = Packet::request(MessageType::Discover, UNKNOWN_CLIENT.0);
    packet.options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    let (request, link) = (&parsed(&packet), &link());
    let applicant = Applicant { request, record: None, link };
    site.boots.allocator.as_ref().unwrap().record_unknown(applicant, None, now);
    let listed = site.unknown.due(now);
    assert_eq!(listed[0].architectures, [7]);
}

#[tokio::test]
async fn unknown_clients_without_a_discover_are_limited_like_others() {
    let (site, now) = (site(Unknown::Enrol, 50).await, Timestamps::from(&Clock::system()));
    let allocated = (0..50).filter(|last| {
        let wanted = Ipv4Addr::new(192, 0, 2, FIRST_POOL_ADDRESS.octets()[3] + last);
        let request = request(Mac([2, 0, 0, 0, 1, *last]), wanted, true);
        match allocate(&site, &request, now) {
            Ok(Allocation::Address(own)) => own.address.is_some(),
            other => {
                assert_eq!(other, Err(DropReason::EnrolmentRate));
                false
            }
        }
    });
    assert_eq!(allocated.count(), 20);
}

#[tokio::test]
async fn a_machine_with_a_record_gets_a_nak_for_an_address_of_another_network() {
    let (site, now) = (site(Unknown::Enrol, 1).await, Timestamps::from(&Clock::system()));
    let elsewhere = Ipv4Addr::new(203, 0, 113, 5);
    for (mac, is_authoritative) in [(MAC, true), (UNKNOWN_CLIENT, false)] {
        let allocation = allocate(&site, &request(mac, elsewhere, false), now).unwrap();
        let Allocation::Address(own) = allocation else { panic!("{allocation:?}") };
        assert_eq!(
            (own.address, own.pool.unwrap().is_authoritative),
            (None, is_authoritative),
            "{mac}"
        );
    }
}

#[tokio::test]
async fn a_machine_is_identified_by_its_leased_address() {
    let (site, now) = (site(Unknown::Ignore, 1).await, SystemTime::now());
    let timeline = Timeline::default();
    let mut boots = site.boots.clone();
    boots.timeline = timeline.clone();
    assert!(boots.at(FIRST_POOL_ADDRESS.into(), now).is_none());
    let claim = Claim {
        address: FIRST_POOL_ADDRESS,
        mac: MAC,
        duration: Duration::from_secs(60),
        at_port: None,
    };
    assert!(matches!(site.leases.claim(claim, now).await, ClaimResult::Granted(_)));
    let known = boots.at(FIRST_POOL_ADDRESS.into(), now).unwrap();
    assert_eq!(known.mac, MAC);
    boots.record_file(FIRST_POOL_ADDRESS.into(), "vmlinuz-x86_64", None, now);
    let event = timeline.queue.next().unwrap();
    assert_eq!((event.owner, event.mac), (BootOwner::Machine(known.id), MAC));
    assert_eq!(event.step, BootStep::new(Kind::KernelServed, "vmlinuz-x86_64"));
    assert!(
        boots.at(FIRST_POOL_ADDRESS.into(), now + Duration::from_secs(120)).is_none(),
        "the lease ended"
    );
}

#[tokio::test]
async fn a_client_gets_neither_a_withheld_nor_a_granted_address() {
    use tinwright::address::v1::Grant;
    let (site, now) = (site(Unknown::Enrol, 3).await, Timestamps::from(&Clock::system()));
    let [first, second, third] =
        [0, 1, 2].map(|n| Ipv4Addr::from_bits(FIRST_POOL_ADDRESS.to_bits() + n));
    site.leases.withhold(first, &[], "hardware m").await.unwrap();
    let granted = Grant { id: "g".into(), block: format!("{second}/32"), ..Grant::default() };
    site.boots.allocator.as_ref().unwrap().grants.take(FeedEvent::Put(granted));
    for (wanted, is_leased) in [(first, false), (second, false), (third, true)] {
        let allocation = allocate(&site, &request(UNKNOWN_CLIENT, wanted, true), now).unwrap();
        let Allocation::Address(own) = allocation else { panic!("{allocation:?}") };
        assert_eq!(own.address.map(|it| it.addr()), Some(wanted).filter(|_| is_leased), "{wanted}");
    }
}
