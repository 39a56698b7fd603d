//! The services that own records: creates them, serves them together, and runs them.

use std::sync::Arc;

use address::leases::Leases;
use address::machines::InterfaceDirectory;
use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures_util::future::join_all;
use hardware::{HardwareRecords, Peers};
use identity::{EventApi, TenantObjects};
use node::servers::ServerName;
use power::{Bmcs, HardwareDirectory, Jobs, PlaintextHttp, TenantMachines, Timing};
use runtime::access;
use runtime::address_claims::AddressClaims;
use runtime::admission::{self, Admission};
use runtime::authority::SiteAuthority;
use runtime::boot_token::BootTokens;
use runtime::call_metrics::{self, CallMetrics};
use runtime::neighbour::{NeighbourTable, SourceCheck};
use runtime::revocation::{Revocations, refuse_revoked};
use runtime::seal::Seal;
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use runtime::{Caller, Clock, authority};
use store::Store;
use store::hosted::HostedService as _;
use store::records::CheckReport;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use uuid::Uuid;
use workflow::lifecycle::WorkerTimeouts;
use workflow::worker_enrollment::{IssueError, IssuedCertificate};

use crate::config::{Config, Netboot, Service, Storage};
use crate::endpoints::Endpoints;
use crate::events::refusals::{self, Refusals};
use crate::events::{OwnerEvents, origin};
#[cfg(test)]
use crate::hosted::HostedKind;
use crate::hosted::{Followers, Hosted};
use crate::metrics::WorkerMetrics;
use crate::reflection::with_reflection;
use crate::site_keys::KeyRotation;

/// The largest request to the health service, which has the name of a service. Everybody may call it.
const MAX_HEALTH_REQUEST_BYTES: usize = 4096;

/// Settings of services.
#[derive(Clone, Debug, Default)]
struct ServiceSettings {
    insecure_bmcs: bool,
    worker_timeouts: WorkerTimeouts,
    /// None: the owners of addresses are not asked.
    source_check: Option<SourceCheck>,
    /// True if other processes may use the store at the same time.
    has_replicas: bool,
    /// URLs below which this process serves public files.
    own_files: Vec<String>,
    images: image::Settings,
}

impl ServiceSettings {
    fn new(config: &Config) -> Self {
        Self {
            insecure_bmcs: config.insecure_bmcs,
            worker_timeouts: config.worker_timeouts,
            source_check: Some(config.boot_source_check),
            has_replicas: matches!(config.store, Storage::Etcd(_)),
            images: config.images.service.clone(),
            own_files: config.netboot.as_ref().map(Netboot::files_urls).unwrap_or_default(),
        }
    }
}

/// The parts that services are made of.
struct Parts<'a> {
    settings: ServiceSettings,
    store: &'a Arc<dyn Store>,
    site: &'a Arc<SiteAuthority>,
    endpoints: &'a Endpoints,
    revocations: &'a Revocations,
    /// Ends the watches.
    stop: &'a CancellationToken,
}

type Made = anyhow::Result<Box<dyn Hosted>>;
type Make = fn(&Parts<'_>) -> Made;

/// The services that own records.
const TABLE: [(Service, Make); 8] = [
    (Service::Address, address),
    (Service::Hardware, hardware),
    (Service::Identity, identity),
    (Service::Image, image),
    (Service::Instance, instance),
    (Service::Node, node),
    (Service::Power, power),
    (Service::Workflow, workflow),
];

fn address(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Address, service);
    let machines = InterfaceDirectory::new(to(Service::Hardware), to(Service::Instance));
    let leases = Leases::new(parts.endpoints.find(Service::Address, Service::Netboot));
    let identity = to(Service::Identity);
    let api = address::Api::new(parts.store(), identity, machines, Clock::system(), parts.stop());
    Ok(Box::new(api.with_leases(leases)))
}

fn hardware(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Hardware, service);
    let claims = AddressClaims::new("hardware", to(Service::Address));
    let records = HardwareRecords::new(parts.store(), Clock::system()).with_claims(claims);
    let peers = Peers::new(to(Service::Instance), to(Service::Workflow), to(Service::Power));
    Ok(Box::new(hardware::Api::new(records, peers, parts.stop())))
}

