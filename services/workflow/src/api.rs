//! The gRPC services: templates, workflows, and the workers' calls.

mod template;
mod worker;
mod workflow;

use std::sync::Arc;
use std::time::Duration;

use runtime::boot_token::BootTokens;
use runtime::clock::Clock;
use store::mirror::Mirror;
use store::records::{self, CheckReport};
use store::{ScopedStore, Store, serving};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::workflow::v1::template_service_server::TemplateServiceServer;
use tinwright::workflow::v1::worker_service_server::WorkerServiceServer;
use tinwright::workflow::v1::workflow_service_server::WorkflowServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::dispatch::Dispatcher;
use crate::logs::{LogKind, Logs};
use crate::progress::ProgressCache;
use crate::queue::MachineQueues;
use crate::reconcile::{BmcClient, Reconciler};
use crate::templates::{TemplateKind, Templates};
use crate::worker_enrollment::{Issuer, WorkerEnrollment};
use crate::workflows::{WorkflowKind, Workflows};

/// The time between two deletions of expired tokens.
const TOKEN_DELETION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The gRPC services for templates, workflows and workers.
#[derive(Clone, Debug)]
pub struct Api {
    templates: Templates,
    workflows: Workflows,
    logs: Logs,
    enrollment: WorkerEnrollment,
    dispatcher: Dispatcher,
    reconciler: Reconciler,
    queues: Arc<MachineQueues>,
    progress: Arc<ProgressCache>,
    /// Templates, workflows and logs.
    mirrors: (Mirror<TemplateKind>, Mirror<WorkflowKind>, Mirror<LogKind>),
    hardware: HardwareServiceClient<Channel>,
    clock: Clock,
    stop: CancellationToken,
}

impl Api {
    /// The services over `store`. Hardware is read over `hardware`, power jobs are created over `power`. Watches and held
    /// calls end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        hardware: Channel,
        power: Channel,
        tokens: Arc<BootTokens>,
        issuer: Arc<dyn Issuer>,
        stop: CancellationToken,
    ) -> Self {
        let store = ScopedStore::new(store, "workflow");
        let clock = Clock::system();
        let templates = Templates::new(store.clone(), clock.clone());
        let workflows = Workflows::new(store.clone(), clock.clone());
        let logs = Logs::new(store.clone());
        let queues = Arc::new(MachineQueues::default());
        let progress = Arc::new(ProgressCache::default());
        let mirrors = (
            Mirror::new(templates.records().clone()),
            Mirror::new(workflows.records().clone()),
            Mirror::new(logs.records().clone()),
        );
        Self {
            reconciler: Reconciler {
                workflows: workflows.clone(),
                logs: logs.clone(),
                mirror: mirrors.1.clone(),
                queues: queues.clone(),
                progress: progress.clone(),
                bmcs: BmcClient::new(power),
                clock: clock.clone(),
            },
            dispatcher: Dispatcher {
                workflows: workflows.clone(),
                queues: queues.clone(),
                clock: clock.clone(),
            },
            enrollment: WorkerEnrollment::new(store, tokens, issuer),
            hardware: HardwareServiceClient::new(hardware),
            templates,
            workflows,
            logs,
            queues,
            progress,
            mirrors,
            clock,
            stop,
        }
    }

    /// The template service, for a tonic router.
    pub fn template_service(&self) -> TemplateServiceServer<Self> {
        TemplateServiceServer::new(self.clone())
    }

    /// The workflow service, for a tonic router.
    pub fn workflow_service(&self) -> WorkflowServiceServer<Self> {
        WorkflowServiceServer::new(self.clone())
    }

    /// The worker service, for a tonic router.
    pub fn worker_service(&self) -> WorkerServiceServer<Self> {
        WorkerServiceServer::new(self.clone())
    }

    /// Resolves once watches and workers can be served.
    pub async fn ready(&self) {
        tokio::join!(self.mirrors.0.ready(), self.mirrors.2.ready(), self.queues.ready());
    }

    /// Reconciles workflows and follows the records, until `stop`. Must outlive the watches, which it feeds.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (templates, workflows, logs) = self.mirrors;
        let (result, ..) = tokio::join!(
            serving::run(workflows, stop.clone()),
            templates.run(stop.clone()),
            logs.run(stop.clone()),
            self.reconciler.run(stop.clone()),
            stop.run_until_cancelled(delete_expired_tokens(self.enrollment, self.clock)),
        );
        result
    }

    /// Reports records and indexes that do not agree; with `repair`, repairs them.
    pub async fn check(&self, repair: bool) -> Result<CheckReport, records::Error> {
        let templates = self.templates.records().check(repair).await?;
        let workflows = self.workflows.records().check(repair).await?;
        let logs = self.logs.records().check(repair).await?;
        let spent = self.enrollment.records().check(repair).await?;
        Ok(templates.and(workflows).and(logs).and(spent))
    }
}

async fn delete_expired_tokens(enrollment: WorkerEnrollment, clock: Clock) {
    let mut interval = tokio::time::interval(TOKEN_DELETION_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = enrollment.delete_expired(clock.wall()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "expired tokens not deleted");
        }
    }
}
