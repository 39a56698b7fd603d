use super::*;

const UUID: &str = "4c4c4544-0042-3010-8052-b4c04f4d3232";
const SWAPPED: &str = "44454c4c-4200-1030-8052-b4c04f4d3232";
const MAC: &str = "02:00:00:00:00:01";

fn request() -> pb::EnrolMachineRequest {
    let interface = |mac: &str| pb::InventoryInterface { mac: mac.into(), ..Default::default() };
    pb::EnrolMachineRequest {
        enrolment: Some(pb::Enrolment {
            id: "01930000-0000-7000-8000-000000000001".into(),
            mac: MAC.into(),
            network: "192.0.2.0/24".into(),
            time: None,
        }),
        uuid: UUID.into(),
        inventory: Some(pb::Inventory {
            uuid: UUID.into(),
            serial: "C02XK".into(),
            architecture: "aarch64".into(),
            interfaces: vec![interface("02:00:00:00:00:00"), interface(MAC)],
            ..pb::Inventory::default()
        }),
    }
}

fn report() -> Report {
    Report::new(request()).unwrap()
}

/// The violation of the request after `change`.
fn wrong(change: impl FnOnce(&mut pb::EnrolMachineRequest)) -> String {
    let mut request = request();
    change(&mut request);
    Report::new(request).unwrap_err().to_string()
}

/// A record of another machine, after `change`.
fn record(change: impl FnOnce(&mut pb::Hardware)) -> pb::Hardware {
    let mut record = pb::Hardware {
        id: "01930000-0000-7000-8000-000000000002".into(),
        state: State::Enrolled.into(),
        ..pb::Hardware::default()
    };
    change(&mut record);
    record
}

fn uuid(uuid: &str) -> Option<Box<pb::Inventory>> {
    Some(Box::new(pb::Inventory { uuid: uuid.into(), ..pb::Inventory::default() }))
}

fn with_mac(mac: &str) -> Vec<pb::Interface> {
    vec![pb::Interface { mac: mac.into(), ..pb::Interface::default() }]
}

/// What becomes of the machine beside `records`.
fn outcome(records: impl IntoIterator<Item = pb::Hardware>) -> Result<Outcome, String> {
    let (report, mut survey) = (report(), Survey::default());
    records.into_iter().for_each(|record| survey.add(&report, record));
    report.evaluate(survey).map_err(|error| error.to_string())
}

