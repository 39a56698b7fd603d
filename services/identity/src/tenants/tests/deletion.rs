//! Deletions of tenants, and creations of their objects at the same time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use runtime::Channel;
use runtime::tenants::{IfUnanswered, TenantDirectory};
use store::events::{EventLog, Origin, with_origin};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_server::{GrantService, GrantServiceServer};
use tinwright::event::v1::EventFilter;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_server::{TemplateService, TemplateServiceServer};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use super::*;

/// Lets a test decide when each step of a task happens.
#[derive(Clone, Debug)]
struct Steps {
    allowed: Arc<Semaphore>,
    reached: Arc<Semaphore>,
}

impl Steps {
    fn new() -> Self {
        Self { allowed: Arc::new(Semaphore::new(0)), reached: Arc::new(Semaphore::new(0)) }
    }

    /// Waits, in the task, until the test allows the next step.
    async fn pause(&self) {
        self.reached.add_permits(1);
        self.allowed.acquire().await.unwrap().forget();
    }

    /// Spawns a task that pauses before its first step.
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let steps = self.clone();
        tokio::spawn(async move {
            steps.pause().await;
            let result = work.await;
            steps.reached.close();
            result
        })
    }

    /// Waits until the task pauses, or has ended.
    async fn wait(&self) {
        if let Ok(reached) = self.reached.acquire().await {
            reached.forget();
        }
    }

    /// Lets the task make a step, and waits for the next pause, or for its end.
    async fn step(&self) {
        self.allowed.add_permits(1);
        self.wait().await;
    }
}

/// The other owners: the ids of the tenant's instances and templates, and the steps of the listing.
#[derive(Clone, Debug)]
struct Owners {
    instances: Arc<Mutex<BTreeSet<String>>>,
    templates: Arc<Mutex<BTreeSet<String>>>,
    grants: Arc<Mutex<Vec<(String, addr::GrantState)>>>,
    listing: Option<Steps>,
}

/// Implements calls that the identity service never makes.
macro_rules! never_called {
    ($($name:ident($request:ty) -> $response:ty;)*) => {$(
        async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
            Err(Status::unimplemented(stringify!($name)))
        }
    )*};
}

impl InstanceService for Owners {
    async fn list_instances(
        &self,
        request: Request<inst::ListInstancesRequest>,
    ) -> Result<Response<inst::ListInstancesResponse>, Status> {
        let request = request.into_inner();
        assert_eq!((request.tenant.as_str(), request.show_deleted), ("acme", false));
        if let Some(steps) = &self.listing {
            steps.pause().await;
        }
        let ids = self.instances.lock().unwrap().clone().into_iter();
        let instances = ids.map(|id| inst::Instance { id, ..Default::default() }).collect();
        if let Some(steps) = &self.listing {
            steps.pause().await;
        }
        Ok(Response::new(inst::ListInstancesResponse { instances, ..Default::default() }))
    }

    type WatchInstancesStream = BoxStream<inst::WatchInstancesResponse>;

    never_called! {
        create_instance(inst::CreateInstanceRequest) -> inst::CreateInstanceResponse;
        get_instance(inst::GetInstanceRequest) -> inst::GetInstanceResponse;
        update_instance(inst::UpdateInstanceRequest) -> inst::UpdateInstanceResponse;
        delete_instance(inst::DeleteInstanceRequest) -> inst::DeleteInstanceResponse;
        retry_instance(inst::RetryInstanceRequest) -> inst::RetryInstanceResponse;
        reinstall_instance(inst::ReinstallInstanceRequest) -> inst::ReinstallInstanceResponse;
        restart_instance(inst::RestartInstanceRequest) -> inst::RestartInstanceResponse;
        report_phone_home(inst::ReportPhoneHomeRequest) -> inst::ReportPhoneHomeResponse;
        report_script(inst::ReportScriptRequest) -> inst::ReportScriptResponse;
        report_stack_running(inst::ReportStackRunningRequest) -> inst::ReportStackRunningResponse;
        watch_instances(inst::WatchInstancesRequest) -> Self::WatchInstancesStream;
    }
}

