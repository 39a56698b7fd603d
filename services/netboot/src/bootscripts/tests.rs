//! Access to scripts and to the files of a boot.
#![allow(clippy::unwrap_used)]

use fleet::Fleet;
use std::time::UNIX_EPOCH;

use super::*;
use runtime::SiteKey;
use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::hardware::v1::{self as hw, Hardware, Interface};
use tinwright::instance::v1::{self as occ, Instance};
use tinwright::workflow::v1::{BootOptions, Workflow, WorkflowState, boot_options::Mode};

pub(crate) const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

pub(crate) fn hardware(id: HardwareId, mac: Mac, address: &str) -> Hardware {
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
        grpc_servers: Vec::new(),
        authority: std::sync::Arc::new(crate::site::FixedAuthority("PEM", "ab")),
        consoles: vec!["ttyS0".into()],
        metadata_route: false,
        rate_limits: true,
        policy: crate::decision::Policy::default(),
        syslog: None,
        ra_assist: false,
        subnets: Vec::new(),
        serving: crate::site::Serving::default(),
    }
}

/// Returns a machine whose workflow waits for it, and another machine.
pub(crate) fn boots(id: HardwareId) -> BootScripts {
    boots_at(id, site())
}

pub(crate) fn boots_at(id: HardwareId, site: Site) -> BootScripts {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    let other = hardware(HardwareId::new(), Mac([2, 0, 0, 0, 0, 2]), "192.0.2.20");
    fleet.hardware(FeedEvent::Snapshot(vec![hardware(id, MAC, "192.0.2.10"), other]));
    fleet.instance(FeedEvent::Snapshot(vec![]));
    let workflow = Workflow {
        id: "w".into(),
        hardware_id: id.to_string(),
        wants_machine: true,
        ..Workflow::default()
    };
    fleet.workflow(FeedEvent::Snapshot(vec![workflow]));
    BootScripts::new(index, BootTokens::new(&SiteKey::new([1; 32])).unwrap(), site)
}

/// Fetches the file `name` of the boot with `token`. Returns it and the report.
pub(crate) fn fetch(
    boots: &BootScripts,
    token: &str,
    name: &str,
    source: IpAddr,
    now: SystemTime,
) -> (Result<BootFile, BootRefusal>, Option<ScriptReport>) {
    let (reply, effects) = boots.respond_file(token, name, source, now);
    (reply, boots.apply(effects, now))
}

/// The options of workflows whose machine is switched off and started for them.
fn netboot_mode() -> BootOptions {
    BootOptions { mode: Mode::Netboot.into(), power_off_after: false }
}

/// Returns a fleet of the machines that `boots` knows; `boots` takes its further events.
pub(crate) fn fleet_of(boots: &BootScripts) -> Fleet {
    let fleet = Fleet::new(vec![boots.index.clone(), Arc::new(boots.clone())]);
    let all = boots.index.all();
    let workflows = all.iter().flat_map(|machine| {
        let hardware_id = machine.id.to_string();
        machine.workflows.iter().map(move |workflow| Workflow {
            id: workflow.id.clone(),
            hardware_id: hardware_id.clone(),
            wants_machine: workflow.wants_machine || workflow.is_unprepared,
            boot_options: workflow.is_unprepared.then(netboot_mode),
            state: WorkflowState::Pending.into(),
            ..Workflow::default()
        })
    });
    let workflows = workflows.collect();
    let instances = all.iter().filter_map(|machine| machine.instance.as_deref().cloned());
    fleet.instance(FeedEvent::Snapshot(instances.collect()));
    fleet.workflow(FeedEvent::Snapshot(workflows));
    let hardware = all.iter().map(|machine| (*machine.hardware).clone());
    fleet.hardware(FeedEvent::Snapshot(hardware.collect()));
    fleet
}

pub(crate) fn at(address: &str) -> IpAddr {
    address.parse().unwrap()
}

pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Returns the value of the kernel argument `key` in `script`, as iPXE expands it.
pub(crate) fn argument<'a>(script: &'a str, key: &str) -> &'a str {
    let word = script.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    match word.unwrap() {
        "${base}" => script.lines().find_map(|line| line.strip_prefix("set base ")).unwrap(),
        word => word,
    }
}

