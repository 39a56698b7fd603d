//! Certificates are issued to the worker of a machine that has a record and is prepared for its workflow, and to nobody else.

use std::time::{Duration, SystemTime};

use runtime::boot_token::{EnrolmentClaims, Purpose};
use runtime::{Caller, Clock, Role};
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tonic::{Code, Status};

use crate::machines::{KNOWN_MAC, NO_MACHINE, SECRET};
use crate::power::JobEnd;
use crate::site::{Site, TWO};

fn csr() -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
}

fn token(site: &Site, machine: HardwareId, epoch: u64, made_at: SystemTime) -> String {
    site.tokens.mint(Purpose::Identity, machine, epoch, [192, 0, 2, 7].into(), made_at).unwrap()
}

/// Redeems a token with a new key.
async fn redeem(site: &mut Site, token: &str) -> Result<String, Status> {
    let request = pb::RedeemRequest { boot_token: token.into(), csr: csr(), holder: None };
    let mut anonymous = WorkerServiceClient::new(site.channel(None));
    anonymous.redeem(request).await.map(|response| response.into_inner().certificate)
}

fn code(result: Result<String, Status>) -> Code {
    result.unwrap_err().code()
}

#[tokio::test]
async fn a_boot_token_is_refused_until_the_machine_is_prepared_and_an_earlier_one_also_then() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let earlier = token(&site, machine, 0, SystemTime::now() - Duration::from_secs(60));
    site.power.set_end(JobEnd::Never);
    let mode = pb::boot_options::Mode::Netboot.into();
    let options = pb::BootOptions { mode, power_off_after: false };
    let made = site.workflow_with(machine, TWO, options).await;
    site.until(&made.id, |found| found.state() == pb::WorkflowState::Preparing).await;
    let fresh = token(&site, machine, 1, SystemTime::now());
    assert_eq!(code(redeem(&mut site, &earlier).await), Code::PermissionDenied);
    assert_eq!(code(redeem(&mut site, &fresh).await), Code::PermissionDenied);
    site.power.finish();
    site.until(&made.id, |found| found.prepared).await;
    assert_eq!(code(redeem(&mut site, &earlier).await), Code::PermissionDenied);
    let of_no_epoch = token(&site, machine, 0, SystemTime::now());
    assert_eq!(code(redeem(&mut site, &of_no_epoch).await), Code::PermissionDenied);
    let certificate = redeem(&mut site, &fresh).await.unwrap();
    assert_eq!(certificate, format!("tinwright:machine:{machine}?epoch=1"));
}

#[tokio::test]
async fn a_boot_token_from_the_time_of_the_preparation_is_good_once_that_is_complete() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let (mut site, machine) = (Site::with_clock(clock.clone()).await, HardwareId::new());
    site.power.set_end(JobEnd::Never);
    let mode = pb::boot_options::Mode::Netboot.into();
    let options = pb::BootOptions { mode, power_off_after: false };
    let made = site.workflow_with(machine, TWO, options).await;
    while site.power.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    // The clock of the boot server may be behind.
    let token = token(&site, machine, 1, clock.wall());
    clock.advance(Duration::from_secs(60));
    site.power.finish();
    site.until(&made.id, |found| found.prepared).await;
    assert!(redeem(&mut site, &token).await.is_ok());
}

#[tokio::test]
async fn a_workflow_that_needs_no_restart_does_not_restrict_boot_tokens() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let earlier = token(&site, machine, 0, SystemTime::now() - Duration::from_secs(60));
    site.workflow(machine, TWO).await;
    site.worker(machine).begin().await;
    assert!(redeem(&mut site, &earlier).await.is_ok());
}

