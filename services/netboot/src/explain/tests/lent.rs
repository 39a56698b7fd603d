//! What is told where addresses are lent.

use std::time::Duration;

use store::memory::Memory;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::dhcp::site::Network;
use crate::leases::{Claim, Granted, Leases};
use crate::lending::Lending;
use crate::pool::{Subnet, Unknown};
use crate::unknown::Machines;

const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 9]);
/// The only address that is lent.
const LENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

/// A site that lends one address, which knows a machine with the interface [`MAC`] and no address.
struct Site {
    boots: Boots,
    leases: Leases,
    unknown: Arc<Machines>,
    subnet: Subnet,
    _stop: DropGuard,
}

async fn site(unknown: Unknown) -> Site {
    let mut machine = machine(HardwareId::new());
    machine.interfaces[0].dhcp = None;
    let index = Arc::new(Index::default());
    index.hardware(News::All(vec![machine]));
    index.instance(News::All(vec![]));
    index.workflow(News::All(vec![]));
    let network = Network { address: [192, 0, 2, 0].into(), prefix: 24 };
    let ranges = vec![LENT.to_string().parse().unwrap()];
    let subnet = Subnet { unknown, ..Subnet::new(network, ranges) };
    let leases = Leases::new(Arc::new(Memory::default()));
    let (stop, running) = (CancellationToken::new(), leases.clone());
    tokio::spawn(running.run(stop.clone()));
    leases.ready().await;
    let tokens = Tokens::new(&SiteKey::new([1; 32])).unwrap();
    let boots = Boots::new(index.clone(), tokens, crate::boots::tests::site());
    let seen = Arc::new(Machines::default());
    let lending = Lending::new(vec![subnet.clone()], leases.clone(), index, seen.clone());
    boots.lend(Arc::new(lending));
    Site { boots, leases, unknown: seen, subnet, _stop: stop.drop_guard() }
}

#[tokio::test]
async fn a_machine_without_a_record_is_told_what_its_pool_does_with_such() {
    for (unknown, boot, address, status) in [
        (Unknown::Ignore, "unknown", "", 404),
        (Unknown::Report, "unknown", "", 404),
        (Unknown::Enrol, "generic", "192.0.2.100", 200),
        (Unknown::Generic, "generic", "", 200),
    ] {
        let site = site(unknown).await;
        let told = asked(&site.boots, Subject::Mac(STRANGER), ClientClass::Ipxe);
        let (dhcp, script) = (told.dhcp.unwrap(), told.script.unwrap());
        assert_eq!((told.boot.as_str(), dhcp.address.as_str()), (boot, address), "{unknown:?}");
        assert_eq!(dhcp.boot_offered, boot == "generic", "{unknown:?}: {}", dhcp.silence);
        assert_eq!(script.status, status, "{unknown:?}: {}", script.refusal);
        let looked = told.looked_at.unwrap();
        assert_eq!((looked.pool.as_str(), looked.mac), ("192.0.2.0/24", STRANGER.to_string()));
    }
}

#[tokio::test]
async fn who_asks_for_somebody_takes_nothing_from_anybody() {
    let site = site(Unknown::Enrol).await;
    for last in 0..30 {
        let told = asked(&site.boots, Subject::Mac(Mac([2, 0, 0, 0, 1, last])), ClientClass::Pxe);
        assert_eq!(told.dhcp.unwrap().address, "192.0.2.100", "{last}");
    }
    assert_eq!(site.unknown.len(), 0, "nobody has asked for an address");
    assert_eq!(site.leases.free(&site.subnet, SystemTime::now()), 1);
    assert_eq!(site.leases.at(LENT, SystemTime::now()), None, "not offered, either");
}

#[tokio::test]
async fn a_machine_is_found_by_the_address_that_it_is_lent_and_nobody_else_gets_it() {
    let site = site(Unknown::Enrol).await;
    let (now, lasts) = (SystemTime::now(), Duration::from_secs(3600));
    let claim = Claim { address: LENT, mac: MAC, lasts, at_port: None };
    assert_eq!(site.leases.claim(claim, now).await, Granted::For(lasts));
    let told = asked(&site.boots, Subject::Address(LENT.into()), ClientClass::Ipxe);
    let looked = told.looked_at.unwrap();
    assert_eq!(looked.hardware_name, "node-1");
    assert_eq!((looked.lease_address, looked.lease_state.as_str()), (LENT.to_string(), "bound"));
    assert_eq!(looked.lease_expire_time, Some((now + lasts).into()));
    assert_eq!(told.dhcp.unwrap().address, "192.0.2.100");
    assert_eq!(told.script.unwrap().status, 200);
    let other = asked(&site.boots, Subject::Mac(STRANGER), ClientClass::Ipxe);
    assert_eq!(other.dhcp.unwrap().silence, "every address of the pool is taken");
}

#[tokio::test]
async fn a_stranger_is_found_by_the_address_that_it_is_lent() {
    let site = site(Unknown::Enrol).await;
    let claim =
        Claim { address: LENT, mac: STRANGER, lasts: Duration::from_secs(60), at_port: None };
    site.leases.claim(claim, SystemTime::now()).await;
    let told = asked(&site.boots, Subject::Address(LENT.into()), ClientClass::Ipxe);
    assert_eq!((told.boot.as_str(), told.dhcp.unwrap().address), ("generic", LENT.to_string()));
    assert_eq!(told.looked_at.unwrap().mac, STRANGER.to_string());
}
