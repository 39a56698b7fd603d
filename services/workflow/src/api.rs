//! The gRPC face: templates, workflows, and the workers' calls.

mod caller;
mod template;
mod worker;
mod workflow;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::boot_token::BootTokens;
use store::mirror::Mirror;
use store::records::{self, CheckReport};
use store::{ScopedStore, Store, serving};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::workflow::v1::template_service_server::TemplateServiceServer;
use tinwright::workflow::v1::worker_service_server::WorkerServiceServer;
use tinwright::workflow::v1::workflow_service_server::WorkflowServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::assigning::Assigning;
use crate::logs::{LogKind, Logs};
use crate::progress::Pulses;
use crate::queues::Queues;
use crate::reconcile::Reconciler;
use crate::redeeming::{Issuer, Redeeming};
use crate::templates::{TemplateKind, Templates};
use crate::workflows::{WorkflowKind, Workflows};

/// How often spent tokens are forgotten.
const FORGETTING: Duration = Duration::from_secs(60 * 60);

/// Serves templates, workflows and workers over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    templates: Templates,
    workflows: Workflows,
    logs: Logs,
    redeeming: Redeeming,
    assigning: Assigning,
    reconciler: Reconciler,
    queues: Arc<Queues>,
    pulses: Arc<Pulses>,
    /// Of templates, workflows and logs.
    mirrors: (Mirror<TemplateKind>, Mirror<WorkflowKind>, Mirror<LogKind>),
    hardware: HardwareServiceClient<Channel>,
    stop: CancellationToken,
}

impl Api {
    /// An API over what `store` keeps, that reads machines over `hardware` and has BMCs told over `power`; its watches
    /// and held calls end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        hardware: Channel,
        power: Channel,
        tokens: Arc<BootTokens>,
        issuer: Arc<dyn Issuer>,
        stop: CancellationToken,
    ) -> Self {
        let store = ScopedStore::new(store, "workflow");
        let (templates, workflows) = (Templates::new(store.clone()), Workflows::new(store.clone()));
        let logs = Logs::new(store.clone());
        let (queues, pulses) = (Arc::new(Queues::default()), Arc::new(Pulses::default()));
        let mirrors = (
            Mirror::new(templates.records().clone()),
            Mirror::new(workflows.records().clone()),
            Mirror::new(logs.records().clone()),
        );
        let followed = mirrors.1.clone();
        Self {
            reconciler: Reconciler::new(
                workflows.clone(),
                logs.clone(),
                followed,
                queues.clone(),
                pulses.clone(),
                power,
            ),
            assigning: Assigning { workflows: workflows.clone(), queues: queues.clone() },
            redeeming: Redeeming::new(store, tokens, issuer),
            hardware: HardwareServiceClient::new(hardware),
            templates,
            workflows,
            logs,
            queues,
            pulses,
            mirrors,
            stop,
        }
    }

    /// As a service of templates for a tonic router.
    pub fn template_service(&self) -> TemplateServiceServer<Self> {
        TemplateServiceServer::new(self.clone())
    }

    /// As a service of workflows for a tonic router.
    pub fn workflow_service(&self) -> WorkflowServiceServer<Self> {
        WorkflowServiceServer::new(self.clone())
    }

    /// As a service of workers for a tonic router.
    pub fn worker_service(&self) -> WorkerServiceServer<Self> {
        WorkerServiceServer::new(self.clone())
    }

    /// Resolves once watches and workers can be answered.
    pub async fn ready(&self) {
        tokio::join!(self.mirrors.0.ready(), self.mirrors.2.ready(), self.queues.ready());
    }

    /// Brings workflows on, and follows the records, until `stop`: later than the watches, which are fed by it.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (templates, workflows, logs) = self.mirrors;
        let (kept, ..) = tokio::join!(
            serving::run(workflows, stop.clone()),
            templates.run(stop.clone()),
            logs.run(stop.clone()),
            self.reconciler.run(stop.clone()),
            stop.run_until_cancelled(forget(self.redeeming)),
        );
        kept
    }

    /// Whether records and indexes agree; with `mend`, making them.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, records::Error> {
        let templates = self.templates.records().check(mend).await?;
        let workflows = self.workflows.records().check(mend).await?;
        let logs = self.logs.records().check(mend).await?;
        let spent = self.redeeming.records().check(mend).await?;
        Ok(templates.and(workflows).and(logs).and(spent))
    }
}

async fn forget(redeeming: Redeeming) {
    let mut hourly = tokio::time::interval(FORGETTING);
    loop {
        hourly.tick().await;
        if let Err(error) = redeeming.forget(SystemTime::now()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "spent tokens stay");
        }
    }
}
