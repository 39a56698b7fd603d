//! Root disks from the inventory to the workflow of an instance.

use runtime::Role;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{self as inst, get_instance_request::By};
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::support::{RunningServer, start, until};

const TEMPLATE: &str = r#"
name: disk
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: image2disk, environment: {DEST_DISK: "{{ .disk }}"}}
"#;

/// A machine with two SSDs, and clients of the services that know it.
struct Machine {
    id: String,
    template: String,
    instances: InstanceServiceClient<Channel>,
    workflows: WorkflowServiceClient<Channel>,
}

impl Machine {
    async fn new(server: &RunningServer) -> Self {
        let channel = server.channel(Some(Role::Admin)).await;
        let template = wf::Template { data: TEMPLATE.into(), ..Default::default() };
        let request = wf::CreateTemplateRequest { template: Some(template), ..Default::default() };
        let created = TemplateServiceClient::new(channel.clone()).create_template(request).await;
        let template = created.unwrap().into_inner().template.unwrap().id;
        let mac = "02:00:00:00:00:01".into();
        let hardware = hw::Hardware {
            interfaces: vec![hw::Interface { mac, ..Default::default() }],
            state: hw::State::Provisionable.into(),
            ..Default::default()
        };
        let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
        let created = server.hardware(Role::Admin).await.create_hardware(request).await;
        let id = created.unwrap().into_inner().hardware.unwrap().id;
        let instances = InstanceServiceClient::new(channel.clone());
        Self { id, template, instances, workflows: WorkflowServiceClient::new(channel) }
    }

    /// Reports the disks of the machine, as its worker does.
    async fn report(&self, server: &RunningServer) {
        let disk = |name: &str, serial: &str| hw::InventoryDisk {
            name: name.into(),
            serial: serial.into(),
            by_id: vec![format!("/dev/disk/by-id/ata-X_{serial}")],
            size_bytes: 480_000_000_000,
            ..Default::default()
        };
        let disks = vec![disk("sda", "A1"), disk("sdb", "B2")];
        let inventory = Some(hw::Inventory { disks, ..Default::default() });
        let request = hw::RecordInventoryRequest { hardware_id: self.id.clone(), inventory };
        server.hardware(Role::Service).await.record_inventory(request).await.unwrap();
    }

    async fn instance(&mut self) -> inst::Instance {
        let by = Some(By::HardwareId(self.id.clone()));
        let request = inst::GetInstanceRequest { by, ..Default::default() };
        self.instances.get_instance(request).await.unwrap().into_inner().instance.unwrap()
    }

    /// Waits until the instance has failed, and returns the reason.
    async fn failure(&mut self) -> String {
        let failed = async || self.instance().await.state() == inst::State::Failed;
        until(failed, "a failed instance").await;
        self.instance().await.state_reason
    }

    /// Sets the hint of the instance, and repeats its installation.
    async fn retry(&mut self, hint: &str) {
        let root_disk = Some(Box::new(hint.parse().unwrap()));
        let id = self.instance().await.id;
        let instance = Some(inst::Instance { id: id.clone(), root_disk, ..Default::default() });
        let update_mask = Some(prost_types::FieldMask { paths: vec!["root_disk".into()] });
        let request = inst::UpdateInstanceRequest { instance, update_mask };
        self.instances.update_instance(request).await.unwrap();
        self.instances.retry_instance(inst::RetryInstanceRequest { id }).await.unwrap();
    }

    /// Returns the refusal of a workflow for the machine's occupant.
    async fn refusal(&mut self) -> String {
        let request = wf::CreateWorkflowRequest {
            hardware_id: self.id.clone(),
            template_id: self.template.clone(),
            occupied_by: self.instance().await.id,
            ..Default::default()
        };
        let refused = self.workflows.create_workflow(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        refused.get_details_error_info().unwrap().reason
    }
}

#[tokio::test]
async fn an_instance_fails_with_the_list_of_disks_and_is_installed_once_a_hint_names_one() {
    let server = start().await;
    let mut machine = Machine::new(&server).await;
    let instance = inst::Instance {
        hardware_id: machine.id.clone(),
        template_id: machine.template.clone(),
        ..Default::default()
    };
    let request = inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    machine.instances.create_instance(request).await.unwrap();
    let reason = machine.failure().await;
    assert!(reason.contains("the machine has no inventory"), "{reason}");
    assert_eq!(machine.refusal().await, "ROOT_DISK_MISSING");

    machine.report(&server).await;
    assert_eq!(machine.refusal().await, "ROOT_DISK_AMBIGUOUS");
    machine.retry("serial=C3").await;
    let reason = machine.failure().await;
    let disks = "sda (serial A1, 480 GB), sdb (serial B2, 480 GB)";
    assert!(reason.ends_with(&format!("(hint serial=C3): the machine has {disks}")), "{reason}");

    machine.retry("serial=B2").await;
    let has_workflow = async || !machine.instance().await.workflow_ids.is_empty();
    until(has_workflow, "a workflow").await;
    let id = machine.instance().await.workflow_ids.pop().unwrap();
    let request = wf::GetWorkflowRequest { id, view: View::Full.into() };
    let found = machine.workflows.get_workflow(request).await.unwrap().into_inner();
    let environment = &found.workflow.unwrap().actions[0].environment;
    assert_eq!(environment, &["DEST_DISK=/dev/disk/by-id/ata-X_B2"]);
    server.end().await;
}
