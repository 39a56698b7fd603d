//! Images beside a former program, which knows none: an edge that is not replaced yet, replicas that
//! are replaced one after the other, and a single server that is replaced in place.

use std::path::PathBuf;
use std::time::Duration;

use runtime::Channel;
use runtime::authority::{SiteAuthority, request_certificate};
use rustix::process::{Pid, Signal, kill_process};
use tinwright::common::v1::View;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::image::v1 as pb;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::edge::{client_output, issue};
use super::edge_images::create_machine;
use super::images::{Site, create, disk, settled, sha256, upload};
use super::moto::Moto;
use super::network::{Network, OURS};
use super::peer::Peer;
use super::process::{Place, Process, arguments, machine, soon};

/// The machines' Ethernet addresses, and their addresses.
const MACS: [&str; 2] = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
const ADDRESSES: [&str; 2] = ["198.51.100.50", "198.51.100.51"];
/// The services of the control plane of an edge.
const CONTROL: &str = "address,builder,hardware,identity,image,instance,power,workflow";
/// The file that a template of the former program names, and its content.
const FILE: &str = "os.raw.zst";
const CONTENT: &str = "the content of a file";
/// The beginning of a workflow's warning.
const OUTDATED: &str = "the in-memory environment is too old for action ";
/// What an administrator does about it.
const BUILD_AGAIN: &str = "build it again (tinwright osie build)";
/// The last error of a replica whose store a newer program has migrated.
const SUPERSEDED: &str = "a newer program has changed the schema of the store";

fn former() -> PathBuf {
    setup::former::server().unwrap()
}

fn present() -> PathBuf {
    env!("CARGO_BIN_EXE_tinwright").into()
}

/// Imports the image `disk`.
async fn import(site: &Site) -> pb::Image {
    let mut images = site.images(None).await;
    let image = create(&mut images, "disk", upload("disk.raw"), "").await;
    assert_eq!(site.upload(&image.id, &site.file("disk.raw", &disk())), "201");
    let ready = settled(&mut images, &image.id).await;
    assert_eq!(ready.state(), pb::ImageState::Ready, "{}", ready.state_reason);
    ready
}

/// Orders an instance with the image `disk` on the machine with the name `machine`.
async fn order(site: &Site, machine: &str) -> inst::Instance {
    let server = &site.server;
    client_output(
        server,
        &["instance", "create", "--hardware", machine, "--image", "disk", "--no-power-management"],
    );
    let listed = inst::ListInstancesRequest::default();
    let mut instances = InstanceServiceClient::new(server.channel().await);
    let mut found = instances.list_instances(listed).await.unwrap().into_inner().instances;
    found.pop().expect("the instance")
}

async fn instance(server: &Process, id: &str) -> inst::Instance {
    let by = Some(inst::get_instance_request::By::Id(id.to_owned()));
    let request = inst::GetInstanceRequest { by, ..Default::default() };
    let mut instances = InstanceServiceClient::new(server.channel().await);
    instances.get_instance(request).await.unwrap().into_inner().instance.unwrap()
}

/// Waits until the instance `id` has a workflow, and checks that it installs `image`.
async fn check_installed_image(server: &Process, id: &str, image: &pb::Image) {
    let begun = soon(async {
        loop {
            let now = instance(server, id).await;
            assert_ne!(now.state(), inst::State::Failed, "{}", now.state_reason);
            match now.workflow_id.is_empty() {
                true => tokio::time::sleep(Duration::from_millis(50)).await,
                false => return now,
            }
        }
    })
    .await;
    assert_eq!((&begun.image_id, &begun.image_sha256), (&image.id, &image.sha256));
    let installed = workflow(server, &begun.workflow_id).await.image.expect("an image");
    assert_eq!((&installed.id, &installed.sha256), (&image.id, &image.sha256));
}

async fn workflow(server: &Process, id: &str) -> wf::Workflow {
    let request = wf::GetWorkflowRequest { id: id.to_owned(), view: View::Full.into() };
    let mut workflows = WorkflowServiceClient::new(server.channel().await);
    workflows.get_workflow(request).await.unwrap().into_inner().workflow.unwrap()
}

/// Machines on the link of an edge.
struct Machines<'a> {
    network: &'a Network,
    control: &'a Process,
}

