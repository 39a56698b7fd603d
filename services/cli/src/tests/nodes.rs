//! Stacks and nodes: what commands send, and the progress that they print.

use std::sync::{Arc, Mutex};

use tinwright::node::v1 as pb;
use tinwright::node::v1::node_service_server::{NodeService, NodeServiceServer};
use tinwright::node::v1::stack_service_server::{StackService, StackServiceServer};
use tokio_stream::{Empty, Pending};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::{fake, tinwright};

const ID: &str = "01990000-0000-7000-8000-00000000000a";

/// A site with the stack web, whose rollout takes one node and then ends in a state. The stack `taken` cannot be created. Changes are
/// recorded.
#[derive(Clone)]
struct Site {
    changes: Arc<Mutex<Vec<String>>>,
    /// The filters of lists of nodes.
    lists: Arc<Mutex<Vec<String>>>,
    end: pb::RolloutState,
}

type Events<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

fn stack(state: pb::RolloutState) -> pb::Stack {
    let has_failed = state == pb::RolloutState::Stopped;
    let counts = pb::RolloutCounts {
        nodes: 2,
        pending: i32::from(has_failed),
        running: if has_failed { 0 } else { 2 },
        failed: i32::from(has_failed),
        applying: 0,
    };
    let reason = if has_failed { "1 failed, 0 may: n7: no image" } else { "" };
    let rollout = pb::Rollout {
        number: 3,
        version: 2,
        state: state.into(),
        state_reason: reason.into(),
        counts: Some(counts),
        ..pb::Rollout::default()
    };
    pb::Stack { id: ID.into(), name: "web".into(), rollout: Some(rollout), ..pb::Stack::default() }
}

/// A node of the rollout in this state.
fn node(name: &str, state: pb::NodeState) -> pb::Node {
    let reason = if state == pb::NodeState::Failed { "no image" } else { "" };
    pb::Node {
        id: name.into(),
        name: name.into(),
        connected: true,
        stack_id: ID.into(),
        stack_version: 2,
        rollout_number: 3,
        state: state.into(),
        state_reason: reason.into(),
        ..pb::Node::default()
    }
}

impl Site {
    fn new(end: pb::RolloutState) -> Self {
        Self { changes: Arc::default(), lists: Arc::default(), end }
    }

    /// Runs a command. Returns its output, its result, and the changes that it asked for.
    async fn run(&self, arguments: &str) -> (String, Result<(), String>, Vec<String>) {
        let server = Server::builder()
            .add_service(StackServiceServer::new(self.clone()))
            .add_service(NodeServiceServer::new(self.clone()));
        let (printed, result) = tinwright(arguments, server).await;
        (printed, result, std::mem::take(&mut *self.changes.lock().unwrap()))
    }

    fn record(&self, change: String) {
        self.changes.lock().unwrap().push(change);
    }
}

/// Describes how a version is rolled out.
fn settings(rollout: Option<pb::RolloutSettings>) -> String {
    let pb::RolloutSettings { node_labels, max_concurrent, max_failures } = rollout.unwrap();
    let labels: Vec<_> = node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{} {max_concurrent} {max_failures}", labels.join(","))
}