fn identity(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Identity, service);
    let resealer = Arc::new(KeyRotation::new(parts.site.clone(), Some(parts.store())));
    let objects =
        TenantObjects::new(to(Service::Instance), to(Service::Workflow), to(Service::Address));
    let objects = objects.with_images(parts.endpoints.find(Service::Identity, Service::Image));
    let site = parts.site.clone();
    let clock = Clock::system();
    let api = identity::Api::new(parts.store(), objects, site, resealer, clock, parts.stop());
    Ok(Box::new(api))
}

fn image(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Image, service);
    let called = image::CalledServices {
        identity: to(Service::Identity),
        instance: to(Service::Instance),
        workflow: to(Service::Workflow),
    };
    let settings = &parts.settings.images;
    let (clock, stop) = (Clock::system(), parts.stop());
    Ok(Box::new(image::Api::open(parts.store(), called, settings, clock, stop)?))
}

fn instance(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Instance, service);
    let called = instance::CalledServices {
        address: to(Service::Address),
        hardware: to(Service::Hardware),
        identity: to(Service::Identity),
        image: parts.endpoints.find(Service::Instance, Service::Image),
        workflow: to(Service::Workflow),
        power: to(Service::Power),
    };
    let api = instance::Api::new(parts.store(), called, Clock::system(), parts.stop());
    Ok(Box::new(api.with_own_files(parts.settings.own_files.clone())))
}

fn node(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Node, service);
    let called = node::CalledServices {
        hardware: to(Service::Hardware),
        instance: to(Service::Instance),
        workflow: to(Service::Workflow),
    };
    let own = ServerName { name: parts.process(), is_only: !parts.settings.has_replicas };
    Ok(Box::new(node::Api::new(parts.store(), called, own, Clock::system(), parts.stop())))
}

fn power(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Power, service);
    let plaintext = match parts.settings.insecure_bmcs {
        true => PlaintextHttp::Allowed,
        false => PlaintextHttp::Refused,
    };
    let seal = Seal::new(parts.site.keys(), "bmc")?;
    let bmcs = Bmcs::new(parts.store(), seal, plaintext, Clock::system());
    let directory = HardwareDirectory::new(to(Service::Hardware));
    let machines =
        TenantMachines::new(to(Service::Hardware), to(Service::Instance), to(Service::Workflow));
    let jobs = Jobs::new(bmcs, parts.process()).with_machines(machines);
    let api = power::Api::new(jobs, Timing::default(), parts.stop());
    Ok(Box::new(api.with_hardware(directory)))
}

fn workflow(parts: &Parts<'_>) -> Made {
    let to = |service| parts.endpoints.channel(Service::Workflow, service);
    let called = workflow::CalledServices {
        hardware: to(Service::Hardware),
        identity: to(Service::Identity),
        instance: to(Service::Instance),
        image: parts.endpoints.find(Service::Workflow, Service::Image),
        power: to(Service::Power),
        node: parts.endpoints.find(Service::Workflow, Service::Node),
    };
    let timeouts = parts.settings.worker_timeouts;
    let tokens = BootTokens::new(parts.site.keys())?.accepting_edges(parts.revocations.clone());
    let tokens = Arc::new(tokens);
    let issuer = Arc::new(Issuer(parts.site.clone()));
    let clock = Clock::system();
    let api =
        workflow::Api::new(parts.store(), called, timeouts, tokens, issuer, clock, parts.stop());
    let Some(source) = parts.settings.source_check else { return Ok(Box::new(api)) };
    let neighbours = NeighbourTable::open(Clock::system());
    let neighbours = neighbours.context("opening the kernel's neighbour table")?;
    Ok(Box::new(api.with_neighbours(source, Arc::new(neighbours))))
}

impl Parts<'_> {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Makes the services for which `is_served` is true.
    fn make(&self, is_served: impl Fn(Service) -> bool) -> anyhow::Result<Vec<Box<dyn Hosted>>> {
        let served = TABLE.into_iter().filter(|(service, _)| is_served(*service));
        served.map(|(_, make)| make(self)).collect()
    }

    /// Returns the name of this process among those that run power jobs, and have streams of nodes.
    /// It is constant if only one process can open the store: the next process then continues its
    /// jobs at once.
    fn process(&self) -> String {
        match self.settings.has_replicas {
            false => "the only one".into(),
            true => Uuid::new_v4().to_string(),
        }
    }
}

/// The services of this process that own records.
#[derive(Default)]
pub(crate) struct Services {
    hosted: Vec<Box<dyn Hosted>>,
    backups: Option<store::backup::Api>,
    site_events: Option<EventApi>,
    events: OwnerEvents,
}

