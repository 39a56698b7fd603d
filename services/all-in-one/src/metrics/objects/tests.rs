//! Objects are counted in their state, and once at their end.
#![allow(clippy::unwrap_used)]

use prometheus_client::encoding::text::encode;
use std::time::Duration;

use ::hardware::records::HardwareKind;
use instance::instances::InstanceKind;
use power::stored::Job;
use tinwright::hardware::v1 as hardware;
use tinwright::instance::v1::{Instance, State};
use tinwright::power::v1::{PowerJob, power_job};
use tinwright::workflow::v1::{Workflow, WorkflowState};
use tinwright::{HardwareId, InstanceId, PowerJobId, WorkflowId};

use workflow::workflows::WorkflowKind;

use super::*;

struct Site {
    registry: Registry,
    metrics: ObjectMetrics,
    now: SystemTime,
}

fn site() -> Site {
    let mut registry = Registry::default();
    let metrics = ObjectMetrics::new(&mut registry);
    Site { registry, metrics, now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) }
}

impl Site {
    fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page
    }

    /// Returns the value of the metric `name`, with its labels.
    fn value(&self, name: &str) -> Option<f64> {
        let page = self.page();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.map(|value| value.parse().unwrap())
    }

    fn workflows(&self, event: FeedEvent<Workflow>) {
        self.metrics.take::<WorkflowKind>(event, self.now);
    }

    fn power_jobs(&self, event: FeedEvent<PowerJob>) {
        self.metrics.take::<Job>(event, self.now);
    }

    fn instances(&self, event: FeedEvent<Instance>) {
        self.metrics.take::<InstanceKind>(event, self.now);
    }

    /// A workflow that was created 20 seconds ago.
    fn workflow(&self, state: WorkflowState) -> Workflow {
        Workflow {
            id: WorkflowId::new().to_string(),
            hardware_id: HardwareId::new().to_string(),
            create_time: Some((self.now - Duration::from_secs(20)).into()),
            end_time: state.is_terminal().then(|| self.now.into()),
            state: state.into(),
            ..Workflow::default()
        }
    }

    /// The workflow with another state.
    fn after(&self, workflow: &Workflow, state: WorkflowState) -> Workflow {
        let end_time = state.is_terminal().then(|| self.now.into());
        Workflow { state: state.into(), end_time, ..workflow.clone() }
    }
}

#[test]
fn objects_are_counted_by_state_once_the_noun_is_synced() {
    let site = site();
    assert_eq!(site.value("workflows{state=\"pending\"}"), None);
    let pending = site.workflow(WorkflowState::Pending);
    let second = Workflow { id: WorkflowId::new().to_string(), ..pending.clone() };
    let running = site.workflow(WorkflowState::Running);
    site.workflows(FeedEvent::Snapshot(vec![pending.clone(), second, running.clone()]));
    assert_eq!(site.value("workflows{state=\"pending\"}"), Some(2.0));
    assert_eq!(site.value("workflows{state=\"preparing\"}"), Some(0.0));
    assert_eq!(site.value("workflow_longest_queue"), Some(2.0));
    site.workflows(FeedEvent::Put(site.after(&pending, WorkflowState::Preparing)));
    site.workflows(FeedEvent::Deleted(running.id));
    assert_eq!(site.value("workflows{state=\"pending\"}"), Some(1.0));
    assert_eq!(site.value("workflows{state=\"preparing\"}"), Some(1.0));
    assert_eq!(site.value("workflows{state=\"running\"}"), Some(0.0));
    assert_eq!(site.value("workflows{state=\"success\"}"), None);
}