fake! {
    impl StackService for Site {
        type WatchStacksStream = Events<pb::WatchStacksResponse>;

        async fn watch_stacks(
            &self,
            request: Request<pb::WatchStacksRequest>,
        ) -> Result<Response<Self::WatchStacksStream>, Status> {
            use pb::watch_stacks_response::Event;
            assert_eq!(request.into_inner().id, ID);
            let states = [pb::RolloutState::Running, self.end];
            let event = |state| Ok(pb::WatchStacksResponse { event: Some(Event::Stack(stack(state))) });
            Ok(Response::new(tokio_stream::iter(states.map(event).to_vec())))
        }

        async fn get_stack(
            &self,
            request: Request<pb::GetStackRequest>,
        ) -> Result<Response<pb::GetStackResponse>, Status> {
            use pb::get_stack_request::By;
            match request.into_inner().by.unwrap() {
                By::Name(name) if name != "web" => Err(Status::not_found("nothing")),
                By::Id(_) | By::Name(_) => {
                    let stack = Some(stack(self.end));
                    Ok(Response::new(pb::GetStackResponse { stack }))
                }
            }
        }

        async fn list_stacks(
            &self,
            _: Request<pb::ListStacksRequest>,
        ) -> Result<Response<pb::ListStacksResponse>, Status> {
            let stacks = vec![stack(self.end)];
            Ok(Response::new(pb::ListStacksResponse { stacks, ..Default::default() }))
        }

        async fn create_stack(
            &self,
            request: Request<pb::CreateStackRequest>,
        ) -> Result<Response<pb::CreateStackResponse>, Status> {
            let stack = request.into_inner().stack;
            let name = &stack.as_ref().unwrap().name;
            if name == "taken" {
                return Err(Status::already_exists("stack.name: is taken"));
            }
            self.record(format!("create {name}"));
            Ok(Response::new(pb::CreateStackResponse { stack }))
        }

        async fn update_stack(
            &self,
            request: Request<pb::UpdateStackRequest>,
        ) -> Result<Response<pb::UpdateStackResponse>, Status> {
            let pb::UpdateStackRequest { stack: update, rollout, .. } = request.into_inner();
            let update = update.unwrap();
            let command = &update.containers[0].command;
            self.record(format!("update {} {command}: {}", update.id, settings(rollout)));
            let stack = Some(stack(pb::RolloutState::Running));
            Ok(Response::new(pb::UpdateStackResponse { stack }))
        }

        async fn roll_back_stack(
            &self,
            request: Request<pb::RollBackStackRequest>,
        ) -> Result<Response<pb::RollBackStackResponse>, Status> {
            let pb::RollBackStackRequest { id, version, rollout, .. } = request.into_inner();
            self.record(format!("roll back {id} {version}: {}", settings(rollout)));
            let stack = Some(stack(pb::RolloutState::Running));
            Ok(Response::new(pb::RollBackStackResponse { stack }))
        }
    }
    refuses {
        delete_stack: DeleteStackRequest => DeleteStackResponse,
    }
}

fake! {
    impl NodeService for Site {
        type ConnectStream = Empty<Result<pb::ConnectResponse, Status>>;

        async fn connect(
            &self,
            _: Request<Streaming<pb::ConnectRequest>>,
        ) -> Result<Response<Self::ConnectStream>, Status> {
            Err(Status::unimplemented("connect"))
        }

        type WatchNodesStream = Pending<Result<pb::WatchNodesResponse, Status>>;

        async fn watch_nodes(
            &self,
            _: Request<pb::WatchNodesRequest>,
        ) -> Result<Response<Self::WatchNodesStream>, Status> {
            Ok(Response::new(tokio_stream::pending()))
        }

        async fn list_nodes(
            &self,
            request: Request<pb::ListNodesRequest>,
        ) -> Result<Response<pb::ListNodesResponse>, Status> {
            let pb::ListNodesRequest { labels, stack_id, state, .. } = request.into_inner();
            self.lists.lock().unwrap().push(format!("{labels:?} {stack_id} {state}"));
            let last = match self.end {
                pb::RolloutState::Stopped => pb::NodeState::Failed,
                pb::RolloutState::Unspecified | pb::RolloutState::Running | pb::RolloutState::Done => {
                    pb::NodeState::Running
                }
            };
            let nodes = vec![node("n1", pb::NodeState::Running), node("n7", last)];
            Ok(Response::new(pb::ListNodesResponse { nodes, ..Default::default() }))
        }
    }
    refuses {
        get_node: GetNodeRequest => GetNodeResponse,
        call_node: CallNodeRequest => CallNodeResponse,
        delete_node: DeleteNodeRequest => DeleteNodeResponse,
    }
}

