//! Boot gates of platforms, and private files behind them.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use runtime::neighbour::SourceCheck;
use tinwright::HardwareId;
use tinwright::instance::v1::{self as occ, Instance};

use super::*;
use crate::bootscripts::tests::{MAC, at, boots, boots_at, fleet_of, now, site};
use crate::machine_view::Index;

const HERE: &str = "192.0.2.10";
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn open_gate() -> BootGate {
    let initial_ips = vec![HERE.into()];
    BootGate { open: true, uuid: UUID.into(), mac: MAC.to_string(), initial_ips, open_time: None }
}

/// Puts a platform's system with `gate` on the machine, which has no workflow.
fn put(boots: &BootScripts, id: HardwareId, gate: Option<BootGate>) {
    put_script(boots, id, gate, "/platform/start.ipxe");
}

fn put_script(boots: &BootScripts, id: HardwareId, gate: Option<BootGate>, boot_url: &str) {
    let fleet = fleet_of(boots);
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    let boot_url = boot_url.into();
    let boot = occ::PlatformBoot { boot_url, ..occ::PlatformBoot::default() };
    fleet.instance(FeedEvent::Snapshot(vec![Instance {
        id: "i".into(),
        state: occ::State::Active.into(),
        hardware_id: id.to_string(),
        os: Some(occ::instance::Os::Platform(boot)),
        boot_gate: gate,
        ..Instance::default()
    }]));
}

/// Returns the scripts of a machine with an open gate.
fn opened() -> BootScripts {
    let id = HardwareId::new();
    let boots = boots(id);
    put(&boots, id, Some(open_gate()));
    boots
}

fn request<'a>(path: &'a str, uuid: Option<&'a str>) -> PrivateFileRequest<'a> {
    PrivateFileRequest { path, uuid, source: at(HERE), neighbour: NeighbourCheck::Unchecked }
}

fn is_served(boots: &BootScripts, request: &PrivateFileRequest<'_>, now: SystemTime) -> bool {
    let (reply, effects) = boots.respond_private_file(request, now);
    assert_eq!(reply.is_ok(), effects.warnings.is_empty() && effects.event.is_none());
    reply.is_ok()
}

#[test]
fn a_machine_has_the_files_beside_the_script_of_its_platform_only() {
    let id = HardwareId::new();
    let boots = boots(id);
    for (boot_url, own, foreign) in [
        (
            "/platform/acme/start.ipxe",
            &["acme/start.ipxe", "acme/kernel", "acme/a/kernel"][..],
            &["kernel", "other/kernel", "acme", "acme-2/kernel", "acme/../other/kernel"][..],
        ),
        ("/platform/start.ipxe", &["kernel", "acme/kernel"], &["", "a//b", "../kernel", "a/."]),
        ("https://boot.test/start.ipxe", &[], &["start.ipxe", "acme/kernel"]),
    ] {
        put_script(&boots, id, Some(open_gate()), boot_url);
        for (paths, expected) in [(own, true), (foreign, false)] {
            for path in paths {
                let served = is_served(&boots, &request(path, Some(UUID)), now());
                assert_eq!(served, expected, "{path:?} with {boot_url}");
            }
        }
    }
}

/// Returns the path below `/platform/` that the machine's script chains to.
fn token_path(boots: &BootScripts) -> String {
    let machine = boots.index.by_mac(MAC).unwrap();
    let url = boots.private_file_url(&machine, "start.ipxe", at(HERE), now()).unwrap();
    url.strip_prefix("http://192.0.2.1:7080/platform/").unwrap().to_owned()
}

#[test]
fn a_token_is_valid_for_an_hour_and_in_the_next_process() {
    let boots = opened();
    let path = token_path(&boots);
    let of_key = |key, index| {
        let tokens = BootTokens::new(&SiteKey::new([key; 32])).unwrap();
        BootScripts::new(index, tokens, site())
    };
    let restarted = of_key(1, boots.index.clone());
    for boots in [&boots, &restarted] {
        let at = |seconds| now() + Duration::from_secs(seconds);
        assert!(is_served(boots, &request(&path, None), at(3599)));
        assert!(!is_served(boots, &request(&path, None), at(3600)));
    }
    assert!(!is_served(&of_key(2, boots.index.clone()), &request(&path, None), now()));
    // Before the feeds are complete again, nobody gets anything.
    let empty = of_key(1, Arc::new(Index::default()));
    let reply = empty.respond_private_file(&request(&path, None), now()).0;
    assert_eq!(reply, Err(BootRefusal::later(Fact::FeedIncomplete)));
}

