//! Workflows: logs that are followed through a cut, and progress until the end.

use std::sync::atomic::{AtomicBool, Ordering};

use pb::{ActionState, WorkflowState};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use tokio_stream::Iter;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::{fake, told};

type Told<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

/// One workflow that runs, then ends as told. The first reading of its log is cut.
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
        id: "w1".into(),
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
        type WatchWorkflowsStream = Told<pb::WatchWorkflowsResponse>;
        type ReadLogStream = Told<pb::ReadLogResponse>;

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
            let told: Vec<_> = events.into_iter().map(|event| Ok(event.into())).collect();
            Ok(Response::new(tokio_stream::iter(told)))
        }

        async fn read_log(
            &self,
            _: Request<pb::ReadLogRequest>,
        ) -> Result<Response<Self::ReadLogStream>, Status> {
            let told = match self.cut.swap(false, Ordering::Relaxed) {
                true => vec![chunk(0, "par"), Err(Status::unavailable("the server is ending"))],
                false => vec![chunk(0, "parti"), chunk(5, "tioned\n")],
            };
            Ok(Response::new(tokio_stream::iter(told)))
        }
    }
    refuses {
        create_workflow: CreateWorkflowRequest => CreateWorkflowResponse,
        list_workflows: ListWorkflowsRequest => ListWorkflowsResponse,
        cancel_workflow: CancelWorkflowRequest => CancelWorkflowResponse,
        delete_workflow: DeleteWorkflowRequest => DeleteWorkflowResponse,
        note_boot: NoteBootRequest => NoteBootResponse,
    }
}

fn server(end: WorkflowState) -> Router {
    let workflows = Workflows { end, cut: AtomicBool::new(true) };
    Server::builder().add_service(WorkflowServiceServer::new(workflows))
}

#[tokio::test]
async fn a_followed_log_goes_on_after_a_cut_without_a_byte_twice() {
    let (printed, ended) = told("workflow logs w1 -f", server(WorkflowState::Success)).await;
    assert_eq!((printed.as_str(), ended), ("partitioned\n", Ok(())));
}

#[tokio::test]
async fn a_log_that_is_not_followed_ends_where_it_is_cut() {
    let (printed, ended) = told("workflow logs w1 write", server(WorkflowState::Success)).await;
    let wanted = Err("the server is ending (try again in a moment)".into());
    assert_eq!((printed.as_str(), ended), ("par", wanted));
}

#[tokio::test]
async fn progress_is_shown_until_the_end_which_decides_the_exit() {
    let (_, ended) = told("workflow watch --progress w1", server(WorkflowState::Success)).await;
    assert_eq!(ended, Ok(()));
    let (_, ended) = told("workflow watch --progress w1", server(WorkflowState::Failed)).await;
    assert_eq!(ended, Err("workflow w1 ended in failed: no disk".into()));
}

#[tokio::test]
async fn progress_is_of_one_workflow() {
    let typed = ["tinwright", "workflow", "watch", "--progress"];
    assert!(<super::Program as clap::Parser>::try_parse_from(typed).is_err());
}
