//! Secrets with recognizable marks are given to a server, which then has them nowhere in clear.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use runtime::{Caller, Channel, Role};
use tinwright::common::v1::View;
use tinwright::event::v1 as ev;
use tinwright::event::v1::event_service_client::EventServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::image::v1 as im;
use tinwright::image::v1::build_service_client::BuildServiceClient;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tinwright::image::v1::image_source::Source;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::power::v1 as pw;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::backup::{back_up, next_action};
use super::process::{Place, Process, arguments, machine, soon};

/// In each secret.
const MARK: &str = "PlantedX7Q2";
/// The first nine bytes of the mark in base64, which is how JSON has binary fields.
const MARK_BASE64: &str = "UGxhbnRlZFg3";
/// In a field that is stored in clear, to see that the search finds what is there.
const CONTROL: &str = "ControlX7Q2";

const TEMPLATE: &str = r#"version: "0.1"
name: marked
global_timeout: 600
tasks:
- name: all
  worker: "{{.device_1}}"
  environment: {TOKEN: "{{.token}}"}
  actions:
  - name: write
    image: quay.io/tinkerbell/actions/writefile
    timeout: 90
    environment: {CONTENTS: "{{.token}}", DEST_DISK: /dev/vda1, DEST_PATH: /etc/a, UID: 0, GID: 0, MODE: 644, DIRMODE: 755}
"#;

fn secret(name: &str) -> String {
    format!("{MARK}-{name}")
}

/// Returns secret data that is not UTF-8. Its mark stands where base64 begins a new group.
fn binary() -> Vec<u8> {
    [&[0x1f, 0x8b, 0xff][..], secret("userdata-bytes").as_bytes()].concat()
}

/// Returns a response as JSON, with all of its fields.
macro_rules! json {
    ($response:expr) => {
        $response.map(|response| tinwright::json::write(response.get_ref()).unwrap().to_string())
    };
}

/// Everything that the server sent to clients: responses as JSON, texts of errors, and `Debug` of both.
#[derive(Default)]
struct Responses(Vec<(&'static str, Vec<u8>)>);

impl Responses {
    /// Adds a response to a caller who may read no secrets, or an error.
    fn add(&mut self, name: &'static str, response: Result<String, tonic::Status>) {
        match response {
            Ok(response) => self.0.push((name, response.into_bytes())),
            Err(status) => self.debug(name, &status),
        }
    }

    fn debug(&mut self, name: &'static str, value: &impl Debug) {
        self.0.push((name, format!("{value:?}").into_bytes()));
    }

    fn assert_no_secret(&self) {
        for (name, bytes) in &self.0 {
            let has_secret = contains(bytes, MARK) || contains(bytes, MARK_BASE64);
            assert!(!has_secret, "{name}: {}", String::from_utf8_lossy(bytes));
        }
    }
}

fn contains(bytes: &[u8], mark: &str) -> bool {
    bytes.windows(mark.len()).any(|part| part == mark.as_bytes())
}

/// Returns the files below `dir`, except the site's secrets.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() != "secrets" => found.extend(files(&entry.path())),
            true => {}
            false => found.push(entry.path()),
        }
    }
    found
}

/// Checks all files of a server that has ended, its log and its backups among them.
fn assert_no_secret_in_files(place: &Place) {
    let mut control = false;
    for path in files(&place.path("")) {
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(MARK.len()).position(|part| part == MARK.as_bytes());
        let near = at.map(|at| &bytes[at.saturating_sub(300)..(at + 60).min(bytes.len())]);
        let near = near.map(|near| String::from_utf8_lossy(near).into_owned());
        assert_eq!(near, None, "in {}", path.display());
        control |= path.starts_with(place.path("data/store")) && contains(&bytes, CONTROL);
    }
    assert!(control, "the search finds what is stored in clear");
}

/// Starts a BMC that refuses every login.
async fn refusing_bmc() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _length = stream.read(&mut request).await;
            let refused =
                "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _may_be_gone = stream.write_all(refused.as_bytes()).await;
        }
    });
    address
}

