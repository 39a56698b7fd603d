//! Tenants: the workflows of their instances, and their templates; the fake of the identity service.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use runtime::{Caller, Channel, Role};
use tinwright::HardwareId;
use tinwright::hardware::v1::Policy;
use tinwright::hardware::v1::policy::BootMethod;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::tenant_service_server::TenantService;
use tinwright::instance::v1::Instance;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::get_template_request::By;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

use crate::site::{Site, TWO, request, soon};

/// The tenants that the next searches find, or their errors; every tenant exists after them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeTenants(Arc<Mutex<VecDeque<Result<id::Tenant, Status>>>>);

/// Implements calls that the workflow service never makes.
macro_rules! never_called {
    ($($name:ident($request:ty) -> $response:ty;)*) => {$(
        async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
            Err(Status::unimplemented(stringify!($name)))
        }
    )*};
}

impl TenantService for FakeTenants {
    async fn get_tenant(
        &self,
        _request: Request<id::GetTenantRequest>,
    ) -> Result<Response<id::GetTenantResponse>, Status> {
        let found = self.0.lock().unwrap().pop_front();
        let tenant = Some(found.unwrap_or_else(|| Ok(id::Tenant::default()))?);
        Ok(Response::new(id::GetTenantResponse { tenant }))
    }

    type WatchTenantsStream = BoxStream<id::WatchTenantsResponse>;

    never_called! {
        create_tenant(id::CreateTenantRequest) -> id::CreateTenantResponse;
        list_tenants(id::ListTenantsRequest) -> id::ListTenantsResponse;
        update_tenant(id::UpdateTenantRequest) -> id::UpdateTenantResponse;
        delete_tenant(id::DeleteTenantRequest) -> id::DeleteTenantResponse;
        watch_tenants(id::WatchTenantsRequest) -> Self::WatchTenantsStream;
    }
}

/// A connection of an admin of `tenant`; of the site if it is empty.
fn channel(site: &mut Site, tenant: &str) -> Channel {
    let admin = Caller::from(Role::Admin);
    let caller = match tenant {
        "" => admin,
        name => admin.with_tenant(name.parse().unwrap()).unwrap(),
    };
    site.channel_of(Some(caller))
}

/// Creates a workflow on a machine that an instance of `tenant` occupies.
async fn workflow(site: &mut Site, tenant: &str) -> pb::Workflow {
    let machine = HardwareId::new();
    let (id, tenant) = (format!("of-{tenant}"), tenant.to_owned());
    site.instances.set(machine, Instance { id, tenant, ..Instance::default() });
    site.workflow(machine, TWO).await
}

/// Asserts that `status` says that the `noun` `id` is not there, and no more.
fn assert_missing(status: &Status, noun: &str, id: &str) {
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert_eq!(status.message(), format!("{noun} {id} not found"));
}

#[tokio::test]
async fn a_tenant_does_not_see_from_which_image_its_machine_is_booted() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let url = "http://192.0.2.1/osie.iso";
    site.hardware.set_policy(
        machine,
        Policy {
            boot_method: BootMethod::VirtualMedia.into(),
            boot_image_url: url.into(),
            ..Policy::default()
        },
    );
    let of_acme = Instance { id: "i".into(), tenant: "acme".into(), ..Instance::default() };
    site.instances.set(machine, of_acme);
    let made = site.workflow(machine, TWO).await;
    for (tenant, expected) in [("", url), ("acme", "")] {
        let mut client = WorkflowServiceClient::new(channel(&mut site, tenant));
        let request = pb::GetWorkflowRequest { id: made.id.clone(), ..Default::default() };
        let found = client.get_workflow(request).await.unwrap().into_inner().workflow.unwrap();
        assert_eq!(found.boot_image_url, expected, "{tenant:?}");
    }
}

