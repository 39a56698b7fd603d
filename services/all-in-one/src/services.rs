//! The services that own nouns: made, served together, kept running.

use std::sync::Arc;

use axum::Router;
use hardware::{Machines, Occupancy};
use power::{Bmcs, Clear, Jobs, Pace};
use runtime::access::Access;
use runtime::authority::Site;
use runtime::boot_token::Tokens;
use runtime::observe::Observe;
use runtime::seal::Seal;
use runtime::supervise::Tier;
use runtime::telemetry::Vitals;
use runtime::{Role, authority};
use store::Store;
use store::records::Report;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic_health::pb::health_server::{Health, HealthServer};
use workflow::redeeming::{Issued, NotIssued};

use crate::config::Config;

/// One of each.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    hardware: hardware::Api,
    instance: instance::Api,
    power: power::Api,
    workflow: workflow::Api,
}

impl Services {
    /// Over `store`; they reach each other through `inside`, and their watches end at `stop`.
    pub(crate) fn new(
        config: &Config,
        store: &Arc<dyn Store>,
        site: &Arc<Site>,
        inside: &Channel,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let (inside, stop) = (|| inside.clone(), || stop.clone());
        let clear = if config.insecure_bmcs { Clear::Allowed } else { Clear::Refused };
        let bmcs = Bmcs::new(store.clone(), Seal::new(site.key(), "bmc")?, clear);
        let (tokens, issuer) = (Arc::new(Tokens::new(site.key())?), Arc::new(Issuer(site.clone())));
        Ok(Self {
            hardware: hardware::Api::new(
                Machines::new(store.clone()),
                Occupancy::new(inside()),
                stop(),
            ),
            instance: instance::Api::new(store.clone(), inside(), inside(), inside(), stop()),
            power: power::Api::new(Jobs::new(bmcs), Pace::default(), stop()),
            workflow: workflow::Api::new(store.clone(), inside(), inside(), tokens, issuer, stop()),
        })
    }

    /// All of them, with `health` and what they are, behind the table of who may call what.
    pub(crate) fn app<H: Health>(
        &self,
        health: HealthServer<H>,
        vitals: &Vitals,
    ) -> anyhow::Result<Router> {
        let about = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tinwright::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let routes = Routes::new(health)
            .add_service(self.hardware.clone().into_service())
            .add_service(self.instance.clone().into_service())
            .add_service(self.power.clone().into_service())
            .add_service(self.workflow.template_service())
            .add_service(self.workflow.workflow_service())
            .add_service(self.workflow.worker_service())
            .add_service(about().build_v1()?)
            .add_service(about().build_v1alpha()?);
        Ok(routes.into_axum_router().layer(Access).layer(vitals.register(Observe::new)))
    }

    /// Starts what each does besides answering.
    pub(crate) fn start(&self, tier: &mut Tier) {
        tier.tasks.spawn(self.hardware.clone().run(tier.stop.clone()));
        tier.tasks.spawn(self.instance.clone().run(tier.stop.clone()));
        tier.tasks.spawn(self.power.clone().run(tier.stop.clone()));
        tier.tasks.spawn(self.workflow.clone().run(tier.stop.clone()));
    }

    /// Whether all their records and indexes agree; with `mend`, making them.
    pub(crate) async fn check(&self, mend: bool) -> anyhow::Result<Report> {
        let hardware = self.hardware.check(mend).await?;
        let instance = self.instance.check(mend).await?;
        let power = self.power.check(mend).await?;
        let workflow = self.workflow.check(mend).await?;
        Ok(hardware.and(instance).and(power).and(workflow))
    }

    /// Resolves once each can answer.
    pub(crate) async fn ready(&self) {
        tokio::join!(
            self.hardware.ready(),
            self.instance.ready(),
            self.power.ready(),
            self.workflow.ready()
        );
    }
}

/// The site's authority, as the workflow service asks it.
#[derive(Debug)]
struct Issuer(Arc<Site>);

impl workflow::redeeming::Issuer for Issuer {
    fn issue(&self, role: Role, csr: &[u8]) -> Result<Issued, NotIssued> {
        let (certificate, expires) = match self.0.certify(role, csr) {
            Ok(made) => made,
            Err(authority::Error::Request(_)) => return Err(NotIssued::Request),
            Err(error) => return Err(NotIssued::Authority(error.into())),
        };
        Ok(Issued { certificate, expires })
    }
}
