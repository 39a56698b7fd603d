//! The gRPC service of the instances.

mod error;
mod order;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nouns::{Served as _, Viewer};
use runtime::address_claims::AddressClaims;
use runtime::{Clock, access};
use store::Store;
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records::{self, Selector};
use store::serving;
use tinwright::Stored as _;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tinwright::requests::Page;
use tinwright::secret::Secrets as _;
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, InstanceId, TenantName, check};
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;
use tonic::{Request, Response, Status};

use self::error::{peer_status, shown};
use self::order::take_order;
use crate::check::is_node;
use crate::image_check::ImageCheck;
use crate::instances::machine_reports::{
    PhoneHome, ScriptOutcome, StackRunning, may_run_former_system,
};
use crate::instances::{EXTERNAL_ID, InstanceKind, Instances, external_value};
use crate::peers::{CalledServices, Peers};
use crate::reconcile::Reconciler;
use crate::restart::{Restart, restart};

/// Interval at which expired records of deleted instances are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Serves [`Instances`] over gRPC, and reconciles them.
#[derive(Clone, Debug)]
pub struct Api {
    instances: Instances,
    mirror: Mirror<InstanceKind>,
    peers: Peers,
    images: ImageCheck,
    stop: CancellationToken,
}

impl Api {
    /// Serves the instances in `store` and calls `services`. Records have the times of `clock`.
    /// Watches end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        services: CalledServices,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let claims = AddressClaims::new("instance", services.address.clone());
        let instances = Instances::new(store, clock).with_claims(claims);
        let mirror = Mirror::new(instances.records.clone());
        let (peers, images) = (Peers::new(services), ImageCheck::new(Vec::new()));
        Self { instances, mirror, peers, images, stop }
    }

    /// Sets the URLs below which this site serves files of its own: plans of all callers look there for images.
    pub fn with_own_files(self, urls: Vec<String>) -> Self {
        Self { images: ImageCheck::new(urls), ..self }
    }

    /// Returns the selected instance, if it is one of `tenant`; with `show_deleted`, also a deleted
    /// one. The error says then if the record of a deleted one has expired.
    async fn find(
        &self,
        selector: &Selector,
        show_deleted: bool,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Instance, Status> {
        let mut found = self.instances.records.select(selector).await;
        if let (Err(records::Error::Missing { .. }), true) = (&found, show_deleted)
            && let Some(deleted) = self.instances.select_deleted(selector).await?
        {
            found = Ok(deleted);
        }
        match found {
            Ok(instance) if instance.is_visible_to(tenant) => return Ok(instance),
            Ok(_) | Err(records::Error::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if show_deleted && self.instances.was_deleted(selector, tenant).await? {
            let (Selector::Id(name) | Selector::Index(_, name)) = selector;
            return Err(status::deleted("INSTANCE_DELETED", "instance", name));
        }
        Err(selector.missing("instance").into())
    }

    /// Passes if a caller may change the instance `id`. One that is limited to `tenant` has to own
    /// it, and cannot `update` what is the site's. It remains the owner: neither the tenant nor the
    /// id changes hands.
    async fn check_change(
        &self,
        id: InstanceId,
        update: Option<(&pb::Instance, &[String])>,
        tenant: Option<&TenantName>,
    ) -> Result<(), Status> {
        if tenant.is_none() {
            return Ok(());
        }
        let old = self.find(&Selector::Id(id.to_string()), false, tenant).await?;
        match update {
            Some((update, paths)) => check_site_fields(&old, update, paths),
            None => Ok(()),
        }
    }

    /// Returns `update` with the image that it gives the instance `id`, as the instance's tenant sees
    /// it. One that `is_installed` with it needs the content of the image that it has then.
    async fn with_image(
        &self,
        id: InstanceId,
        mut update: pb::Instance,
        paths: &[String],
        is_installed: bool,
    ) -> Result<pb::Instance, Status> {
        let is_named = paths.iter().any(|path| path == "image_id");
        let is_set = is_named || paths.is_empty() && !is_installed;
        let old = self.instances.records.get(&id.to_string()).await?.unwrap_or_default();
        let wanted = if is_set { &update.image_id } else { &old.image_id };
        if wanted.is_empty() || (*wanted == old.image_id && !is_installed) {
            return Ok(update);
        }
        let image = self.peers.images.usable(wanted, &old.tenant).await?;
        if is_set {
            (update.image_id, update.image_sha256) = (image.id, image.sha256);
        }
        Ok(update)
    }

    /// Records `call` from the machine `hardware`, occupied by `instance` if that is given.
    async fn record_phone_home(
        &self,
        hardware: HardwareId,
        instance: Option<InstanceId>,
        mut call: PhoneHome,
    ) -> Result<(), Status> {
        let occupant = self.instances.occupant(hardware, instance).await?;
        // First, because that ends a workflow whose last action was to restart the machine.
        self.peers.report_boot(&occupant.hardware_id).await;
        if may_run_former_system(&occupant) {
            let has_run = self.peers.has_run_all_actions(&occupant.workflow_id).await;
            if has_run.map_err(|error| peer_status(&error))? {
                call = call.after_workflow(occupant.workflow_id);
            }
        }
        let record = |old: &pb::Instance, now| call.apply(old, now);
        self.instances.change_occupant(hardware, instance, record).await?;
        Ok(())
    }
}

impl HostedService for Api {
    const NAME: &'static str = "instance";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(InstanceServiceServer::new(self.clone()));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        visitor.bounded(&self.mirror);
        visitor.records(self.instances.deleted_records());
    }

    /// Follows the records, and reconciles.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let followed = hosted::follow(&self, &stop);
        let Self { instances, mirror, peers, .. } = self;
        let reconciler = Reconciler::new(instances.clone(), peers);
        tokio::join!(
            followed,
            Box::pin(reconciler.run(mirror, stop.clone())),
            stop.run_until_cancelled(expire_deleted(instances.clone())),
            Box::pin(instances.reconcile_claims(&stop)),
        );
        Ok(())
    }
}

