//! A site with one machine without disks, the servers of its images, a stack, and an instance that names the stack.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rack::SERVER;
use rack::lab::Lab;
use rack::machines::{Firmware, Machine};
use rack::provision::record;
use rack::shell::Shell;
use rack::site::Site;
use runtime::Channel;
use serde_json::{Value, json};
use setup::pages::typed;
use tinwright::hardware::v1::Policy;
use tinwright::instance::v1::State;
use tinwright::node::v1::node_service_client::NodeServiceClient;
use tinwright::node::v1::{GetNodeRequest, Node, NodeState, get_node_request};
use tokio::task::block_in_place;

use crate::images;
use crate::servers::{SQUASH, Servers, start_ganesha};

/// Maximum time until a step of the server or of the machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Interval between two requests for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time of a call through the gateway, in seconds; it answers within 28 s.
const CALL_TIMEOUT: &str = "40";
/// The name of the stack, and of its container.
pub(crate) const STACK: &str = "compute";
pub(crate) const CONTAINER: &str = "os";
/// The name of the squashfs with the container's image.
const IMAGE: &str = "look.sqsh";
/// A shell for the test. On a busy host an emulated timer is late; a kernel that checks it stops.
const KERNEL_PARAMETERS: [&str; 4] =
    ["quiet", "mitigations=off", "no_timer_check", "debug_shell=ttyS1"];

/// The servers of images.
pub(crate) enum Peers {
    /// Only what the stack needs.
    Nfs,
    /// Those of all schemes.
    All,
}

/// The site with its machine.
pub(crate) struct NodeSite {
    /// The shell on the machine, in its present boot.
    pub(crate) shell: Option<Shell>,
    pub(crate) servers: Option<Servers>,
    pub(crate) machine: Machine,
    pub(crate) hardware_id: String,
    pub(crate) instance_id: String,
    nodes: NodeServiceClient<Channel>,
    pub(crate) site: Site,
    /// Public files of netboot: none.
    _files: tempfile::TempDir,
}

impl NodeSite {
    /// Starts the site, and creates the instance.
    pub(crate) async fn start(peers: Peers) -> Self {
        let osie = build_environments();
        let files = tempfile::tempdir().unwrap();
        let mut site = Site::start(&osie, files.path()).await.unwrap();
        let memory_mib = match peers {
            Peers::Nfs => 1024,
            Peers::All => 1536,
        };
        let servers = serve_images(&mut site.lab, &peers);
        let machine = Machine::new(&site.lab, 1, Firmware::Bios).unwrap();
        let machine = machine.with_memory_mib(memory_mib).without_disk().unwrap().with_shell();
        let mut hardware = record(&machine);
        hardware.disks.clear();
        let kernel_params = KERNEL_PARAMETERS.map(str::to_owned).into();
        hardware.policy = Some(Policy { kernel_params, ..Policy::default() });
        let hardware_id = site.add_machine_with(&machine, hardware).await.unwrap();
        let nodes = NodeServiceClient::new(site.server.channel().await.unwrap());
        let instance_id = String::new();
        let shell = None;
        let mut started =
            Self { shell, servers, machine, hardware_id, instance_id, nodes, site, _files: files };
        block_in_place(|| started.create_instance());
        started
    }

    /// Applies the stack, and creates the instance that names it.
    fn create_instance(&mut self) {
        let stack = self.site.lab.path("stack.yaml");
        std::fs::write(&stack, serde_json::to_string(&stack_of_squashfs()).unwrap()).unwrap();
        self.tinwright(&["stack", "apply", "-f", stack.to_str().unwrap()]);
        let instance = self.site.lab.path("instance.yaml");
        let name = &self.machine.name;
        let id = &self.hardware_id;
        let text =
            format!("hostname: {name}\nhardware_id: {id}\nimage_stack:\n  stack_id: {STACK}\n");
        std::fs::write(&instance, text).unwrap();
        let file = instance.to_str().unwrap();
        let created = self.tinwright(&["instance", "create", "-f", file, "-o", "json"]);
        let created: Value = serde_json::from_str(&created).unwrap();
        self.instance_id = created[0]["id"].as_str().unwrap().to_owned();
    }

