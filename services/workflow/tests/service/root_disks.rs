//! Templates with `.disk`: the disk that the hint of the machine finds, or that of its occupant.

use tinwright::HardwareId;
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::render_template_request::Source;
use tinwright::workflow::v1::{CreateWorkflowRequest, RenderTemplateRequest};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::site::{Site, request};

const TEMPLATE: &str = r#"
name: disk
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: image2disk, environment: {DEST_DISK: "{{ .disk }}", IMG_URL: "http://192.0.2.1/d"}}
"#;

/// Creates a workflow on `machine`, whose occupant it names. Returns the environment of its action.
async fn create(site: &mut Site, machine: HardwareId) -> Result<Vec<String>, Status> {
    let request = CreateWorkflowRequest {
        template_data: TEMPLATE.into(),
        occupied_by: site.instances.occupant(machine),
        values: std::collections::BTreeMap::new(),
        ..request(machine)
    };
    let created = site.workflows().create_workflow(request).await?.into_inner().workflow.unwrap();
    let environment = &site.get(&created.id).await.actions[0].environment;
    Ok(environment.iter().filter(|it| it.starts_with("DEST_DISK")).cloned().collect())
}

#[tokio::test]
async fn the_hint_of_the_occupant_replaces_that_of_the_machine() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_disks(machine, &["A1", "B2"], Some("serial=A1"));
    assert_eq!(create(&mut site, machine).await.unwrap(), ["DEST_DISK=/dev/disk/by-id/scsi-SA1"]);
    site.instances.occupy(machine, "i");
    assert_eq!(create(&mut site, machine).await.unwrap(), ["DEST_DISK=/dev/disk/by-id/scsi-SA1"]);
    let root_disk = Some(Box::new("serial=B2".parse().unwrap()));
    let hinted = Instance { id: "i".into(), root_disk, ..Instance::default() };
    site.instances.set(machine, hinted.clone());
    assert_eq!(create(&mut site, machine).await.unwrap(), ["DEST_DISK=/dev/disk/by-id/scsi-SB2"]);
    site.instances.set(machine, Instance { state: State::Deprovisioning.into(), ..hinted });
    let cleaned = create(&mut site, machine).await.unwrap();
    assert_eq!(cleaned, ["DEST_DISK=/dev/disk/by-id/scsi-SA1"], "a clean-up is the site's");
}

#[tokio::test]
async fn no_workflow_is_created_while_the_root_disk_is_not_found() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let refused = async |site: &mut Site| {
        let refused = create(site, machine).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        (refused.get_details_error_info().unwrap().reason, refused.message().to_owned())
    };
    assert_eq!(refused(&mut site).await.0, "ROOT_DISK_MISSING", "no inventory");
    site.hardware.set_disks(machine, &["A1", "B2"], None);
    let (reason, text) = refused(&mut site).await;
    assert_eq!(reason, "ROOT_DISK_AMBIGUOUS");
    assert!(text.ends_with(": sda1 (serial A1), sdb2 (serial B2)"), "{text}");
    site.hardware.set_disks(machine, &["A1", "B2"], Some("serial=C3"));
    assert_eq!(refused(&mut site).await.0, "ROOT_DISK_MISSING");
    let listed = site
        .workflows()
        .list_workflows(tinwright::workflow::v1::ListWorkflowsRequest::default())
        .await;
    assert_eq!(listed.unwrap().into_inner().workflows, []);
    site.hardware.set_disks(machine, &["A1"], None);
    assert!(create(&mut site, machine).await.is_ok(), "its only disk");
}

/// Renders the template for `machine` and its occupant. Returns the disks that are erased.
async fn render(
    site: &mut Site,
    machine: HardwareId,
    occupied_by: &str,
) -> Result<Vec<String>, Status> {
    let request = RenderTemplateRequest {
        source: Some(Source::TemplateData(TEMPLATE.into())),
        hardware_id: machine.to_string(),
        occupied_by: occupied_by.into(),
        ..RenderTemplateRequest::default()
    };
    let rendered = site.templates().render_template(request).await?.into_inner();
    Ok(rendered.erasures.into_iter().flat_map(|erasure| erasure.disks).collect())
}

#[tokio::test]
async fn a_template_is_rendered_with_the_hint_of_the_occupant_that_is_named() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_disks(machine, &["A1", "B2"], Some("serial=A1"));
    let root_disk = Some(Box::new("serial=B2".parse().unwrap()));
    let hinted = Instance { id: "i".into(), root_disk, ..Instance::default() };
    site.instances.set(machine, hinted.clone());
    for (occupied_by, disk) in [("i", "/dev/disk/by-id/scsi-SB2"), ("", "/dev/disk/by-id/scsi-SA1")]
    {
        assert_eq!(render(&mut site, machine, occupied_by).await.unwrap(), [disk]);
    }
    let refused = render(&mut site, machine, "j").await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().reason, "OCCUPANT");
    site.instances.set(machine, Instance { state: State::Deprovisioning.into(), ..hinted });
    let cleaned = render(&mut site, machine, "i").await.unwrap();
    assert_eq!(cleaned, ["/dev/disk/by-id/scsi-SA1"], "a clean-up is the site's");
}