impl TemplateService for Owners {
    async fn list_templates(
        &self,
        request: Request<wf::ListTemplatesRequest>,
    ) -> Result<Response<wf::ListTemplatesResponse>, Status> {
        assert_eq!(request.get_ref().tenant, "acme");
        let ids = self.templates.lock().unwrap().clone().into_iter();
        let templates = ids.map(|id| wf::Template { id, ..Default::default() }).collect();
        Ok(Response::new(wf::ListTemplatesResponse { templates, ..Default::default() }))
    }

    type WatchTemplatesStream = BoxStream<wf::WatchTemplatesResponse>;

    never_called! {
        create_template(wf::CreateTemplateRequest) -> wf::CreateTemplateResponse;
        get_template(wf::GetTemplateRequest) -> wf::GetTemplateResponse;
        update_template(wf::UpdateTemplateRequest) -> wf::UpdateTemplateResponse;
        delete_template(wf::DeleteTemplateRequest) -> wf::DeleteTemplateResponse;
        render_template(wf::RenderTemplateRequest) -> wf::RenderTemplateResponse;
        watch_templates(wf::WatchTemplatesRequest) -> Self::WatchTemplatesStream;
    }
}

impl GrantService for Owners {
    async fn list_grants(
        &self,
        request: Request<addr::ListGrantsRequest>,
    ) -> Result<Response<addr::ListGrantsResponse>, Status> {
        assert_eq!(request.get_ref().tenant, "acme");
        let wanted = request.get_ref().state();
        let grants = self.grants.lock().unwrap().clone().into_iter();
        let grants = grants.filter(|(_, state)| *state == wanted);
        let grants = grants.map(|(id, _)| addr::Grant { id, ..Default::default() }).collect();
        Ok(Response::new(addr::ListGrantsResponse { grants, ..Default::default() }))
    }

    type WatchGrantsStream = BoxStream<addr::WatchGrantsResponse>;

    never_called! {
        create_grant(addr::CreateGrantRequest) -> addr::CreateGrantResponse;
        get_grant(addr::GetGrantRequest) -> addr::GetGrantResponse;
        confirm_grant(addr::ConfirmGrantRequest) -> addr::ConfirmGrantResponse;
        attach_grant(addr::AttachGrantRequest) -> addr::AttachGrantResponse;
        detach_grant(addr::DetachGrantRequest) -> addr::DetachGrantResponse;
        release_grant(addr::ReleaseGrantRequest) -> addr::ReleaseGrantResponse;
        watch_grants(addr::WatchGrantsRequest) -> Self::WatchGrantsStream;
    }
}

impl Owners {
    fn new(listing: Option<Steps>) -> Self {
        Self {
            instances: Arc::default(),
            templates: Arc::default(),
            grants: Arc::default(),
            listing,
        }
    }

    /// Serves them, and returns their client.
    fn objects(&self) -> TenantObjects {
        let routes = Routes::new(InstanceServiceServer::new(self.clone()))
            .add_service(TemplateServiceServer::new(self.clone()))
            .add_service(GrantServiceServer::new(self.clone()));
        let channel = Channel::to(routes);
        TenantObjects::new(channel.clone(), channel.clone(), channel)
    }
}

/// Owners without objects.
pub(crate) fn no_objects() -> TenantObjects {
    Owners::new(None).objects()
}

/// The tenant service with GetTenant only.
struct TenantFinder(Tenants);

impl pb::tenant_service_server::TenantService for TenantFinder {
    async fn get_tenant(
        &self,
        request: Request<pb::GetTenantRequest>,
    ) -> Result<Response<pb::GetTenantResponse>, Status> {
        nouns::get(self.0.records(), request).await
    }

    type WatchTenantsStream = BoxStream<pb::WatchTenantsResponse>;

    never_called! {
        create_tenant(pb::CreateTenantRequest) -> pb::CreateTenantResponse;
        list_tenants(pb::ListTenantsRequest) -> pb::ListTenantsResponse;
        update_tenant(pb::UpdateTenantRequest) -> pb::UpdateTenantResponse;
        delete_tenant(pb::DeleteTenantRequest) -> pb::DeleteTenantResponse;
        watch_tenants(pb::WatchTenantsRequest) -> Self::WatchTenantsStream;
    }
}