    /// Runs the `tinwright` command. Returns its output.
    pub(crate) fn tinwright(&self, words: &[&str]) -> String {
        let output = self.site.server.cli().args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Requests `path` of the node's ImageAPI through the gateway.
    pub(crate) fn gateway(&self, path: &str) -> Value {
        let secrets = self.site.server.data.join("secrets");
        let mut curl = self.site.lab.command("curl");
        curl.args(["-s", "--fail-with-body", "--noproxy", "*", "-m", CALL_TIMEOUT]);
        curl.arg("--cacert").arg(secrets.join("ca.pem"));
        curl.arg("--cert").arg(secrets.join("admin.pem"));
        curl.arg("--key").arg(secrets.join("admin-key.pem"));
        let name = &self.machine.name;
        let output = curl.arg(format!("https://127.0.0.1:8080/nodes/{name}/imageapi/v1{path}"));
        let output = output.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{path}: {}: {text}", output.status);
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the node fulfils `condition`. Calls fail while the server is away.
    pub(crate) async fn until_node(&self, what: &str, condition: impl Fn(&Node) -> bool) -> Node {
        let mut last = None;
        let polling = async {
            loop {
                let by = Some(get_node_request::By::Id(self.hardware_id.clone()));
                let found = self.nodes.clone().get_node(GetNodeRequest { by }).await;
                last = found.ok().and_then(|it| it.into_inner().node).or(last.take());
                if let Some(node) = last.clone().filter(&condition) {
                    return node;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let found = tokio::time::timeout(STEP_TIMEOUT, polling).await;
        found.unwrap_or_else(|_| {
            panic!("{what}: {last:?}: {}", self.machine.console(&self.site.lab))
        })
    }

    /// Waits until the instance is active and the node runs its stack.
    pub(crate) async fn until_running(&self) -> Node {
        let print_state = |it: &tinwright::instance::v1::Instance| {
            println!("instance {} {}", it.state().word(), it.state_reason);
        };
        let operator = &self.site.operator;
        let active =
            operator.wait_for_state(&self.instance_id, State::Active, STEP_TIMEOUT, print_state);
        active.await.unwrap();
        let node = self.until_node("the node runs its stack", is_running).await;
        println!("node {} runs assignment {} in boot {}", node.name, node.assignment, node.boot_id);
        node
    }

    /// Returns the shell on the machine.
    pub(crate) fn shell(&mut self) -> &mut Shell {
        let (machine, lab) = (&self.machine, &self.site.lab);
        self.shell.get_or_insert_with(|| Shell::connect(&machine.shell(lab)).unwrap())
    }

    /// Returns the directory with the root of the stack's container.
    pub(crate) fn root(&self) -> String {
        let found = self.gateway(&format!("/container?name={CONTAINER}"));
        found[0]["mount"]["mountpoint"].as_str().unwrap().to_owned()
    }

    /// Deletes the instance, and waits until the machine is clean, off and free.
    pub(crate) async fn free(&self) {
        let operator = &self.site.operator;
        operator.delete_instance(&self.instance_id).await.unwrap();
        let print_state = |it: &tinwright::instance::v1::Instance| {
            println!("instance {} {}", it.state().word(), it.state_reason);
        };
        let gone =
            operator.wait_for_state(&self.instance_id, State::Deleted, STEP_TIMEOUT, print_state);
        gone.await.unwrap();
        let free = operator.hardware(&self.hardware_id).await.unwrap();
        assert_eq!(free.state(), tinwright::hardware::v1::State::Provisionable);
        assert!(!self.site.hypervisor.is_on(&self.machine).unwrap(), "powered off by its BMC");
        let node = self.until_node("the node has no stack", |node| node.stack_id.is_empty()).await;
        assert!(!node.connected, "{node:?}");
    }
}

/// Types the commands of the document that build the environment of nodes, and the one that cleans machines. Returns the folder of both.
fn build_environments() -> PathBuf {
    // Not in the folder of other machines of the rack, which have another kernel.
    let folder = setup::root().join("target/peers/osie-typed");
    let cache = setup::root().join("target/peers/kernel");
    let programs = setup::program("tinwright");
    let programs = programs.parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let commands = typed("docs/imageapi.md", "With the control plane")[0].commands();
    for command in commands {
        let command = command.split(" #").next().unwrap_or_default();
        let command = command.replace("DIR", folder.to_str().unwrap());
        let line = format!("{command} --cache {}", cache.display());
        let mut shell = Command::new("bash");
        shell.args(["-euc", &line]).env("PATH", &path).stdout(Stdio::null());
        setup::run(&mut shell).unwrap();
    }
    for name in ["initramfs-node-x86_64", "initramfs-x86_64"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    folder
}

/// True if the node is connected and runs its stack.
pub(crate) fn is_running(node: &Node) -> bool {
    node.connected && node.state() == NodeState::Running
}

/// Starts the servers of images, with that of the stack.
fn serve_images(lab: &mut Lab, peers: &Peers) -> Option<Servers> {
    let servers = match peers {
        Peers::Nfs => None,
        Peers::All => Some(Servers::start(lab, true)),
    };
    let folder = lab.path("images");
    std::fs::create_dir_all(folder.join(SQUASH)).unwrap();
    write_image(&folder.join("look"), &folder.join(SQUASH).join(IMAGE));
    if servers.is_none() {
        start_ganesha(lab, &folder, &[SQUASH]);
    }
    servers
}

/// Writes the image of the container that looks for an identity to the squashfs `file`.
fn write_image(folder: &std::path::Path, file: &PathBuf) {
    images::write_with_init(folder, &setup::root().join("tests/rack/assets/node/look.sh"));
    for name in ["proc", "sys", "dev", "run", "tmp"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let mut mksquashfs = Command::new("mksquashfs");
    setup::run(mksquashfs.arg(folder).arg(file).args(["-quiet", "-no-progress"])).unwrap();
}

/// Returns the stack: a squashfs in a file of an NFS server, below an overlay.
fn stack_of_squashfs() -> Value {
    let nfs =
        json!({"nfs": {"host": SERVER.to_string(), "path": format!("/{SQUASH}"), "ro": true}});
    let path = format!("/{IMAGE}");
    let file = json!({"loopback": {"base": "BASE_MOUNT", "path": path, "mount": nfs}});
    let squashfs = json!({"fs_type": "squashfs", "mount_options": ["ro"], "attach": file});
    let overlay = json!({"overlay": {"lower": [{"attach": squashfs}]}});
    json!({
        "name": STACK,
        "containers": [{"name": CONTAINER, "command": "/init", "mount": overlay}],
    })
}