#[test]
fn the_worker_script_has_the_identity_the_server_and_the_authority() {
    let id = HardwareId::new();
    let served = boots(id).serve(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now()).unwrap();
    assert_eq!(served.kind, ScriptKind::Worker);
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
fn the_worker_script_names_further_servers() {
    let id = HardwareId::new();
    let servers = vec!["192.0.2.2:42113".into(), "rack.lab:443".into()];
    let request = ScriptRequest::new(Some(MAC), at("192.0.2.10"));
    let several = boots_at(id, Site { grpc_servers: servers, ..site() });
    let text = several.serve(&request, now()).unwrap().text;
    assert_eq!(argument(&text, "grpc_servers"), "192.0.2.2:42113,rack.lab:443");
    let text = boots(id).serve(&request, now()).unwrap().text;
    assert!(!text.contains("grpc_servers"), "{text}");
}

#[test]
fn a_script_is_served_to_its_machine_only() {
    let boots = boots(HardwareId::new());
    for (named, source) in [(Some(MAC), "192.0.2.20"), (Some(MAC), "192.0.2.99")] {
        let refused = boots.serve(&ScriptRequest::new(named, at(source)), now());
        assert!(matches!(refused, Err(BootRefusal::NotYours(_))), "{source}");
    }
    let unknown = boots.serve(&ScriptRequest::new(None, at("192.0.2.99")), now());
    assert!(matches!(unknown, Err(BootRefusal::Nothing(_))));
    assert!(
        boots.serve(&ScriptRequest::new(None, at("192.0.2.10")), now()).is_ok(),
        "identified by its address"
    );
}

#[test]
fn files_of_a_boot_are_served_to_its_address_until_its_token_expires() {
    let boots = boots(HardwareId::new());
    let script = boots.serve(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now()).unwrap().text;
    let token = argument(&script, "boot_url").rsplit('/').next().unwrap();
    let ask = |name: &str, source: &str, later: u64| {
        fetch(&boots, token, name, at(source), now() + Duration::from_secs(later)).0
    };
    assert_eq!(ask("ca.pem", "192.0.2.10", 1), Ok(BootFile::Text("PEM".into())));
    let kernel = BootFile::Osie("vmlinuz-x86_64".into());
    assert_eq!(ask("vmlinuz-x86_64", "192.0.2.10", 1), Ok(kernel));
    assert!(matches!(ask("ca.pem", "192.0.2.20", 1), Err(BootRefusal::NotYours(_))));
    assert!(matches!(ask("ca.pem", "192.0.2.10", 900), Err(BootRefusal::NotYours(_))));
    let identity = argument(&script, "boot_token");
    let crossed = fetch(&boots, identity, "ca.pem", at("192.0.2.10"), now()).0;
    assert!(matches!(crossed, Err(BootRefusal::NotYours(_))), "an identity token opens no file");
}

#[test]
fn other_addresses_and_foreign_tokens_get_neither_script_nor_files() {
    let index = boots(HardwareId::new()).index;
    let [ours, theirs] = [[1; 32], [2; 32]].map(|key| {
        let tokens = BootTokens::new(&SiteKey::new(key)).unwrap();
        BootScripts::new(index.clone(), tokens, site())
    });
    let other = Mac([2, 0, 0, 0, 0, 2]);
    for (mac, source) in [(other, "192.0.2.10"), (MAC, "192.0.2.20"), (MAC, "192.0.2.99")] {
        let refused = ours.serve(&ScriptRequest::new(Some(mac), at(source)), now());
        assert!(matches!(refused, Err(BootRefusal::NotYours(_))), "{mac} at {source}");
    }
    let token = |boots: &BootScripts| {
        let script =
            boots.serve(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now()).unwrap().text;
        argument(&script, "boot_url").rsplit('/').next().unwrap().to_owned()
    };
    let ask = |token: &str, source: &str, later: u64| {
        let then = now() + Duration::from_secs(later);
        ["ca.pem", "vmlinuz-x86_64", "instance.ipxe", "instance.started"].map(|name| {
            fetch(&ours, token, name, at(source), then)
                .0
                .map_err(|refusal| refusal.to_string())
                .err()
        })
    };
    let (own, foreign) = (token(&ours), token(&theirs));
    assert!(ask(&own, "192.0.2.10", 1).iter().any(Option::is_none));
    for (token, source, later) in [
        (&own, "192.0.2.20", 1),
        (&own, "192.0.2.99", 1),
        (&own, "192.0.2.10", 3600),
        (&foreign, "192.0.2.10", 1),
    ] {
        let refused = ask(token, source, later);
        let all = refused.iter().flatten().filter(|why| why.starts_with("not for you")).count();
        assert_eq!(all, 4, "{source}: {refused:?}");
    }
}

#[test]
fn until_all_feeds_are_complete_requests_are_to_be_repeated() {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![hardware(HardwareId::new(), MAC, "192.0.2.10")]));
    let boots = BootScripts::new(index, BootTokens::new(&SiteKey::new([1; 32])).unwrap(), site());
    let later = BootRefusal::later(Fact::FeedIncomplete);
    for source in ["192.0.2.10", "192.0.2.99"] {
        let reply = boots.serve(&ScriptRequest::new(None, at(source)), now());
        assert_eq!(reply, Err(later.clone()), "{source}");
    }
    fleet_of(&boots).instance(FeedEvent::Snapshot(vec![]));
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    assert!(ask(&boots, "192.0.2.10").is_ok());
    assert!(matches!(
        boots.serve(&ScriptRequest::new(None, at("192.0.2.99")), now()),
        Err(BootRefusal::Nothing(_))
    ));
}

