//! Explanations that depend on earlier requests.

use crate::bootscripts::tests::fleet_of;
use std::time::{Duration, Instant};

use super::*;
use crate::bootscripts::BootRefusal;
use crate::dhcp_server::link_state::LinkState;
use dhcp::chainload::LOADER_INTERVAL;

/// A link where iPXE that is firmware gets a loader first.
fn chaining(boots: &BootScripts) -> View {
    View { link_state: Arc::new(LinkState::new(Some(Arc::default()))), ..at(boots, link()) }
}

fn told(place: &View, class: pb::ClientClass) -> pb::ExplainBootResponse {
    let question =
        BootQuestion { target: Target::Mac(MAC), class, architecture: Some(0), relay: None };
    explain(&question, place, &runtime::Clock::system())
}

fn file(told: &pb::ExplainBootResponse) -> &str {
    &told.dhcp.as_ref().unwrap().boot_file
}

#[test]
fn ipxe_in_a_rom_gets_a_loader_until_it_has_fetched_one() {
    let script = "http://192.0.2.1:7080/52-54-00-00-00-01/auto.ipxe";
    let place = chaining(&boots(HardwareId::new()));
    for _ in 0..20 {
        let told = told(&place, pb::ClientClass::IpxeRom);
        assert_eq!(file(&told), "undionly.kpxe", "asking is not booting");
        assert_eq!(told.inputs.unwrap().loader_time, None);
    }
    assert_eq!(file(&told(&place, pb::ClientClass::Ipxe)), script, "it has it by then");
    place.link_state.record_fetched(MAC, Instant::now());
    let after = told(&place, pb::ClientClass::IpxeRom);
    assert_eq!(file(&after), script);
    let looked = after.inputs.unwrap();
    assert!(looked.chain_ipxe && looked.loader_time.is_some());
    let rested = Instant::now() + LOADER_INTERVAL;
    assert_eq!(place.link_state.loader_age(MAC, rested), None, "and then again");
}

#[test]
fn without_chainloading_every_ipxe_gets_the_script() {
    let told = asked(&boots(HardwareId::new()), Target::Mac(MAC), pb::ClientClass::IpxeRom);
    assert!(file(&told).ends_with("/auto.ipxe"));
    assert!(!told.inputs.unwrap().chain_ipxe);
}

#[test]
fn a_declined_address_is_reported_for_a_minute() {
    let place = chaining(&boots(HardwareId::new()));
    let address = Ipv4Addr::new(192, 0, 2, 10);
    place.link_state.record_declined(address, Instant::now());
    let withheld = told(&place, pb::ClientClass::Ipxe);
    assert_eq!(
        withheld.dhcp.unwrap().drop_reason,
        "its address was declined less than a minute ago"
    );
    assert!(withheld.inputs.unwrap().declined_time.is_some());
    let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(61)) else {
        panic!("this machine runs for less than a minute")
    };
    place.link_state.record_declined(address, earlier);
    let offered = told(&place, pb::ClientClass::Ipxe);
    assert_eq!(offered.dhcp.unwrap().address, "192.0.2.10");
    assert_eq!(offered.inputs.unwrap().declined_time, None);
}

#[test]
fn a_started_one_shot_script_is_reported_and_not_served_again() {
    let id = HardwareId::new();
    let boots = boots(id);
    let mut machine = machine(id);
    machine.interfaces[0].netboot.as_mut().unwrap().boot_once =
        Some(hw::Ipxe { contents: "#!ipxe\necho once".into(), ..hw::Ipxe::default() });
    fleet_of(&boots).hardware(FeedEvent::Snapshot(vec![machine]));
    let place = at(&boots, link());
    let waits = told(&place, pb::ClientClass::Ipxe);
    assert_eq!(
        (waits.boot, waits.script.unwrap().kind()),
        (i32::from(pb::BootTarget::CustomScript), pb::ScriptKind::CustomOnce)
    );
    assert!(!waits.inputs.unwrap().boot_once_started);
    let known = boots.index.by_mac(MAC).unwrap();
    let once = known.facts.boot_once.clone().unwrap();
    boots.history.record_one_shot(&known, &once, SystemTime::now());
    assert!(boots.history.mark_started(id));
    let started = told(&place, pb::ClientClass::Ipxe);
    assert_eq!(
        (started.boot, started.script.unwrap().kind()),
        (i32::from(pb::BootTarget::Worker), pb::ScriptKind::Worker)
    );
    let looked = started.inputs.unwrap();
    assert!(looked.boot_once.is_some() && looked.boot_once_started);
}

#[test]
fn a_boot_loop_is_reported_and_delays_the_script_where_configured() {
    let id = HardwareId::new();
    for holds in [false, true] {
        let mut site = crate::bootscripts::tests::site();
        site.serving.hold_boot_loops = holds;
        let boots = boots(id).for_link(site);
        let asked = ScriptRequest::new(Some(MAC), [192, 0, 2, 10].into());
        assert!((0..10).all(|_| boots.serve(&asked, SystemTime::now()).is_ok()));
        let told = told(&at(&boots, link()), pb::ClientClass::Ipxe);
        assert!(told.inputs.unwrap().boot_loop);
        let script = told.script.unwrap();
        let refused = boots.serve(&asked, SystemTime::now());
        assert_eq!(script.status, if holds { 503 } else { 200 });
        assert_eq!(matches!(refused, Err(BootRefusal::Later { .. })), holds);
        assert_eq!(script.refusal, refused.err().map_or_else(String::new, |why| why.to_string()));
    }
}