#[tokio::test]
async fn a_tenant_finds_the_workflows_of_its_instances_only() {
    let mut site = Site::new().await;
    let own = workflow(&mut site, "acme").await;
    let others = [workflow(&mut site, "other").await, workflow(&mut site, "").await];
    assert_eq!([&own, &others[0], &others[1]].map(|it| it.tenant.as_str()), ["acme", "other", ""]);
    let mut client = WorkflowServiceClient::new(channel(&mut site, "acme"));
    for hardware_id in [String::new(), own.hardware_id.clone(), others[0].hardware_id.clone()] {
        let is_of_other = hardware_id == others[0].hardware_id;
        let list = pb::ListWorkflowsRequest { hardware_id, ..Default::default() };
        let found = client.list_workflows(list).await.unwrap().into_inner().workflows;
        let ids: Vec<_> = found.iter().map(|it| &it.id).collect();
        assert_eq!(ids, if is_of_other { vec![] } else { vec![&own.id] });
    }
    let get = |id: &str| pb::GetWorkflowRequest { id: id.into(), ..Default::default() };
    assert_eq!(client.get_workflow(get(&own.id)).await.unwrap().into_inner().workflow, Some(own));
    for other in &others {
        let missing = client.get_workflow(get(&other.id)).await.unwrap_err();
        assert_missing(&missing, "workflow", &other.id);
        let log = pb::ReadLogRequest {
            workflow_id: other.id.clone(),
            action_id: other.actions[0].id.clone(),
            ..Default::default()
        };
        let missing = client.read_log(log).await.unwrap_err();
        assert_missing(&missing, "workflow", &other.id);
    }
}