#[test]
fn while_a_feed_is_disconnected_no_boot_begins() {
    let boots = boots(HardwareId::new());
    fleet_of(&boots).workflow(FeedEvent::Disconnected);
    let later = boots.serve(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now());
    assert!(matches!(later, Err(BootRefusal::Later { .. })));
}

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

pub(crate) fn ask(boots: &BootScripts, source: &str) -> Result<Script, BootRefusal> {
    boots.serve(&ScriptRequest::new(Some(MAC), at(source)), now())
}

/// Changes the machine's record.
pub(crate) fn record(boots: &BootScripts, id: HardwareId, change: impl FnOnce(&mut Hardware)) {
    let mut record = hardware(id, MAC, "192.0.2.10");
    change(&mut record);
    fleet_of(boots).hardware(FeedEvent::Put(record));
}

pub(crate) fn netboot(record: &mut Hardware) -> &mut hw::Netboot {
    record.interfaces[0].netboot.as_mut().unwrap()
}

/// Puts an instance in `state` on the machine, with an outside platform's gate.
fn gated(boots: &BootScripts, id: HardwareId, state: occ::State, gate: occ::BootGate) {
    fleet_of(boots).instance(FeedEvent::Snapshot(vec![Instance {
        id: "i".into(),
        state: state.into(),
        hardware_id: id.to_string(),
        boot_gate: Some(gate),
        ..Instance::default()
    }]));
}

fn open_gate() -> occ::BootGate {
    let initial_ips = vec!["192.0.2.10".into()];
    occ::BootGate {
        open: true,
        uuid: UUID.into(),
        mac: MAC.to_string(),
        initial_ips,
        open_time: None,
    }
}

fn shown(boots: &BootScripts, uuid: &str) -> Result<Script, BootRefusal> {
    let request = ScriptRequest {
        uuid: Some(uuid.into()),
        ..ScriptRequest::new(Some(MAC), at("192.0.2.10"))
    };
    boots.serve(&request, now())
}

