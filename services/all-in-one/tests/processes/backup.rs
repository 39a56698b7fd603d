//! Backups of a server while clients write, and restores into an empty directory.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use runtime::authority::SiteAuthority;
use runtime::boot_token::{BootTokens, Purpose};
use runtime::{Caller, Channel};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;

use super::process::{Place, Process, machine, soon};

/// Records that are created before the backup begins.
const BEFORE: usize = 50;
/// Records that are created at least while the backup is made.
const DURING: usize = 20;

const TEMPLATE: &str = r#"version: "0.1"
name: one
global_timeout: 600
tasks:
- name: all
  worker: "{{.device_1}}"
  actions:
  - name: write
    image: quay.io/tinkerbell/actions/writefile
    timeout: 90
    environment: {DEST_DISK: /dev/vda1, DEST_PATH: /etc/a, UID: 0, GID: 0, MODE: 644, DIRMODE: 755}
"#;

async fn hardware(of: &Process) -> HardwareServiceClient<Channel> {
    HardwareServiceClient::new(of.channel().await)
}

/// Creates the machine number `n`.
async fn create(machines: &mut HardwareServiceClient<Channel>, n: usize) -> hw::Hardware {
    let mac = format!("02:00:00:00:{:02x}:{:02x}", n / 256, n % 256);
    let request = machine(&mac, &format!("127.1.{}.{}", n / 250, n % 250 + 1));
    machines.create_hardware(request).await.unwrap().into_inner().hardware.unwrap()
}

/// Runs `tinwright store <words>`. Returns its standard output, or its standard error if it failed.
async fn store(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.arg("store").args(words);
    let done = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

/// Backs up `server` to `file`.
pub(crate) async fn back_up(server: &Process, file: &Path) {
    store_of(server, &["backup", file.to_str().unwrap()]).await;
}

/// Runs `tinwright store <words>` with `server`. Returns its standard output.
pub(crate) async fn store_of(server: &Process, words: &[&str]) -> String {
    let (to, secrets) = (format!("https://{}", server.place.grpc), server.place.secrets());
    let connection = ["--server", &to, "--secrets", secrets.to_str().unwrap()];
    store(&[words, &connection[..]].concat()).await.unwrap()
}

/// Restores `file` into the directory of `place`.
pub(crate) async fn restore(place: &Place, file: &Path) -> Result<String, String> {
    let data = place.path("data");
    store(&["restore", file.to_str().unwrap(), "--data", data.to_str().unwrap()]).await
}

/// Creates a workflow of one action for `machine`.
async fn create_workflow(server: &Process, machine: &str) -> wf::Workflow {
    let mut templates = TemplateServiceClient::new(server.channel().await);
    let template =
        wf::Template { name: "one".into(), data: TEMPLATE.into(), ..wf::Template::default() };
    let request = wf::CreateTemplateRequest { template: Some(template), ..Default::default() };
    let template = templates.create_template(request).await.unwrap().into_inner().template.unwrap();
    let request = wf::CreateWorkflowRequest {
        template_id: template.id,
        hardware_id: machine.into(),
        ..Default::default()
    };
    let mut workflows = WorkflowServiceClient::new(server.channel().await);
    workflows.create_workflow(request).await.unwrap().into_inner().workflow.unwrap()
}

/// Returns the workflow of the action that the worker of `machine` has to run, once there is one.
pub(crate) async fn next_action(worker: &mut WorkerServiceClient<Channel>) -> wf::Assignment {
    let holder = wf::Holder { boot_id: "boot".into(), process_id: "process".into() };
    let request = wf::NextActionRequest { holder: Some(holder), ..Default::default() };
    let assigned = async {
        loop {
            let next = worker.next_action(request.clone()).await.unwrap().into_inner();
            if let Some(assignment) = next.assignment {
                return assignment;
            }
        }
    };
    soon(assigned).await
}

async fn all_machines(of: &Process) -> Vec<hw::Hardware> {
    let (mut machines, mut found, mut token) = (hardware(of).await, Vec::new(), String::new());
    loop {
        let request = hw::ListHardwareRequest { page_token: token, ..Default::default() };
        let page = machines.list_hardware(request).await.unwrap().into_inner();
        found.extend(page.hardware);
        token = page.next_page_token;
        if token.is_empty() {
            return found;
        }
    }
}

#[tokio::test]
async fn a_backup_made_while_clients_write_has_all_from_before_and_workers_go_on_with_it() {
    let server = Place::new().start(&[]).await;
    let mut machines = hardware(&server).await;
    let mut before = Vec::new();
    for n in 0..BEFORE {
        before.push(create(&mut machines, n).await);
    }
    let id = before[0].id.parse().unwrap();
    let site = SiteAuthority::open(&server.place.secrets()).unwrap();
    let worker = Caller::worker(id, 0);
    let workflow = create_workflow(&server, &before[0].id).await;
    let channel = server.channel_as(&server, &worker).await;
    let assigned = next_action(&mut WorkerServiceClient::new(channel)).await;
    assert_eq!(assigned.workflow_id, workflow.id);
    let tokens = BootTokens::new(site.keys().clone()).unwrap();
    let here = "127.0.0.1".parse().unwrap();
    let token = tokens.mint(Purpose::Identity, id, 0, here, SystemTime::now()).unwrap();

    let file = server.place.path("backup");
    let (reading, written) = (Cell::new(true), Cell::new(0));
    let writing = async {
        while reading.get() || written.get() < DURING {
            create(&mut machines, BEFORE + written.get()).await;
            written.set(written.get() + 1);
        }
    };
    let copying = async {
        back_up(&server, &file).await;
        reading.set(false);
    };
    tokio::join!(writing, copying);

    let place = Place::new().with_secrets_of(&server.place, &[]);
    restore(&place, &file).await.unwrap();
    drop(server);
    let restored = place.start(&[]).await;
    let found = all_machines(&restored).await;
    for machine in &before {
        let same =
            found.iter().any(|it| it.id == machine.id && it.interfaces == machine.interfaces);
        assert!(same, "{} is missing", machine.id);
    }
    let channel = restored.channel_as(&restored, &worker).await;
    let again = next_action(&mut WorkerServiceClient::new(channel)).await;
    // The same lease, which the request made longer.
    assert_eq!((again.lease_id, again.workflow_id), (assigned.lease_id, assigned.workflow_id));
    let (csr, _key) = runtime::authority::request_certificate().unwrap();
    let request = wf::RedeemRequest { boot_token: token, csr, ..Default::default() };
    let mut stranger = WorkerServiceClient::new(restored.channel().await);
    let redeemed = stranger.redeem(request).await.unwrap().into_inner();
    assert_eq!(redeemed.hardware_id, before[0].id);

    let place = restored.terminate();
    let data = place.path("data");
    store(&["check", "--data", data.to_str().unwrap()]).await.unwrap();
}

#[tokio::test]
async fn a_backup_of_another_site_is_refused_and_the_directory_stays_usable() {
    let theirs = Place::new().start(&[]).await;
    create(&mut hardware(&theirs).await, 1).await;
    let file = theirs.place.path("backup");
    back_up(&theirs, &file).await;
    let ours = Place::new().start(&[]).await;
    let place = Place::new().with_secrets_of(&ours.place, &[]);
    drop(ours);
    let why = restore(&place, &file).await.unwrap_err();
    assert!(why.contains("the backup of another site"), "{why}");
    let server = place.start(&[]).await;
    assert_eq!(all_machines(&server).await, []);
}