#[test]
fn the_owner_of_the_address_on_our_link_is_the_machine() {
    let (mut site, id) = (site(), HardwareId::new());
    site.serving.source_check = SourceCheck::OnLink;
    let boots = boots_at(id, site);
    put(&boots, id, Some(open_gate()));
    let path = token_path(&boots);
    let other = NeighbourCheck::Owner(Mac([2, 0, 0, 0, 0, 9]));
    for (path, uuid) in [(&*path, None), ("start.ipxe", Some(UUID))] {
        for (neighbour, expected) in [
            (NeighbourCheck::Owner(MAC), true),
            (NeighbourCheck::Routed, true),
            (NeighbourCheck::NoOwner, false),
            (other, false),
        ] {
            let request = PrivateFileRequest { neighbour, ..request(path, uuid) };
            assert_eq!(is_served(&boots, &request, now()), expected, "{path} {neighbour:?}");
        }
    }
}

#[test]
fn a_machine_that_moved_to_another_address_gets_nothing() {
    let id = HardwareId::new();
    let boots = boots(id);
    put(&boots, id, Some(open_gate()));
    let path = token_path(&boots);
    assert!(is_served(&boots, &request(&path, None), now()));
    let moved = crate::bootscripts::tests::hardware(id, MAC, "192.0.2.30");
    fleet_of(&boots).hardware(FeedEvent::Put(moved));
    assert!(!is_served(&boots, &request(&path, None), now()), "the old address is not its own");
    let there =
        PrivateFileRequest { source: at("192.0.2.30"), ..request("start.ipxe", Some(UUID)) };
    assert!(!is_served(&boots, &there, now()), "the gate names the old address");
}

#[test]
fn with_a_token_the_gate_is_compared_at_each_request() {
    let id = HardwareId::new();
    let boots = boots(id);
    put(&boots, id, Some(open_gate()));
    let path = token_path(&boots);
    for (gate, expected) in [
        (open_gate(), true),
        (BootGate { mac: "02:00:00:00:00:07".into(), ..open_gate() }, false),
        (BootGate { initial_ips: vec!["192.0.2.30".into()], ..open_gate() }, false),
        (BootGate { open: false, ..open_gate() }, false),
        (open_gate(), true),
    ] {
        put(&boots, id, Some(gate.clone()));
        assert_eq!(is_served(&boots, &request(&path, None), now()), expected, "{gate:?}");
    }
}

#[test]
fn the_firmware_must_have_sent_the_same_uuid() {
    let boots = opened();
    assert!(is_served(&boots, &request("start.ipxe", Some(UUID)), now()));
    boots.history.record_uuid(&boots.index.by_mac(MAC).unwrap(), [7; 16]);
    assert!(!is_served(&boots, &request("start.ipxe", Some(UUID)), now()));
}

#[test]
fn a_gate_that_names_no_uuid_asks_for_none_and_a_missing_gate_is_closed() {
    let id = HardwareId::new();
    let boots = boots(id);
    put(&boots, id, Some(BootGate { uuid: String::new(), ..open_gate() }));
    assert!(is_served(&boots, &request("start.ipxe", None), now()));
    for gate in [None, Some(BootGate::default())] {
        put(&boots, id, gate);
        assert!(!is_served(&boots, &request("start.ipxe", Some(UUID)), now()));
    }
}

proptest! {
    #[test]
    fn no_other_text_is_a_token(
        text in "[A-Za-z0-9._/-]{0,120}",
        position: prop::sample::Index,
        letter in "[A-Za-z0-9_-]",
    ) {
        let boots = opened();
        let path = token_path(&boots);
        prop_assert!(is_served(&boots, &request(&path, None), now()));
        let forged = ["t/", &text].concat();
        prop_assert!(!is_served(&boots, &request(&forged, Some(UUID)), now()));
        // The last letter of a token has bits that are always 0.
        let token = path.split('/').nth(1).unwrap();
        let changed = position.index(token.len() - 1);
        prop_assume!(token.get(changed..=changed) != Some(&*letter));
        let forged = [&token[..changed], &*letter, &token[changed + 1..]].concat();
        let forged = format!("t/{forged}/start.ipxe");
        prop_assert!(!is_served(&boots, &request(&forged, Some(UUID)), now()));
    }
}