#[test]
fn a_gate_requests_the_uuid_and_opens_to_the_right_one_only() {
    let id = HardwareId::new();
    let boots = boots(id);
    gated(&boots, id, occ::State::Provisioning, open_gate());
    let asked = ask(&boots, "192.0.2.10").unwrap();
    assert_eq!(asked.kind, ScriptKind::AskUuid);
    let chain = "chain --replace http://192.0.2.1:7080/02-00-00-00-00-01/auto.ipxe?uuid=${uuid}";
    assert!(asked.text.contains(chain) && !asked.text.contains("/v1/boot/"), "{}", asked.text);
    assert_eq!(shown(&boots, UUID).unwrap().kind, ScriptKind::Worker);
    for other in ["", "${uuid}", "00112233-4455-6677-8899-aabbccddeefe"] {
        assert!(matches!(shown(&boots, other), Err(BootRefusal::NotYours(_))), "{other}");
    }
    let known = boots.index.by_mac(MAC).unwrap();
    boots.history.record_uuid(&known, [7; 16]);
    assert!(matches!(shown(&boots, UUID), Err(BootRefusal::NotYours(_))), "DHCP sent another one");
}

#[test]
fn a_gate_that_closes_ends_a_running_boot_but_not_the_cleaning() {
    let id = HardwareId::new();
    let boots = boots(id);
    gated(&boots, id, occ::State::Provisioning, open_gate());
    let script = shown(&boots, UUID).unwrap().text;
    let token = argument(&script, "boot_url").rsplit('/').next().unwrap();
    let kernel = || fetch(&boots, token, "vmlinuz-x86_64", at("192.0.2.10"), now()).0;
    assert!(kernel().is_ok());
    gated(&boots, id, occ::State::Provisioning, occ::BootGate::default());
    assert!(matches!(kernel(), Err(BootRefusal::NotYours(_))));
    assert!(matches!(shown(&boots, UUID), Err(BootRefusal::NotYours(_))));
    gated(&boots, id, occ::State::Deprovisioning, occ::BootGate::default());
    assert_eq!(ask(&boots, "192.0.2.10").unwrap().kind, ScriptKind::Worker);
}

#[test]
fn between_its_deletion_and_the_restart_for_the_wipe_an_instance_gets_no_script_and_no_token() {
    let id = HardwareId::new();
    let boots = boots(id);
    let fleet = fleet_of(&boots);
    let instance = |state: occ::State| Instance {
        id: "i".into(),
        state: state.into(),
        hardware_id: id.to_string(),
        template_id: "t".into(),
        ..Instance::default()
    };
    let wipe = |state: WorkflowState, prepared| Workflow {
        id: "wipe".into(),
        hardware_id: id.to_string(),
        wants_machine: true,
        boot_options: Some(netboot_mode()),
        state: state.into(),
        prepared,
        ..Workflow::default()
    };
    let kind = || ask(&boots, "192.0.2.10").map(|script| script.kind);
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    fleet.instance(FeedEvent::Put(instance(occ::State::Active)));
    assert_eq!(kind(), Ok(ScriptKind::LocalDisk));
    fleet.instance(FeedEvent::Put(instance(occ::State::Deprovisioning)));
    assert!(matches!(kind(), Err(BootRefusal::Later { .. })));
    for state in [WorkflowState::Pending, WorkflowState::Preparing] {
        fleet.workflow(FeedEvent::Put(wipe(state, false)));
        assert!(matches!(kind(), Err(BootRefusal::Later { .. })), "{state:?}");
    }
    fleet.workflow(FeedEvent::Put(wipe(WorkflowState::Pending, true)));
    let script = ask(&boots, "192.0.2.10").unwrap();
    assert!(script.kind == ScriptKind::Worker && script.text.contains("boot_token="));
    fleet.workflow(FeedEvent::Deleted("wipe".into()));
    fleet.instance(FeedEvent::Put(instance(occ::State::DeprovisionFailed)));
    assert!(matches!(kind(), Err(BootRefusal::Nothing(_))));
}

#[test]
fn while_a_feed_is_disconnected_an_open_gate_and_a_valid_token_open_nothing() {
    let id = HardwareId::new();
    let boots = boots(id);
    gated(&boots, id, occ::State::Provisioning, open_gate());
    let script = shown(&boots, UUID).unwrap().text;
    let token = argument(&script, "boot_url").rsplit('/').next().unwrap();
    fleet_of(&boots).instance(FeedEvent::Disconnected);
    assert!(matches!(shown(&boots, UUID), Err(BootRefusal::Later { .. })));
    let kernel = fetch(&boots, token, "vmlinuz-x86_64", at("192.0.2.10"), now()).0;
    assert!(matches!(kernel, Err(BootRefusal::Later { .. })));
}

