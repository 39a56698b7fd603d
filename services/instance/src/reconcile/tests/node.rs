//! Nodes: booted from the network, active while their stack runs, and booted again.

use std::time::{Duration, SystemTime};

use tinwright::hardware::v1::Policy;
use tinwright::hardware::v1::policy::PhoneHome as PhoneHomePolicy;
use tinwright::instance::v1::ImageStack;
use tinwright::instance::v1::instance::PowerManagement;
use tinwright::power::v1::operation::{Boot, Power, What, boot::Device};

use super::*;
use crate::instances::machine_reports::StackRunning;
use crate::restart::{Restart, restart};

fn node() -> Instance {
    let os = Some(Os::ImageStack(ImageStack { stack_id: "web".into() }));
    Instance { template_id: String::new(), os, ..templated() }
}

fn pxe() -> What {
    What::Boot(Boot { device: Device::Pxe.into(), ..Boot::default() })
}

impl Bench {
    /// Reports that the stack runs in a boot that began at `boot_time`.
    async fn report_stack(&self, boot_time: SystemTime) {
        let generation = self.found().await.unwrap().generation;
        let report = StackRunning { generation, boot_time };
        let record = |old: &Instance, now| report.apply(old, now);
        let machine = MACHINE.parse().unwrap();
        self.instances.change_occupant(machine, Some(self.id), record).await.unwrap();
    }

    /// A node whose instance is active.
    async fn active_node() -> Self {
        let bench = Self::new(node()).await;
        bench.settle().await;
        bench.report_stack(bench.instances.now()).await;
        assert_eq!(bench.settled().await, "active");
        bench
    }

    /// The operations of the latest power job.
    fn operations(&self) -> Vec<What> {
        let job = self.site.state().jobs.last().cloned().unwrap();
        job.operations.into_iter().filter_map(|it| it.what).collect()
    }

    async fn restart(&self) -> Result<String, crate::restart::Error> {
        let order = Restart { instance: self.id, force: false, request: String::new() };
        restart(&self.instances, &self.site.peers(), &order).await
    }
}

#[tokio::test]
async fn a_node_is_booted_once_and_active_when_its_stack_runs_in_that_boot() {
    let bench = Bench::new(node()).await;
    let phone_home = PhoneHomePolicy::Required.into();
    bench.site.policy(Policy { phone_home, ..Policy::default() });
    assert_eq!(bench.settle().await, Outcome::Done);
    let booted = bench.found().await.unwrap();
    assert_eq!(
        (booted.state().word(), booted.state_reason.as_str()),
        ("provisioning".into(), "boots as a node")
    );
    assert_eq!(bench.operations(), [pxe(), What::Power(Power::Cycle.into())]);
    assert_eq!(bench.site.request_ids(), [format!("{}/boot/1", bench.id)]);
    assert!(bench.site.state().created.is_empty(), "nothing is installed");
    // The containers of the stack may have a system that calls.
    bench.call_home().await;
    bench.report_script(true).await;
    let install = SystemTime::try_from(booted.install_time.unwrap()).unwrap();
    bench.report_stack(install - Duration::from_secs(1)).await;
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.found().await.unwrap().stack_time, None, "of the boot before");
    bench.report_stack(install + Duration::from_secs(60)).await;
    assert_eq!((bench.settled().await, bench.reason().await), ("active".into(), String::new()));
    let active = bench.found().await.unwrap();
    bench.report_stack(install + Duration::from_secs(90)).await;
    assert_eq!(bench.found().await.unwrap(), active);
    assert_eq!(bench.site.state().jobs.len(), 1);
}