struct Site {
    server: Process,
    admin: Channel,
    responses: Responses,
}

impl Site {
    /// Creates a machine with a BMC, and lets a job try it.
    async fn machine(&mut self, n: u8, bmc: Option<SocketAddr>) -> String {
        let mut request = machine(&format!("02:00:00:00:00:{n:02x}"), &format!("127.2.0.{n}"));
        let hardware = request.hardware.as_mut().unwrap();
        hardware.state = hw::State::Provisionable.into();
        hardware.name = format!("{}-{n}", CONTROL.to_lowercase());
        hardware.labels = [("control".to_owned(), CONTROL.to_owned())].into();
        hardware.extra = format!(r#"{{"key": "{}"}}"#, secret("hardware-extra")).into();
        let mut machines = HardwareServiceClient::new(self.admin.clone());
        self.responses.debug("a request for hardware", &request);
        let made = machines.create_hardware(request).await.unwrap().into_inner();
        let id = made.hardware.unwrap().id;
        if let Some(address) = bmc {
            let bmc = pw::Bmc {
                hardware_id: id.clone(),
                protocol: Some(pw::bmc::Protocol::Redfish(pw::bmc::Redfish {
                    url: format!("http://{address}"),
                    ..Default::default()
                })),
                username: "root".into(),
                password: secret("bmc-password"),
                ..pw::Bmc::default()
            };
            let mut power = PowerServiceClient::new(self.admin.clone());
            let request =
                pw::CreateBmcRequest { bmc: Some(bmc), skip_login: true, ..Default::default() };
            self.responses.debug("a request for a BMC", &request);
            power.create_bmc(request).await.unwrap();
            let request = pw::GetPowerStateRequest { hardware_id: id.clone() };
            self.responses.add("GetPowerState", json!(power.get_power_state(request).await));
        }
        id
    }

    async fn template(&mut self) -> String {
        let template =
            wf::Template { name: "marked".into(), data: TEMPLATE.into(), ..Default::default() };
        let request = wf::CreateTemplateRequest { template: Some(template), ..Default::default() };
        let mut templates = TemplateServiceClient::new(self.admin.clone());
        templates.create_template(request).await.unwrap().into_inner().template.unwrap().id
    }

    /// Runs a workflow with a secret value until its action failed.
    async fn run_workflow(&mut self, machine: &str, template: &str) {
        let request = |token: String| wf::CreateWorkflowRequest {
            template_id: template.into(),
            hardware_id: machine.into(),
            values: [("token".to_owned(), token)].into(),
            ..Default::default()
        };
        let mut workflows = WorkflowServiceClient::new(self.admin.clone());
        let bad = request(format!("{}\": [{{\"\n\t- : {{", secret("bad-value")));
        self.responses.debug("a request for a workflow", &bad);
        let refused = workflows.create_workflow(bad).await;
        assert!(refused.is_err(), "a value that is not YAML");
        self.responses.add("CreateWorkflow", json!(refused));
        workflows.create_workflow(request(secret("workflow-value"))).await.unwrap();
        let caller = Caller::worker(machine.parse().unwrap(), 0);
        let channel = self.server.channel_as(&self.server, &caller).await;
        let mut worker = WorkerServiceClient::new(channel);
        let it = next_action(&mut worker).await;
        self.responses.debug("an assignment", &it);
        let (workflow_id, lease_id) = (it.workflow_id, it.lease_id);
        let start = wf::StartActionRequest {
            workflow_id: workflow_id.clone(),
            lease_id: lease_id.clone(),
            terminal: false,
        };
        worker.start_action(start).await.unwrap();
        let finish = wf::FinishActionRequest {
            workflow_id,
            lease_id,
            state: wf::ActionState::Failed.into(),
            reason: "no disk".into(),
            ..Default::default()
        };
        worker.finish_action(finish).await.unwrap();
    }

    /// Creates an instance with every kind of secret, and waits until it has a workflow. Returns its id.
    async fn instance(&mut self, machine: &str, template: &str) -> String {
        let instance = inst::Instance {
            hardware_id: machine.into(),
            userdata: format!("#cloud-config\n# {}", secret("userdata")),
            vendor_data: format!("#cloud-config\n# {}", secret("vendor-data")),
            crypted_root_password: format!("$6$salt${}", secret("hash").replace('-', ".")),
            extra: format!(r#"{{"key": "{}"}}"#, secret("extra")).into(),
            template_id: template.into(),
            template_values: [("token".to_owned(), secret("template-value"))].into(),
            ..Default::default()
        };
        let mut instances = InstanceServiceClient::new(self.admin.clone());
        let wrong = inst::Instance {
            userdata_bytes: binary(),
            crypted_root_password: secret("plain password"),
            extra: secret("no JSON").into(),
            network_config: format!("[{{{}\n\t", secret("no YAML")),
            ..instance.clone()
        };
        let request = |instance| inst::CreateInstanceRequest {
            instance: Some(instance),
            ..Default::default()
        };
        let refused = instances.create_instance(request(wrong)).await;
        assert!(refused.is_err(), "four wrong fields");
        self.responses.add("CreateInstance", json!(refused));
        let request = request(instance);
        self.responses.debug("a request for an instance", &request);
        let made = instances.create_instance(request).await.unwrap().into_inner().instance.unwrap();
        self.responses.debug("an instance", &made);
        let mut workflows = WorkflowServiceClient::new(self.admin.clone());
        let has_one = async {
            loop {
                let listed = workflows.list_workflows(wf::ListWorkflowsRequest::default()).await;
                let listed = listed.unwrap().into_inner().workflows;
                if listed.iter().any(|workflow| workflow.instance_id == made.id) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon(has_one).await;
        self.replace_userdata(&made.id).await;
        made.id
    }

    /// Replaces the user data by data that is not text.
    async fn replace_userdata(&mut self, instance: &str) {
        let instance =
            inst::Instance { id: instance.into(), userdata_bytes: binary(), ..Default::default() };
        let request = inst::UpdateInstanceRequest {
            instance: Some(instance),
            update_mask: Some(prost_types::FieldMask { paths: vec!["userdata_bytes".into()] }),
        };
        self.responses.debug("a request for new user data", &request);
        let mut instances = InstanceServiceClient::new(self.admin.clone());
        let updated = instances.update_instance(request).await.unwrap().into_inner();
        self.responses.debug("an instance with binary user data", &updated);
    }

    /// Creates an API key of a tenant.
    async fn credential(&mut self) {
        let credential = id::Credential { role: id::Role::Viewer.into(), ..Default::default() };
        let request = id::CreateCredentialRequest {
            credential: Some(credential),
            fields: [("api_key".to_owned(), secret("api-key"))].into(),
            ..Default::default()
        };
        self.responses.debug("a request for a credential", &request);
        let mut identities = IdentityServiceClient::new(self.admin.clone());
        let made = identities.create_credential(request).await;
        assert!(made.is_ok(), "{made:?}");
        self.responses.add("CreateCredential", json!(made));
        let wrong = [("api_key".to_owned(), secret("another-key"))].into();
        let door = self.server.channel_as(&self.server, &Role::Door.into()).await;
        let request = id::AuthenticateRequest { fields: wrong };
        let refused = IdentityServiceClient::new(door).authenticate(request).await;
        self.responses.add("Authenticate", json!(refused));
    }

    /// Creates an image in a registry that no builder may reach.
    async fn image(&mut self) {
        let oci = im::OciSource {
            reference: "10.0.0.1/lab/disk".into(),
            username: secret("registry-user"),
            password: secret("registry-password"),
            ..im::OciSource::default()
        };
        let source = im::ImageSource { source: Some(Source::Oci(oci)), ..Default::default() };
        let image =
            im::Image { name: "marked".into(), source: Some(source), ..im::Image::default() };
        let request = im::CreateImageRequest { image: Some(image), ..Default::default() };
        self.responses.debug("a request for an image", &request);
        let made = ImageServiceClient::new(self.admin.clone()).create_image(request).await;
        assert!(made.is_ok(), "{made:?}");
        self.responses.add("CreateImage", json!(made));
    }

    /// Reads all that `caller` may, in both views.
    async fn read(&mut self, caller: &Caller) {
        let channel = self.server.channel_as(&self.server, caller).await;
        let responses = &mut self.responses;
        let mut machines = HardwareServiceClient::new(channel.clone());
        let mut instances = InstanceServiceClient::new(channel.clone());
        let mut workflows = WorkflowServiceClient::new(channel.clone());
        let mut templates = TemplateServiceClient::new(channel.clone());
        for view in [View::Unspecified, View::Basic, View::Full].map(i32::from) {
            let request = hw::ListHardwareRequest { view, ..Default::default() };
            responses.add("ListHardware", json!(machines.list_hardware(request).await));
            let request =
                inst::ListInstancesRequest { view, show_deleted: true, ..Default::default() };
            responses.add("ListInstances", json!(instances.list_instances(request).await));
            let request = wf::ListTemplatesRequest { view, ..Default::default() };
            responses.add("ListTemplates", json!(templates.list_templates(request).await));
            let request = wf::ListWorkflowsRequest::default();
            let listed = workflows.list_workflows(request).await.unwrap();
            for workflow in &listed.get_ref().workflows {
                let request = wf::GetWorkflowRequest { id: workflow.id.clone(), view };
                responses.add("GetWorkflow", json!(workflows.get_workflow(request).await));
            }
            responses.add("ListWorkflows", json!(Ok::<_, tonic::Status>(listed)));
        }
        let mut power = PowerServiceClient::new(channel.clone());
        responses.add("ListBmcs", json!(power.list_bmcs(pw::ListBmcsRequest::default()).await));
        let jobs = power.list_power_jobs(pw::ListPowerJobsRequest::default()).await;
        responses.add("ListPowerJobs", json!(jobs));
        let mut images = ImageServiceClient::new(channel.clone());
        let listed = images.list_images(im::ListImagesRequest::default()).await;
        responses.add("ListImages", json!(listed));
        let mut builds = BuildServiceClient::new(channel.clone());
        let listed = builds.list_builds(im::ListBuildsRequest::default()).await;
        responses.add("ListBuilds", json!(listed));
        let mut identities = IdentityServiceClient::new(channel.clone());
        let listed = identities.list_credentials(id::ListCredentialsRequest::default()).await;
        responses.add("ListCredentials", json!(listed));
        let request = ev::ListEventsRequest { page_size: 1000, ..Default::default() };
        responses
            .add("ListEvents", json!(EventServiceClient::new(channel).list_events(request).await));
    }
}

#[tokio::test]
async fn no_planted_secret_is_in_files_logs_backups_events_errors_debug_or_answers_to_a_viewer() {
    let log = "debug,h2=debug,hyper=debug,hyper_util=debug,rustls=debug,sled=debug,tonic=debug,tower=debug";
    let flags = arguments(&["--log", log, "--insecure-bmcs", "--drain-seconds", "1"]);
    let server = Place::new().start(&flags).await;
    let admin = server.channel().await;
    let mut site = Site { server, admin, responses: Responses::default() };
    let bmc = refusing_bmc().await;
    let occupied = site.machine(1, Some(bmc)).await;
    let bare = site.machine(2, None).await;
    let template = site.template().await;
    site.run_workflow(&bare, &template).await;
    let instance = site.instance(&occupied, &template).await;
    site.credential().await;
    site.image().await;
    for role in [Role::Viewer, Role::Operator] {
        site.read(&role.into()).await;
    }
    let file = site.server.place.path("backup-1");
    back_up(&site.server, &file).await;
    let request = inst::DeleteInstanceRequest { id: instance, ..Default::default() };
    InstanceServiceClient::new(site.admin.clone()).delete_instance(request).await.unwrap();
    site.read(&Role::Viewer.into()).await;
    site.responses.assert_no_secret();
    let place = site.server.kill();
    assert_no_secret_in_files(&place);
    let server = place.start(&flags).await;
    back_up(&server, &server.place.path("backup-2")).await;
    assert_no_secret_in_files(&server.terminate());
}