impl Services {
    /// Creates the services over `store`. They call each other by `endpoints`, and refuse what edges in `revocations` made. Their
    /// watches end at `stop`.
    pub(crate) fn new(
        config: &Config,
        store: Option<&Arc<dyn Store>>,
        site: &Arc<SiteAuthority>,
        endpoints: &Endpoints,
        revocations: &Revocations,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let Some(store) = store else { return Ok(Self::default()) };
        let settings = ServiceSettings::new(config);
        let parts = Parts { settings, store, site, endpoints, revocations, stop };
        let serves = |service| config.split.serves(service);
        let owned = Service::OWNERS.into_iter().filter(|owner| serves(*owner));
        let owners = Service::OWNERS.into_iter().filter_map(|owner| {
            Some((owner.to_string(), endpoints.find(Service::Identity, owner)?))
        });
        let site_events = || EventApi::new(owners, stop.clone());
        let owns_records = config.split.owns_records();
        Ok(Self {
            hosted: parts.make(serves)?,
            backups: owns_records.then(|| store::backup::Api::new(store.clone(), image::Api::NAME)),
            site_events: serves(Service::Identity).then(site_events),
            events: OwnerEvents::new(store, owned.map(|owner| owner.to_string()), stop.clone()),
        })
    }

    /// Creates all services over `store`, whichever this process serves. They call nobody, and are
    /// not started: their records are looked at.
    pub(crate) fn offline(
        store: &Arc<dyn Store>,
        site: &Arc<SiteAuthority>,
    ) -> anyhow::Result<Self> {
        let parts = Parts {
            settings: ServiceSettings::default(),
            store,
            site,
            endpoints: &Endpoints::unconnected(),
            revocations: &Revocations::default(),
            stop: &CancellationToken::new(),
        };
        Ok(Self { hosted: parts.make(|_| true)?, ..Self::default() })
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
        routes.add_service(self.events.clone().into_service());
        self.site_events.clone().map(|it| routes.add_service(it.into_service()));
        self.backups.clone().map(|it| routes.add_service(it.into_service()));
        self.hosted.iter().for_each(|it| it.add_routes(&mut routes));
        boots.map(|it| routes.add_service(it.into_service()));
        leases.map(|it| routes.add_service(it.into_service()));
        metadata.map(|it| routes.add_service(it.into_service()));
        let descriptors = [tinwright::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
        let app = with_reflection(routes.routes().into_axum_router(), descriptors);
        let app = self.hosted.iter().filter_map(|it| it.http_routes()).fold(app, Router::merge);
        let metrics = vitals.register_common(CallMetrics::new);
        let admission = vitals.register(Admission::new);
        let (refusals, revocations) = (refusals.clone(), revocations.clone());
        let workers = vitals.register(|registry| WorkerMetrics::new(registry, Clock::system()));
        let checks = CallChecks { metrics, refusals, admission, revocations, workers };
        let checks = Arc::new(checks);
        app.layer(from_fn_with_state(checks, checked))
    }

    /// Starts the background tasks of the services.
    pub(crate) fn start(&self, refusals: &Refusals, tier: &mut Tier) {
        self.events.start(refusals, tier);
        self.hosted.iter().for_each(|it| it.start(tier));
    }

    /// Starts what follows the records of the services.
    pub(crate) fn start_followers(&self, mut followers: Followers<'_>) {
        self.hosted.iter().for_each(|it| it.start_followers(&mut followers));
    }

    /// Returns the kinds of records of all services.
    #[cfg(test)]
    pub(crate) fn kinds(&self) -> Vec<HostedKind> {
        self.hosted.iter().flat_map(|it| it.kinds()).collect()
    }

    /// Compares the records of all services with their indexes; with `mend`, repairs the indexes.
    pub(crate) async fn check(&self, mend: bool) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::default();
        for service in &self.hosted {
            report = report.and(service.check(mend).await?);
        }
        Ok(report)
    }

    /// Encrypts the secrets of all services with the newest key. Returns the number of changed
    /// records.
    pub(crate) async fn reseal(&self) -> anyhow::Result<usize> {
        let mut changed = 0;
        for service in &self.hosted {
            let resealed = service.reseal().await;
            let name = service.name();
            changed += resealed.with_context(|| format!("encrypting the records of {name}"))?;
        }
        Ok(changed)
    }

    /// Resolves once all services are ready.
    pub(crate) async fn ready(&self) {
        join_all(self.hosted.iter().map(|it| it.ready())).await;
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
