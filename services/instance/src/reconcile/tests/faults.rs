//! Deaths at each commit and lost responses: the result is the same, and nothing is done twice.

use super::*;
use crate::tests::site::Frail;

/// The ids of all requests to the peers in the life of an instance.
fn expected_requests(id: InstanceId) -> [String; 2] {
    [format!("{id}/provision/1"), format!("{id}/deprovision/2")]
}

/// Runs the reconciler over a store that dies at the given commit. Returns true if it died.
async fn die(bench: &Bench, commits: usize, last_is_made: bool) -> bool {
    let store = Arc::new(Frail::new(bench.store.clone(), commits, last_is_made));
    let reconciler = Reconciler::new(Instances::new(store, Clock::system()), bench.site.peers());
    drive(&reconciler, &bench.id.to_string()).await.is_err()
}

#[tokio::test]
async fn dying_at_any_commit_changes_neither_the_result_nor_the_requests() {
    for last_is_made in [false, true] {
        let mut deaths = 0;
        for commits in 1..6 {
            let bench = Bench::new(templated()).await;
            deaths += usize::from(die(&bench, commits, last_is_made).await);
            bench.settle().await;
            bench.site.end(Workflow::Success, "");
            deaths += usize::from(die(&bench, commits, last_is_made).await);
            assert_eq!(bench.settled().await, "active");
            bench.delete(false).await;
            deaths += usize::from(die(&bench, commits, last_is_made).await);
            assert_eq!(bench.settled().await, "deprovisioning");
            bench.site.end(Workflow::Success, "");
            deaths += usize::from(die(&bench, commits, last_is_made).await);
            assert_eq!(bench.settled().await, "gone");
            assert_eq!(bench.site.request_ids(), expected_requests(bench.id));
            assert!(bench.instances.records.check(false).await.unwrap().is_clean());
        }
        assert_eq!(deaths, 5, "it died at each of its commits");
    }
}

#[tokio::test]
async fn dying_at_any_commit_boots_a_script_once() {
    for (commit, last_is_made) in (1..=3).flat_map(|commit| [(commit, false), (commit, true)]) {
        let bench = Bench::new(scripted()).await;
        assert!(die(&bench, commit, last_is_made).await);
        assert_eq!(bench.settled().await, "provisioning");
        bench.call_home().await;
        assert_eq!(bench.settled().await, "active");
        assert_eq!(bench.site.request_ids().len(), 1);
    }
}

#[tokio::test]
async fn two_processes_that_reconcile_one_instance_make_each_request_once() {
    let bench = Bench::new(templated()).await;
    let other = Reconciler::new(bench.instances.clone(), bench.site.peers());
    let id = bench.id.to_string();
    let both =
        async || tokio::try_join!(drive(&bench.reconciler, &id), drive(&other, &id)).unwrap();
    both().await;
    bench.site.end(Workflow::Success, "");
    both().await;
    bench.delete(false).await;
    both().await;
    bench.site.end(Workflow::Success, "");
    both().await;
    assert_eq!(bench.state().await, "gone");
    assert_eq!(bench.site.request_ids(), expected_requests(bench.id));
}

/// Deletes the instance while another process's request to create a workflow or power job is on its way. Returns the state
/// before that request is carried out.
async fn delete_during_creation(bench: &Bench, force: bool) -> String {
    let other = Reconciler::new(bench.instances.clone(), bench.site.peers());
    let (gate, id) = (bench.site.hold_creation(), bench.id.to_string());
    let delete = async {
        gate.reached.notified().await;
        bench.delete(force).await;
        let state = bench.settled().await;
        gate.opened.notify_one();
        state
    };
    let (created, state) = tokio::join!(drive(&other, &id), delete);
    created.unwrap();
    state
}

#[tokio::test]
async fn a_delete_while_the_installing_workflow_is_created_leaves_nothing_to_run() {
    for force in [false, true] {
        let bench = Bench::new(templated()).await;
        assert_eq!(delete_during_creation(&bench, force).await, "gone");
        assert_never_released(&bench, 0);
    }
}

/// Asserts that the workflow was cancelled while it was held back.
fn assert_never_released(bench: &Bench, number: usize) {
    let workflow = bench.site.state().workflows[number].clone();
    assert_eq!((workflow.state(), workflow.held), (Workflow::Cancelled, true));
}

#[tokio::test]
async fn a_forced_delete_while_the_clean_up_is_created_leaves_nothing_to_run() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    assert_eq!(delete_during_creation(&bench, true).await, "gone");
    assert_never_released(&bench, 1);
}

