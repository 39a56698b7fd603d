//! Certificates are issued to the worker of a machine that has a record and is prepared for its workflow, and to nobody else.

use std::time::{Duration, SystemTime};

use runtime::boot_token::Purpose;
use runtime::{Caller, Clock, Role};
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tonic::{Code, Status};

use crate::machines::NO_MACHINE;
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