fn created(records: impl IntoIterator<Item = pb::Hardware>) -> pb::Hardware {
    match outcome(records).unwrap() {
        Outcome::Create(machine) => *machine,
        other @ (Outcome::Done(_) | Outcome::Complete(..)) => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_machine_gets_a_record_that_boots_from_the_interface_that_asked() {
    let made = created([]);
    assert_eq!((made.state(), made.name.as_str()), (State::Enrolled, "sn-c02xk"));
    assert_eq!(made.id, report().id.to_string());
    assert_eq!(made.architecture, "aarch64");
    let interfaces: Vec<_> = made
        .interfaces
        .iter()
        .map(|it| (it.mac.as_str(), it.netboot.as_ref().is_some_and(|it| it.allow_pxe)))
        .collect();
    assert_eq!(interfaces, [(MAC, true), ("02:00:00:00:00:00", false)]);
    let taken = created([record(|it| it.name = "sn-c02xk".into())]);
    assert_eq!(taken.name, "mac-020000000001");
}

#[test]
fn the_inventory_must_have_the_uuid_and_the_mac_that_asked() {
    let inventory = |request: &mut pb::EnrolMachineRequest| request.inventory.take().unwrap();
    let other = wrong(|it| {
        it.inventory = Some(pb::Inventory { uuid: SWAPPED.replace('3', "4"), ..inventory(it) })
    });
    assert!(other.starts_with("inventory.uuid: "), "{other}");
    let other = wrong(|it| {
        it.inventory = Some(pb::Inventory { interfaces: vec![], ..inventory(it) });
    });
    assert!(other.starts_with("inventory.interfaces: has no interface 02:"), "{other}");
    for placeholder in [machine_uuid::PLACEHOLDERS[0], "ffffffff-ffff-ffff-ffff-ffffffffffff"] {
        let refused = wrong(|it| it.uuid = placeholder.into());
        assert!(refused.starts_with("uuid: "), "{refused}");
    }
    let mut swapped = request();
    swapped.uuid = SWAPPED.into();
    assert_eq!(Report::new(swapped).unwrap(), report(), "firmware with the other byte order");
}

#[test]
fn a_machine_with_a_known_uuid_or_mac_is_refused_by_name() {
    let id = record(|_| {}).id;
    let text =
        |common| Err(format!("hardware {id} has the {common} of a machine that asks to enrol"));
    let mac = text(format!("MAC {MAC}"));
    assert_eq!(outcome([record(|it| it.interfaces = with_mac(MAC))]), mac);
    let other = "02:00:00:00:00:00";
    assert_eq!(
        outcome([record(|it| it.interfaces = with_mac(other))]),
        text(format!("MAC {other}"))
    );
    for known in [UUID, SWAPPED] {
        let provisionable = record(|it| {
            (it.state, it.inventory) = (State::Provisionable.into(), uuid(known));
        });
        assert_eq!(outcome([provisionable]), text(format!("UUID {UUID}")));
        let of_another = record(|it| {
            (it.interfaces, it.inventory) = (with_mac("02:00:00:00:00:09"), uuid(known));
        });
        assert_eq!(outcome([of_another]), text(format!("UUID {UUID}")), "it has other MACs");
        let protected = record(|it| (it.protect, it.inventory) = (true, uuid(known)));
        assert!(outcome([protected]).is_err());
    }
}

#[test]
fn an_enrolled_record_with_its_uuid_and_no_other_mac_is_completed() {
    for interfaces in [vec![], with_mac(MAC)] {
        let old = record(|it| {
            (it.name, it.inventory) = ("from-bmc".into(), uuid(SWAPPED));
            it.interfaces = interfaces;
        });
        let completed = outcome([old.clone()]).unwrap();
        let Outcome::Complete(before, new) = completed else { panic!("{completed:?}") };
        assert_eq!((&*before, new.id.as_str(), new.name.as_str()), (&old, &*old.id, "from-bmc"));
        let macs: Vec<_> = new.interfaces.iter().map(|it| it.mac.as_str()).collect();
        assert_eq!(macs, [MAC, "02:00:00:00:00:00"]);
        assert_eq!(new.inventory.as_ref().unwrap().serial, "C02XK");
        let beside = record(|it| {
            it.id = "01930000-0000-7000-8000-000000000003".into();
            it.interfaces = with_mac("02:00:00:00:00:00");
        });
        assert!(outcome([old, beside]).is_err(), "one of its MACs is another machine's");
    }
}

#[test]
fn a_record_that_only_its_bmc_describes_is_completed() {
    let listed = |uuid: &str| {
        let listed = pb::BmcInventory { uuid: uuid.into(), ..pb::BmcInventory::default() };
        record(|it| it.bmc_inventory = Some(Box::new(listed)))
    };
    let completed = outcome([listed(UUID)]).unwrap();
    let Outcome::Complete(old, new) = completed else { panic!("{completed:?}") };
    assert_eq!((old.id.clone(), new.bmc_inventory.clone()), (new.id.clone(), old.bmc_inventory));
    assert_eq!(new.inventory.as_ref().unwrap().serial, "C02XK");
    let other = outcome([listed("01930000-0000-7000-8000-00000000aaaa")]).unwrap();
    assert!(matches!(other, Outcome::Create(_)), "{other:?}");
}

#[test]
fn a_repeated_report_changes_nothing_even_after_the_acceptance() {
    let mut made = created([]);
    made.set_state(State::Provisionable);
    made.name = "renamed".into();
    assert_eq!(outcome([made.clone()]).unwrap(), Outcome::Done(Box::new(made.clone())));
    made.enrolment = None;
    assert!(outcome([made]).is_err(), "the id is another record's");
}

#[test]
fn a_network_has_a_limit_of_machines_that_wait_for_acceptance() {
    let waits = |n: usize, network: &str, state: State| {
        record(|it| {
            it.id = format!("01930000-0000-7000-8000-{n:012}");
            it.set_state(state);
            let network = network.to_owned();
            it.enrolment = Some(Box::new(pb::Enrolment { network, ..pb::Enrolment::default() }));
        })
    };
    let all = |count: usize, network: &'static str, state| {
        (0..count).map(move |n| waits(1000 + n, network, state))
    };
    let (full, enrolled) = (MAX_WAITING, State::Enrolled);
    let refused = outcome(all(full, "192.0.2.0/24", enrolled));
    assert_eq!(refused, Err("256 machines of 192.0.2.0/24 wait for acceptance".into()));
    assert!(outcome(all(full - 1, "192.0.2.0/24", enrolled)).is_ok());
    assert!(outcome(all(full, "198.51.100.0/24", enrolled)).is_ok());
    assert!(outcome(all(full, "192.0.2.0/24", State::Provisionable)).is_ok());
}