/// The workflow is created after the instance was deleted, and its creator has died.
#[tokio::test]
async fn a_workflow_that_is_created_too_late_is_never_released() {
    for force in [false, true] {
        let bench = Bench::new(templated()).await;
        let other = Reconciler::new(bench.instances.clone(), bench.site.peers());
        let (gate, id) = (bench.site.hold_creation(), bench.id.to_string());
        let dying = tokio::spawn(async move { drive(&other, &id).await });
        gate.reached.notified().await;
        let request = bench.site.state().held_request.take().unwrap();
        dying.abort();
        bench.delete(force).await;
        assert_eq!(bench.settled().await, "gone");
        let workflow = bench.site.peers().create_workflow(request).await.unwrap();
        let found = bench.site.peers().workflow(&workflow).await.unwrap().unwrap();
        let late = orphans::CreatedObject::from_running(&found).unwrap();
        assert_eq!(bench.reconciler.sweep(&late).await, Outcome::Done);
        assert_never_released(&bench, 0);
    }
}

#[tokio::test]
async fn a_workflow_is_released_once_its_instance_has_recorded_it() {
    let bench = Bench::new(templated()).await;
    let id = bench.id.to_string();
    assert_eq!(bench.reconciler.step(&id).await.unwrap(), Outcome::Again);
    let workflow = bench.site.state().workflows[0].clone();
    assert_eq!((bench.found().await.unwrap().workflow_id, true), (workflow.id, workflow.held));
    bench.settle().await;
    assert!(!bench.site.state().workflows[0].held);
}

#[tokio::test]
async fn an_unrecorded_workflow_that_was_not_released_in_time_is_created_again() {
    let bench = Bench::new(templated()).await;
    assert!(die(&bench, 1, false).await, "created, but not recorded");
    bench.site.end(Workflow::Cancelled, "its creator did not release it within 10 minutes");
    assert_eq!(bench.settled().await, "provisioning");
    let made: Vec<_> =
        bench.site.state().workflows.iter().map(|it| (it.state(), it.held)).collect();
    assert_eq!(made, [(Workflow::Cancelled, true), (Workflow::Pending, false)]);
}

#[tokio::test]
async fn a_power_job_whose_instance_is_deleted_while_it_is_created_is_never_released() {
    for (force, state) in [(false, "deprovisioning"), (true, "gone")] {
        let bench = Bench::new(scripted()).await;
        assert_eq!(delete_during_creation(&bench, force).await, state);
        assert_eq!(bench.site.state().jobs.len(), 1);
        assert!(bench.site.state().released_jobs.is_empty());
    }
}

/// Kills the server between the creation of the power job and its record.
#[tokio::test]
async fn a_power_job_that_was_created_and_not_recorded_does_nothing_unless_its_instance_goes_on() {
    for force in [false, true] {
        let bench = Bench::new(scripted()).await;
        assert!(die(&bench, 2, false).await, "created, but not recorded");
        assert_eq!(bench.site.state().jobs.len(), 1);
        bench.delete(force).await;
        bench.settle().await;
        assert!(bench.site.state().released_jobs.is_empty());
    }
    let bench = Bench::new(scripted()).await;
    assert!(die(&bench, 2, false).await, "created, but not recorded");
    assert_eq!(bench.settled().await, "provisioning");
    let state = bench.site.state();
    assert_eq!((state.jobs.len(), state.released_jobs.len()), (1, 1));
}

/// Makes the steps that begin provisioning, and create and record the power job. The next one releases it.
async fn record_boot(bench: &Bench) {
    for _ in 0..2 {
        let step = bench.reconciler.step(&bench.id.to_string()).await.unwrap();
        assert_eq!(step, Outcome::Again);
    }
    assert!(bench.site.state().released_jobs.is_empty());
}

#[tokio::test]
async fn a_delete_cancels_the_recorded_power_job_before_and_after_its_release() {
    for released in [false, true] {
        for (force, state) in [(false, "deprovisioning"), (true, "gone")] {
            let bench = Bench::new(scripted()).await;
            record_boot(&bench).await;
            if released {
                bench.settle().await;
            }
            let job = bench.found().await.unwrap().power_job_id;
            assert_eq!(bench.site.state().released_jobs.contains(&job), released);
            bench.delete(force).await;
            assert_eq!(bench.settled().await, state);
            assert!(bench.site.state().cancelled_jobs.contains(&job));
        }
    }
}

#[tokio::test]
async fn a_power_job_that_was_cancelled_before_its_release_is_created_again() {
    for recorded in [false, true] {
        let bench = Bench::new(scripted()).await;
        match recorded {
            true => record_boot(&bench).await,
            false => assert!(die(&bench, 2, false).await, "created, but not recorded"),
        }
        let request = bench.site.request_ids().remove(0);
        let first = bench.site.created_job(&request);
        bench.site.state().cancelled_jobs.insert(first.clone());
        assert_eq!(bench.settled().await, "provisioning");
        let state = bench.site.state();
        assert_eq!((state.jobs.len(), state.released_jobs.len()), (2, 1));
        assert!(!state.released_jobs.contains(&first));
    }
}

