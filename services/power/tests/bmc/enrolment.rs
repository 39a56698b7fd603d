//! Machines that are known by their BMC only: inventories that BMCs list, and enrolment.

use power::bmc_client;
use power::redfish::Power as Reads;
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::Health;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::power::v1::enrol_bmc_request::Discovery;
use tinwright::power::v1::get_power_state_response::PowerState;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::power_job::State;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tonic::Code;

use crate::directory::FakeHardware;
use crate::emulator::{self, Emulator};
use crate::ipmi::IpmiSim;
use crate::journey::{Service, service_with};
use crate::proxy::{Extras, Proxy};
use crate::site::{self, bmc, power};

/// Returns the request to enrol the machine of `bmc`.
fn request(bmc: pb::Bmc) -> pb::EnrolBmcRequest {
    let bmc = pb::Bmc { hardware_id: String::new(), ..bmc };
    pb::EnrolBmcRequest { bmc: Some(bmc), ..Default::default() }
}

/// The BMC at `url`.
fn at(url: &str, system: &str) -> pb::Bmc {
    bmc(HardwareId::new(), url, system)
}

async fn enrol(service: &mut Service, request: pb::EnrolBmcRequest) -> pb::EnrolBmcResponse {
    service.client.enrol_bmc(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_enrolled_from_its_bmc_and_boots_for_discovery_once() {
    let (emulator, machines) = (Emulator::guarded("node1"), FakeHardware::default());
    let mut service = service_with(&machines).await;
    let location_id = HardwareId::new().to_string();
    let wanted = pb::EnrolBmcRequest {
        name: "rack1".into(),
        location_id: location_id.clone(),
        zone: "a".into(),
        labels: [("row".to_owned(), "7".to_owned())].into(),
        ..request(at(&emulator.url, "node1"))
    };
    let enrolled = enrol(&mut service, wanted.clone()).await;
    assert!(enrolled.hardware_created && enrolled.bmc_created);
    assert_eq!(enrolled.notes, ["the BMC lists no serial number"]);
    assert_eq!(enrolled.power_state(), PowerState::Off);

    let [machine] = machines.all().try_into().unwrap();
    assert_eq!((machine.state(), machine.name.as_str()), (hw::State::Enrolled, "rack1"));
    assert_eq!((&machine.location_id, machine.zone.as_str()), (&location_id, "a"));
    assert_eq!(machine.labels["row"], "7");
    let [interface] = machine.interfaces.try_into().unwrap();
    assert_eq!(interface.mac, emulator::mac(0));
    let netboot = interface.netboot.unwrap();
    assert!(netboot.allow_pxe && netboot.allow_workflow);
    let listed = machine.bmc_inventory.unwrap();
    assert_eq!((listed.uuid.as_str(), listed.health()), (&*emulator::id(0), Health::Ok));
    assert_eq!(listed.vendor, "Sushy Emulator");
    assert_eq!(listed.interfaces.len(), 1);

    let stored = enrolled.bmc.unwrap();
    assert_eq!(stored.hardware_id, machine.id);
    let Some(Protocol::Redfish(redfish)) = &stored.protocol else { panic!() };
    assert_eq!(redfish.certificate_sha256, emulator.fingerprint, "pinned");
    assert!(stored.password.is_empty());

    let job = service.until(&enrolled.discovery.unwrap().id, |job| job.end_time.is_some()).await;
    assert_eq!(job.state(), State::Success, "{}", job.state_reason);
    assert_eq!(job.completed_operations, 2);

    let again = enrol(&mut service, wanted).await;
    assert!(!again.hardware_created && !again.bmc_created && again.discovery.is_none());
    assert_eq!((again.hardware_id, again.bmc.unwrap().id), (machine.id, stored.id));
    assert_eq!(machines.all().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bmc_of_another_machine_is_created_only_if_it_is_accepted() {
    let (emulator, machines) = (Emulator::guarded("node1"), FakeHardware::default());
    let mut service = service_with(&machines).await;
    machines.set_others(true);
    let create = |accept_other_machine| pb::CreateBmcRequest {
        bmc: Some(at(&emulator.url, "node1")),
        accept_other_machine,
        ..Default::default()
    };
    let refused = service.client.create_bmc(create(false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("that of node-9"), "{refused}");
    let [compared] = machines.compared().try_into().unwrap();
    assert_eq!((compared.uuid, compared.macs), (emulator::id(0), vec![emulator::mac(0)]));
    let made = service.client.create_bmc(create(true)).await.unwrap().into_inner().bmc.unwrap();
    assert_eq!(made.system_uuid, emulator::id(0));
    let enrolled = service.client.enrol_bmc(request(at(&emulator.url, ""))).await;
    assert_eq!(enrolled.unwrap().into_inner().bmc.unwrap().id, made.id, "the same BMC");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_created_without_a_login() {
    let (emulator, machines) = (Emulator::guarded("node1"), FakeHardware::default());
    let mut service = service_with(&machines).await;
    let wrong = pb::Bmc { password: "wrong".into(), ..at(&emulator.url, "node1") };
    let closed = at("https://127.0.0.1:1", "");
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            // The client may have closed it.
            let _written = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let without_tls = at(&format!("https://{address}"), "");
    let speaks_no_tls = format!("the BMC cannot be reached: {address} does not speak TLS");
    let unknown = at(&emulator.url, "node2");
    for (bmc, code, text) in [
        (wrong, Code::FailedPrecondition, "the BMC refuses the user name or the password"),
        (closed, Code::Unavailable, "the BMC cannot be reached: nothing listens at 127.0.0.1:1"),
        (without_tls, Code::Unavailable, speaks_no_tls.as_str()),
        (unknown, Code::FailedPrecondition, "the BMC has no system \"node2\""),
    ] {
        let refused = service.client.enrol_bmc(request(bmc)).await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert!(refused.message().starts_with(text), "{}", refused.message());
    }
    answering.abort();
    assert!(machines.all().is_empty());
    let bmcs = service.client.list_bmcs(pb::ListBmcsRequest::default()).await.unwrap();
    assert!(bmcs.into_inner().bmcs.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_enrolment_is_completed_when_it_is_repeated() {
    let (emulator, machines) = (Emulator::open(&["node1".into()]), FakeHardware::default());
    let mut service = service_with(&machines).await;
    machines.fail_once();
    let failed = service.client.enrol_bmc(request(at(&emulator.url, ""))).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert_eq!(machines.all()[0].bmc_inventory, None);
    let completed = enrol(&mut service, request(at(&emulator.url, ""))).await;
    assert!(!completed.hardware_created && !completed.bmc_created);
    assert!(completed.discovery.is_some());
    let [machine] = machines.all().try_into().unwrap();
    assert!(machine.bmc_inventory.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_known_by_its_mac_gets_the_bmc_and_one_that_is_on_is_not_disturbed() {
    let (emulator, machines) = (Emulator::open(&["node1".into()]), FakeHardware::default());
    let mut service = service_with(&machines).await;
    let interface = hw::Interface { mac: emulator::mac(0), ..Default::default() };
    let known = hw::Hardware {
        name: "known".into(),
        state: hw::State::Enrolled.into(),
        interfaces: vec![interface],
        ..hw::Hardware::default()
    };
    let id = machines.add(known);
    let none = pb::EnrolBmcRequest {
        discovery: Discovery::None.into(),
        ..request(at(&emulator.url, "node1"))
    };
    let enrolled = enrol(&mut service, none).await;
    assert!(!enrolled.hardware_created && enrolled.bmc_created && enrolled.discovery.is_none());
    assert_eq!(enrolled.hardware_id, id.to_string());
    assert!(enrolled.notes.contains(&"the machine has a record already: known".to_owned()));

    // The same machine by another address has a BMC already.
    let proxy = Proxy::start(&emulator.url, Extras::default()).await;
    let other = service.client.enrol_bmc(request(at(&proxy.url, ""))).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists, "{}", other.message());

    let job = service.job(id, vec![power(Power::On)]).await;
    service.until(&job.id, |job| job.state() == State::Success).await;
    let by = Some(pb::get_bmc_request::By::HardwareId(id.to_string()));
    let stored = service.client.get_bmc(pb::GetBmcRequest { by }).await.unwrap().into_inner();
    let delete = pb::DeleteBmcRequest { id: stored.bmc.unwrap().id, revision: 0 };
    service.client.delete_bmc(delete).await.unwrap();
    let on = enrol(&mut service, request(at(&emulator.url, "node1"))).await;
    assert_eq!(on.power_state(), PowerState::On);
    assert!(on.discovery.is_none());
    assert!(on.notes.contains(&"no boot for discovery: the machine is on".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_that_is_read_again_is_stored_and_has_memory_and_processors() {
    let (emulator, machines) = (Emulator::of_libvirt(), FakeHardware::default());
    let mut service = service_with(&machines).await;
    let id = machines.add(hw::Hardware::default());
    service.add(bmc(id, &emulator.url, "")).await;
    let request = pb::ReadBmcInventoryRequest { hardware_id: id.to_string() };
    let read = service.client.read_bmc_inventory(request).await.unwrap().into_inner();
    let inventory = read.inventory.unwrap();
    assert_eq!(inventory.uuid, "6695eb01-f6a4-8304-79aa-97f2502e193f");
    assert_eq!(inventory.memory_bytes, 8 << 30);
    assert_eq!(inventory.processors.as_ref().unwrap().sockets, 2);
    assert_eq!(machines.all()[0].bmc_inventory.as_deref(), Some(&inventory));
    let unknown = pb::ReadBmcInventoryRequest { hardware_id: HardwareId::new().to_string() };
    let missing = service.client.read_bmc_inventory(unknown).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

/// FRU data with a product area: manufacturer, name, part number, version and serial number.
fn fru(texts: [&str; 5]) -> Vec<u8> {
    let mut area = vec![1, 0, 25];
    for text in texts {
        area.push(0xc0 | u8::try_from(text.len()).unwrap());
        area.extend(text.bytes());
    }
    // No asset tag, no file id, and the end of the fields.
    area.extend([0xc0, 0xc0, 0xc1]);
    while area.len() % 8 != 7 {
        area.push(0);
    }
    area[1] = u8::try_from((area.len() + 1) / 8).unwrap();
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    area.push(sum(&area).wrapping_neg());
    let mut header = vec![1, 0, 0, 0, 1, 0, 0];
    header.push(sum(&header).wrapping_neg());
    [header, area].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ipmi_the_identity_is_that_of_the_fru_data_and_what_is_missing_is_said() {
    let machines = FakeHardware::default();
    let mut service = service_with(&machines).await;
    let texts = ["Quanta", "D52B", "P-1", "1", "QTF 3/07"];
    let sim = IpmiSim::with_fru(&fru(texts), "44454c4c420010308052b4c04f4d3232");
    let enrolled = enrol(&mut service, request(sim.bmc(HardwareId::new()))).await;
    let [machine] = machines.all().try_into().unwrap();
    assert_eq!(machine.name, "qtf-3-07");
    let listed = machine.bmc_inventory.unwrap();
    let fields = [listed.vendor, listed.product, listed.sku, listed.serial];
    assert_eq!(fields, ["Quanta", "D52B", "P-1", "QTF 3/07"]);
    // By its UUID the record is completed when the machine reports itself.
    assert_eq!(listed.uuid, "4c4c4544-0042-3010-8052-b4c04f4d3232");
    assert!(machine.interfaces.is_empty());
    assert_eq!(enrolled.notes, ["the BMC lists no Ethernet address over IPMI"]);
    let job = service.until(&enrolled.discovery.unwrap().id, |job| job.end_time.is_some()).await;
    assert_eq!(job.state(), State::Success, "{}", job.state_reason);

    let bare = IpmiSim::start();
    let enrolled = enrol(&mut service, request(bare.bmc(HardwareId::new()))).await;
    assert!(enrolled.notes.contains(&"the BMC lists no serial number over IPMI".to_owned()));
    let nameless = machines.all().pop().unwrap();
    assert_eq!((nameless.id, nameless.name.as_str()), (enrolled.hardware_id, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_would_not_be_recognized_is_not_booted_for_discovery() {
    let machines = FakeHardware::default();
    let mut service = service_with(&machines).await;
    let sim = IpmiSim::anonymous();
    let wanted = request(sim.bmc(HardwareId::new()));
    let refused = service.client.enrol_bmc(wanted.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = "the BMC tells neither the UUID nor a MAC of its machine";
    assert!(refused.message().starts_with(text), "{}", refused.message());
    assert!(machines.all().is_empty());
    let bmcs = service.client.list_bmcs(pb::ListBmcsRequest::default()).await.unwrap();
    assert!(bmcs.into_inner().bmcs.is_empty());

    let none = pb::EnrolBmcRequest { discovery: Discovery::None.into(), ..wanted };
    let enrolled = enrol(&mut service, none).await;
    assert!(enrolled.hardware_created && enrolled.bmc_created && enrolled.discovery.is_none());
    assert!(enrolled.notes.contains(&"the BMC lists no UUID over IPMI".to_owned()));
}

#[tokio::test]
async fn a_machine_without_a_bmc_is_named_with_the_command_that_adds_one() {
    let machines = FakeHardware::default();
    let mut service = service_with(&machines).await;
    let machine = hw::Hardware { name: "node-1".into(), ..hw::Hardware::default() };
    let id = machines.add(machine).to_string();
    let wanted = "node-1 has no BMC: tinwright power bmc create --hardware node-1";
    let by = Some(pb::get_bmc_request::By::HardwareId(id.clone()));
    let refused = service.client.get_bmc(pb::GetBmcRequest { by }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, wanted));
    let state = pb::GetPowerStateRequest { hardware_id: id };
    let refused = service.client.get_power_state(state).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, wanted));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_hangs_ends_the_reading_at_its_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = site::target(url);
    let start = tokio::time::Instant::now();
    let target = bmc_client::BmcAddress::Redfish(target);
    let error = bmc_client::read_inventory(target).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(start.elapsed() <= std::time::Duration::from_secs(61), "{:?}", start.elapsed());
    let text = error.in_full();
    assert!(text.contains("cannot be reached") || text.contains("did not answer"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_with_the_reading() {
    let emulator = Emulator::open(&["node1".into()]);
    let proxy = Proxy::start(&emulator.url, Extras { sessions: true, ..Extras::default() }).await;
    let target = site::target(proxy.url.clone());
    let target = bmc_client::BmcAddress::Redfish(target);
    let (reading, inventory) = bmc_client::read_inventory(target).await.unwrap();
    assert_eq!(reading.system.power, Reads::Off);
    assert_eq!(inventory.interfaces[0].mac, emulator::mac(0));
    assert!(proxy.sessions() == 1 && !proxy.is_open());
}
