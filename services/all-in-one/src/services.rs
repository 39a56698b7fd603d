//! The services that own records: creates them, serves them together, and runs them.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures_util::future::OptionFuture;
use hardware::{HardwareRecords, Peers};
use power::{Bmcs, HardwareDirectory, Jobs, PlaintextHttp, TenantMachines, Timing};
use runtime::Channel;
use runtime::access;
use runtime::address_claims::AddressClaims;
use runtime::admission::{self, Admission};
use runtime::authority::SiteAuthority;
use runtime::boot_token::BootTokens;
use runtime::call_metrics::{self, CallMetrics};
use runtime::neighbour::NeighbourTable;
use runtime::overdue_metric::OverdueMetric;
use runtime::revocation::{Revocations, refuse_revoked};
use runtime::seal::Seal;
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use runtime::{Caller, Clock, authority};
use store::Store;
use store::records::CheckReport;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use uuid::Uuid;
use workflow::worker_enrollment::{IssueError, IssuedCertificate};

use crate::config::{Config, Service, Storage};
use crate::endpoints::{CallerEndpoints, Endpoints};
use crate::events::refusals::{self, Refusals};
use crate::events::{OwnerEvents, origin};
use crate::metrics::{ObjectFeeds, WorkerMetrics};
use crate::overdue;
use crate::reflection::with_reflection;
use crate::site_keys::KeyRotation;
use crate::subnet_import;

/// The largest request to the health service, which has the name of a service. Everybody may call it.
const MAX_HEALTH_REQUEST_BYTES: usize = 4096;

/// The services of this process that own records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    address: Option<address::Api>,
    backups: Option<store::backup::Api>,
    hardware: Option<hardware::Api>,
    identity: Option<identity::Api>,
    site_events: Option<identity::EventApi>,
    instance: Option<instance::Api>,
    node: Option<node::Api>,
    power: Option<power::Api>,
    workflow: Option<workflow::Api>,
    events: OwnerEvents,
}

impl Services {
    /// Creates the services over `store`. They call each other by `endpoints`, and refuse what edges in `revocations` made. Their
    /// watches end at `stop`.
    pub(crate) fn new(
        config: &Config,
        store: &Arc<dyn Store>,
        site: &Arc<SiteAuthority>,
        endpoints: &CallerEndpoints,
        revocations: &Revocations,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let (store, stop) = (|| store.clone(), || stop.clone());
        let clear =
            if config.insecure_bmcs { PlaintextHttp::Allowed } else { PlaintextHttp::Refused };
        let bmcs = Bmcs::new(store(), Seal::new(site.keys(), "bmc")?, clear, Clock::system());
        let tokens = BootTokens::new(site.keys())?.accepting_edges(revocations.clone());
        let (tokens, issuer) = (Arc::new(tokens), Arc::new(Issuer(site.clone())));
        let serves = |service| config.split.serves(service);
        let neighbours = serves(Service::Workflow).then(|| NeighbourTable::open(Clock::system()));
        let neighbours = neighbours.transpose().context("opening the kernel's neighbour table")?;
        let owned = Service::OWNERS.into_iter().filter(|owner| serves(*owner));
        let owned = owned.map(|owner| owner.to_string());
        Ok(Self {
            address: serves(Service::Address).then(|| {
                let Endpoints { hardware, identity, instance, leases, .. } =
                    endpoints.of(Service::Address);
                let machines = address::machines::InterfaceDirectory::new(hardware, instance);
                address::Api::new(store(), identity, machines, Clock::system(), stop())
                    .with_leases(address::leases::Leases::new(leases))
            }),
            backups: config.split.owns_records().then(|| store::backup::Api::new(store())),
            events: OwnerEvents::new(&store(), owned, stop()),
            hardware: serves(Service::Hardware).then(|| {
                let Endpoints { address, instance, workflow, power, .. } =
                    endpoints.of(Service::Hardware);
                let records = HardwareRecords::new(store(), Clock::system())
                    .with_claims(AddressClaims::new("hardware", address));
                let peers = Peers::new(instance, workflow, power);
                hardware::Api::new(records, peers, stop())
            }),
            site_events: serves(Service::Identity)
                .then(|| identity::EventApi::new(endpoints.of(Service::Identity).owners(), stop())),
            identity: serves(Service::Identity).then(|| {
                let rotation = KeyRotation::new(site.clone(), Some(store()));
                let (resealer, clock) = (Arc::new(rotation), Clock::system());
                let Endpoints { address, instance, workflow, .. } = endpoints.of(Service::Identity);
                let objects = identity::TenantObjects::new(instance, workflow, address);
                identity::Api::new(store(), objects, site.clone(), resealer, clock, stop())
            }),
            instance: serves(Service::Instance).then(|| {
                let Endpoints { address, hardware, identity, workflow, power, .. } =
                    endpoints.of(Service::Instance);
                let peers =
                    instance::CalledServices { address, hardware, identity, workflow, power };
                instance::Api::new(store(), peers, Clock::system(), stop())
            }),
            node: serves(Service::Node).then(|| {
                let Endpoints { hardware, instance, workflow, .. } = endpoints.of(Service::Node);
                let called = node::CalledServices { hardware, instance, workflow };
                let name = process_name(config);
                let is_only = !matches!(config.store, Storage::Etcd(_));
                let own = node::servers::ServerName { name, is_only };
                node::Api::new(store(), called, own, Clock::system(), stop())
            }),
            power: serves(Service::Power).then(|| {
                let Endpoints { hardware, instance, workflow, .. } = endpoints.of(Service::Power);
                let directory = HardwareDirectory::new(hardware.clone());
                let machines = TenantMachines::new(hardware, instance, workflow);
                let jobs = Jobs::new(bmcs, process_name(config)).with_machines(machines);
                power::Api::new(jobs, Timing::default(), stop()).with_hardware(directory)
            }),
            workflow: neighbours.map(|neighbours| {
                let Endpoints { hardware, identity, instance, power, node, has_node, .. } =
                    endpoints.of(Service::Workflow);
                let node = has_node.then_some(node);
                let peers = workflow::CalledServices { hardware, identity, instance, power, node };
                let timeouts = config.worker_timeouts;
                let clock = Clock::system();
                workflow::Api::new(store(), peers, timeouts, tokens, issuer, clock, stop())
                    .with_neighbours(config.boot_source_check, Arc::new(neighbours))
            }),
        })
    }

