//! An agent that pretends to run containers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use runtime::{Caller, MachinePurpose, Role};
use tinwright::node::v1::connect_request::Message as Up;
use tinwright::node::v1::connect_response::Message as Down;
use tinwright::node::v1::image_call::Call;
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::{Containers, Result as Outcome};
use tinwright::node::v1::node_service_client::NodeServiceClient;
use tinwright::node::v1::{
    AgentHello, ConnectRequest, Container, DesiredStack, ImageCall, ImageError, ImageResult,
    NodeCall, NodeCallResult, NodeObservation, NodeState,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use crate::support::RunningServer;

/// The state of a machine, which it keeps while its agent has no stream, and the stacks and calls that it received.
#[derive(Debug, Default)]
pub struct Machine {
    pub id: String,
    pub name: String,
    /// The command that this machine cannot run.
    pub broken: String,
    /// True to apply the command `/sbin/bad` without an end.
    pub is_slow: AtomicBool,
    /// The desired stacks, in their order.
    pub desired: Mutex<Vec<DesiredStack>>,
    /// The results by call.
    journal: Mutex<HashMap<String, ImageResult>>,
    /// The calls that were carried out.
    pub carried_out: AtomicUsize,
    containers: Mutex<Vec<Container>>,
}

/// The machines that apply a version now, and the most that did.
#[derive(Debug, Default)]
pub struct Applying {
    now: AtomicUsize,
    pub most: AtomicUsize,
}

/// An agent on its stream.
pub struct Agent {
    task: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agent {
    /// The caller that the agent of `machine` is in boot epoch 0.
    pub fn caller(machine: &Machine) -> Caller {
        Role::Machine(machine.id.parse().unwrap(), MachinePurpose::Node).into()
    }

    /// Connects the agent of `machine`.
    pub async fn connect(
        server: &RunningServer,
        machine: &Arc<Machine>,
        applying: &Arc<Applying>,
    ) -> Self {
        let channel = server.channel_of(Some(Self::caller(machine))).await;
        let (up, requests) = mpsc::channel(64);
        let hello = AgentHello {
            boot_id: format!("boot-of-{}", machine.name),
            process_id: "p".into(),
            agent_version: "test".into(),
        };
        up.send(ConnectRequest { message: Some(Up::Hello(hello)) }).await.unwrap();
        let mut client = NodeServiceClient::new(channel);
        let down = client.connect(ReceiverStream::new(requests)).await.unwrap().into_inner();
        let (machine, applying) = (machine.clone(), applying.clone());
        let task = tokio::spawn(async move {
            let mut down = down;
            while let Ok(Some(message)) = down.message().await {
                match message.message {
                    Some(Down::Call(call)) => send(&up, machine.answer(call)).await,
                    Some(Down::DesiredStack(desired)) => {
                        machine.apply(desired, &applying, &up).await;
                    }
                    None => {}
                }
            }
        });
        Self { task }
    }
}

async fn send(up: &mpsc::Sender<ConnectRequest>, message: Up) {
    // The stream may have ended.
    drop(up.send(ConnectRequest { message: Some(message) }).await);
}

impl Machine {
    /// The machine with this record, which cannot run the command `broken`.
    pub fn new(id: &str, name: &str, broken: &str) -> Self {
        let [id, name, broken] = [id, name, broken].map(str::to_owned);
        Self { id, name, broken, ..Self::default() }
    }

    /// Reports that it applies `desired`, and then that it runs or failed.
    async fn apply(
        &self,
        desired: DesiredStack,
        applying: &Applying,
        up: &mpsc::Sender<ConnectRequest>,
    ) {
        let most = applying.now.fetch_add(1, Ordering::SeqCst) + 1;
        applying.most.fetch_max(most, Ordering::SeqCst);
        self.desired.lock().unwrap().push(desired.clone());
        let is_slow = self.is_slow.load(Ordering::SeqCst)
            && desired.containers.iter().any(|it| it.command == "/sbin/bad");
        let is_broken = desired.containers.iter().any(|it| it.command == self.broken);
        let observation = |state: NodeState, failure: &str| {
            Up::Observation(NodeObservation {
                assignment: desired.assignment,
                stack_id: desired.stack_id.clone(),
                stack_version: desired.stack_version,
                state: state.into(),
                failure: failure.into(),
                ..NodeObservation::default()
            })
        };
        send(up, observation(NodeState::Applying, "")).await;
        if is_slow {
            applying.now.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let state = match desired.stack_id.as_str() {
            "" => observation(NodeState::Unassigned, ""),
            _ if is_broken => observation(NodeState::Failed, "no such image"),
            _ => observation(NodeState::Running, ""),
        };
        applying.now.fetch_sub(1, Ordering::SeqCst);
        send(up, state).await;
    }

    /// Carries out `call` once, and answers with the stored result when it comes again.
    fn answer(&self, NodeCall { call_id, call, .. }: NodeCall) -> Up {
        let mut journal = self.journal.lock().unwrap();
        let result = journal.entry(call_id.clone()).or_insert_with(|| {
            self.carried_out.fetch_add(1, Ordering::SeqCst);
            ImageResult { result: Some(self.carry_out(call.unwrap_or_default())) }
        });
        Up::Result(NodeCallResult { call_id, result: Some(result.clone()), id_reused: false })
    }

    fn carry_out(&self, call: ImageCall) -> Outcome {
        let mut containers = self.containers.lock().unwrap();
        match call.call {
            Some(Call::CreateContainer(new)) => {
                let id = i64::try_from(containers.len()).unwrap() + 1;
                containers.push(Container { id, refs: 1, ..new });
                Outcome::Container(containers.last().unwrap().clone())
            }
            Some(Call::ListContainers(_)) => {
                Outcome::Containers(Containers { containers: containers.clone() })
            }
            _ => Outcome::Error(ImageError {
                reason: Reason::NotFound.into(),
                message: "not found".into(),
            }),
        }
    }
}