#[test]
fn a_script_for_a_client_behind_another_address_has_no_identity() {
    let mut site = site();
    site.serving.mac_only = vec!["203.0.113.0/24".parse().unwrap()];
    let boots = boots_at(HardwareId::new(), site);
    let script = ask(&boots, "203.0.113.9").unwrap().text;
    assert!(script.contains(" worker_id=") && !script.contains("boot_token="), "{script}");
    let elsewhere = ask(&boots, "192.0.2.99");
    assert!(matches!(elsewhere, Err(BootRefusal::NotYours(_))));
    let unnamed = boots.serve(&ScriptRequest::new(None, at("203.0.113.9")), now());
    assert!(matches!(unnamed, Err(BootRefusal::Nothing(_))));
}

#[test]
fn a_boot_loop_is_delayed_if_the_site_is_configured_so() {
    let (mut held, id) = (site(), HardwareId::new());
    held.serving.hold_boot_loops = true;
    for (site, waits) in [(site(), false), (held, true)] {
        let boots = boots_at(id, site);
        assert!((0..10).all(|_| ask(&boots, "192.0.2.10").is_ok()));
        let held = BootRefusal::Later { retry: BOOT_LOOP_HOLD, why: BOOT_LOOP.into() };
        let request = ScriptRequest::new(Some(MAC), at("192.0.2.10"));
        for reply in [boots.simulate(&request, now()), ask(&boots, "192.0.2.10")] {
            assert_eq!(reply == Err(held.clone()), waits, "{reply:?}");
        }
    }
}

#[test]
fn a_simulated_request_does_not_count_towards_a_boot_loop() {
    let boots = boots(HardwareId::new());
    let request = ScriptRequest::new(Some(MAC), at("192.0.2.10"));
    assert!((0..20).all(|_| boots.simulate(&request, now()).is_ok()));
    assert!(!boots.history.would_loop(boots.index.by_mac(MAC).unwrap().id, now()));
}

#[test]
fn the_disk_is_booted_by_the_method_in_the_record() {
    let id = HardwareId::new();
    let boots = boots(id);
    gated(&boots, id, occ::State::Active, occ::BootGate::default());
    fleet_of(&boots).instance(FeedEvent::Snapshot(vec![Instance {
        id: "i".into(),
        state: occ::State::Active.into(),
        hardware_id: id.to_string(),
        template_id: "t".into(),
        ..Instance::default()
    }]));
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    let plain = ask(&boots, "192.0.2.10").unwrap();
    assert_eq!((plain.kind, plain.text.as_str()), (ScriptKind::LocalDisk, "#!ipxe\nexit 1\n"));
    record(&boots, id, |record| netboot(record).local_boot = 1);
    assert!(
        ask(&boots, "192.0.2.10").unwrap().text.contains("sanboot --no-describe --drive 0x80 ||")
    );
}

#[test]
fn the_shell_is_served_if_the_site_is_configured_so() {
    let (mut site, id) = (site(), HardwareId::new());
    site.policy.no_instance = crate::decision::NoInstance::Shell;
    let boots = boots_at(id, site);
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    assert_eq!(ask(&boots, "192.0.2.10").unwrap().text, "#!ipxe\nshell ||\nexit 1\n");
}

#[test]
fn the_pxelinux_configuration_follows_the_same_decision() {
    let id = HardwareId::new();
    let boots = boots(id);
    let read = |source| {
        let format = ScriptFormat::Pxelinux;
        let request = ScriptRequest { format, ..ScriptRequest::new(Some(MAC), at(source)) };
        boots.serve(&request, now())
    };
    let text = read("192.0.2.10").unwrap().text;
    assert!(
        text.starts_with("default worker\nlabel worker\n  kernel http://192.0.2.1:7080/v1/boot/")
    );
    assert!(
        text.contains("  append facility=") || text.contains("  append grpc_authority="),
        "{text}"
    );
    assert!(!text.contains("initrd=initrd"));
    assert!(matches!(read("192.0.2.20"), Err(BootRefusal::NotYours(_))));
}