#[test]
fn an_end_is_counted_once_with_its_duration() {
    let site = site();
    let running = site.workflow(WorkflowState::Running);
    site.workflows(FeedEvent::Snapshot(vec![running.clone()]));
    let ended = site.after(&running, WorkflowState::Success);
    site.workflows(FeedEvent::Put(ended.clone()));
    site.workflows(FeedEvent::Put(ended.clone()));
    site.workflows(FeedEvent::Snapshot(vec![ended.clone()]));
    site.workflows(FeedEvent::Put(ended));
    assert_eq!(site.value("workflow_seconds_count{state=\"success\"}"), Some(1.0));
    assert_eq!(site.value("workflow_seconds_sum{state=\"success\"}"), Some(20.0));
    assert_eq!(site.value("workflow_longest_queue"), Some(0.0));
}

#[test]
fn what_ended_before_the_first_snapshot_is_not_counted_and_takes_no_memory() {
    let site = site();
    let old = site.workflow(WorkflowState::Failed);
    site.workflows(FeedEvent::Snapshot(vec![old.clone()]));
    site.workflows(FeedEvent::Put(Workflow { warning: "a late result".into(), ..old }));
    assert_eq!(site.value("workflow_seconds_count{state=\"failed\"}"), None);
    let tables = site.metrics.tables();
    let workflows = &tables.0["workflow"];
    assert_eq!((workflows.rows.len(), workflows.counted.len()), (0, 0));
}

#[test]
fn what_ended_while_the_feed_was_cut_is_counted() {
    let site = site();
    let running = site.workflow(WorkflowState::Running);
    site.workflows(FeedEvent::Snapshot(vec![running.clone()]));
    site.workflows(FeedEvent::Disconnected);
    assert_eq!(site.value("workflows{state=\"running\"}"), Some(1.0));
    site.workflows(FeedEvent::Snapshot(vec![site.after(&running, WorkflowState::Timeout)]));
    assert_eq!(site.value("workflow_seconds_count{state=\"timeout\"}"), Some(1.0));
}

#[test]
fn power_jobs_are_counted_by_result() {
    let site = site();
    site.power_jobs(FeedEvent::Snapshot(vec![]));
    let states = [power_job::State::Failed, power_job::State::Success, power_job::State::Failed];
    for state in states {
        let (create_time, end_time) = (Some(site.now.into()), Some(site.now.into()));
        let id = PowerJobId::new().to_string();
        let job = PowerJob { id, state: state.into(), create_time, end_time, ..Default::default() };
        // A change after the end is not another end.
        site.power_jobs(FeedEvent::Put(job.clone()));
        site.power_jobs(FeedEvent::Put(job));
    }
    assert_eq!(site.value("power_job_seconds_count{state=\"failed\"}"), Some(2.0));
    assert_eq!(site.value("power_job_seconds_count{state=\"success\"}"), Some(1.0));
    assert_eq!(site.value("power_jobs{state=\"running\"}"), Some(0.0));
}

#[test]
fn a_provisioning_is_counted_once_and_the_instance_stays_in_its_state() {
    let site = site();
    let instance = Instance {
        id: InstanceId::new().to_string(),
        create_time: Some((site.now - Duration::from_secs(300)).into()),
        state: State::Provisioning.into(),
        ..Instance::default()
    };
    site.instances(FeedEvent::Snapshot(vec![instance.clone()]));
    for state in [State::Active, State::Active, State::Deprovisioning] {
        site.instances(FeedEvent::Put(Instance { state: state.into(), ..instance.clone() }));
    }
    assert_eq!(site.value("instance_provisioning_seconds_sum{state=\"active\"}"), Some(300.0));
    assert_eq!(site.value("instances{state=\"active\"}"), Some(0.0));
    assert_eq!(site.value("instances{state=\"deprovisioning\"}"), Some(1.0));
}

