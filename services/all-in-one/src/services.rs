//! The services that own nouns: made, served together, kept running.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use futures_util::future::OptionFuture;
use hardware::{HardwareRecords, Occupancy};
use power::{Bmcs, Jobs, PlaintextHttp, Timing};
use runtime::access;
use runtime::authority::SiteAuthority;
use runtime::boot_token::BootTokens;
use runtime::call_metrics::{self, CallMetrics};
use runtime::seal::Seal;
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use runtime::{Clock, Role, authority};
use store::Store;
use store::records::CheckReport;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use uuid::Uuid;
use workflow::worker_enrollment::{IssueError, IssuedCertificate};

use crate::config::{Config, Service, Storage};
use crate::reach::Reach;

/// Those that are here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    hardware: Option<hardware::Api>,
    instance: Option<instance::Api>,
    power: Option<power::Api>,
    workflow: Option<workflow::Api>,
}

impl Services {
    /// Over `store`; they reach each other as `reach` says, and their watches end at `stop`.
    pub(crate) fn new(
        config: &Config,
        store: &Arc<dyn Store>,
        site: &Arc<SiteAuthority>,
        reach: &Reach,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let Reach { hardware, instance, workflow, power, leases: _ } = reach.clone();
        let (store, stop) = (|| store.clone(), || stop.clone());
        let clear =
            if config.insecure_bmcs { PlaintextHttp::Allowed } else { PlaintextHttp::Refused };
        let bmcs = Bmcs::new(store(), Seal::new(site.key(), "bmc")?, clear, Clock::system());
        let (tokens, issuer) =
            (Arc::new(BootTokens::new(site.key())?), Arc::new(Issuer(site.clone())));
        let serves = |service| config.split.serves(service);
        Ok(Self {
            hardware: serves(Service::Hardware).then(|| {
                let records = HardwareRecords::new(store(), Clock::system());
                hardware::Api::new(records, Occupancy::new(instance), stop())
            }),
            instance: serves(Service::Instance).then(|| {
                let (hardware, power) = (hardware.clone(), power.clone());
                instance::Api::new(store(), hardware, workflow, power, stop())
            }),
            power: serves(Service::Power).then(|| {
                power::Api::new(Jobs::new(bmcs, process(config)), Timing::default(), stop())
            }),
            workflow: serves(Service::Workflow)
                .then(|| workflow::Api::new(store(), hardware, power, tokens, issuer, stop())),
        })
    }

    /// All of them, with `health`, what the edges tell and what all these are, behind the table of who may call what.
    pub(crate) fn app<H: Health>(
        &self,
        health: HealthServer<H>,
        (boots, leases, metadata): (
            Option<netboot::Api>,
            Option<netboot::leases::Api>,
            Option<metadata::Api>,
        ),
        vitals: &Diagnostics,
    ) -> anyhow::Result<Router> {
        let about = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tinwright::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let mut routes = Routes::builder();
        routes.add_service(health);
        routes.add_service(about().build_v1()?).add_service(about().build_v1alpha()?);
        let Self { hardware, instance, power, workflow } = self.clone();
        hardware.map(|it| routes.add_service(it.into_service()));
        instance.map(|it| routes.add_service(it.into_service()));
        power.map(|it| routes.add_service(it.into_service()));
        if let Some(workflow) = workflow {
            routes.add_service(workflow.template_service());
            routes.add_service(workflow.workflow_service());
            routes.add_service(workflow.worker_service());
        }
        boots.map(|it| routes.add_service(it.into_service()));
        leases.map(|it| routes.add_service(it.into_service()));
        metadata.map(|it| routes.add_service(it.into_service()));
        let (app, metrics) =
            (routes.routes().into_axum_router(), vitals.register(CallMetrics::new));
        Ok(app
            .layer(from_fn(access::check))
            .layer(from_fn_with_state(metrics, call_metrics::record)))
    }

    /// Starts what each does besides answering.
    pub(crate) fn start(&self, tier: &mut Tier) {
        let Self { hardware, instance, power, workflow } = self.clone();
        let stop = || tier.stop.clone();
        hardware.map(|it| tier.tasks.spawn(it.run(stop())));
        instance.map(|it| tier.tasks.spawn(it.run(stop())));
        power.map(|it| tier.tasks.spawn(it.run(stop())));
        workflow.map(|it| tier.tasks.spawn(it.run(stop())));
    }

    /// Whether all their records and indexes agree; with `mend`, making them.
    pub(crate) async fn check(&self, mend: bool) -> anyhow::Result<CheckReport> {
        let Self { hardware, instance, power, workflow } = self;
        let mut report = CheckReport::default();
        if let Some(hardware) = hardware {
            report = report.and(hardware.check(mend).await?);
        }
        if let Some(instance) = instance {
            report = report.and(instance.check(mend).await?);
        }
        if let Some(power) = power {
            report = report.and(power.check(mend).await?);
        }
        if let Some(workflow) = workflow {
            report = report.and(workflow.check(mend).await?);
        }
        Ok(report)
    }

    /// Resolves once each can answer.
    pub(crate) async fn ready(&self) {
        let Self { hardware, instance, power, workflow } = self;
        tokio::join!(
            OptionFuture::from(hardware.as_ref().map(hardware::Api::ready)),
            OptionFuture::from(instance.as_ref().map(instance::Api::ready)),
            OptionFuture::from(power.as_ref().map(power::Api::ready)),
            OptionFuture::from(workflow.as_ref().map(workflow::Api::ready)),
        );
    }
}

/// What this process is called among those that carry power jobs out. Where only one can have the store, the one that comes
/// after it has its name, and goes on at once.
fn process(config: &Config) -> String {
    match config.store {
        Storage::Sled | Storage::Memory => "the only one".into(),
        Storage::Etcd(_) => Uuid::new_v4().to_string(),
    }
}

/// The site's authority, as the workflow service asks it.
#[derive(Debug)]
struct Issuer(Arc<SiteAuthority>);

impl workflow::worker_enrollment::Issuer for Issuer {
    fn issue(&self, role: Role, csr: &[u8]) -> Result<IssuedCertificate, IssueError> {
        let (certificate, expires) = match self.0.certify(role, csr) {
            Ok(made) => made,
            Err(authority::Error::Request(_)) => return Err(IssueError::Request),
            Err(error) => return Err(IssueError::Authority(error.into())),
        };
        Ok(IssuedCertificate { certificate, expires })
    }
}
