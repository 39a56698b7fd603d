//! Root disks from the inventory to the workflow of an instance.

use runtime::{Channel, Role};
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1::instance::PowerManagement;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{self as inst, get_instance_request::By};
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::{Code, Status};

use crate::support::{RunningServer, start, until};

const TEMPLATE: &str = r#"
name: disk
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: image2disk, environment: {DEST_DISK: "{{ .disk }}", IMG_URL: "http://127.0.0.1/d"}}
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
            name: "node-1".into(),
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

    /// Orders an instance with this hint. People switch the machine on.
    async fn order(&mut self, hint: &str) -> Result<(), Status> {
        let instance = inst::Instance {
            hardware_id: self.id.clone(),
            template_id: self.template.clone(),
            root_disk: hint.parse().ok().map(Box::new),
            power_management: PowerManagement::None.into(),
            ..Default::default()
        };
        let request =
            inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
        self.instances.create_instance(request).await.map(drop)
    }

    /// Returns the text with which such an order is refused.
    async fn refusal(&mut self, hint: &str) -> String {
        let refused = self.order(hint).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        refused.message().to_owned()
    }
}

#[tokio::test]
async fn an_instance_is_refused_with_the_list_of_disks_and_is_installed_once_a_hint_names_one() {
    let server = start().await;
    let mut machine = Machine::new(&server).await;
    let reason = machine.refusal("").await;
    assert!(reason.starts_with("node-1: the machine has no inventory"), "{reason}");

    machine.report(&server).await;
    let disks = "sda (serial A1, 480 GB), sdb (serial B2, 480 GB)";
    let reason = machine.refusal("").await;
    assert!(reason.starts_with("node-1: several disks can be the root disk"), "{reason}");
    let reason = machine.refusal("serial=C3").await;
    assert!(reason.ends_with(&format!("(hint serial=C3): the machine has {disks}")), "{reason}");

    machine.order("serial=B2").await.unwrap();
    let has_workflow = async || !machine.instance().await.workflow_ids.is_empty();
    until(has_workflow, "a workflow").await;
    let id = machine.instance().await.workflow_ids.pop().unwrap();
    let request = wf::GetWorkflowRequest { id, view: View::Full.into() };
    let found = machine.workflows.get_workflow(request).await.unwrap().into_inner();
    let environment = &found.workflow.unwrap().actions[0].environment;
    assert_eq!(environment[0], "DEST_DISK=/dev/disk/by-id/ata-X_B2");
    server.end().await;
}
