//! Whom a script is for, and what it opens.
#![allow(clippy::unwrap_used)]

use super::*;
use runtime::SiteKey;
use runtime::feed::News;
use tinwright::HardwareId;
use tinwright::hardware::v1::{self as hw, Interface};
use tinwright::workflow::v1::Workflow;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn hardware(id: HardwareId, mac: Mac, address: &str) -> Hardware {
    let address =
        hw::Address { address: address.into(), prefix_length: 24, gateway: String::new() };
    let interface = Interface {
        mac: mac.to_string(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..Interface::default()
    };
    Hardware {
        id: id.to_string(),
        architecture: "x86_64".into(),
        interfaces: vec![interface],
        ..Hardware::default()
    }
}

pub(crate) fn site() -> Site {
    Site {
        interface: "lo".into(),
        address: [192, 0, 2, 1].into(),
        http_port: 7080,
        dhcp: crate::site::Dhcp::default(),
        loaders: Vec::new(),
        osie: "/nowhere".into(),
        files: None,
        grpc_authority: "192.0.2.1:42113".into(),
        authority: "PEM".into(),
        authority_sha256: "ab".into(),
        consoles: vec!["ttyS0".into()],
        metadata_route: false,
        rate_limits: true,
        policy: crate::decision::Policy::default(),
    }
}

/// One machine that its workflow waits for, and another.
fn boots(id: HardwareId) -> Boots {
    let index = Arc::new(Index::default());
    let other = hardware(HardwareId::new(), Mac([2, 0, 0, 0, 0, 2]), "192.0.2.20");
    index.hardware(News::All(vec![hardware(id, MAC, "192.0.2.10"), other]));
    index.instance(News::All(vec![]));
    let workflow = Workflow {
        id: "w".into(),
        hardware_id: id.to_string(),
        wants_machine: true,
        ..Workflow::default()
    };
    index.workflow(News::All(vec![workflow]));
    Boots::new(index, Tokens::new(&SiteKey::new([1; 32])).unwrap(), site())
}

fn at(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// The value of `key` on the kernel's line of `script`.
fn argument<'a>(script: &'a str, key: &str) -> &'a str {
    let word = script.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    word.unwrap()
}

#[test]
fn the_worker_is_told_who_and_where_it_is_and_whom_to_trust() {
    let id = HardwareId::new();
    let served = boots(id).script(Some(MAC), at("192.0.2.10"), now()).unwrap();
    assert_eq!(served.kind, "worker");
    for (key, value) in [
        ("worker_id", id.to_string().as_str()),
        ("hw_addr", "02:00:00:00:00:01"),
        ("grpc_authority", "192.0.2.1:42113"),
        ("ca_sha256", "ab"),
        ("boot_time", "1800000000"),
    ] {
        assert_eq!(argument(&served.text, key), value, "{}", served.text);
    }
    assert!(argument(&served.text, "boot_url").starts_with("http://192.0.2.1:7080/v1/boot/"));
    assert!(served.text.contains("${base}/vmlinuz-x86_64"));
}

#[test]
fn a_script_is_only_for_the_machine_it_is_for() {
    let boots = boots(HardwareId::new());
    for (named, source) in [(Some(MAC), "192.0.2.20"), (Some(MAC), "192.0.2.99")] {
        let refused = boots.script(named, at(source), now());
        assert!(matches!(refused, Err(Refusal::NotYours(_))), "{source}");
    }
    let stranger = boots.script(None, at("192.0.2.99"), now());
    assert!(matches!(stranger, Err(Refusal::Nothing(_))));
    assert!(boots.script(None, at("192.0.2.10"), now()).is_ok(), "known by its address");
}

#[test]
fn a_boots_files_are_for_its_address_while_its_token_lasts() {
    let boots = boots(HardwareId::new());
    let script = boots.script(Some(MAC), at("192.0.2.10"), now()).unwrap().text;
    let token = argument(&script, "boot_url").rsplit('/').next().unwrap();
    let ask = |name: &str, source: &str, later: u64| {
        boots.file(token, name, at(source), now() + Duration::from_secs(later))
    };
    assert_eq!(ask("ca.pem", "192.0.2.10", 1), Ok(BootFile::Text("PEM".into())));
    let kernel = BootFile::Osie("vmlinuz-x86_64".into());
    assert_eq!(ask("vmlinuz-x86_64", "192.0.2.10", 1), Ok(kernel));
    assert!(matches!(ask("ca.pem", "192.0.2.20", 1), Err(Refusal::NotYours(_))));
    assert!(matches!(ask("ca.pem", "192.0.2.10", 900), Err(Refusal::NotYours(_))));
    let identity = argument(&script, "boot_token");
    let crossed = boots.file(identity, "ca.pem", at("192.0.2.10"), now());
    assert!(matches!(crossed, Err(Refusal::NotYours(_))), "an identity token opens no file");
}

#[test]
fn with_a_feed_cut_no_boot_is_opened() {
    let boots = boots(HardwareId::new());
    boots.index().workflow(News::Cut);
    let later = boots.script(Some(MAC), at("192.0.2.10"), now());
    assert!(matches!(later, Err(Refusal::Later(_))));
}