#[tokio::test]
async fn a_lost_response_changes_neither_the_result_nor_the_requests() {
    for lost in 0..12 {
        let bench = Bench::new(templated()).await;
        bench.site.state().lose_after = Some(lost);
        settle_with_retries(&bench).await;
        bench.site.end(Workflow::Success, "");
        settle_with_retries(&bench).await;
        bench.delete(false).await;
        settle_with_retries(&bench).await;
        bench.site.end(Workflow::Success, "");
        settle_with_retries(&bench).await;
        assert_eq!(bench.state().await, "gone", "answer {lost} lost");
        assert_eq!(bench.site.request_ids(), expected_requests(bench.id), "answer {lost} lost");
    }
}

/// Makes steps as the controller does: a failed one is repeated.
async fn settle_with_retries(bench: &Bench) {
    let id = bench.id.to_string();
    for _ in 0..3 {
        if drive(&bench.reconciler, &id).await.is_ok() {
            return;
        }
    }
    panic!("one lost answer fails no more than one step");
}

#[tokio::test]
async fn unreachable_peers_change_nothing() {
    let bench = Bench::new(templated()).await;
    let before = bench.found().await;
    bench.site.state().unavailable = true;
    assert!(drive(&bench.reconciler, &bench.id.to_string()).await.is_err());
    assert_eq!(bench.found().await, before);
    bench.site.state().unavailable = false;
    assert_eq!(bench.settled().await, "provisioning");
}

#[tokio::test]
async fn an_unrecorded_workflow_that_is_no_longer_wanted_is_cancelled() {
    let bench = Bench::new(templated()).await;
    assert!(die(&bench, 1, false).await, "created, but not recorded");
    let values = [("disk".to_owned(), "/dev/sdb".to_owned())].into();
    let update = Instance { id: bench.id.to_string(), template_values: values, ..templated() };
    bench.instances.update(update, &["template_values".into()]).await.unwrap();
    assert_eq!(bench.settled().await, "provisioning");
    let states: Vec<_> = bench.site.state().workflows.iter().map(|each| each.state()).collect();
    assert_eq!(states, [Workflow::Cancelled, Workflow::Pending]);
    assert_eq!(bench.found().await.unwrap().generation, 2);
}

/// A process of an earlier version created the workflow: it was not held back.
/// Lets a worker take an action of the first workflow.
fn begin(bench: &Bench) {
    let workflow = &mut bench.site.state().workflows[0];
    workflow.held = false;
    workflow.start_time = Some(prost_types::Timestamp::default());
}

#[tokio::test]
async fn a_machine_is_not_released_while_an_unrecorded_workflow_may_run_on_it() {
    let bench = Bench::new(templated()).await;
    assert!(die(&bench, 1, false).await, "created, but not recorded");
    begin(&bench);
    bench.site.state().is_stopping = true;
    bench.site.set_machine_state(HardwareState::Failed, "fan");
    assert_eq!(bench.settled().await, "queued", "until that has ended");
    assert_eq!(bench.settled().await, "failed");
    assert_eq!(bench.site.state().workflows[0].state(), Workflow::Cancelled);
    assert!(bench.occupied().await, "nobody knows how far it came");
}

#[tokio::test]
async fn an_unrecorded_workflow_that_is_held_back_is_cancelled_and_leaves_the_machine_unchanged() {
    for state in [HardwareState::Provisionable, HardwareState::Failed] {
        let bench = Bench::new(templated()).await;
        assert!(die(&bench, 1, false).await, "created, but not recorded");
        bench.site.set_machine_state(state, "");
        if state == HardwareState::Failed {
            assert_eq!(bench.settled().await, "failed");
            assert!(!bench.occupied().await);
        } else {
            bench.delete(false).await;
            assert_eq!(bench.settled().await, "gone");
        }
        assert_never_released(&bench, 0);
        assert_eq!(bench.site.request_ids().len(), 1, "no clean-up");
    }
}

#[tokio::test]
async fn an_unrecorded_workflow_is_cancelled_before_the_clean_up() {
    let bench = Bench::new(templated()).await;
    assert!(die(&bench, 1, false).await, "created, but not recorded");
    begin(&bench);
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
    let states: Vec<_> = bench.site.state().workflows.iter().map(|each| each.state()).collect();
    assert_eq!(states, [Workflow::Cancelled, Workflow::Pending]);
}
