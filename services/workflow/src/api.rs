//! The gRPC services: templates, workflows, and the workers' calls.

mod orders;
mod template;
mod worker;
mod workflow;

use std::sync::Arc;
use std::time::Duration;

use nouns::Noun as _;
use runtime::Channel;
use runtime::boot_token::BootTokens;
use runtime::clock::Clock;
use runtime::images::ImageDirectory;
use runtime::neighbour::{Neighbours, SourceCheck};
use runtime::tenants::TenantDirectory;
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::{ScopedStore, Store};
use tinwright::workflow::v1::template_service_server::TemplateServiceServer;
use tinwright::workflow::v1::worker_service_server::WorkerServiceServer;
use tinwright::workflow::v1::workflow_service_server::WorkflowServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use crate::dispatch::Dispatcher;
use crate::lifecycle::WorkerTimeouts;
use crate::logs::{LogKind, Logs};
use crate::machine_gate::MachineGate;
use crate::node_agents::NodeAgents;
use crate::occupancy::Occupancy;
use crate::progress::ProgressCache;
use crate::queue::MachineQueues;
use crate::reconcile::{BmcClient, Reconciler};
use crate::render_pool::RenderPool;
use crate::templates::{TemplateKind, Templates};
use crate::worker_enrollment::{Issuer, WorkerEnrollment};
use crate::workflows::{WorkflowKind, Workflows};

/// The time between two deletions of expired tokens.
const TOKEN_DELETION_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The largest request of a worker, and of callers without a role. The reason of a failure may quote a value of the action, which has
/// at most 64 KiB.
const MAX_WORKER_REQUEST_BYTES: usize = 128 * 1024;

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct CalledServices {
    /// The hardware service, which has the values for templates.
    pub hardware: Channel,
    /// The identity service, which has the tenants.
    pub identity: Channel,
    /// The instance service, which has the occupants of machines.
    pub instance: Channel,
    /// The image service; none on a site without images.
    pub image: Option<Channel>,
    /// The power service, which runs power jobs.
    pub power: Channel,
    /// The node service, which has the streams of agents; none if the site has no nodes.
    pub node: Option<Channel>,
}

/// The gRPC services for templates, workflows and workers.
#[derive(Clone, Debug)]
pub struct Api {
    templates: Templates,
    workflows: Workflows,
    logs: Logs,
    enrollment: WorkerEnrollment,
    agents: NodeAgents,
    dispatcher: Dispatcher,
    reconciler: Reconciler,
    queues: Arc<MachineQueues>,
    progress: Arc<ProgressCache>,
    gate: MachineGate,
    /// Templates, workflows and logs.
    mirrors: (Mirror<TemplateKind>, Mirror<WorkflowKind>, Mirror<LogKind>),
    hardware: Channel,
    occupancy: Occupancy,
    images: ImageDirectory,
    tenants: TenantDirectory,
    renderings: RenderPool,
    source: SourceCheck,
    /// The owners of addresses on our links; none where they are not checked.
    neighbours: Option<Arc<dyn Neighbours>>,
    clock: Clock,
    stop: CancellationToken,
}

impl Api {
    /// The services over `store`. Deadlines follow `clock`. Watches and held calls end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        peers: CalledServices,
        worker_timeouts: WorkerTimeouts,
        tokens: Arc<BootTokens>,
        issuer: Arc<dyn Issuer>,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let store = ScopedStore::new(store, Self::NAME);
        let templates = Templates::new(store.clone(), clock.clone());
        let workflows = Workflows::new(store.clone(), clock.clone());
        let workflows = workflows.with_worker_timeouts(worker_timeouts);
        let logs = Logs::new(store.clone());
        let queues = Arc::new(MachineQueues::new(worker_timeouts, clock.wall()));
        let progress = Arc::new(ProgressCache::default());
        let gate = MachineGate::new(peers.hardware.clone(), clock.clone());
        let mirrors = (
            Mirror::new(templates.records().clone()),
            Mirror::new(workflows.records.clone()),
            Mirror::new(logs.records.clone()),
        );
        Self {
            reconciler: Reconciler {
                workflows: workflows.clone(),
                logs: logs.clone(),
                mirror: mirrors.1.clone(),
                queues: queues.clone(),
                progress: progress.clone(),
                bmcs: BmcClient::new(peers.power, gate.clone()),
                gate: gate.clone(),
                clock: clock.clone(),
            },
            dispatcher: Dispatcher {
                workflows: workflows.clone(),
                queues: queues.clone(),
                gate: gate.clone(),
                clock: clock.clone(),
            },
            enrollment: WorkerEnrollment::new(store, tokens, issuer),
            agents: NodeAgents::new(peers.node),
            hardware: peers.hardware,
            occupancy: Occupancy::new(peers.instance),
            images: ImageDirectory::new(peers.image),
            tenants: TenantDirectory::new(peers.identity),
            renderings: RenderPool::default(),
            source: SourceCheck::default(),
            neighbours: None,
            templates,
            workflows,
            logs,
            queues,
            progress,
            gate,
            mirrors,
            clock,
            stop,
        }
    }

    /// Checks by `neighbours` that the owner of an address that redeems a boot token is its machine, as `source` requires it.
    #[must_use]
    pub fn with_neighbours(self, source: SourceCheck, neighbours: Arc<dyn Neighbours>) -> Self {
        Self { source, neighbours: Some(neighbours), ..self }
    }
}

impl HostedService for Api {
    const NAME: &'static str = "workflow";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        let workers = WorkerServiceServer::new(self.clone());
        routes.add_service(TemplateServiceServer::new(self.clone()));
        routes.add_service(WorkflowServiceServer::new(self.clone()));
        routes.add_service(workers.max_decoding_message_size(MAX_WORKER_REQUEST_BYTES));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        let (templates, workflows, logs) = &self.mirrors;
        visitor.mirror(templates);
        visitor.bounded(workflows);
        visitor.mirror(logs);
        visitor.records(&self.enrollment.records);
        visitor.records(&self.workflows.epochs.records);
        visitor.records(&self.enrollment.enrolments.records);
    }

    /// Reconciles workflows and follows the records.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let followed = hosted::follow(&self, &stop);
        let Self { reconciler, enrollment, clock, .. } = self;
        tokio::join!(
            followed,
            Box::pin(reconciler.run(stop.clone())),
            stop.run_until_cancelled(delete_expired_tokens(enrollment, clock)),
        );
        Ok(())
    }

    /// Resolves once watches and workers can be served.
    async fn ready(&self) {
        tokio::join!(hosted::mirrors_ready(self), self.queues.ready());
    }
}

async fn delete_expired_tokens(enrollment: WorkerEnrollment, clock: Clock) {
    let mut interval = tokio::time::interval(TOKEN_DELETION_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = enrollment.delete_expired(clock.wall()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "expired tokens not deleted");
        }
        if let Err(error) = enrollment.enrolments.delete_ended(clock.wall()).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "ended enrolments not deleted");
        }
    }
}