#[tokio::test]
async fn a_watch_of_a_tenant_shows_its_workflows_only() {
    let mut site = Site::new().await;
    let other = workflow(&mut site, "other").await;
    let own = workflow(&mut site, "acme").await;
    let mut client = WorkflowServiceClient::new(channel(&mut site, "acme"));
    let mut watch =
        client.watch_workflows(pb::WatchWorkflowsRequest::default()).await.unwrap().into_inner();
    let cancel = |id: &str| pb::CancelWorkflowRequest { id: id.into() };
    for id in [&other.id, &own.id] {
        site.workflows().cancel_workflow(cancel(id)).await.unwrap();
    }
    soon(async {
        loop {
            match watch.message().await.unwrap().unwrap().into_event() {
                Some(WatchEvent::Put(found)) if found.end_time.is_some() => {
                    assert_eq!(found.id, own.id);
                    return;
                }
                Some(WatchEvent::Put(found)) => assert_eq!(found.id, own.id),
                Some(WatchEvent::Synced) => {}
                event => panic!("{event:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_tenant_does_not_learn_whose_workflow_its_own_one_waits_for() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let of_site = site.workflow(machine, TWO).await;
    let (id, tenant) = ("of-acme".to_owned(), "acme".to_owned());
    site.instances.set(machine, Instance { id, tenant, ..Instance::default() });
    let own = site.workflow(machine, TWO).await;
    let waits = site.waiting(&own.id, &format!("behind workflow {}", of_site.id)).await;
    assert_eq!(waits.blocked_by, of_site.id);
    let mut client = WorkflowServiceClient::new(channel(&mut site, "acme"));
    let get = pb::GetWorkflowRequest { id: own.id.clone(), ..Default::default() };
    let got = client.get_workflow(get).await.unwrap().into_inner().workflow;
    let list = client.list_workflows(pb::ListWorkflowsRequest::default()).await;
    let listed = list.unwrap().into_inner().workflows.into_iter().next();
    let mut watch =
        client.watch_workflows(pb::WatchWorkflowsRequest::default()).await.unwrap().into_inner();
    let watched = match soon(watch.message()).await.unwrap().unwrap().into_event() {
        Some(WatchEvent::Put(found)) => Some(found),
        event => panic!("{event:?}"),
    };
    for shown in [got, listed, watched].map(Option::unwrap) {
        assert_eq!((shown.id.as_str(), shown.blocked_by.as_str()), (own.id.as_str(), ""));
        assert_eq!(shown.state_reason, "behind other workflows of the machine");
    }
}

/// Creates a template `t` as a caller of `tenant`.
async fn template(site: &mut Site, tenant: &str) -> pb::Template {
    let template = pb::Template { name: "t".into(), data: TWO.into(), ..Default::default() };
    let request = pb::CreateTemplateRequest { template: Some(template), request_id: "r".into() };
    let mut client = TemplateServiceClient::new(channel(site, tenant));
    client.create_template(request).await.unwrap().into_inner().template.unwrap()
}

#[tokio::test]
async fn tenants_have_templates_of_their_own_and_read_those_of_the_site() {
    let mut site = Site::new().await;
    // The request id and the name are the same for all of them.
    let of_site = template(&mut site, "").await;
    let other = template(&mut site, "other").await;
    let mut client = TemplateServiceClient::new(channel(&mut site, "acme"));
    let by_name = || pb::GetTemplateRequest { by: Some(By::Name("t".into())) };
    let found = client.get_template(by_name()).await.unwrap().into_inner().template;
    assert_eq!(found, Some(of_site.clone()));
    let own = template(&mut site, "acme").await;
    assert_eq!([&of_site, &other, &own].map(|it| it.tenant.as_str()), ["", "other", "acme"]);
    let found = client.get_template(by_name()).await.unwrap().into_inner().template;
    assert_eq!(found, Some(own.clone()));
    let list = pb::ListTemplatesRequest::default();
    let found = client.list_templates(list).await.unwrap().into_inner().templates;
    assert_eq!(found.iter().map(|it| &it.id).collect::<Vec<_>>(), [&of_site.id, &own.id]);
    let delete = |id: &str| pb::DeleteTemplateRequest { id: id.into(), ..Default::default() };
    let update = |id: &str| pb::UpdateTemplateRequest {
        template: Some(pb::Template { id: id.into(), name: "u".into(), ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["name".into()] }),
    };
    assert_missing(
        &client.delete_template(delete(&other.id)).await.unwrap_err(),
        "template",
        &other.id,
    );
    assert_missing(
        &client.update_template(update(&other.id)).await.unwrap_err(),
        "template",
        &other.id,
    );
    for refused in [
        client.delete_template(delete(&of_site.id)).await.map(|_| ()).unwrap_err(),
        client.update_template(update(&of_site.id)).await.map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    client.update_template(update(&own.id)).await.unwrap();
    client.delete_template(delete(&own.id)).await.unwrap();
}

#[tokio::test]
async fn a_template_of_a_tenant_is_for_its_instances_only() {
    let mut site = Site::new().await;
    let template = template(&mut site, "acme").await;
    for (tenant, is_allowed) in [("acme", true), ("other", false), ("", false)] {
        let machine = HardwareId::new();
        let tenant = tenant.to_owned();
        site.instances.set(machine, Instance { id: "i".into(), tenant, ..Instance::default() });
        let request = pb::CreateWorkflowRequest {
            template_id: template.id.clone(),
            occupied_by: "i".into(),
            ..request(machine)
        };
        match site.workflows().create_workflow(request).await {
            Ok(_) => assert!(is_allowed),
            Err(missing) => {
                assert!(!is_allowed);
                assert_missing(&missing, "template", &template.id);
            }
        }
    }
}

#[tokio::test]
async fn a_template_of_a_missing_tenant_is_refused_and_leaves_nothing() {
    let mut site = Site::new().await;
    let (exists, missing) = (Ok(id::Tenant::default()), Err(Status::not_found("")));
    let deleting = Ok(id::Tenant { deleting: true, ..id::Tenant::default() });
    let no_answer = Err(Status::unavailable(""));
    let mut client = TemplateServiceClient::new(channel(&mut site, "acme"));
    let template = pb::Template { name: "t".into(), data: TWO.into(), ..Default::default() };
    let request = pb::CreateTemplateRequest { template: Some(template), request_id: "r".into() };
    // The second answer comes after the template was stored.
    for answers in [vec![], vec![exists]] {
        for (answer, code) in [
            (missing.clone(), Code::InvalidArgument),
            (deleting.clone(), Code::InvalidArgument),
            (no_answer.clone(), Code::Unavailable),
        ] {
            *site.tenants.0.lock().unwrap() = answers.iter().cloned().chain([answer]).collect();
            let refused = client.create_template(request.clone()).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
            let names_field = refused.message().starts_with("template.tenant: ");
            assert_eq!(names_field, code == Code::InvalidArgument, "{refused}");
            let list = pb::ListTemplatesRequest::default();
            let found = client.list_templates(list).await.unwrap().into_inner().templates;
            assert!(found.is_empty(), "{found:?}");
        }
    }
    let created = template_of(client.create_template(request).await);
    let list =
        |tenant: &str| pb::ListTemplatesRequest { tenant: tenant.into(), ..Default::default() };
    for (tenant, expected) in [("", vec![created.clone()]), ("acme", vec![created]), ("b", vec![])]
    {
        let found = client.list_templates(list(tenant)).await.unwrap().into_inner().templates;
        let ids = |all: &[pb::Template]| all.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&expected), "{tenant}");
    }
}

fn template_of(created: Result<Response<pb::CreateTemplateResponse>, Status>) -> pb::Template {
    created.unwrap().into_inner().template.unwrap()
}