    /// Returns the router of all services, the edges' services, `health` and reflection, behind access control.
    pub(crate) fn app<H: Health>(
        &self,
        health: HealthServer<H>,
        (boots, leases, metadata): (
            Option<netboot::Api>,
            Option<netboot::leases::Api>,
            Option<metadata::Api>,
        ),
        vitals: &Diagnostics,
        refusals: &Refusals,
        revocations: &Revocations,
    ) -> Router {
        let mut routes = Routes::builder();
        routes.add_service(health.max_decoding_message_size(MAX_HEALTH_REQUEST_BYTES));
        let Self { address, hardware, identity, site_events, instance, power, workflow, .. } =
            self.clone();
        let Self { events, backups, node, .. } = self.clone();
        routes.add_service(events.into_service());
        site_events.map(|it| routes.add_service(it.into_service()));
        backups.map(|it| routes.add_service(it.into_service()));
        if let Some(hardware) = hardware {
            routes.add_service(hardware.hardware_service());
            routes.add_service(hardware.location_service()).add_service(hardware.model_service());
            routes.add_service(hardware.unknown_machine_service());
        }
        if let Some(address) = address {
            routes.add_service(address.subnet_service()).add_service(address.grant_service());
            routes.add_service(address.claim_service());
            routes.add_service(address.location_binding_service());
        }
        if let Some(identity) = identity {
            routes.add_service(identity.tenant_service()).add_service(identity.identity_service());
        }
        instance.map(|it| routes.add_service(it.into_service()));
        if let Some(node) = node {
            routes.add_service(node.node_service()).add_service(node.stack_service());
        }
        power.map(|it| routes.add_service(it.into_service()));
        if let Some(workflow) = workflow {
            routes.add_service(workflow.template_service());
            routes.add_service(workflow.workflow_service());
            routes.add_service(workflow.worker_service());
        }
        boots.map(|it| routes.add_service(it.into_service()));
        leases.map(|it| routes.add_service(it.into_service()));
        metadata.map(|it| routes.add_service(it.into_service()));
        let descriptors = [tinwright::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
        let app = with_reflection(routes.routes().into_axum_router(), descriptors);
        let metrics = vitals.register_common(CallMetrics::new);
        let admission = vitals.register(Admission::new);
        let (refusals, revocations) = (refusals.clone(), revocations.clone());
        let workers = vitals.register(|registry| WorkerMetrics::new(registry, Clock::system()));
        let checks = CallChecks { metrics, refusals, admission, revocations, workers };
        let checks = Arc::new(checks);
        app.layer(from_fn_with_state(checks, checked))
    }

    /// Returns `channel` for each service of this process whose objects are counted.
    pub(crate) fn object_feeds(&self, channel: &Channel) -> ObjectFeeds {
        ObjectFeeds {
            hardware: self.hardware.as_ref().map(|_| channel.clone()),
            workflow: self.workflow.as_ref().map(|_| channel.clone()),
            instance: self.instance.as_ref().map(|_| channel.clone()),
            power: self.power.as_ref().map(|_| channel.clone()),
        }
    }

    /// Starts the background tasks of the services.
    pub(crate) fn start(&self, refusals: &Refusals, tier: &mut Tier) {
        let Self { address, hardware, identity, instance, node, power, workflow, events, .. } =
            self.clone();
        events.start(refusals, tier);
        let stop = || tier.stop.clone();
        address.map(|it| tier.tasks.spawn(it.run(stop())));
        hardware.map(|it| tier.tasks.spawn(it.run(stop())));
        identity.map(|it| tier.tasks.spawn(it.run(stop())));
        instance.map(|it| tier.tasks.spawn(it.run(stop())));
        node.map(|it| tier.tasks.spawn(it.run(stop())));
        power.map(|it| tier.tasks.spawn(it.run(stop())));
        workflow.map(|it| tier.tasks.spawn(it.run(stop())));
    }

    /// Starts to import the subnets of the file, if this process serves addresses and has a file with subnets.
    pub(crate) fn import_subnets(&self, config: &Config, vitals: &Diagnostics, tier: &mut Tier) {
        let (Some(address), false) = (&self.address, config.subnets.is_empty()) else { return };
        let (grants, subnets) = (address.grants().clone(), config.subnets.clone());
        let import = subnet_import::run(grants, subnets, vitals.clone());
        let stop = tier.stop.clone();
        tier.tasks.spawn(async move {
            stop.run_until_cancelled(import).await;
            // A task of a tier runs until the stop.
            stop.cancelled().await;
            Ok(())
        });
    }

    /// Starts to look for objects that stay in a state for too long.
    pub(crate) fn follow_overdue(&self, metric: &OverdueMetric, tier: &mut Tier) {
        let Self { hardware, instance, power, workflow, .. } = self;
        if let Some(api) = hardware {
            overdue::follow(api.mirror(), metric, tier);
        }
        if let Some(api) = instance {
            overdue::follow(api.mirror(), metric, tier);
        }
        if let Some(api) = power {
            overdue::follow(api.job_mirror(), metric, tier);
        }
        if let Some(api) = workflow {
            overdue::follow(api.mirror(), metric, tier);
        }
    }

    /// Compares the records of all services with their indexes; with `mend`, repairs the indexes.
    pub(crate) async fn check(&self, mend: bool) -> anyhow::Result<CheckReport> {
        let Self { address, hardware, identity, instance, node, power, workflow, .. } = self;
        let reports = [
            OptionFuture::from(address.as_ref().map(|it| it.check(mend))).await.transpose()?,
            OptionFuture::from(hardware.as_ref().map(|it| it.check(mend))).await.transpose()?,
            OptionFuture::from(identity.as_ref().map(|it| it.check(mend))).await.transpose()?,
            OptionFuture::from(instance.as_ref().map(|it| it.check(mend))).await.transpose()?,
            OptionFuture::from(node.as_ref().map(|it| it.check(mend))).await.transpose()?,
            OptionFuture::from(power.as_ref().map(|it| it.check(mend))).await.transpose()?,
            OptionFuture::from(workflow.as_ref().map(|it| it.check(mend))).await.transpose()?,
        ];
        Ok(reports.into_iter().flatten().fold(CheckReport::default(), CheckReport::and))
    }

    /// Resolves once all services are ready.
    pub(crate) async fn ready(&self) {
        let Self { address, hardware, identity, instance, node, power, workflow, .. } = self;
        tokio::join!(
            OptionFuture::from(address.as_ref().map(address::Api::ready)),
            OptionFuture::from(hardware.as_ref().map(hardware::Api::ready)),
            OptionFuture::from(identity.as_ref().map(identity::Api::ready)),
            OptionFuture::from(instance.as_ref().map(instance::Api::ready)),
            OptionFuture::from(node.as_ref().map(node::Api::ready)),
            OptionFuture::from(power.as_ref().map(power::Api::ready)),
            OptionFuture::from(workflow.as_ref().map(workflow::Api::ready)),
        );
    }
}

/// The layers that every call passes before its service, and its response after it.
#[derive(Debug)]
struct CallChecks {
    metrics: CallMetrics,
    refusals: Refusals,
    admission: Admission,
    revocations: Revocations,
    workers: WorkerMetrics,
}

/// Makes a call behind all checks. They are one middleware: if each were its own, each would allocate its future and a copy of
/// what is below it.
async fn checked(
    State(checks): State<Arc<CallChecks>>,
    request: Request,
    service: Next,
) -> Response {
    let CallChecks { metrics, refusals, admission, revocations, workers } = &*checks;
    workers.record(request.extensions().get());
    // The innermost first.
    let next = |request| origin::record(request, |request| service.run(request));
    let next = |request| refuse_revoked(revocations, request, next);
    let next = |request| admission::admit(admission, request, next);
    let next = |request| access::check(request, next);
    let next = |request| refusals::record(refusals, request, next);
    call_metrics::record(metrics, request, next).await
}

/// Returns the name of this process among those that run power jobs, and have streams of nodes. It is constant if only one process can open
/// the store: the next process then continues its jobs at once.
fn process_name(config: &Config) -> String {
    match config.store {
        Storage::Sled | Storage::Memory => "the only one".into(),
        Storage::Etcd(_) => Uuid::new_v4().to_string(),
    }
}

/// The site's authority as the issuer of the workflow service.
#[derive(Debug)]
struct Issuer(Arc<SiteAuthority>);

impl workflow::worker_enrollment::Issuer for Issuer {
    fn issue(&self, caller: &Caller, csr: &[u8]) -> Result<IssuedCertificate, IssueError> {
        let (certificate, expires) = match self.0.certify(caller, csr) {
            Ok(made) => made,
            Err(authority::Error::Request(_)) => return Err(IssueError::Request),
            Err(error) => return Err(IssueError::Authority(error.into())),
        };
        Ok(IssuedCertificate { certificate, expires })
    }
}

#[cfg(test)]
mod tests;