impl Machines<'_> {
    /// Returns the HTTP status and the content of `path` of boot HTTP, as the machine gets them.
    fn fetch(&self, machine: usize, path: &str) -> (String, Vec<u8>) {
        let to = self.control.place.path("fetched");
        let _may_not_exist = std::fs::remove_file(&to);
        let line = format!(
            "curl --silent --output {} --write-out %{{http_code}} http://{OURS}:7080{path}",
            to.display()
        );
        let status = self.network.run(machine, &line);
        (status, std::fs::read(&to).unwrap_or_default())
    }

    /// Waits for the boot script of the machine, and redeems its token at the control plane. Returns
    /// the calls of its worker.
    async fn worker(&self, machine: usize) -> WorkerServiceClient<Channel> {
        let path = format!("/{}/auto.ipxe", MACS[machine].replace(':', "-"));
        let token = soon(async {
            loop {
                let script = String::from_utf8(self.fetch(machine, &path).1).unwrap();
                let token = script.split_whitespace().find_map(|it| it.strip_prefix("boot_token="));
                match token {
                    Some(token) => return token.to_owned(),
                    None => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        })
        .await;
        let (csr, key) = request_certificate().unwrap();
        let mut certificate = None;
        self.network.on(machine, async || {
            let channel = self.connect(None).await;
            let holder = Some(holder());
            let request = wf::RedeemRequest { boot_token: token, csr, holder };
            let redeemed = WorkerServiceClient::new(channel).redeem(request).await.unwrap();
            certificate = Some(redeemed.into_inner().certificate);
        });
        let own = (certificate.unwrap(), key.expose().clone());
        WorkerServiceClient::new(self.connect(Some(own)).await)
    }

    async fn connect(&self, own: Option<(String, String)>) -> Channel {
        let authority = SiteAuthority::open(&self.control.place.secrets()).unwrap().authority();
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        let tls = match own {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        };
        let endpoint = Endpoint::from_shared(format!("https://{OURS}:42113")).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await.unwrap().into()
    }
}

fn holder() -> wf::Holder {
    wf::Holder { boot_id: "boot".into(), process_id: "process".into() }
}

/// Waits for the next action of a worker with `abilities`.
async fn next_action(
    worker: &mut WorkerServiceClient<Channel>,
    abilities: &[&str],
) -> wf::Assignment {
    let abilities = abilities.iter().map(|name| (*name).to_owned()).collect();
    let request = wf::NextActionRequest { holder: Some(holder()), abilities, ..Default::default() };
    loop {
        let next = worker.next_action(request.clone()).await.unwrap().into_inner();
        if let Some(assignment) = next.assignment {
            return assignment;
        }
    }
}

/// Returns the value of a variable of the assigned action.
fn variable<'a>(assignment: &'a wf::Assignment, name: &str) -> &'a str {
    let environment = &assignment.action.as_ref().unwrap().environment;
    let mut values = environment.iter().filter_map(|pair| pair.split_once('='));
    values.find(|(found, _)| *found == name).unwrap().1
}

/// A template as for the former program: the image is a file of the edge.
fn template() -> String {
    format!(
        "version: \"0.1\"\nname: files\nglobal_timeout: 600\ntasks:\n- name: install\n  \
         worker: \"{{{{.device_1}}}}\"\n  actions:\n  - name: write\n    \
         image: quay.io/tinkerbell/actions/image2disk\n    timeout: 90\n    \
         environment: {{DEST_DISK: /dev/sda, COMPRESSED: true, IMG_URL: \"http://{OURS}:7080/files/{FILE}\"}}\n"
    )
}

/// Creates a workflow with the options `words` on a machine. Returns its id.
async fn create_workflow(control: &Process, machine: &str, words: &[&str]) -> String {
    let words = [&["workflow", "create", "--hardware", machine], words].concat();
    client_output(control, &words);
    let mut workflows = WorkflowServiceClient::new(control.channel().await);
    let listed = workflows.list_workflows(wf::ListWorkflowsRequest::default()).await;
    // Ids are in the order of their creation.
    listed.unwrap().into_inner().workflows.pop().expect("the workflow").id
}

/// Checks what the former program served: scripts, files, and a workflow with one of these files.
async fn check_former_workflow(machines: &Machines<'_>) {
    let control = machines.control;
    let file = control.place.path("template.yaml");
    std::fs::write(&file, template()).unwrap();
    let words = ["template", "create", "--name", "files", "-f", file.to_str().unwrap()];
    client_output(control, &words);
    let name = create_machine(control, 0, MACS[0], ADDRESSES[0]);
    let id = create_workflow(control, &name, &["--template", "files"]).await;
    let mut worker = machines.worker(0).await;
    let assigned = soon(next_action(&mut worker, &[])).await;
    assert_eq!(assigned.workflow_id, id);
    let url = variable(&assigned, "IMG_URL");
    let path = url.strip_prefix(&format!("http://{OURS}:7080")).unwrap();
    let served = machines.fetch(0, path);
    assert_eq!(served, ("200".to_owned(), CONTENT.into()));
}

