//! The machine that a BMC lists: at logins for changes of its record, and at those for jobs.

use std::collections::BTreeSet;

use tinwright::hardware::v1 as hw;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::power_job::State;
use tinwright::{HardwareId, machine_uuid};
use tonic::{Code, Status};

use crate::directory::FakeHardware;
use crate::emulator::PASSWORD;
use crate::journey::{Service, service_with};
use crate::quirky::{MAC, Quirk, QuirkyBmc, UUID};
use crate::site::{self, power};

/// The UUID of another machine.
const OTHER: &str = "5c4c4544-0042-3010-8052-b4c04f4d3232";

/// The service, a machine, and its BMC, which has no record.
struct Rig {
    service: Service,
    machines: FakeHardware,
    hardware: HardwareId,
    bmc: QuirkyBmc,
}

impl Rig {
    /// A machine with this MAC in its record.
    async fn new(quirks: &[Quirk], mac: &str) -> Self {
        let machines = FakeHardware::default();
        let service = service_with(&machines).await;
        let interfaces = vec![hw::Interface { mac: mac.into(), ..Default::default() }];
        let hardware = machines.add(hw::Hardware { interfaces, ..Default::default() });
        let bmc = QuirkyBmc::start(quirks.iter().copied().collect::<BTreeSet<_>>()).await;
        Self { service, machines, hardware, bmc }
    }

    async fn create(&mut self, accept_other_machine: bool) -> Result<pb::Bmc, Status> {
        let bmc = Some(site::bmc(self.hardware, &self.bmc.url, ""));
        let request = pb::CreateBmcRequest { bmc, accept_other_machine, ..Default::default() };
        Ok(self.service.client.create_bmc(request).await?.into_inner().bmc.unwrap())
    }

    /// Creates the record of the BMC at `url` for the machine `hardware`.
    async fn create_other(&mut self, hardware: HardwareId, url: &str) -> Result<pb::Bmc, Status> {
        let bmc = Some(site::bmc(hardware, url, ""));
        let request = pb::CreateBmcRequest { bmc, ..Default::default() };
        Ok(self.service.client.create_bmc(request).await?.into_inner().bmc.unwrap())
    }

    async fn update(&mut self, request: pb::UpdateBmcRequest) -> Result<pb::Bmc, Status> {
        Ok(self.service.client.update_bmc(request).await?.into_inner().bmc.unwrap())
    }

    /// Sets the password, which is the same, after a login.
    async fn set_password(&mut self) -> Result<pb::Bmc, Status> {
        let bmc = Some(pb::Bmc { password: PASSWORD.into(), ..self.stored().await });
        self.update(pb::UpdateBmcRequest { bmc, ..Default::default() }).await
    }

    /// Accepts the machine that the BMC lists now.
    async fn accept(&mut self) -> Result<pb::Bmc, Status> {
        let bmc = Some(self.stored().await);
        let request =
            pb::UpdateBmcRequest { bmc, accept_other_machine: true, ..Default::default() };
        self.update(request).await
    }

    /// Changes the address to `url`.
    async fn move_to(&mut self, url: &str, skip_login: bool) -> Result<pb::Bmc, Status> {
        let pb::Bmc { protocol, password, .. } = site::bmc(self.hardware, url, "");
        let bmc = Some(pb::Bmc { protocol, password, ..self.stored().await });
        self.update(pb::UpdateBmcRequest { bmc, skip_login, ..Default::default() }).await
    }

    async fn stored(&mut self) -> pb::Bmc {
        let by = Some(pb::get_bmc_request::By::HardwareId(self.hardware.to_string()));
        let found = self.service.client.get_bmc(pb::GetBmcRequest { by }).await;
        found.unwrap().into_inner().bmc.unwrap()
    }

    /// Carries out a job, and returns it.
    async fn job(&mut self, switch: Power) -> pb::PowerJob {
        let made = self.service.job(self.hardware, vec![power(switch)]).await;
        self.service.until(&made.id, |job| job.end_time.is_some()).await
    }
}

