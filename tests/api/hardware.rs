//! The hardware service, called as clients call it: over TLS through the server's listener.

use std::time::Duration;

use crate::support::start;
use runtime::{Channel, Role};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{self as pb, watch_hardware_response::Event};
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{
    CreateInstanceRequest, GetInstanceRequest, Instance, get_instance_request,
};
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tinwright::workflow::v1::{self as wf, boot_options};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_types::StatusExt as _;

fn create(last: u8) -> pb::CreateHardwareRequest {
    let interface =
        pb::Interface { mac: format!("02:00:00:00:00:{last:02x}"), ..pb::Interface::default() };
    let hardware = pb::Hardware { interfaces: vec![interface], ..pb::Hardware::default() };
    pb::CreateHardwareRequest { hardware: Some(hardware), request_id: String::new() }
}

async fn next(events: &mut tonic::Streaming<pb::WatchHardwareResponse>) -> Option<Event> {
    let soon = tokio::time::timeout(Duration::from_secs(60), events.next());
    soon.await.expect("an event")?.unwrap().event
}

#[tokio::test]
async fn hardware_is_still_stored_after_a_restart() {
    let server = start().await;
    let made = server.hardware(Role::Operator).await.create_hardware(create(1)).await.unwrap();
    let server = crate::support::start_in(server.end().await).await;
    let mut viewer = server.hardware(Role::Viewer).await;
    let listed = viewer.list_hardware(pb::ListHardwareRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().hardware, made.into_inner().hardware.as_slice());
    server.end().await;
}

#[tokio::test]
async fn a_watch_sends_all_hardware_then_synced_then_changes() {
    let server = start().await;
    let mut hardware = server.hardware(Role::Admin).await;
    let first = hardware.create_hardware(create(1)).await.unwrap().into_inner().hardware.unwrap();
    let mut events =
        hardware.watch_hardware(pb::WatchHardwareRequest::default()).await.unwrap().into_inner();
    let mut before = vec![next(&mut events).await.unwrap()];
    while !matches!(before.last(), Some(Event::Synced(_))) {
        before.push(next(&mut events).await.unwrap());
    }
    // A machine created just before the watch is sent once, before Synced or after it.
    let second = hardware.create_hardware(create(2)).await.unwrap().into_inner().hardware.unwrap();
    let is_second =
        |event: Option<Event>| matches!(event, Some(Event::Hardware(m)) if m.id == second.id);
    while !is_second(next(&mut events).await) {}
    hardware
        .delete_hardware(pb::DeleteHardwareRequest { id: first.id.clone(), revision: 0 })
        .await
        .unwrap();
    while next(&mut events).await != Some(Event::DeletedId(first.id.clone())) {}
    server.end().await;
}

