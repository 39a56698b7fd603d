//! Custom scripts: access to their texts, and reports about them.
#![allow(clippy::unwrap_used)]

use crate::bootscripts::tests::fleet_of;
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1::{self as occ, Instance};

use super::*;
use crate::bootscripts::tests::{MAC, ask, at, boots, fetch, hardware, netboot, now, record};
use crate::bootscripts::{BootFile, ScriptKind, ScriptStatus};
use runtime::feed::FeedEvent;

const HERE: &str = "192.0.2.10";

fn contents(text: &str) -> Option<hw::Ipxe> {
    Some(hw::Ipxe { contents: format!("#!ipxe\necho {text}"), ..hw::Ipxe::default() })
}

/// Returns the token and the owner in the URL of a custom script.
fn url_parts(script: &str) -> (String, String) {
    let url = script.split_whitespace().find_map(|word| word.strip_suffix(".started")).unwrap();
    let (boot, owner) = url.rsplit_once('/').unwrap();
    (boot.rsplit('/').next().unwrap().to_owned(), owner.to_owned())
}

fn file(
    boots: &BootScripts,
    url: &(String, String),
    suffix: &str,
) -> Result<BootFile, BootRefusal> {
    let (token, owner) = url;
    fetch(boots, token, &format!("{owner}.{suffix}"), at(HERE), now()).0
}

fn text(text: &str) -> Result<BootFile, BootRefusal> {
    Ok(BootFile::Text(format!("#!ipxe\necho {text}")))
}

fn report(boots: &BootScripts, url: &(String, String), suffix: &str) -> Option<ScriptReport> {
    let (token, owner) = url;
    let (file, report) = fetch(boots, token, &format!("{owner}.{suffix}"), at(HERE), now());
    let Ok(BootFile::Status { status, .. }) = file else { panic!() };
    assert_eq!(status == ScriptStatus::Started, suffix == "started");
    report
}

#[test]
fn a_script_for_one_boot_is_served_until_it_was_started() {
    let id = HardwareId::new();
    let boots = boots(id);
    record(&boots, id, |record| netboot(record).boot_once = contents("once"));
    let served = ask(&boots, HERE).unwrap();
    assert_eq!(served.kind, ScriptKind::CustomOnce);
    let once = url_parts(&served.text);
    let Some(ScriptReport::OneShot { hardware, script }) = report(&boots, &once, "started") else {
        panic!()
    };
    assert_eq!((hardware, script.mac), (id, MAC));
    assert_eq!(file(&boots, &once, "ipxe"), text("once"));
    assert_eq!(report(&boots, &once, "started"), None, "once only");
    assert_eq!(report(&boots, &once, "failed"), None);
    assert_eq!(
        ask(&boots, HERE).unwrap().kind,
        ScriptKind::Worker,
        "though the record still has it"
    );
}

#[test]
fn a_new_script_for_one_boot_is_served_after_an_old_one() {
    let id = HardwareId::new();
    let boots = boots(id);
    record(&boots, id, |record| netboot(record).boot_once = contents("1"));
    ask(&boots, HERE).unwrap();
    assert!(boots.history.mark_started(id));
    record(&boots, id, |record| {
        netboot(record).boot_once = contents("2");
        record.revision = 2;
    });
    assert_eq!(file(&boots, &url_parts(&ask(&boots, HERE).unwrap().text), "ipxe"), text("2"));
}

#[test]
fn a_one_shot_script_is_not_served_in_place_of_the_next_script() {
    let id = HardwareId::new();
    let boots = boots(id);
    record(&boots, id, |record| netboot(record).boot_once = contents("once"));
    let once = url_parts(&ask(&boots, HERE).unwrap().text);
    report(&boots, &once, "started").unwrap();
    record(&boots, id, |record| netboot(record).ipxe = contents("always"));
    let next = url_parts(&ask(&boots, HERE).unwrap().text);
    assert_eq!(file(&boots, &next, "ipxe"), text("always"));
}

#[test]
fn each_interface_has_its_own_script() {
    let id = HardwareId::new();
    let boots = boots(id);
    let second = Mac([2, 0, 0, 0, 0, 7]);
    record(&boots, id, |record| {
        netboot(record).ipxe = contents("first");
        let mut other = hardware(id, second, "192.0.2.17").interfaces.remove(0);
        other.netboot.as_mut().unwrap().ipxe = contents("second");
        record.interfaces.push(other);
    });
    for (mac, contents) in [(MAC, "first"), (second, "second")] {
        let request = crate::bootscripts::ScriptRequest::new(Some(mac), at(HERE));
        let own = url_parts(&boots.serve(&request, now()).unwrap().text);
        assert_eq!(file(&boots, &own, "ipxe"), text(contents), "{mac}");
        assert_eq!(report(&boots, &own, "started"), None);
    }
    let own = url_parts(&ask(&boots, HERE).unwrap().text);
    record(&boots, id, |record| {
        netboot(record).ipxe = contents("first");
        netboot(record).boot_once = contents("once");
    });
    let meanwhile = file(&boots, &own, "ipxe");
    assert!(matches!(meanwhile, Err(BootRefusal::Nothing(_))), "the one-shot script is next");
    let (token, _) = own;
    let theirs = (token, Mac([2, 0, 0, 0, 0, 2]).dashed());
    assert!(
        matches!(file(&boots, &theirs, "ipxe"), Err(BootRefusal::Nothing(_))),
        "another machine's"
    );
}

/// Puts an instance with a custom script on the machine; `ran` if the script was started.
fn instance(boots: &BootScripts, id: HardwareId, state: occ::State, ran: bool) {
    let script = occ::instance::CustomIpxe {
        contents: "#!ipxe\necho theirs".into(),
        ..occ::instance::CustomIpxe::default()
    };
    fleet_of(boots).instance(FeedEvent::Snapshot(vec![Instance {
        id: "i".into(),
        state: state.into(),
        hardware_id: id.to_string(),
        generation: 3,
        os: Some(occ::instance::Os::CustomIpxe(script)),
        script_time: ran.then(|| now().into()),
        ..Instance::default()
    }]));
}

#[test]
fn an_instance_script_is_served_until_it_was_started_and_its_text_even_then() {
    let id = HardwareId::new();
    let boots = boots(id);
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    instance(&boots, id, occ::State::Provisioning, false);
    let theirs = url_parts(&ask(&boots, HERE).unwrap().text);
    let (hardware_id, instance_id) = (id.to_string(), "i".to_owned());
    let expected = |started| {
        let (hardware_id, instance_id) = (hardware_id.clone(), instance_id.clone());
        Some(ScriptReport::Instance(ReportScriptRequest {
            hardware_id,
            instance_id,
            generation: 3,
            started,
        }))
    };
    assert_eq!(report(&boots, &theirs, "started"), expected(true));
    instance(&boots, id, occ::State::Provisioning, true);
    assert_eq!(file(&boots, &theirs, "ipxe"), text("theirs"));
    assert_eq!(report(&boots, &theirs, "failed"), expected(false));
    assert_eq!(ask(&boots, HERE).unwrap().kind, ScriptKind::LocalDisk);
    instance(&boots, id, occ::State::Deprovisioning, true);
    assert!(matches!(file(&boots, &theirs, "ipxe"), Err(BootRefusal::Nothing(_))));
}