/// Checks that a login was refused for a reason with `text`.
fn assert_refused(result: Result<pb::Bmc, Status>, text: &str) {
    let refused = result.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(text), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uuid_counts_although_the_interfaces_cannot_be_read() {
    let mut rig = Rig::new(&[Quirk::InterfacesBroken], "").await;
    rig.machines.set_others(true);
    assert_refused(rig.create(false).await, "that of node-9");
    let [compared] = rig.machines.compared().try_into().unwrap();
    assert_eq!((compared.uuid.as_str(), compared.macs), (UUID, vec![]));
    assert_eq!(rig.create(true).await.unwrap().system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uuid_that_is_not_listed_any_more_is_not_forgotten() {
    let mut rig = Rig::new(&[], "").await;
    rig.create(false).await.unwrap();
    rig.bmc.set_uuid("");
    assert_eq!(rig.set_password().await.unwrap().system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_accepted_passes_the_login_of_later_changes() {
    let mut rig = Rig::new(&[], "").await;
    rig.machines.set_others(true);
    assert_refused(rig.create(false).await, "that of node-9");
    rig.create(true).await.unwrap();
    assert_eq!(rig.set_password().await.unwrap().system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_refused_if_the_uuid_is_another_one_and_no_mac_is_the_machines() {
    for (mac, is_same) in [("02:00:00:00:00:01", false), (MAC, true)] {
        let mut rig = Rig::new(&[], mac).await;
        rig.create(false).await.unwrap();
        rig.bmc.set_uuid(OTHER);
        let changed = rig.set_password().await;
        match is_same {
            true => assert_eq!(changed.unwrap().system_uuid, OTHER),
            false => {
                assert_refused(changed, &format!("the BMC lists UUID {OTHER}, not {UUID}"));
                assert_eq!(rig.stored().await.system_uuid, UUID);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bmc_at_two_addresses_is_created_once() {
    let mut rig = Rig::new(&[], "").await;
    rig.create(false).await.unwrap();
    let second = QuirkyBmc::start(BTreeSet::new()).await;
    let other = HardwareId::new();
    let created = rig.create_other(other, &second.url).await;
    assert_refused(created, &format!("the BMC of {} lists, too", rig.hardware));
    second.set_uuid(OTHER);
    rig.create_other(other, &second.url).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_address_of_a_bmc_is_not_enrolled_as_a_new_machine() {
    let mut rig = Rig::new(&[], "").await;
    rig.create(false).await.unwrap();
    let second = QuirkyBmc::start(BTreeSet::new()).await;
    let bmc = site::bmc(HardwareId::new(), &second.url, "");
    let bmc = Some(pb::Bmc { hardware_id: String::new(), ..bmc });
    let request = pb::EnrolBmcRequest { bmc, ..Default::default() };
    let enrolled = rig.service.client.enrol_bmc(request).await;
    let enrolled = enrolled.map(|response| response.into_inner().bmc.unwrap());
    assert_refused(enrolled, &format!("the BMC of {} lists, too", rig.hardware));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uuid_that_another_bmc_lists_too_passes_with_a_mac_of_the_machine() {
    let mut rig = Rig::new(&[], MAC).await;
    let other = QuirkyBmc::start(BTreeSet::new()).await;
    rig.create_other(HardwareId::new(), &other.url).await.unwrap();
    assert_eq!(rig.create(false).await.unwrap().system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_accepted_without_a_uuid_may_list_another_one_later() {
    for unset in ["", machine_uuid::PLACEHOLDERS[0]] {
        let mut rig = Rig::new(&[], "").await;
        rig.create(false).await.unwrap();
        rig.bmc.set_uuid(unset);
        assert_eq!(rig.accept().await.unwrap().system_uuid, "");
        rig.bmc.set_uuid(OTHER);
        let job = rig.job(Power::On).await;
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        assert_eq!(rig.stored().await.system_uuid, OTHER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_at_a_new_address_forgets_the_uuid_of_the_bmc_at_the_former_one() {
    let mut rig = Rig::new(&[], "").await;
    rig.create(false).await.unwrap();
    let new = QuirkyBmc::start(BTreeSet::new()).await;
    new.set_uuid("");
    let moved = rig.move_to(&new.url, false).await.unwrap();
    assert_eq!(moved.system_uuid, "");
    // The BMC at the former address is that of another machine.
    let former = rig.bmc.url.clone();
    let created = rig.create_other(HardwareId::new(), &former).await.unwrap();
    assert_eq!(created.system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_at_a_new_address_without_a_login_does_not_switch_another_machine() {
    let mut rig = Rig::new(&[], "").await;
    rig.create(false).await.unwrap();
    let new = QuirkyBmc::start(BTreeSet::new()).await;
    new.set_uuid(OTHER);
    let moved = rig.move_to(&new.url, true).await.unwrap();
    assert_eq!(moved.system_uuid, UUID);
    let job = rig.job(Power::On).await;
    assert_eq!(job.state(), State::Failed, "{}", job.state_reason);
    assert!(!new.is_on());
    assert!(rig.stored().await.warning.contains(OTHER));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_new_address_the_records_of_machines_decide_and_not_the_uuid_at_the_former_one() {
    let mut rig = Rig::new(&[], "").await;
    rig.create(false).await.unwrap();
    let new = QuirkyBmc::start(BTreeSet::new()).await;
    new.set_uuid(OTHER);
    rig.machines.set_others(true);
    assert_refused(rig.move_to(&new.url, false).await, "that of node-9");
    assert_eq!(rig.stored().await.system_uuid, UUID);
    rig.machines.set_others(false);
    assert_eq!(rig.move_to(&new.url, false).await.unwrap().system_uuid, OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_is_no_uuid_and_the_real_one_is_stored_once_it_is_listed() {
    let mut rig = Rig::new(&[], "").await;
    rig.bmc.set_uuid(machine_uuid::PLACEHOLDERS[0]);
    assert_eq!(rig.create(false).await.unwrap().system_uuid, "");
    assert_eq!(rig.job(Power::On).await.state(), State::Success);
    rig.bmc.set_uuid(UUID);
    assert_eq!(rig.job(Power::Off).await.state(), State::Success);
    assert_eq!(rig.stored().await.system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_does_not_wait_for_the_service_that_knows_the_machines() {
    let mut rig = Rig::new(&[], "").await;
    rig.service.add(site::bmc(rig.hardware, &rig.bmc.url, "")).await;
    rig.machines.set_away(true);
    assert_eq!(rig.job(Power::On).await.state(), State::Success);
    assert_eq!(rig.stored().await.system_uuid, "");
    rig.machines.set_away(false);
    assert_eq!(rig.job(Power::Off).await.state(), State::Success);
    assert_eq!(rig.stored().await.system_uuid, UUID);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_login_of_a_job_compares_the_uuid_and_a_common_mac_passes() {
    for (mac, state) in [("02:00:00:00:00:01", State::Failed), (MAC, State::Success)] {
        let mut rig = Rig::new(&[], mac).await;
        rig.service.add(site::bmc(rig.hardware, &rig.bmc.url, "")).await;
        rig.machines.set_others(true);
        let job = rig.job(Power::On).await;
        assert_eq!(job.state(), state, "{}", job.state_reason);
        let compared = rig.machines.compared();
        let is_by_uuid = compared.iter().all(|one| one.uuid == UUID && one.macs.is_empty());
        assert!(is_by_uuid && !compared.is_empty(), "{compared:?}");
        assert_eq!(rig.stored().await.warning.is_empty(), state == State::Success);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_does_not_go_on_at_another_machine_whose_macs_cannot_be_compared() {
    let mut rig = Rig::new(&[], MAC).await;
    rig.service.add(site::bmc(rig.hardware, &rig.bmc.url, "")).await;
    rig.machines.set_others(true);
    rig.machines.set_unreadable(true);
    let job = rig.job(Power::On).await;
    assert_eq!(job.state(), State::Failed, "{}", job.state_reason);
    assert!(job.state_reason.contains("that of node-9"), "{}", job.state_reason);
    assert!(!rig.bmc.is_on());
    assert!(rig.stored().await.warning.contains("that of node-9"));
}