fn directory(tenants: &Tenants) -> TenantDirectory {
    let finder = TenantFinder(tenants.clone());
    let server = pb::tenant_service_server::TenantServiceServer::new(finder);
    TenantDirectory::new(Channel::to(Routes::new(server)))
}

/// All orders of three steps each of two tasks; true stands for the first task.
fn orders() -> impl Iterator<Item = Vec<bool>> {
    let orders = (0_u8..64).filter(|bits| bits.count_ones() == 3);
    orders.map(|bits| (0..6).map(|n| bits & 1 << n != 0).collect())
}

#[tokio::test]
async fn in_every_order_of_deletion_and_creation_no_object_is_left_without_its_tenant() {
    let (mut created_anyway, mut deleted) = (0, 0);
    for order in orders() {
        let Fixture { tenants, .. } = fixture();
        let id = tenants.create(named("acme"), None).await.unwrap().id.parse().unwrap();
        let (creation, deletion) = (Steps::new(), Steps::new());
        let owners = Owners::new(Some(deletion.clone()));
        let (found, stored) = (directory(&tenants), owners.instances.clone());
        // Steps: find the tenant; store the object; find the tenant again.
        let steps = creation.clone();
        let created = creation.spawn(async move {
            let (storing, storage) = (stored.clone(), stored);
            let create = async {
                steps.pause().await;
                storing.lock().unwrap().insert("i-1".into());
                steps.pause().await;
                Ok::<_, runtime::tenants::Error>("i-1".to_owned())
            };
            let take_back = |id: String| async move {
                storage.lock().unwrap().remove(&id);
                Ok(None)
            };
            found.create("tenant", "acme", IfUnanswered::TakeBack, create, take_back).await
        });
        // Steps: mark the tenant; list its objects; delete it, or remove the mark.
        let (removing, objects) = (tenants.clone(), owners.objects());
        let removed = deletion.spawn(async move { removing.delete(id, 0, &objects).await });
        for steps in [&creation, &deletion] {
            steps.wait().await;
        }
        for is_creation in &order {
            let steps = if *is_creation { &creation } else { &deletion };
            steps.step().await;
        }
        // A creation that was refused at once had fewer steps.
        let (created, removed) = (created.await.unwrap(), removed.await.unwrap());
        let tenant = tenants.records().get(&id.to_string()).await.unwrap();
        let has_object = !owners.instances.lock().unwrap().is_empty();
        assert_eq!((has_object, tenant.is_none()), (created.is_ok(), removed.is_ok()), "{order:?}");
        assert!(tenant.is_some() || !has_object, "{order:?}");
        assert!(tenant.is_none_or(|tenant| !tenant.deleting), "{order:?}: the mark stays");
        created_anyway += u32::from(has_object);
        deleted += u32::from(removed.is_ok());
    }
    assert!(created_anyway > 0 && deleted > 0, "{created_anyway} created, {deleted} deleted");
}