#[test]
fn workflows_with_a_warning_are_counted_until_they_have_none_or_end() {
    let site = site();
    assert_eq!(site.value("workflows_with_warning"), None);
    let warned = Workflow { warning: "x".into(), ..site.workflow(WorkflowState::Pending) };
    site.workflows(FeedEvent::Snapshot(vec![
        warned.clone(),
        site.workflow(WorkflowState::Pending),
    ]));
    assert_eq!(site.value("workflows_with_warning"), Some(1.0));
    site.workflows(FeedEvent::Put(Workflow { warning: String::new(), ..warned.clone() }));
    assert_eq!(site.value("workflows_with_warning"), Some(0.0));
    site.workflows(FeedEvent::Put(warned.clone()));
    assert_eq!(site.value("workflows_with_warning"), Some(1.0));
    site.workflows(FeedEvent::Put(Workflow { state: WorkflowState::Failed.into(), ..warned }));
    assert_eq!(site.value("workflows_with_warning"), Some(0.0));
}

#[test]
fn workflows_of_instances_that_do_not_exist_are_orphaned() {
    let site = site();
    let instance = Instance { id: InstanceId::new().to_string(), ..Instance::default() };
    let owned =
        Workflow { instance_id: instance.id.clone(), ..site.workflow(WorkflowState::Running) };
    let plain = site.workflow(WorkflowState::Running);
    site.workflows(FeedEvent::Snapshot(vec![owned, plain]));
    assert_eq!(site.value("workflows_orphaned"), None);
    site.instances(FeedEvent::Snapshot(vec![instance.clone()]));
    assert_eq!(site.value("workflows_orphaned"), Some(0.0));
    site.instances(FeedEvent::Deleted(instance.id));
    assert_eq!(site.value("workflows_orphaned"), Some(1.0));
}

#[test]
fn machines_are_counted_by_state() {
    let site = site();
    let machine = |state: hardware::State| hardware::Hardware {
        id: HardwareId::new().to_string(),
        state: state.into(),
        ..hardware::Hardware::default()
    };
    let failed = machine(hardware::State::Failed);
    let all = vec![machine(hardware::State::Provisionable), failed.clone()];
    site.metrics.take::<HardwareKind>(FeedEvent::Snapshot(all), site.now);
    let mended = hardware::Hardware { state: hardware::State::Provisionable.into(), ..failed };
    site.metrics.take::<HardwareKind>(FeedEvent::Put(mended), site.now);
    assert_eq!(site.value("hardware{state=\"provisionable\"}"), Some(2.0));
    assert_eq!(site.value("hardware{state=\"failed\"}"), Some(0.0));
}

#[test]
fn each_attempt_that_a_bmc_failed_is_counted_once() {
    let site = site();
    let job = |attempt, state: power_job::State| PowerJob {
        id: "00000000-0000-4000-8000-000000000001".into(),
        hardware_id: HardwareId::new().to_string(),
        create_time: Some(site.now.into()),
        attempt,
        state: state.into(),
        ..PowerJob::default()
    };
    site.power_jobs(FeedEvent::Snapshot(Vec::new()));
    for (attempt, state, failures) in [
        (0, power_job::State::Pending, 0.0),
        (1, power_job::State::Running, 0.0),
        (2, power_job::State::Running, 1.0),
        (3, power_job::State::Running, 2.0),
        // The next operation.
        (1, power_job::State::Running, 2.0),
        (2, power_job::State::Running, 3.0),
        (2, power_job::State::Failed, 4.0),
        (2, power_job::State::Failed, 4.0),
    ] {
        site.power_jobs(FeedEvent::Put(job(attempt, state)));
        assert_eq!(site.value("bmc_failures_total"), Some(failures), "{attempt} {state:?}");
    }
}

#[test]
fn the_help_of_each_metric_is_a_sentence() {
    let site = site();
    site.workflows(FeedEvent::Snapshot(Vec::new()));
    site.instances(FeedEvent::Snapshot(Vec::new()));
    let page = site.page();
    let mut help = page.lines().filter_map(|line| line.strip_prefix("# HELP "));
    assert!(help.clone().count() > 5, "{page}");
    assert!(help.all(|line| line.ends_with('.') && !line.ends_with("..")), "{page}");
}