/// Checks that a worker without the abilities of this program gets no action that writes an image.
async fn check_warning(control: &Process, worker: &mut WorkerServiceClient<Channel>, id: &str) {
    let warned = async {
        loop {
            let warning = workflow(control, id).await.warning;
            match warning.starts_with(OUTDATED) {
                true => return warning,
                false => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let warning = tokio::select! {
        assigned = next_action(worker, &[]) => panic!("an old worker gets {assigned:?}"),
        warning = soon(warned) => warning,
    };
    assert!(warning.ends_with(BUILD_AGAIN), "{warning}");
}

#[test]
#[ignore = "builds a former program: cargo rack test --long upgrade"]
fn a_former_edge_serves_what_it_served_before_and_a_replaced_one_images() {
    let former = former();
    let network = Network::new(&MACS);
    network.on_site(async || {
        for (n, address) in ADDRESSES.into_iter().enumerate() {
            network.set(n, &format!("addr add {address}/24 dev eth0"));
        }
        let listen = format!("{OURS}:42113");
        let control = arguments(&["--only", CONTROL, "--listen", &listen]);
        let site = Site::of(Place::new().start(&control).await);
        let place = Place::new().with_program(former);
        issue(&site.server, &place);
        let files = place.path("files");
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join(FILE), CONTENT).unwrap();
        let peers = format!("https://{OURS}:42113");
        let flags = ["--only", "netboot", "--netboot-interface", "br0", "--peers", &peers];
        let flags = arguments(&[&flags[..], &["--files", files.to_str().unwrap()]].concat());
        let edge = place.start(&flags).await;

        let machines = Machines { network: &network, control: &site.server };
        check_former_workflow(&machines).await;
        let image = import(&site).await;
        let name = create_machine(&site.server, 1, MACS[1], ADDRESSES[1]);
        let id = create_workflow(&site.server, &name, &["--image", "disk"]).await;
        let mut worker = machines.worker(1).await;
        check_warning(&site.server, &mut worker, &id).await;
        let path = format!("/images/{}.raw.zst", image.stored_sha256);
        assert_eq!(machines.fetch(1, &path).0, "404");

        let edge = edge.terminate().with_program(present()).start(&flags).await;
        let assigned = soon(next_action(&mut worker, &["map", "relative_url"])).await;
        assert_eq!((&assigned.workflow_id, variable(&assigned, "IMG_URL")), (&id, path.as_str()));
        // The edge follows the workflows.
        soon(async {
            loop {
                let (status, content) = machines.fetch(1, &path);
                if status == "200" {
                    assert_eq!(sha256(&content), image.stored_sha256);
                    return;
                }
                assert_eq!(status, "404", "{}", edge.log());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
        assert_eq!(workflow(&site.server, &id).await.warning, "");
        assert_eq!(machines.fetch(0, &format!("/files/{FILE}")).0, "200");
    });
}

/// Stops the process where it is, or lets it go on.
fn signal(process: &Process, signal: Signal) {
    let id = Pid::from_raw(process.id().cast_signed()).unwrap();
    kill_process(id, signal).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds a former program: cargo rack test --long upgrade"]
async fn a_former_replica_changes_no_order_of_an_image_and_ends() {
    let (etcd, moto) = (Peer::start().await, Moto::start());
    let shared = arguments(&["--store", "etcd", "--etcd-endpoints", &etcd.url()]);
    let url = format!("http://{}", moto.bucket.address);
    let bucket = arguments(&["--images-s3-url", &url, "--images-s3-bucket", &moto.bucket.name]);
    let credentials = moto.bucket.credentials().display().to_string();
    let flags =
        [&shared[..], &bucket, &["--images-s3-credentials".to_owned(), credentials]].concat();
    let first = Place::new().with_program(former()).start(&shared).await;
    let second = Place::new().with_program(former()).with_secrets_of(&first.place, &[]);
    let second = second.start(&shared).await;
    let name = create_machine(&second, 0, MACS[0], ADDRESSES[0]);
    let mut to_second = HardwareServiceClient::new(second.channel().await);

    // The order is complete before the former replica runs again, sees it and would reconcile it.
    signal(&second, Signal::STOP);
    let stopped = tokio::task::block_in_place(|| first.terminate());
    let site = Site::of(stopped.with_program(present()).start(&flags).await);
    let image = import(&site).await;
    let ordered = order(&site, &name).await;
    assert_eq!((&ordered.image_id, &ordered.image_sha256), (&image.id, &image.sha256));
    signal(&second, Signal::CONT);

    let written = to_second.create_hardware(machine("02:00:00:00:00:09", "127.0.0.9")).await;
    let refused = written.expect_err("it writes nothing");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    soon(async {
        while !second.log().contains(SUPERSEDED) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    check_installed_image(&site.server, &ordered.id, &image).await;

    let stopped = tokio::task::block_in_place(|| second.terminate());
    let second = stopped.with_program(present()).start(&flags).await;
    check_installed_image(&second, &ordered.id, &image).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds a former program: cargo rack test --long upgrade"]
async fn a_server_upgraded_in_place_gets_an_image_and_an_order_of_it() {
    let server = Place::new().with_program(former()).start(&[]).await;
    let name = create_machine(&server, 0, MACS[0], ADDRESSES[0]);
    let place = tokio::task::block_in_place(|| server.terminate());
    let site = Site::of(place.with_program(present()).start(&[]).await);
    let image = import(&site).await;
    let ordered = order(&site, &name).await;
    check_installed_image(&site.server, &ordered.id, &image).await;
    let place = tokio::task::block_in_place(|| site.server.terminate());
    place.check_store();
}