#[tokio::test]
async fn an_open_watch_does_not_delay_the_servers_end() {
    let server = start().await;
    let mut hardware = server.hardware(Role::Viewer).await;
    let mut events =
        hardware.watch_hardware(pb::WatchHardwareRequest::default()).await.unwrap().into_inner();
    assert!(matches!(next(&mut events).await, Some(Event::Synced(_))));
    server.end().await;
    let end = events.next().await.unwrap().unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_the_fields_in_the_details() {
    let server = start().await;
    let mut wrong = create(1);
    wrong.hardware.as_mut().unwrap().interfaces[0].mac = "zz".into();
    let status = server.hardware(Role::Admin).await.create_hardware(wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let details = status.get_details_bad_request().unwrap();
    assert_eq!(details.field_violations[0].field, "interfaces[0].mac");
    server.end().await;
}

#[tokio::test]
async fn the_pages_together_contain_every_machine_once() {
    let server = start().await;
    let mut hardware = server.hardware(Role::Admin).await;
    for n in 1..=7 {
        hardware.create_hardware(create(n)).await.unwrap();
    }
    let mut request = pb::ListHardwareRequest { page_size: 3, ..Default::default() };
    let mut macs = Vec::new();
    loop {
        let page = hardware.list_hardware(request.clone()).await.unwrap().into_inner();
        macs.extend(page.hardware.iter().map(|machine| machine.interfaces[0].mac.clone()));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    macs.sort();
    let all: Vec<_> = (1..=7).map(|n| format!("02:00:00:00:00:{n:02x}")).collect();
    assert_eq!(macs, all);
    server.end().await;
}

#[tokio::test]
async fn a_page_token_of_another_form_is_an_invalid_argument() {
    let server = start().await;
    let request = pb::ListHardwareRequest { page_token: "node1".into(), ..Default::default() };
    let refused = server.hardware(Role::Viewer).await.list_hardware(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let details = refused.get_details_bad_request().unwrap();
    assert_eq!(details.field_violations[0].field, "page_token");
    server.end().await;
}

/// Waits until the instance `id` is no longer queued: a queued instance gives up a machine that is to be deleted.
async fn wait_until_started(instances: &mut InstanceServiceClient<Channel>, id: &str) {
    let by = Some(get_instance_request::By::Id(id.to_owned()));
    let request = GetInstanceRequest { by, ..Default::default() };
    for _ in 0..6000 {
        let found = instances.get_instance(request.clone()).await.unwrap().into_inner();
        if found.instance.unwrap().state() != tinwright::instance::v1::State::Queued {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the instance stays queued");
}

#[tokio::test]
async fn an_occupied_machine_cannot_be_deleted_and_a_deleted_ones_addresses_are_free_again() {
    let server = start().await;
    let mut hardware = server.hardware(Role::Admin).await;
    let mut instances = InstanceServiceClient::new(server.channel(Some(Role::Admin)).await);
    let mut ready = create(1);
    ready.hardware.as_mut().unwrap().state = pb::State::Provisionable.into();
    let created =
        hardware.create_hardware(ready.clone()).await.unwrap().into_inner().hardware.unwrap();
    let hardware_id = created.id.clone();
    let instance = Instance { hardware_id, reserve_only: true, ..Instance::default() };
    let request = CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    let instance = instances.create_instance(request).await.unwrap().into_inner().instance.unwrap();
    wait_until_started(&mut instances, &instance.id).await;
    let delete = pb::DeleteHardwareRequest { id: created.id.clone(), revision: 0 };
    let refused = hardware.delete_hardware(delete).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("is occupied by instance"), "{}", refused.message());
    let by = Some(pb::get_hardware_request::By::Id(created.id));
    let request = pb::GetHardwareRequest { by, ..Default::default() };
    let found = hardware.get_hardware(request).await.unwrap().into_inner();
    assert_eq!(found.hardware.unwrap().state(), pb::State::Provisionable);
    let free = hardware.create_hardware(create(2)).await.unwrap().into_inner().hardware.unwrap();
    let delete = pb::DeleteHardwareRequest { id: free.id, revision: free.revision };
    hardware.delete_hardware(delete.clone()).await.unwrap();
    assert_eq!(hardware.delete_hardware(delete).await.unwrap_err().code(), Code::NotFound);
    hardware.create_hardware(create(2)).await.unwrap();
    server.end().await;
}

/// A template with one action.
const TEMPLATE: &str = r#"
name: one
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: configure, image: cexec, environment: {BLOCK_DEVICE: /dev/sda1, FS_TYPE: ext4, CMD_LINE: ls}}
"#;

/// A machine with a BMC that does not respond, and clients of the services that know it.
struct Machine {
    id: String,
    hardware: HardwareServiceClient<Channel>,
    power: PowerServiceClient<Channel>,
    workflows: WorkflowServiceClient<Channel>,
}

impl Machine {
    async fn new(server: &crate::support::RunningServer) -> Self {
        let channel = server.channel(Some(Role::Admin)).await;
        let mut hardware = HardwareServiceClient::new(channel.clone());
        let mut power = PowerServiceClient::new(channel.clone());
        let created = hardware.create_hardware(create(1)).await.unwrap().into_inner();
        let id = created.hardware.unwrap().id;
        let bmc = power::Bmc {
            hardware_id: id.clone(),
            protocol: Some(power::bmc::Protocol::Redfish(power::bmc::Redfish {
                url: "https://127.0.0.1:1".into(),
                ..Default::default()
            })),
            password: "secret".into(),
            ..Default::default()
        };
        let request =
            power::CreateBmcRequest { bmc: Some(bmc), skip_login: true, ..Default::default() };
        power.create_bmc(request).await.unwrap();
        Self { id, hardware, power, workflows: WorkflowServiceClient::new(channel) }
    }

    /// Creates a workflow, which boots the machine from the network if that is its `mode`.
    async fn work(&mut self, mode: boot_options::Mode) -> String {
        let request = wf::CreateWorkflowRequest {
            hardware_id: self.id.clone(),
            template_data: TEMPLATE.into(),
            boot_options: Some(wf::BootOptions { mode: mode.into(), ..Default::default() }),
            ..Default::default()
        };
        let created = self.workflows.create_workflow(request).await.unwrap().into_inner();
        created.workflow.unwrap().id
    }

    async fn workflow_state(&mut self, id: &str) -> wf::WorkflowState {
        let request = wf::GetWorkflowRequest { id: id.to_owned(), ..Default::default() };
        let found = self.workflows.get_workflow(request).await.unwrap().into_inner();
        found.workflow.unwrap().state()
    }

    async fn delete(&mut self) -> Result<(), tonic::Status> {
        let delete = pb::DeleteHardwareRequest { id: self.id.clone(), revision: 0 };
        self.hardware.delete_hardware(delete).await.map(drop)
    }

    async fn bmc(&mut self) -> Result<(), tonic::Status> {
        let by = Some(power::get_bmc_request::By::HardwareId(self.id.clone()));
        self.power.get_bmc(power::GetBmcRequest { by }).await.map(drop)
    }
}

#[tokio::test]
async fn a_deleted_machine_leaves_no_bmc_and_no_waiting_workflow_or_power_job() {
    let server = start().await;
    let mut machine = Machine::new(&server).await;
    let workflow = machine.work(boot_options::Mode::Unspecified).await;
    let on = power::operation::What::Power(power::operation::Power::On.into());
    let request = power::CreatePowerJobRequest {
        hardware_id: machine.id.clone(),
        operations: vec![power::Operation { what: Some(on), ..Default::default() }],
        ..Default::default()
    };
    let job = machine.power.create_power_job(request).await.unwrap().into_inner();
    machine.delete().await.unwrap();
    assert_eq!(machine.bmc().await.unwrap_err().code(), Code::NotFound);
    assert_eq!(machine.workflow_state(&workflow).await, wf::WorkflowState::Cancelled);
    let request = power::GetPowerJobRequest { id: job.power_job.unwrap().id };
    let job = machine.power.get_power_job(request).await.unwrap().into_inner().power_job.unwrap();
    assert_eq!(job.state(), power::power_job::State::Cancelled);
    server.end().await;
}

#[tokio::test]
async fn a_machine_on_which_a_workflow_has_begun_is_not_deleted() {
    let server = start().await;
    let mut machine = Machine::new(&server).await;
    let working = machine.work(boot_options::Mode::Netboot).await;
    let waiting = machine.work(boot_options::Mode::Netboot).await;
    for _ in 0..6000 {
        if machine.workflow_state(&working).await != wf::WorkflowState::Pending {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = machine.delete().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains(&format!("used by workflow {working}")), "{refused}");
    assert_eq!(
        refused.get_details_precondition_failure().unwrap().violations[0].r#type,
        "WORKFLOW"
    );
    machine.bmc().await.unwrap();
    assert_eq!(machine.workflow_state(&waiting).await, wf::WorkflowState::Pending);
    server.end().await;
}