#[tokio::test]
async fn a_boot_that_a_dead_process_released_counts() {
    let bench = Bench::new(node()).await;
    for _ in 0..2 {
        let step = bench.reconciler.step(&bench.id.to_string()).await.unwrap();
        assert_eq!(step, Outcome::Again);
    }
    let job = bench.found().await.unwrap().power_job_id;
    assert!(bench.site.peers().release_power_job(&job).await.unwrap());
    let boot_time = bench.instances.now();
    bench.settle().await;
    bench.report_stack(boot_time).await;
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn what_people_switch_on_is_not_booted_as_a_node_and_waits_for_them() {
    let by_hand = Instance { power_management: PowerManagement::None.into(), ..node() };
    for (instance, has_bmc, reason) in [
        (by_hand, true, "waits: switch the machine on by hand"),
        (node(), false, "no BMC: switch the machine on by hand"),
    ] {
        let bench = Bench::new(instance).await;
        bench.site.state().has_bmc = has_bmc;
        assert_eq!(
            (bench.settled().await, bench.reason().await),
            ("provisioning".into(), reason.to_owned())
        );
        assert!(bench.site.state().jobs.is_empty());
        bench.report_stack(bench.instances.now()).await;
        assert_eq!(bench.settled().await, "active");
    }
}

#[tokio::test]
async fn a_machine_in_maintenance_is_not_booted_as_a_node() {
    let bench = Bench::new(node()).await;
    bench.reconciler.step(&bench.id.to_string()).await.unwrap();
    bench.site.set_machine_state(HardwareState::Maintenance, "fan");
    assert!(matches!(bench.settle().await, Outcome::After(_)));
    assert!(bench.site.state().jobs.is_empty() && bench.reason().await.starts_with("waits: "));
    bench.site.set_machine_state(HardwareState::Provisionable, "");
    assert_eq!(bench.settle().await, Outcome::Done);
    assert_eq!(bench.reason().await, "boots as a node");
}

#[tokio::test]
async fn a_node_that_is_reinstalled_is_booted_again_and_its_former_boot_does_not_count() {
    let bench = Box::pin(Bench::active_node()).await;
    let former = bench.instances.now();
    bench.instances.reinstall(bench.id, 0, Instance::default(), &[]).await.unwrap();
    let ordered = bench.found().await.unwrap();
    assert_eq!((ordered.stack_time, ordered.install_time), (None, None));
    bench.report_stack(former).await;
    assert_eq!(bench.settled().await, "reinstalling");
    bench.report_stack(former).await;
    assert_eq!(bench.settled().await, "reinstalling");
    let ids = [1, 2].map(|generation| format!("{}/boot/{generation}", bench.id));
    assert_eq!(bench.site.request_ids(), ids);
    bench.report_stack(bench.instances.now()).await;
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn a_node_whose_boot_was_refused_is_booted_by_a_retry() {
    let bench = Bench::new(node()).await;
    bench.settle().await;
    let old = bench.found().await.unwrap();
    bench.instances.advance(&old, Event::Failed, "test", |_| {}).await.unwrap();
    bench.report_stack(bench.instances.now()).await;
    assert_eq!(bench.found().await.unwrap().stack_time, None, "it has failed");
    bench.instances.retry(bench.id).await.unwrap();
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.site.state().released_jobs.len(), 2);
    bench.report_stack(bench.instances.now()).await;
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn another_stack_leaves_a_node_active_and_another_kind_of_system_ends_its_stack() {
    let bench = Box::pin(Bench::active_node()).await;
    let before = bench.found().await.unwrap();
    let update = |os| Instance { id: bench.id.to_string(), os, ..Instance::default() };
    let other = Some(Os::ImageStack(ImageStack { stack_id: "db".into() }));
    let updated = bench.instances.update(update(other), &["image_stack".into()]).await.unwrap();
    assert_eq!((updated.state, updated.stack_time), (before.state, before.stack_time));
    let script = bench.instances.update(update(scripted().os), &["custom_ipxe".into()]).await;
    assert_eq!(script.unwrap().stack_time, None);
}

#[tokio::test]
async fn a_restart_boots_a_node_from_the_network_also_while_its_stack_is_awaited() {
    let bench = Bench::new(node()).await;
    assert!(bench.restart().await.is_err(), "it was not booted");
    bench.settle().await;
    bench.restart().await.unwrap();
    let power = |power: Power| What::Power(power.into());
    assert_eq!(bench.operations(), [power(Power::SoftOff), pxe(), power(Power::On)]);
    bench.report_stack(bench.instances.now()).await;
    assert_eq!(bench.settled().await, "active");
    bench.restart().await.unwrap();
    bench.instances.reinstall(bench.id, 0, Instance::default(), &[]).await.unwrap();
    assert!(bench.restart().await.is_err(), "its reinstallation has not booted it");
    bench.settle().await;
    bench.restart().await.unwrap();
    assert_eq!(bench.state().await, "reinstalling");
}

#[tokio::test]
async fn a_node_that_is_deleted_is_wiped_and_its_boot_cancelled() {
    let bench = Bench::new(node()).await;
    bench.settle().await;
    let job = bench.found().await.unwrap().power_job_id;
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
    assert!(bench.site.state().cancelled_jobs.contains(&job));
    assert!(bench.site.state().created[0].template_data.contains("wipe"));
    bench.report_stack(bench.instances.now()).await;
    assert_eq!(bench.found().await.unwrap().stack_time, None);
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "gone");
}
