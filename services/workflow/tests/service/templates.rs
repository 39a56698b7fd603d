//! Templates that are rendered without being run, the values of workflows, and templates that are in use.

use runtime::Role;
use tinwright::HardwareId;
use tinwright::hardware::v1::Policy;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::render_template_request::Source;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::machines::SECRET;
use crate::site::{Site, TWO, request};

/// Renders `data` with these values, as `role`.
async fn render(
    site: &mut Site,
    role: Role,
    data: &str,
    values: &[(&str, &str)],
) -> Result<pb::RenderTemplateResponse, Status> {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let request = pb::RenderTemplateRequest {
        source: Some(Source::TemplateData(data.into())),
        hardware_id: HardwareId::new().to_string(),
        values: values.collect(),
        ..pb::RenderTemplateRequest::default()
    };
    let mut client = TemplateServiceClient::new(site.channel(Some(role)));
    Ok(client.render_template(request).await?.into_inner())
}

#[tokio::test]
async fn a_rendered_template_shows_what_would_run_and_nothing_is_stored() {
    let mut site = Site::new().await;
    let values = [("url", "http://192.0.2.1/d"), ("ulr", "x")];
    let data = TWO.replace("DEST_DISK: /dev/sda, ", "DEST_DISK: /dev/sda, IMG_VERIFIES: no, ");
    let rendered = render(&mut site, Role::Operator, &data, &values).await.unwrap();
    assert_eq!((rendered.template_name.as_str(), rendered.actions.len()), ("two", 2));
    assert!(rendered.rendered.contains("IMG_URL: \"http://192.0.2.1/d\""), "{}", rendered.rendered);
    let wanted = [
        "action \"write\": image2disk has no variable IMG_VERIFIES: did you mean IMG_VERIFY?",
        "the template does not use the value ulr",
    ];
    assert_eq!(rendered.warnings, wanted);
    let all = pb::ListWorkflowsRequest::default();
    assert!(site.workflows().list_workflows(all).await.unwrap().into_inner().workflows.is_empty());
    let all = pb::ListTemplatesRequest::default();
    assert!(site.templates().list_templates(all).await.unwrap().into_inner().templates.is_empty());
}

#[tokio::test]
async fn a_template_is_rendered_with_what_its_caller_may_see() {
    let mut site = Site::new().await;
    let data = TWO.replace("{{ .url }}", "{{ .Hardware.UserData }}");
    let refused = render(&mut site, Role::Operator, &data, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(!refused.message().contains(SECRET), "{refused}");
    let rendered = render(&mut site, Role::Admin, &data, &[]).await.unwrap();
    assert!(rendered.rendered.contains(SECRET), "an admin may read it");
}

#[tokio::test]
async fn a_template_that_its_worker_would_refuse_is_not_rendered() {
    let mut site = Site::new().await;
    let data = TWO.replace("image: image2disk", "image: \"{{ .url }}\"");
    for (image, text) in [
        ("imagetodisk", "action \"write\": no action imagetodisk: did you mean image2disk?"),
        ("archive2disk", "action \"write\": archive2disk needs ARCHIVE_URL: "),
    ] {
        let values = [("url", image)];
        let refused = render(&mut site, Role::Operator, &data, &values).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        // A value is hidden in errors, unless the template has it.
        let text = text.replace(image, "***");
        let found = refused.message().replace(image, "***");
        assert!(found.starts_with(&format!("template_data: {text}")), "{refused}");
    }
    let data = TWO.replace("retries: 1", "if: \"false\", retries: 1");
    let skipped = data.replace("IMG_URL: \"{{ .url }}\"", "LANG: C");
    assert!(render(&mut site, Role::Operator, &skipped, &[]).await.is_ok(), "it is skipped");
}

#[tokio::test]
async fn a_workflow_with_a_value_that_its_template_does_not_use_is_refused() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let with = |key: &str, instance_id: &str| {
        let mut create = pb::CreateWorkflowRequest {
            template_data: TWO.replace("{{ .url }}", "{{ .url }}{{ if false }}{{ .img }}{{ end }}"),
            instance_id: instance_id.into(),
            ..request(machine)
        };
        create.values.insert(key.into(), "x".into());
        create
    };
    let refused = site.workflows().create_workflow(with("imag", "")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let text = "values: has values that the template does not use: imag (did you mean img?)";
    assert_eq!(refused.message(), text);
    site.workflows().create_workflow(with("img", "")).await.unwrap();
    site.instances.occupy(machine, "i");
    site.workflows_of_instances().create_workflow(with("imag", "i")).await.unwrap();
}

#[tokio::test]
async fn a_missing_value_names_the_one_that_was_given() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let mut create = pb::CreateWorkflowRequest { template_data: TWO.into(), ..request(machine) };
    create.instance_id = "i".into();
    create.values = [("ulr".to_owned(), "x".to_owned())].into();
    site.instances.occupy(machine, "i");
    let refused = site.workflows_of_instances().create_workflow(create).await.unwrap_err();
    let text = "no field \"url\" in the values given: the value \"ulr\" was given";
    assert!(refused.message().ends_with(text), "{refused}");
}

#[tokio::test]
async fn a_plan_names_the_values_that_neither_template_uses() {
    let mut site = Site::new().await;
    let create = async |site: &mut Site, name: &str, value: &str| {
        let data = TWO.replace(".url", value);
        let template = pb::Template { name: name.into(), data, ..Default::default() };
        let request = pb::CreateTemplateRequest { template: Some(template), ..Default::default() };
        site.templates().create_template(request).await.unwrap().into_inner().template.unwrap().id
    };
    let (template_id, deprovision_template_id) =
        (create(&mut site, "a", ".img").await, create(&mut site, "b", ".wipe").await);
    let values = ["img", "wipe", "imgs"].map(|key| (key.to_owned(), "x".to_owned())).into();
    let plan = pb::PlanWorkflowRequest {
        template_id,
        deprovision_template_id,
        hardware_id: HardwareId::new().to_string(),
        values,
        ..Default::default()
    };
    let planned = site.workflows().plan_workflow(plan).await.unwrap().into_inner();
    assert_eq!(planned.unused_values, ["imgs"]);
}

#[tokio::test]
async fn a_template_that_is_referred_to_is_deleted_by_force_only() {
    let mut site = Site::new().await;
    let template = pb::Template { data: TWO.into(), ..Default::default() };
    let request = pb::CreateTemplateRequest { template: Some(template), ..Default::default() };
    let made = site.templates().create_template(request).await.unwrap().into_inner();
    let id = made.template.unwrap().id;
    for n in 0..3 {
        let template_id = id.clone();
        let hostname = format!("web-{n}");
        let user = Instance { id: format!("i{n}"), hostname, template_id, ..Default::default() };
        site.instances.set(HardwareId::new(), user);
    }
    let policy = Policy { deprovision_template_id: id.clone(), ..Policy::default() };
    site.hardware.set_policy(HardwareId::new(), Policy::default());
    site.hardware.set_policy(HardwareId::new(), policy);
    let delete = |force| pb::DeleteTemplateRequest { id: id.clone(), force, ..Default::default() };
    let refused = site.templates().delete_template(delete(false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "IN_USE");
    let text = refused.message();
    assert!(text.starts_with("template two is used by instance web-"), "{text}");
    assert!(text.contains(" and 1 more: delete it with --force"), "{text}");
    site.templates().delete_template(delete(true)).await.unwrap();
}
