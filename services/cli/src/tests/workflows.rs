//! Workflows: logs across interruptions, and progress.

use std::sync::atomic::{AtomicBool, Ordering};

use pb::{ActionState, WorkflowState};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use tokio_stream::Iter;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::{fake, tinwright};

type Stream<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

const ID: &str = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";

/// One workflow that runs, then ends in the state `end`. The first stream of its log is interrupted.
struct Workflows {
    end: WorkflowState,
    cut: AtomicBool,
}

fn workflow(state: WorkflowState, action: ActionState) -> pb::Workflow {
    let action = pb::Action {
        id: "a1".into(),
        task_name: "os".into(),
        name: "write".into(),
        state: action.into(),
        ..pb::Action::default()
    };
    pb::Workflow {
        id: ID.into(),
        state: state.into(),
        state_reason: "no disk".into(),
        actions: vec![action],
        ..pb::Workflow::default()
    }
}

fn chunk(offset: u64, data: &str) -> Result<pb::ReadLogResponse, Status> {
    Ok(pb::ReadLogResponse { attempt: 1, offset, data: data.into() })
}

fake! {
    impl WorkflowService for Workflows {
        type WatchWorkflowsStream = Stream<pb::WatchWorkflowsResponse>;
        type ReadLogStream = Stream<pb::ReadLogResponse>;

        async fn get_workflow(
            &self,
            _: Request<pb::GetWorkflowRequest>,
        ) -> Result<Response<pb::GetWorkflowResponse>, Status> {
            let workflow = Some(workflow(WorkflowState::Pending, ActionState::Pending));
            Ok(Response::new(pb::GetWorkflowResponse { workflow }))
        }

        async fn watch_workflows(
            &self,
            _: Request<pb::WatchWorkflowsRequest>,
        ) -> Result<Response<Self::WatchWorkflowsStream>, Status> {
            let events = [
                WatchEvent::Put(workflow(WorkflowState::Pending, ActionState::Pending)),
                WatchEvent::Synced,
                WatchEvent::Put(workflow(WorkflowState::Running, ActionState::Running)),
                WatchEvent::Put(workflow(self.end, ActionState::Success)),
            ];
            let responses: Vec<_> = events.into_iter().map(|event| Ok(event.into())).collect();
            Ok(Response::new(tokio_stream::iter(responses)))
        }

        async fn read_log(
            &self,
            _: Request<pb::ReadLogRequest>,
        ) -> Result<Response<Self::ReadLogStream>, Status> {
            let responses = match self.cut.swap(false, Ordering::Relaxed) {
                true => vec![chunk(0, "par"), Err(Status::unavailable("the server is ending"))],
                false => vec![chunk(0, "parti"), chunk(5, "tioned\n")],
            };
            Ok(Response::new(tokio_stream::iter(responses)))
        }

        async fn confirm_restart(
            &self,
            _: Request<pb::ConfirmRestartRequest>,
        ) -> Result<Response<pb::ConfirmRestartResponse>, Status> {
            let holder = workflow(WorkflowState::Pending, ActionState::Pending);
            let workflow = Some(holder).filter(|_| self.end == WorkflowState::Failed);
            Ok(Response::new(pb::ConfirmRestartResponse { boot_epoch: 7, workflow }))
        }
    }
    refuses {
        create_workflow: CreateWorkflowRequest => CreateWorkflowResponse,
        list_workflows: ListWorkflowsRequest => ListWorkflowsResponse,
        cancel_workflow: CancelWorkflowRequest => CancelWorkflowResponse,
        delete_workflow: DeleteWorkflowRequest => DeleteWorkflowResponse,
        release_workflow: ReleaseWorkflowRequest => ReleaseWorkflowResponse,
        note_boot: NoteBootRequest => NoteBootResponse,
        get_boot_epoch: GetBootEpochRequest => GetBootEpochResponse,
        plan_workflow: PlanWorkflowRequest => PlanWorkflowResponse,
    }
}

fn server(end: WorkflowState) -> Router {
    let workflows = Workflows { end, cut: AtomicBool::new(true) };
    Server::builder().add_service(WorkflowServiceServer::new(workflows))
}

#[tokio::test]
async fn a_followed_log_continues_after_an_interruption_without_repetitions() {
    let (printed, result) =
        tinwright(&format!("workflow logs {ID} -f"), server(WorkflowState::Success)).await;
    assert_eq!((printed.as_str(), result), ("partitioned\n", Ok(())));
}

#[tokio::test]
async fn a_log_that_is_not_followed_ends_with_the_interruption() {
    let (printed, result) =
        tinwright(&format!("workflow logs {ID} write"), server(WorkflowState::Success)).await;
    let wanted = Err("the server is ending (try again in a moment)".into());
    assert_eq!((printed.as_str(), result), ("par", wanted));
}

#[tokio::test]
async fn progress_is_shown_until_the_end_and_its_result_is_returned() {
    let (_, result) =
        tinwright(&format!("workflow watch --progress {ID}"), server(WorkflowState::Success)).await;
    assert_eq!(result, Ok(()));
    let (_, result) =
        tinwright(&format!("workflow watch --progress {ID}"), server(WorkflowState::Failed)).await;
    assert_eq!(result, Err(format!("workflow {ID} ended in failed: no disk")));
}

#[tokio::test]
async fn progress_needs_a_workflow() {
    let line = ["tinwright", "workflow", "watch", "--progress"];
    assert!(<super::Program as clap::Parser>::try_parse_from(line).is_err());
}

#[tokio::test]
async fn a_confirmed_restart_that_no_workflow_waits_for_is_reported_as_such() {
    for (end, note) in
        [(WorkflowState::Failed, ""), (WorkflowState::Success, "; no workflow waits for it")]
    {
        let (printed, result) =
            tinwright(&format!("workflow confirm-restart {ID}"), server(end)).await;
        let expected = format!("restart of {ID} confirmed: boot epoch 7{note}\n");
        assert_eq!((printed, result), (expected, Ok(())));
    }
}
