//! The gRPC services of nodes and stacks.

mod nodes;
mod stacks;

use std::sync::{Arc, Mutex, PoisonError};

use nouns::Noun as _;
use runtime::{Channel, Clock};
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records;
use store::{ScopedStore, Store};
use tinwright::node::v1::node_service_server::NodeServiceServer;
use tinwright::node::v1::stack_service_server::StackServiceServer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use crate::calls::Calls;
use crate::connect::Connector;
use crate::desired::Desired;
use crate::directory::Directory;
use crate::mailbox::CallKind;
use crate::nodes::{NodeKind, Nodes};
use crate::peers::OtherServices;
use crate::reconcile::Reconciler;
use crate::servers::{ServerName, Servers};
use crate::stacks::{StackKind, Stacks};
use crate::streams::Streams;
use crate::take::Taker;

/// The largest message of an agent, and the largest request: a call with its containers, or a result with all of a node's.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct CalledServices {
    /// Machines.
    pub hardware: Channel,
    /// Instances.
    pub instance: Channel,
    /// Boot epochs of machines.
    pub workflow: Channel,
}

/// Serves nodes and stacks over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    nodes: Nodes,
    stacks: Stacks,
    node_mirror: Mirror<NodeKind>,
    stack_mirror: Mirror<StackKind>,
    call_mirror: Mirror<CallKind>,
    streams: Streams,
    directory: Directory,
    peers: OtherServices,
    desired: Desired,
    calls: Calls,
    connector: Connector,
    servers: Servers,
    /// The machines that changed; taken by the reconciler.
    changed: Arc<Mutex<Option<mpsc::UnboundedReceiver<String>>>>,
    own: ServerName,
    stop: CancellationToken,
}

impl Api {
    /// Serves the nodes and stacks in `store`, as the process `own`. Watches and streams end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        services: CalledServices,
        own: ServerName,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let store = ScopedStore::new(store, Self::NAME);
        let nodes = Nodes::new(store.clone(), clock.clone());
        let stacks = Stacks::new(store.clone(), clock);
        let CalledServices { hardware, instance, workflow } = services;
        let name = own.name.clone();
        let (directory, changed) = Directory::new(hardware, instance.clone());
        let peers = OtherServices::new(instance, workflow);
        let streams = Streams::default();
        let desired = Desired::new(stacks.clone(), streams.clone(), directory.clone());
        let call_mirror = Mirror::new(records::Records::new(store.clone()));
        let connector = Connector::new(
            nodes.clone(),
            streams.clone(),
            desired.clone(),
            directory.clone(),
            peers.clone(),
            name.clone(),
            stop.clone(),
        );
        Self {
            node_mirror: Mirror::new(nodes.records.clone()),
            stack_mirror: Mirror::new(stacks.records().clone()),
            calls: Calls::new(nodes.clone(), streams.clone(), call_mirror.clone(), name),
            servers: Servers::new(store, nodes.clone(), streams.clone(), own.clone()),
            changed: Arc::new(Mutex::new(Some(changed))),
            nodes,
            stacks,
            call_mirror,
            streams,
            directory,
            peers,
            desired,
            connector,
            own,
            stop,
        }
    }
}

impl HostedService for Api {
    const NAME: &'static str = "node";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        let nodes = NodeServiceServer::new(self.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        routes.add_service(nodes).add_service(StackServiceServer::new(self.clone()));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        visitor.mirror(&self.node_mirror);
        visitor.mirror(&self.stack_mirror);
        visitor.mirror(&self.call_mirror);
        visitor.records(&self.servers.records);
    }

    /// Follows records, machines and instances, and works on nodes and stacks.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let followed = hosted::follow(&self, &stop);
        let Self { nodes, stacks, streams, directory, peers, desired, servers, .. } = self;
        let Self { node_mirror, stack_mirror, call_mirror, .. } = self;
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(changed) = changed else { anyhow::bail!("the node service runs already") };
        let clock = nodes.clock.clone();
        let taker = Taker::new(call_mirror, streams.clone(), clock, self.own.name);
        let reconciler = Reconciler::new(nodes, stacks, directory.clone(), peers, desired, streams);
        let mirrors = (node_mirror, stack_mirror);
        tokio::join!(
            followed,
            directory.run(stop.clone()),
            servers.run(stop.clone()),
            taker.run(stop.clone()),
            reconciler.run(mirrors, changed, stop.clone()),
        );
        Ok(())
    }
}