impl InstanceService for Api {
    async fn create_instance(
        &self,
        request: Request<pb::CreateInstanceRequest>,
    ) -> Result<Response<pb::CreateInstanceResponse>, Status> {
        let caller = access::request_scope(&request);
        let tenant = access::tenant(&request).cloned();
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let mut instance = Violations::require("instance", request.instance)?;
        take_order(&mut instance, tenant.as_ref())?;
        Ok(Response::new(match request.validate_only {
            true => self.plan(instance, tenant.as_ref()).await?,
            false => self.create(instance, idempotent, tenant).await?,
        }))
    }

    async fn get_instance(
        &self,
        request: Request<pb::GetInstanceRequest>,
    ) -> Result<Response<pb::GetInstanceResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let tenant = access::tenant(&request).cloned();
        let pb::GetInstanceRequest { by, view: _, show_deleted } = request.into_inner();
        let selector = selector(by, tenant.as_ref())?;
        let found = self.find(&selector, show_deleted, tenant.as_ref()).await?;
        Ok(Response::new(pb::GetInstanceResponse { instance: Some(found.in_view(view)) }))
    }

    async fn list_instances(
        &self,
        request: Request<pb::ListInstancesRequest>,
    ) -> Result<Response<pb::ListInstancesResponse>, Status> {
        if !request.get_ref().show_deleted {
            return nouns::list_where(&self.mirror, request, has_image).await;
        }
        let viewer = Viewer::of(&request, request.get_ref().view())?;
        let request = request.into_inner();
        nouns::check_filter(&request)?;
        let keep = |it: &pb::Instance| {
            has_image(&request, it) && nouns::passes::<InstanceKind>(&viewer, &request, it)
        };
        let size = serving::page_size(request.page_size)?;
        let found = self.instances.list_with_deleted(&request.page_token, size, keep).await?;
        let objects = found.records.into_iter().map(|it| InstanceKind::show(&viewer, it)).collect();
        let next_page_token = found.next.unwrap_or_default();
        Ok(Response::new(Page { objects, next_page_token }.into()))
    }

    async fn update_instance(
        &self,
        request: Request<pb::UpdateInstanceRequest>,
    ) -> Result<Response<pb::UpdateInstanceResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::UpdateInstanceRequest { instance, update_mask } = request.into_inner();
        let mut update = Violations::require("instance", instance)?;
        let id: InstanceId = Violations::parse("instance.id", &update.id)?;
        update.id = id.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        self.check_change(id, Some((&update, &paths)), tenant.as_ref()).await?;
        let update = self.with_image(id, update, &paths, false).await?;
        let updated = Box::pin(self.instances.update(update, &paths)).await;
        let instance = shown(updated, tenant.as_ref())?;
        Ok(Response::new(pb::UpdateInstanceResponse { instance }))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().id))]
    async fn delete_instance(
        &self,
        request: Request<pb::DeleteInstanceRequest>,
    ) -> Result<Response<pb::DeleteInstanceResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::DeleteInstanceRequest { id, revision, force } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        self.check_change(id, None, tenant.as_ref()).await?;
        if force && tenant.is_some() {
            let text = "a tenant cannot delete with force: the machine would not be wiped";
            return Err(Status::permission_denied(text));
        }
        let instance = shown(self.instances.delete(id, revision, force).await, tenant.as_ref())?;
        Ok(Response::new(pb::DeleteInstanceResponse { instance }))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().id))]
    async fn retry_instance(
        &self,
        request: Request<pb::RetryInstanceRequest>,
    ) -> Result<Response<pb::RetryInstanceResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let id = Violations::parse("id", &request.into_inner().id)?;
        self.check_change(id, None, tenant.as_ref()).await?;
        let instance = shown(self.instances.retry(id).await, tenant.as_ref())?;
        Ok(Response::new(pb::RetryInstanceResponse { instance }))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().id))]
    async fn reinstall_instance(
        &self,
        request: Request<pb::ReinstallInstanceRequest>,
    ) -> Result<Response<pb::ReinstallInstanceResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ReinstallInstanceRequest { id, revision, instance, update_mask, validate_only } =
            request.into_inner();
        let id = Violations::parse("id", &id)?;
        let (update, paths) = (instance.unwrap_or_default(), update_mask.unwrap_or_default().paths);
        let changes = (!paths.is_empty()).then_some((&update, paths.as_slice()));
        self.check_change(id, changes, tenant.as_ref()).await?;
        let update = self.with_image(id, update, &paths, true).await?;
        if validate_only {
            let tenant = tenant.as_ref();
            let plan = self.plan_reinstallation(id, revision, update, &paths, tenant).await?;
            return Ok(Response::new(plan));
        }
        let reinstalled = self.instances.reinstall(id, revision, update, &paths).await;
        let instance = shown(reinstalled, tenant.as_ref())?;
        Ok(Response::new(pb::ReinstallInstanceResponse { instance, plan: None }))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().id))]
    async fn restart_instance(
        &self,
        request: Request<pb::RestartInstanceRequest>,
    ) -> Result<Response<pb::RestartInstanceResponse>, Status> {
        let caller = access::request_scope(&request);
        let tenant = access::tenant(&request).cloned();
        let pb::RestartInstanceRequest { id, force, request_id } = request.into_inner();
        let order = Restart::new(Violations::parse("id", &id)?, force, &caller, &request_id)?;
        self.check_change(order.instance, None, tenant.as_ref()).await?;
        let (instances, peers) = (self.instances.clone(), self.peers.clone());
        let restart = async move { Ok(restart(&instances, &peers, &order).await?) };
        let power_job_id = serving::to_the_end(Box::pin(restart)).await?;
        Ok(Response::new(pb::RestartInstanceResponse { power_job_id }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn report_phone_home(
        &self,
        request: Request<pb::ReportPhoneHomeRequest>,
    ) -> Result<Response<pb::ReportPhoneHomeResponse>, Status> {
        let pb::ReportPhoneHomeRequest { hardware_id, instance_id, host_keys, kind } =
            request.into_inner();
        let hardware = Violations::parse("hardware_id", &hardware_id)?;
        let named = Some(&instance_id).filter(|id| !id.is_empty());
        let instance = named.map(|id| Violations::parse("instance_id", id)).transpose()?;
        let call = PhoneHome::new(kind, host_keys);
        Box::pin(self.record_phone_home(hardware, instance, call)).await?;
        Ok(Response::new(pb::ReportPhoneHomeResponse {}))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().instance_id))]
    async fn report_script(
        &self,
        request: Request<pb::ReportScriptRequest>,
    ) -> Result<Response<pb::ReportScriptResponse>, Status> {
        let pb::ReportScriptRequest { hardware_id, instance_id, generation, started } =
            request.into_inner();
        let hardware = Violations::parse("hardware_id", &hardware_id)?;
        let instance = Violations::parse("instance_id", &instance_id)?;
        let outcome = ScriptOutcome { generation, started };
        let record = |old: &pb::Instance, now| outcome.apply(old, now);
        self.instances.change_occupant(hardware, Some(instance), record).await?;
        Ok(Response::new(pb::ReportScriptResponse {}))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().instance_id))]
    async fn report_stack_running(
        &self,
        request: Request<pb::ReportStackRunningRequest>,
    ) -> Result<Response<pb::ReportStackRunningResponse>, Status> {
        let pb::ReportStackRunningRequest { hardware_id, instance_id, generation, boot_time } =
            request.into_inner();
        let hardware = Violations::parse("hardware_id", &hardware_id)?;
        let instance = Violations::parse("instance_id", &instance_id)?;
        let boot_time = SystemTime::try_from(Violations::require("boot_time", boot_time)?);
        let boot_time = boot_time.map_err(|_| Violations::single("boot_time", "is not a time"))?;
        let report = StackRunning { generation, boot_time };
        let record = |old: &pb::Instance, now| report.apply(old, now);
        self.instances.change_occupant(hardware, Some(instance), record).await?;
        Ok(Response::new(pb::ReportStackRunningResponse {}))
    }

    type WatchInstancesStream = serving::Events<pb::WatchInstancesResponse>;

    async fn watch_instances(
        &self,
        request: Request<pb::WatchInstancesRequest>,
    ) -> Result<Response<Self::WatchInstancesStream>, Status> {
        nouns::watch(&self.mirror, &self.stop, request)
    }
}