#[tokio::test]
async fn a_machine_without_a_record_gets_no_certificate() {
    let (mut site, machine) = (Site::new().await, NO_MACHINE.parse::<HardwareId>().unwrap());
    let token = token(&site, machine, 0, SystemTime::now());
    assert_eq!(code(redeem(&mut site, &token).await), Code::PermissionDenied);
    let mut worker = WorkerServiceClient::new(site.channel(Some(Role::worker(machine))));
    let refused = worker.renew(pb::RenewRequest { csr: csr() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_inventory_is_recorded_for_the_calling_machine_in_its_boot_epoch() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let inventory = hw::Inventory { serial: "S1".into(), ..hw::Inventory::default() };
    let request = pb::ReportInventoryRequest { inventory: Some(inventory.clone()) };
    let mut worker = WorkerServiceClient::new(site.channel(Some(Role::worker(machine))));
    worker.report_inventory(request.clone()).await.unwrap();
    let empty = worker.report_inventory(pb::ReportInventoryRequest::default()).await;
    assert_eq!(empty.unwrap_err().code(), Code::InvalidArgument);
    let (hardware_id, inventory) = (machine.to_string(), Some(inventory));
    let recorded = [hw::RecordInventoryRequest { hardware_id, inventory }];
    assert_eq!(site.hardware.inventories(), recorded);
    let mut other = WorkerServiceClient::new(site.channel_of(Some(Caller::worker(machine, 7))));
    let refused = other.report_inventory(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    site.hardware.delete(machine);
    let refused = worker.report_inventory(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(site.hardware.inventories(), recorded);
}

/// A token for the machine without a record that has this MAC.
fn token_to_enrol(site: &Site, mac: &str) -> (HardwareId, String) {
    let (id, address) = (HardwareId::new(), [192, 0, 2, 7].into());
    let mac = mac.parse().unwrap();
    let claims = EnrolmentClaims { id, uuid: [7; 16], mac, address, prefix_length: 24, expiry: 0 };
    (id, site.tokens.mint_for_enrolment(claims, SystemTime::now()).unwrap())
}

fn report() -> pb::ReportInventoryRequest {
    let inventory = hw::Inventory { serial: "S1".into(), ..hw::Inventory::default() };
    pb::ReportInventoryRequest { inventory: Some(inventory) }
}

#[tokio::test]
async fn a_machine_without_a_record_enrols_with_its_token_as_the_one_that_asked() {
    let mut site = Site::new().await;
    let (id, token) = token_to_enrol(&site, "02:00:00:00:00:01");
    let certificate = redeem(&mut site, &token).await.unwrap();
    assert_eq!(certificate, format!("tinwright:machine:{id}?purpose=enrol"));
    let again = redeem(&mut site, &token).await;
    assert_eq!(code(again), Code::PermissionDenied, "another key with the same token");
    let mut machine = WorkerServiceClient::new(site.channel_of(Some(Caller::enrolling(id))));
    let made = machine.report_inventory(report()).await.unwrap().into_inner();
    assert_eq!((made.hardware_id, made.name.as_str()), (id.to_string(), "sn-1"));
    let [reported] = &site.hardware.enrolments()[..] else { panic!("one report") };
    let enrolment = reported.enrolment.as_ref().unwrap();
    assert_eq!((enrolment.id.as_str(), &*enrolment.mac), (&*id.to_string(), "02:00:00:00:00:01"));
    assert_eq!(enrolment.network, "192.0.2.0/24");
    assert_eq!(reported.uuid, "07070707-0707-0707-0707-070707070707");
    assert_eq!(reported.inventory, report().inventory);
    assert!(site.hardware.inventories().is_empty(), "no other machine's inventory is changed");
}

#[tokio::test]
async fn an_identity_to_enrol_is_good_for_its_own_enrolment_only() {
    let mut site = Site::new().await;
    let stranger = Caller::enrolling(HardwareId::new());
    let mut machine = WorkerServiceClient::new(site.channel_of(Some(stranger)));
    let refused = machine.report_inventory(report()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "nobody redeemed a token for it");
    let (id, token) = token_to_enrol(&site, "02:00:00:00:00:01");
    redeem(&mut site, &token).await.unwrap();
    let mut machine = WorkerServiceClient::new(site.channel_of(Some(Caller::enrolling(id))));
    let refused = machine.renew(pb::RenewRequest { csr: csr() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = machine.next_action(pb::NextActionRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_refused_machine_does_not_learn_which_record_it_resembles() {
    let mut site = Site::new().await;
    let (id, token) = token_to_enrol(&site, KNOWN_MAC);
    redeem(&mut site, &token).await.unwrap();
    let mut machine = WorkerServiceClient::new(site.channel_of(Some(Caller::enrolling(id))));
    let refused = machine.report_inventory(report()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = refused.message();
    assert!(!text.contains(SECRET) && !text.contains(NO_MACHINE), "{text}");
}