/// A file with the stack `name`.
fn file(name: &str) -> tempfile::NamedTempFile {
    let text = format!(
        "name: {name}\ncontainers:\n- name: os\n  command: /sbin/init\n  mount: {{nfs: {{host: nas, path: /x}}}}\n"
    );
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn a_stack_is_applied_to_selected_nodes_and_the_command_fails_if_the_rollout_stops() {
    let file = file("web");
    let apply = format!(
        "stack apply -f {} --nodes rack=r1 --max-concurrent 4 --max-failures 1",
        file.path().display()
    );
    let done = Site::new(pb::RolloutState::Done);
    let (printed, result, changes) = done.run(&apply).await;
    assert_eq!(result, Ok(()));
    assert_eq!(changes, [format!("update {ID} /sbin/init: rack=r1 4 1")]);
    let expected = "stack web version 2\nn1 running\nn7 running\ndone: 2 of 2 nodes\n";
    assert_eq!(printed, expected);
    let stopped = Site::new(pb::RolloutState::Stopped);
    let (printed, result, _) = stopped.run(&apply).await;
    let expected = "the rollout of stack web stopped: 1 failed, 0 may: n7: no image; 1 of 2 nodes were left out";
    assert_eq!(result.unwrap_err(), expected);
    assert!(printed.ends_with("n7 failed: no image\n"), "{printed}");
    let (printed, result, _) = stopped.run(&format!("{apply} --no-wait")).await;
    assert_eq!((printed.as_str(), result), ("stack web version 2\n", Ok(())));
}

#[tokio::test]
async fn a_stack_that_is_not_there_is_created_and_one_that_is_there_rolled_back() {
    let site = Site::new(pb::RolloutState::Done);
    let file = file("new");
    let apply = format!("stack apply -f {} -o json", file.path().display());
    let (printed, result, changes) = site.run(&apply).await;
    assert_eq!((result, changes), (Ok(()), vec!["create new".to_owned()]));
    assert!(printed.contains("\"command\": \"/sbin/init\""), "{printed}");
    let (_, result, changes) = site.run("stack rollback web --max-concurrent 2").await;
    assert_eq!((result, changes), (Ok(()), vec![format!("roll back {ID} 0:  2 0")]));
    let (_, _, changes) = site.run("stack rollback web --version 5").await;
    assert_eq!(changes, [format!("roll back {ID} 5:  0 0")]);
}

#[tokio::test]
async fn each_wrong_stack_is_reported_and_does_not_prevent_the_others() {
    let site = Site::new(pb::RolloutState::Done);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stacks.yaml");
    std::fs::write(&path, "nmae: a\n---\nname: b\n---\nname: taken\n---\nname: [\n---\nname: c\n")
        .unwrap();
    let path = path.display();
    let (printed, result, changes) = site.run(&format!("stack apply -f {path}")).await;
    assert_eq!(changes, ["create b", "create c"]);
    assert_eq!(printed, "stack b version 0\nstack c version 0\n");
    let errors = result.unwrap_err();
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(lines.len(), 4, "{errors}");
    for (line, cause) in [
        format!("{path}:1: nmae: unknown field: did you mean name?"),
        format!("{path}:5: stack.name: is taken"),
        format!("{path}:7: not YAML: "),
    ]
    .iter()
    .enumerate()
    {
        assert!(lines[line].starts_with(cause), "{cause}\n{errors}");
    }
    assert_eq!(lines[3], "3 of 5 objects failed");
    let (printed, result, _) = site.run(&format!("stack apply -o name -f {path}")).await;
    assert_eq!(printed, "stack/b\nstack/c\n");
    assert_eq!(result.unwrap_err(), errors);
}

#[tokio::test]
async fn a_list_of_nodes_is_filtered_by_labels_stack_and_state() {
    let site = Site::new(pb::RolloutState::Done);
    let failed = pb::NodeState::Failed as i32;
    for (options, expected) in [
        ("", "{}  0".to_owned()),
        ("--stack web --state failed", format!("{{}} {ID} {failed}")),
        ("--stack 0199", format!("{{}} {ID} 0")),
        ("-l rack=r1", "{\"rack\": \"r1\"}  0".to_owned()),
    ] {
        let (_, result, _) = site.run(format!("node list {options}").trim_end()).await;
        let lists = std::mem::take(&mut *site.lists.lock().unwrap());
        assert_eq!((result, lists), (Ok(()), vec![expected]), "{options}");
    }
    let (_, result, _) = site.run("node list --stack other").await;
    assert!(result.is_err(), "there is no such stack");
}

#[tokio::test]
async fn tables_show_nodes_with_their_stacks_and_stacks_with_their_rollouts() {
    let site = Site::new(pb::RolloutState::Stopped);
    let (printed, ..) = site.run("node list").await;
    let row: Vec<_> = printed.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["n7", "n7", "yes", "web", "2", "failed", "0", "no", "image"]);
    let (printed, ..) = site.run("stack list").await;
    let row: Vec<_> = printed.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row[..8], [&ID[..13], "web", "0", "2", "stopped", "2", "0", "1"]);
}
