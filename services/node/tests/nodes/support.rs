//! A process of the node service, and an agent.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use node::servers::ServerName;
use node::{Api, CalledServices};
use runtime::Channel;
use runtime::{Caller, Clock, LocalServices, Role};
use store::Store;
use store::hosted::HostedService as _;
use tinwright::HardwareId;
use tinwright::node::v1::connect_request::Message as Up;
use tinwright::node::v1::connect_response::Message as Down;
use tinwright::node::v1::image_call::{Call, ListMounts};
use tinwright::node::v1::image_result::{Mounts, Result as Outcome};
use tinwright::node::v1::node_service_client::NodeServiceClient;
use tinwright::node::v1::{
    AgentHello, CallNodeRequest, CallNodeResponse, ConnectRequest, ConnectResponse, ImageCall,
    ImageResult, Mount, Node, NodeCall, NodeCallResult,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

use super::site::Site;

/// The limit of what must happen.
const SOON: Duration = Duration::from_secs(60);

/// A clock that a test moves.
pub fn manual() -> Clock {
    Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("within a minute")
}

/// A process. It ends when it is dropped.
pub struct Replica {
    app: Router,
    stop: CancellationToken,
    _end: DropGuard,
}

impl Replica {
    /// Starts the process `name` with `store`, at a site without instances.
    pub async fn start(store: &Arc<dyn Store>, name: &str, clock: &Clock) -> Self {
        Self::start_at(&Site::default(), store, name, clock).await
    }

    /// Starts the process `name` with `store` at `site`.
    pub async fn start_at(site: &Site, store: &Arc<dyn Store>, name: &str, clock: &Clock) -> Self {
        let stop = CancellationToken::new();
        let peers = channel(site.router(), Role::Service.into(), &stop);
        let services =
            CalledServices { hardware: peers.clone(), instance: peers.clone(), workflow: peers };
        let own = ServerName { name: name.into(), is_only: false };
        let api = Api::new(store.clone(), services, own, clock.clone(), stop.clone());
        tokio::spawn(api.clone().run(stop.clone()));
        soon(api.ready()).await;
        let _end = stop.clone().drop_guard();
        Self { app: api.routes().into_axum_router(), stop, _end }
    }

    fn channel(&self, caller: Caller) -> Channel {
        channel(self.app.clone(), caller, &self.stop)
    }

    /// Returns a channel of the operator `name`.
    pub fn operator_channel(&self, name: &str) -> Channel {
        self.channel(Caller::new(Role::Operator, &format!("person:{name}")).unwrap())
    }

    /// Returns a client that is the operator `name`.
    pub fn operator(&self, name: &str) -> NodeServiceClient<Channel> {
        NodeServiceClient::new(self.operator_channel(name))
    }

    /// Opens the stream of the node on `machine`, in the boot `boot` of the epoch `epoch`.
    pub async fn try_connect(
        &self,
        machine: HardwareId,
        boot: &str,
        epoch: u64,
    ) -> Result<Agent, Status> {
        let mut client = NodeServiceClient::new(self.channel(Caller::node(machine, epoch)));
        let (up, requests) = mpsc::channel(64);
        let hello =
            AgentHello { boot_id: boot.into(), process_id: "p".into(), ..Default::default() };
        up.send(ConnectRequest { message: Some(Up::Hello(hello)) }).await.unwrap();
        let down = soon(client.connect(ReceiverStream::new(requests))).await?.into_inner();
        Ok(Agent { up, down })
    }

    pub async fn connect(&self, machine: HardwareId) -> Agent {
        self.try_connect(machine, "boot-1", 0).await.unwrap()
    }

    /// Waits until the record of `machine` is as `condition` says.
    pub async fn until(&self, machine: HardwareId, condition: impl Fn(&Node) -> bool) -> Node {
        use tinwright::node::v1::watch_nodes_response::Event;
        let request = tinwright::node::v1::WatchNodesRequest {
            id: machine.to_string(),
            ..Default::default()
        };
        let mut events = self.operator("watcher").watch_nodes(request).await.unwrap().into_inner();
        let found = async {
            loop {
                let event = events.message().await.unwrap().unwrap().event;
                if let Some(Event::Node(node)) = event
                    && condition(&node)
                {
                    return node;
                }
            }
        };
        soon(found).await
    }
}

/// Returns a channel to `app`, which runs until `stop`.
fn channel(app: Router, caller: Caller, stop: &CancellationToken) -> Channel {
    let services = LocalServices::new(stop.clone());
    let running = services.start(app);
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(async move {
        stopped.await;
        drop(running);
    });
    services.channel(caller)
}

/// An agent on a stream. The stream ends when it is dropped.
pub struct Agent {
    up: mpsc::Sender<ConnectRequest>,
    pub down: Streaming<ConnectResponse>,
}

impl Agent {
    pub async fn send(&self, message: Up) {
        self.up.send(ConnectRequest { message: Some(message) }).await.unwrap();
    }

    /// Waits for the next call.
    pub async fn next_call(&mut self) -> NodeCall {
        match soon(self.down.message()).await.unwrap().unwrap().message {
            Some(Down::Call(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    /// Answers `call` with a mount of this id.
    pub async fn answer(&self, call: &NodeCall, id: i64) {
        let result = Some(mounts(id));
        let (call_id, id_reused) = (call.call_id.clone(), false);
        self.send(Up::Result(NodeCallResult { call_id, result, id_reused })).await;
    }

    /// Waits for the end of the stream.
    pub async fn ended(&mut self) -> Status {
        loop {
            match soon(self.down.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }
}

/// A result with a mount of this id.
pub fn mounts(id: i64) -> ImageResult {
    let mounts = Mounts { mounts: vec![Mount { id, ..Mount::default() }] };
    ImageResult { result: Some(Outcome::Mounts(mounts)) }
}

/// A call that lists mounts.
pub fn request(machine: HardwareId, call_id: &str) -> CallNodeRequest {
    let call = ImageCall { call: Some(Call::ListMounts(ListMounts::default())) };
    CallNodeRequest { node_id: machine.to_string(), call: Some(call), call_id: call_id.into() }
}

/// A call in progress.
pub type Calling = tokio::task::JoinHandle<Result<CallNodeResponse, Status>>;

/// Begins a call.
pub fn begin(mut client: NodeServiceClient<Channel>, request: CallNodeRequest) -> Calling {
    tokio::spawn(async move { Ok(client.call_node(request).await?.into_inner()) })
}

pub async fn result(calling: Calling) -> Result<ImageResult, Status> {
    Ok(soon(calling).await.unwrap()?.result.unwrap())
}
