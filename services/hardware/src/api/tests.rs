//! Calls whose callers go away, and callers with a tenant.

use std::sync::Arc;
use std::time::Duration;

use runtime::{Caller, Channel, Clock, Role};
use store::memory::MemoryStore;
use tinwright::common::v1::View;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1::Instance;
use tonic::Code;

use super::*;
use crate::{fake_peers, tenant};

#[tokio::test(start_paused = true)]
async fn a_delete_is_completed_although_its_caller_goes_away() {
    let records = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
    let interface = pb::Interface { mac: "02:00:00:00:00:01".into(), ..pb::Interface::default() };
    let new = pb::Hardware { interfaces: vec![interface], ..pb::Hardware::default() };
    let made = records.create(new, None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    let api = Api::new(records.clone(), peers, CancellationToken::new());
    let channel = Channel::to(api.routes());
    let delete = pb::DeleteHardwareRequest { id: made.id.clone(), revision: 0 };
    let mut client = HardwareServiceClient::new(channel);
    let caller = tokio::spawn(async move { client.delete_hardware(delete).await });
    let call = calls.recv().await.unwrap();
    caller.abort();
    // The paused time moves on once the server has processed the cancellation.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let _sent = call.send(None);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(records.records.get(&made.id).await.unwrap(), None);
}

/// A machine whose record has something in fields that tenants do not see.
fn machine(number: u8) -> pb::Hardware {
    let mac = format!("02:00:00:00:00:{number:02x}");
    let interface = pb::Interface { mac, name: "eth0".into(), ..pb::Interface::default() };
    pb::Hardware {
        name: format!("m{number}"),
        labels: [("rack".into(), "r1".into())].into(),
        interfaces: vec![interface],
        facility: "f1".into(),
        extra: br#"{"userData": "hunter2"}"#.into(),
        ..pb::Hardware::default()
    }
}

/// Three machines: of the tenant acme, of another one, and a free one.
async fn site() -> (Api, [pb::Hardware; 3]) {
    let records = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
    let mut made = Vec::new();
    for number in 1..=3 {
        made.push(records.create(machine(number), None).await.unwrap());
    }
    let [own, other, free] = made.try_into().unwrap();
    let on = |machine: &pb::Hardware, tenant: &str| Instance {
        id: "i".into(),
        hardware_id: machine.id.clone(),
        tenant: tenant.into(),
        ..Instance::default()
    };
    let released = Instance { released: true, ..on(&free, "acme") };
    let (peers, _) = fake_peers::start_with(vec![on(&own, "acme"), on(&other, "other"), released]);
    (Api::new(records, peers, CancellationToken::new()), [own, other, free])
}

fn of_acme<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    let caller = Caller::from(Role::Admin).with_tenant("acme".parse().unwrap()).unwrap();
    request.extensions_mut().insert(caller);
    request
}

#[tokio::test]
async fn a_tenant_finds_the_machine_of_another_one_in_no_way() {
    use pb::get_hardware_request::By;
    let (api, [own, other, _]) = site().await;
    for (machine, is_own) in [(&own, true), (&other, false)] {
        let mac = machine.interfaces[0].mac.clone();
        for (by, name) in [
            (By::Id(machine.id.clone()), &machine.id),
            (By::Name(machine.name.clone()), &machine.name),
            (By::Mac(mac.clone()), &mac),
        ] {
            let request = pb::GetHardwareRequest { by: Some(by), view: View::Full.into() };
            match api.get_hardware(of_acme(request)).await {
                Ok(found) => {
                    assert!(is_own);
                    assert_eq!(found.into_inner().hardware, Some(tenant::view(own.clone())));
                }
                Err(missing) => {
                    assert!(!is_own);
                    assert_eq!(missing.code(), Code::NotFound);
                    assert_eq!(missing.message(), format!("hardware {name} not found"));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_tenant_lists_the_machines_that_its_instances_occupy() {
    let (api, [own, ..]) = site().await;
    let list = async |labels| {
        let view = View::Full.into();
        let request = pb::ListHardwareRequest { labels, view, ..Default::default() };
        api.list_hardware(of_acme(request)).await.unwrap().into_inner().hardware
    };
    assert_eq!(list(Default::default()).await, [tenant::view(own)]);
    assert_eq!(list([("rack".into(), "r1".into())].into()).await, []);
}

#[test]
fn a_tenant_sees_id_name_state_place_and_ethernet_addresses() {
    let (location_id, zone) = ("l".to_owned(), "a".to_owned());
    let place = pb::Hardware { location_id: location_id.clone(), zone: zone.clone(), ..machine(1) };
    let whole = pb::Hardware { id: "1".into(), state: 2, state_reason: "x".into(), ..place };
    let mac = whole.interfaces[0].mac.clone();
    let interfaces = vec![pb::Interface { mac, ..pb::Interface::default() }];
    let expected = pb::Hardware {
        id: "1".into(),
        name: "m1".into(),
        state: 2,
        location_id,
        zone,
        interfaces,
        ..Default::default()
    };
    assert_eq!(tenant::view(whole), expected);
}

#[tokio::test]
async fn the_network_identity_of_a_machine_in_use_changes_by_force_only() {
    let (api, [used, ..]) = site().await;
    let moved = |machine: &pb::Hardware| {
        let mut moved = machine.clone();
        moved.interfaces[0].mac = "02:00:00:00:00:99".into();
        pb::Hardware { revision: 0, ..moved }
    };
    let send = |hardware: pb::Hardware, field: &str, force| {
        let paths = vec![field.to_owned()];
        let update_mask = Some(prost_types::FieldMask { paths });
        let hardware = Some(hardware);
        api.update_hardware(Request::new(pb::UpdateHardwareRequest {
            hardware,
            update_mask,
            force,
        }))
    };
    let refused = send(moved(&used), "interfaces", false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("MAC 02:00:00:00:00:01"), "{refused}");
    let renamed = pb::Hardware { name: "y1".into(), revision: 0, ..used.clone() };
    assert!(send(renamed, "name", false).await.is_err());
    let labelled = pb::Hardware { facility: "f2".into(), revision: 0, ..used.clone() };
    send(labelled, "facility", false).await.unwrap();
    send(moved(&used), "interfaces", true).await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_lists_another_record_is_that_of_another_machine() {
    let (api, [own, other, _]) = site().await;
    let check = async |hardware_id: &str, mac: &str| {
        let (hardware_id, macs) = (hardware_id.to_owned(), vec![mac.to_owned()]);
        let request = pb::CheckBmcIdentityRequest { hardware_id, macs, uuid: String::new() };
        let answer = api.check_bmc_identity(Request::new(request)).await;
        answer.map(|answer| answer.into_inner().other_machine)
    };
    let (own_mac, other_mac) = (&own.interfaces[0].mac, &other.interfaces[0].mac);
    let expected = format!("the BMC lists MAC {other_mac}, which is that of m2");
    assert_eq!(check(&own.id, other_mac).await.unwrap(), expected);
    assert_eq!(check(&own.id, own_mac).await.unwrap(), "");
    assert_eq!(check("", other_mac).await.unwrap(), expected, "a machine without a record");
    let missing = check(&HardwareId::new().to_string(), own_mac).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}
