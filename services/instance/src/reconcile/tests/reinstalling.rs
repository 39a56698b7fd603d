//! Reinstalling: an active or failed instance is installed again on its machine.

use tinwright::hardware::v1::Policy;
use tinwright::hardware::v1::policy::PhoneHome as PhoneHomePolicy;
use tinwright::instance::v1::instance::PowerManagement;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::*;
use crate::instances;

const OTHER_TEMPLATE: &str = "0b1f6d52-6a3e-4c1c-9d0c-3a7f5e2b8c44";

impl Bench {
    async fn reinstall(
        &self,
        update: Instance,
        paths: &[&str],
    ) -> Result<Instance, instances::Error> {
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        self.instances.reinstall(self.id, 0, update, &paths).await
    }

    /// Reinstalls with the other template.
    async fn with_other_template(&self) -> Result<Instance, instances::Error> {
        let update = Instance { template_id: OTHER_TEMPLATE.into(), ..Instance::default() };
        self.reinstall(update, &["template_id"]).await
    }
}

#[tokio::test]
async fn an_active_instance_is_installed_with_another_template_and_stays_itself() {
    let bench = Bench::active(templated()).await;
    let before = bench.found().await.unwrap();
    let ordered = bench.with_other_template().await.unwrap();
    assert_eq!((ordered.state().word(), ordered.generation), ("reinstalling".into(), 2));
    assert_eq!(bench.settled().await, "reinstalling");
    let request = bench.site.state().created[1].clone();
    assert_eq!(request.request_id, format!("{}/provision/2", bench.id));
    assert_eq!(request.template_id, OTHER_TEMPLATE);
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "active");
    let after = bench.found().await.unwrap();
    assert_eq!((&after.lookup_id, &after.hardware_id), (&before.lookup_id, &before.hardware_id));
    assert_eq!((after.begin_time, after.workflow_ids.len()), (before.begin_time, 2));
    assert_ne!(after.install_time, None);
}

#[tokio::test]
async fn a_repeated_order_installs_once_and_another_one_waits_for_the_end() {
    let bench = Bench::active(templated()).await;
    bench.with_other_template().await.unwrap();
    let again = bench.with_other_template().await.unwrap();
    assert_eq!(again.generation, 2);
    bench.settle().await;
    bench.reinstall(Instance::default(), &[]).await.unwrap();
    let other = Instance { template_id: TEMPLATE.into(), ..Instance::default() };
    let refused = bench.reinstall(other.clone(), &["template_id"]).await.unwrap_err();
    assert_eq!(Status::from(refused).code(), Code::FailedPrecondition);
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "active");
    assert_eq!(bench.site.request_ids().len(), 2);
    bench.reinstall(other, &["template_id"]).await.unwrap();
    bench.settle().await;
    assert_eq!(bench.site.request_ids().len(), 3);
}

#[tokio::test]
async fn an_order_with_an_older_revision_is_refused() {
    let bench = Bench::active(templated()).await;
    let old = bench.found().await.unwrap();
    let order = || bench.instances.reinstall(bench.id, old.revision, Instance::default(), &[]);
    order().await.unwrap();
    bench.settle().await;
    bench.site.end(Workflow::Success, "");
    bench.settle().await;
    assert!(order().await.unwrap_err().is_stale(), "it was carried out already");
    assert_eq!(bench.site.request_ids().len(), 2);
}

#[tokio::test]
async fn a_failed_reinstallation_fails_the_instance_which_keeps_its_machine() {
    let bench = Bench::active(templated()).await;
    bench.with_other_template().await.unwrap();
    bench.settle().await;
    bench.site.end(Workflow::Failed, "no disk");
    assert_eq!(bench.settled().await, "failed");
    assert!(bench.occupied().await);
    bench.with_other_template().await.unwrap();
    bench.settle().await;
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn the_call_of_the_former_system_does_not_count() {
    let bench = Bench::active(templated()).await;
    let phone_home = PhoneHomePolicy::Required.into();
    bench.site.policy(Policy { phone_home, ..Policy::default() });
    bench.call_home().await;
    bench.with_other_template().await.unwrap();
    assert_eq!(bench.found().await.unwrap().phone_home_time, None);
    bench.settle().await;
    bench.call_home().await;
    assert_eq!(bench.found().await.unwrap().phone_home_time, None, "the workflow has not ended");
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "reinstalling");
    bench.call_home().await;
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn the_call_that_ends_the_last_action_is_that_of_the_new_system() {
    let bench = Bench::active(templated()).await;
    let phone_home = PhoneHomePolicy::Required.into();
    bench.site.policy(Policy { phone_home, ..Policy::default() });
    bench.with_other_template().await.unwrap();
    bench.settle().await;
    bench.report_phone_home().await;
    assert_eq!(bench.found().await.unwrap().phone_home_time, None, "of the former system");
    // A machine that boots its disk first restarts into the new system, which calls once.
    bench.site.state().is_leaving = true;
    bench.report_phone_home().await;
    assert_ne!(bench.found().await.unwrap().phone_home_time, None);
    assert_eq!(bench.settled().await, "active");
    assert_eq!(bench.reason().await, "");
}

#[tokio::test]
async fn a_custom_script_is_booted_again() {
    let bench = Bench::new(scripted()).await;
    bench.settle().await;
    bench.report_script(true).await;
    assert_eq!(bench.settled().await, "active");
    bench.reinstall(Instance::default(), &[]).await.unwrap();
    assert_eq!(bench.settled().await, "reinstalling");
    assert_eq!(bench.found().await.unwrap().script_time, None);
    let ids = [1, 2].map(|generation| format!("{}/boot/{generation}", bench.id));
    assert_eq!(bench.site.request_ids(), ids);
    bench.report_script(true).await;
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn what_cannot_be_reinstalled_is_refused_and_stays_as_it_is() {
    let nothing = Instance { template_id: String::new(), ..templated() };
    let empty = Bench::new(nothing.clone()).await;
    assert_eq!(empty.settled().await, "active");
    let queued = Bench::new(templated()).await;
    let protected = Bench::active(Instance { protect: true, ..templated() }).await;
    let deleted = Bench::active(templated()).await;
    deleted.delete(false).await;
    for (bench, reason) in [
        (empty, "NOTHING_TO_INSTALL"),
        (queued, "STATE"),
        (protected, "PROTECTED"),
        (deleted, "STATE"),
    ] {
        let before = bench.found().await.unwrap();
        let refused = Status::from(bench.reinstall(Instance::default(), &[]).await.unwrap_err());
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(refused.get_details_error_info().unwrap().reason, reason);
        assert_eq!(bench.found().await.unwrap(), before);
    }
}

#[tokio::test]
async fn a_workflow_that_was_never_recorded_is_used_and_one_for_a_deleted_instance_cancelled() {
    let bench = Bench::active(templated()).await;
    bench.with_other_template().await.unwrap();
    bench.site.state().lose_after = Some(1);
    assert!(drive(&bench.reconciler, &bench.id.to_string()).await.is_err());
    bench.site.state().lose_after = None;
    assert_eq!(bench.settled().await, "reinstalling");
    assert_eq!(bench.site.request_ids().len(), 2, "the same request found the workflow");
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
}

#[tokio::test]
async fn a_machine_that_people_switch_is_not_reinstalled() {
    let by_hand = Instance { power_management: PowerManagement::None.into(), ..templated() };
    let bench = Bench::active(by_hand).await;
    let refused = Status::from(bench.with_other_template().await.unwrap_err());
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "NO_BMC");
    assert_eq!(bench.settled().await, "active");
    assert_eq!(bench.site.request_ids().len(), 1);
}