#[tokio::test]
async fn a_tenant_with_objects_stays_and_the_error_names_them() {
    let Fixture { tenants, .. } = fixture();
    let id = tenants.create(named("acme"), None).await.unwrap().id.parse().unwrap();
    let owners = Owners::new(None);
    owners.instances.lock().unwrap().extend((1..=5).map(|n| format!("i-{n}")));
    owners.templates.lock().unwrap().insert("t-1".into());
    let objects = owners.objects();
    let refused = Status::from(tenants.delete(id, 0, &objects).await.unwrap_err());
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "TENANT_IN_USE");
    let named = "tenant acme has 5 instances (i-1, i-2, i-3, …), 1 template (t-1): ";
    assert!(refused.message().starts_with(named), "{refused}");
    let tenant = tenants.records().require_by(NAME_INDEX, "acme").await.unwrap();
    assert!(!tenant.deleting);
    owners.instances.lock().unwrap().clear();
    assert!(tenants.delete(id, 0, &objects).await.is_err(), "it has a template");
    owners.templates.lock().unwrap().clear();
    let granted = |id: &str, state| (id.to_owned(), state);
    *owners.grants.lock().unwrap() = vec![
        granted("g-1", addr::GrantState::Pending),
        granted("g-2", addr::GrantState::Active),
        granted("g-3", addr::GrantState::Released),
    ];
    let refused = Status::from(tenants.delete(id, 0, &objects).await.unwrap_err());
    let named = "tenant acme has 1 pending grant (g-1), 1 grant (g-2): ";
    assert!(refused.message().starts_with(named), "{refused}");
    owners.grants.lock().unwrap().drain(..2);
    tenants.delete(id, 0, &objects).await.unwrap();
    let missing = directory(&tenants).require("instance.tenant", "acme").await.unwrap_err();
    let missing = Status::from(missing);
    assert_eq!(missing.code(), Code::InvalidArgument);
    assert_eq!(missing.message(), "instance.tenant: there is no tenant acme");
}

#[tokio::test]
async fn a_tenant_stays_while_an_owner_does_not_answer() {
    let Fixture { tenants, .. } = fixture();
    let id = tenants.create(named("acme"), None).await.unwrap().id.parse().unwrap();
    let nobody = Channel::unconnected();
    let objects = TenantObjects::new(nobody.clone(), nobody.clone(), nobody.clone());
    let refused = Status::from(tenants.delete(id, 0, &objects).await.unwrap_err());
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("instance service"), "{refused}");
    assert!(!tenants.records().require_by(NAME_INDEX, "acme").await.unwrap().deleting);
    let unknown = TenantDirectory::new(nobody).require("tenant", "acme").await.unwrap_err();
    let unknown = Status::from(unknown);
    assert_eq!(unknown.code(), Code::Unavailable);
    assert!(unknown.message().contains("identity service"), "{unknown}");
}

#[tokio::test]
async fn a_deletion_that_a_killed_server_left_is_finished_by_repeating_it() {
    let Fixture { tenants, .. } = fixture();
    let old = tenants.create(named("acme"), None).await.unwrap();
    let marked = pb::Tenant { deleting: true, ..old.clone() };
    tenants.records().replace(&old, marked).await.unwrap();
    let refused = directory(&tenants).require("tenant", "acme").await.unwrap_err();
    assert_eq!(Status::from(refused).message(), "tenant: tenant acme is being deleted");
    let refused = tenants.require("tenant", "acme").await.unwrap_err();
    assert_eq!(refused.to_string(), "tenant: tenant acme is being deleted");
    tenants.delete(old.id.parse().unwrap(), 0, &no_objects()).await.unwrap();
    assert_eq!(tenants.records().get(&old.id).await.unwrap(), None);
}

#[tokio::test]
async fn neither_the_mark_of_a_deletion_nor_a_new_identity_is_an_event_of_the_tenant() {
    let Fixture { store, tenants, .. } = fixture();
    let call = "TenantService/DeleteTenant";
    let origin = Arc::new(Origin { call, is_change_request: true, ..Origin::default() });
    let owners = Owners::new(None);
    owners.templates.lock().unwrap().insert("t-1".into());
    let objects = owners.objects();
    let work = async {
        let made = tenants.create(named("acme"), None).await.unwrap();
        let id = made.id.parse().unwrap();
        assert!(tenants.delete(id, 0, &objects).await.is_err());
        let lock = tenants.to_reference("tenant", "acme").await.unwrap();
        tenants.records().commit(lock).await.unwrap();
        let update = pb::Tenant { description: "rockets".into(), revision: 0, ..made };
        tenants.update(update, &["description".into()]).await.unwrap();
        owners.templates.lock().unwrap().clear();
        tenants.delete(id, 0, &objects).await.unwrap();
    };
    with_origin(Some(origin), work).await;
    let log = EventLog::new(store, "identity");
    let events = log.list(&EventFilter::default(), "", 100).await.unwrap().records;
    let texts: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["created", "changed description", "deleted"]);
}