/// True if `instance` has the image that `request` selects.
fn has_image(request: &pb::ListInstancesRequest, instance: &pb::Instance) -> bool {
    request.image_id.is_empty() || request.image_id == instance.image_id
}

/// Deletes the records of instances that were deleted long ago, every hour.
async fn expire_deleted(instances: Instances) {
    let mut hourly = tokio::time::interval(EXPIRY_INTERVAL);
    loop {
        hourly.tick().await;
        if let Err(error) = instances.expire_deleted().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "expired records of deleted instances were not removed; trying again in an hour"
            );
        }
    }
}

/// Returns what selects the instance. A caller of `tenant` may leave out the tenant of an external id.
fn selector(
    by: Option<pb::get_instance_request::By>,
    tenant: Option<&TenantName>,
) -> Result<Selector, Violations> {
    use pb::get_instance_request::By;
    Ok(match by {
        None => {
            let reason = "is missing: give id, hardware_id, address or external_id";
            return Err(Violations::single("by", reason));
        }
        Some(By::ExternalId(pb::ExternalId { tenant: of, external_id })) => {
            if external_id.is_empty() {
                return Err(Violations::single("external_id.external_id", "is missing"));
            }
            let of = match tenant {
                Some(own) if of.is_empty() => own.to_string(),
                _ => of,
            };
            Selector::Index(EXTERNAL_ID, external_value(&of, &external_id))
        }
        Some(By::Id(text)) => {
            Selector::Id(Violations::parse::<InstanceId>("id", &text)?.to_string())
        }
        Some(By::HardwareId(text)) => {
            let id: HardwareId = Violations::parse("hardware_id", &text)?;
            Selector::Index("occupant", id.to_string())
        }
        Some(By::Address(text)) => {
            let address = check::address(&text);
            let address = address.map_err(|reason| Violations::single("address", reason))?;
            Selector::Index("address", address.to_string())
        }
    })
}

/// Passes unless a tenant's `update` changes how the machine of its instance is cleaned (a template of its own might not wipe the
/// disks), who switches it, or the stack that it runs as a node.
fn check_site_fields(
    old: &pb::Instance,
    update: &pb::Instance,
    paths: &[String],
) -> Result<(), Status> {
    let is_clean_up_same = update.deprovision_template_id == old.deprovision_template_id;
    let is_power_same = update.power_management == old.power_management;
    let is_stack_same = !is_node(update) || update.os == old.os;
    for (field, is_same) in [
        ("deprovision_template_id", is_clean_up_same),
        ("power_management", is_power_same),
        ("image_stack", is_stack_same),
    ] {
        if !is_same && (paths.is_empty() || paths.iter().any(|path| path == field)) {
            return Err(Status::permission_denied(format!("a tenant cannot change {field}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod tenant_tests;
#[cfg(test)]
mod tests;