#[test]
fn an_image_is_served_to_the_machine_and_its_bmc_while_it_boots_the_worker() {
    let (mut site, id) = (site(), HardwareId::new());
    let bmcs = vec!["198.51.100.0/24".parse().unwrap()];
    site.serving.iso = Some(crate::site::Iso { sources: bmcs, ..std::path::PathBuf::new().into() });
    let boots = boots_at(id, site);
    let may = |source: &str| boots.check_image_access(MAC, at(source), NeighbourCheck::Unchecked);
    assert_eq!((may("192.0.2.10"), may("198.51.100.7")), (Ok(()), Ok(())));
    assert!(matches!(may("192.0.2.20"), Err(BootRefusal::NotYours(_))));
    record(&boots, id, |record| netboot(record).allow_pxe = false);
    assert!(matches!(may("198.51.100.7"), Err(BootRefusal::Nothing(_))));
}

#[test]
fn an_image_has_the_address_of_a_machine_without_dhcp() {
    let id = HardwareId::new();
    let boots = boots(id);
    record(&boots, id, |record| {
        let dhcp = record.interfaces[0].dhcp.as_mut().unwrap();
        dhcp.address.as_mut().unwrap().gateway = "192.0.2.1".into();
        (dhcp.disabled, dhcp.hostname) = (true, "node1".into());
        dhcp.name_servers = vec!["192.0.2.2".into(), "192.0.2.3".into()];
    });
    let line = boots.image_arguments(MAC, now()).unwrap();
    let ipam =
        "ipam=02-00-00-00-00-01::192.0.2.10:255.255.255.0:192.0.2.1:node1:192.0.2.2,192.0.2.3::";
    assert!(line.split(' ').any(|word| word == ipam), "{line}");
    assert!(line.contains("boot_token=") && !line.contains("initrd=initrd"), "{line}");
}

#[test]
fn an_argument_that_is_left_out_is_a_warning_for_machines_with_a_record_only() {
    let mut site = site();
    site.policy.boot_unknown = true;
    site.consoles = vec!["ttyS0 no${way}".into()];
    let boots = boots_at(HardwareId::new(), site);
    let warnings = |mac, source| {
        let (script, effects) = boots.respond(&ScriptRequest::new(Some(mac), at(source)), now());
        (script.unwrap().kind, effects.warnings.len())
    };
    assert_eq!(warnings(MAC, "192.0.2.10"), (ScriptKind::Worker, 1));
    let unknown = Mac([2, 0, 0, 0, 0, 9]);
    assert_eq!(warnings(unknown, "192.0.2.99"), (ScriptKind::Generic, 0));
}

#[test]
fn a_machine_without_a_record_boots_without_an_identity_and_only_if_configured() {
    let unknown = ScriptRequest::new(Some(Mac([2, 0, 0, 0, 0, 9])), at("192.0.2.99"));
    let refused = boots(HardwareId::new()).serve(&unknown, now());
    assert!(matches!(refused, Err(BootRefusal::Nothing(_))), "{refused:?}");
    let mut site = site();
    site.policy.boot_unknown = true;
    let boots = boots_at(HardwareId::new(), site);
    let served = boots.serve(&unknown, now()).unwrap();
    assert_eq!(served.kind, ScriptKind::Generic);
    assert!(served.text.contains("worker_id=${mac}") && !served.text.contains("boot_token="));
    let token = served.text.split_once("/v1/boot/").unwrap().1.split_once('\n').unwrap().0;
    let file = |source| fetch(&boots, token, "vmlinuz-x86_64", at(source), now()).0;
    assert_eq!(file("192.0.2.99"), Ok(BootFile::Osie("vmlinuz-x86_64".into())));
    assert!(matches!(file("192.0.2.98"), Err(BootRefusal::NotYours(_))));
    assert_eq!(
        ask(&boots, "192.0.2.10").unwrap().kind,
        ScriptKind::Worker,
        "a machine with a record still gets its own script"
    );
}
