//! Records what a program sends, receives and stores.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::stream;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::bytes::Bytes;
use runtime::Caller;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{Client, decoded, encoded, method};
use super::contract;
use super::recording::{self, BACKUP, CALLS, CONTRACT, READS, RecordedCall, SECRETS};
use super::replay::read_all;
use super::site::Site;
use super::worker::BOOT_ID;
use crate::emulator::{self, Emulator, PASSWORD, USER};
use crate::network::{Network, OURS};
use crate::peer::free_port;
use crate::process::{Place, Process, arguments, soon};

/// The MACs of a machine with a reserved address, of one without a record, and of one that leases
/// its address.
const MACS: [&str; 3] = ["52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03"];
const POOL: &str = "[[subnets]]
network = \"198.51.100.0/24\"
ranges = [\"198.51.100.100-198.51.100.120\"]
";
/// The time after which reconcilers have stored what follows from the last call.
const SETTLING_TIME: Duration = Duration::from_secs(3);

/// Records `program` in the empty `folder`, except the meaning of its records. Afterwards, does
/// `work` where it has stored all that.
pub(crate) fn record(program: PathBuf, folder: &Path, work: impl AsyncFnOnce(Place, &Path) + Send) {
    // It may have to be downloaded, which no namespace of a test can do.
    LazyLock::force(&emulator::PEERS);
    let network = Network::new(&MACS);
    network.on_site(async || {
        let process = start(Place::new().with_program(program)).await;
        let client = Client::of(&process).await;
        let mut site = Site::new(&client, &process);
        site.populate().await;
        enrol_bmc(&mut site).await;
        run_node(&site, "noded").await;
        boot_machines(&mut site, &network).await;
        tokio::time::sleep(SETTLING_TIME).await;
        let calls = recording::first_of_each(client.calls.take());
        recording::write(folder, CALLS, calls.map(|it| it.line(&client.pool)));
        compress(&backup(&site).await, &folder.join(BACKUP));
        read_all(&site).await;
        let reads = client.calls.take();
        recording::write(folder, READS, reads.iter().map(RecordedCall::bytes));
        let contract = contract::text(&contract::described(&client.pool));
        std::fs::write(folder.join(CONTRACT), contract).unwrap();
        copy_secrets(&process.place.secrets(), &folder.join(SECRETS));
        drop(site);
        drop(client);
        // Not in this thread, which ends the client's connections meanwhile.
        let place = tokio::task::spawn_blocking(|| process.terminate()).await.unwrap();
        work(place, folder).await;
    });
}

/// Starts a process that serves the machines of the network.
pub(crate) async fn start(place: Place) -> Process {
    let config = place.path("config.toml");
    std::fs::write(&config, POOL).unwrap();
    let (config, api) = (config.display().to_string(), format!("{OURS}:{}", free_port()));
    let flags = ["--config", &config, "--netboot-interface", "br0", "--listen", &api];
    let metadata = format!("{OURS}:8080");
    place.start(&arguments(&[&flags[..], &["--metadata-listen", &metadata]].concat())).await
}

/// Copies the files of `from`.
pub(crate) fn copy_secrets(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Returns a backup of the store.
async fn backup(site: &Site<'_>) -> Vec<u8> {
    let method = method(&site.client.pool, "StoreService/Backup");
    let responses = site.client.responses(&site.admin, &method, Vec::new().into()).await.unwrap();
    let data = |bytes: &Bytes| {
        let message = DynamicMessage::decode(method.output(), bytes.clone()).unwrap();
        message.get_field_by_name("data").unwrap().as_bytes().unwrap().to_vec()
    };
    responses.iter().flat_map(data).collect()
}

/// Writes `bytes`, compressed, to the file `path`.
fn compress(bytes: &[u8], path: &Path) {
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "-n"]).stdin(Stdio::piped()).stdout(std::fs::File::create(path).unwrap());
    let mut gzip = gzip.spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(gzip.wait().unwrap().success());
}

/// Enrols a BMC that answers, and carries out power jobs.
async fn enrol_bmc(site: &mut Site<'_>) {
    let emulator = Emulator::guarded("racked");
    let redfish = json!({"url": emulator.url, "system_id": emulator::id(0)});
    let bmc = json!({"redfish": redfish, "username": USER, "password": PASSWORD});
    let enrol = json!({"bmc": bmc, "name": "racked", "discovery": "DISCOVERY_NONE"});
    let enrolled = site.call("PowerService/EnrolBmc", enrol).await;
    let machine = json!({"hardware_id": enrolled["hardware_id"]});
    site.call("PowerService/GetPowerState", machine.clone()).await;
    site.call("PowerService/ReadBmcInventory", machine.clone()).await;
    let mut job = machine;
    job["operations"] = json!([{"power": "POWER_ON"}]);
    let job = site.call("PowerService/CreatePowerJob", job).await;
    let get = json!({"id": job["power_job"]["id"]});
    let is_done = |it: &Value| it["power_job"]["state"] == "STATE_SUCCESS";
    site.until("PowerService/GetPowerJob", get, is_done).await;
}

/// Connects the agent of the machine `name`, which runs its stack and answers a call.
async fn run_node(site: &Site<'_>, name: &str) {
    let id = site.id(name);
    let caller = Caller::node(id.parse().unwrap(), 0);
    let connect = method(&site.client.pool, "NodeService/Connect");
    let (up, requests) = mpsc::channel::<Bytes>(8);
    let sent = stream::unfold(requests, async |mut it| Some((it.recv().await?, it)));
    let (mut ups, mut downs) = (Vec::new(), Vec::new());
    let mut send = async |message: Value| {
        let bytes = encoded(&connect.input(), message);
        up.send(bytes.clone()).await.unwrap();
        ups.push(bytes);
    };
    let hello = json!({"boot_id": BOOT_ID, "process_id": "p", "agent_version": "recorded"});
    send(json!({"hello": hello})).await;
    let mut stream = site.client.begin(&caller, &connect, sent).await.unwrap();
    let agent = async {
        loop {
            let message = soon(stream.message()).await.unwrap().unwrap();
            let down = decoded(&connect.output(), &message);
            downs.push(message);
            let stack = &down["desired_stack"];
            if stack["stack_id"].is_string() {
                let mut observation = json!({"state": "NODE_STATE_RUNNING"});
                for field in ["assignment", "stack_id", "stack_version"] {
                    observation[field] = stack[field].clone();
                }
                send(json!({"observation": observation})).await;
            }
            if down["call"].is_object() {
                let result = json!({"containers": {"containers": [{"id": "1", "name": "os"}]}});
                let call = &down["call"]["call_id"];
                send(json!({"result": {"call_id": call, "result": result}})).await;
                return;
            }
        }
    };
    let caller_of_node = async {
        let is_running = |it: &Value| it["node"]["state"] == "NODE_STATE_RUNNING";
        site.until("NodeService/GetNode", json!({"id": id}), is_running).await;
        let call = json!({"node_id": id, "call": {"list_containers": {}}, "call_id": "c-1"});
        site.call("NodeService/CallNode", call).await;
    };
    tokio::join!(agent, caller_of_node);
    site.client.record(&caller, &connect, ups, downs);
}

/// Boots the machines as far as DHCP, and the first one as far as the script of iPXE.
async fn boot_machines(site: &mut Site<'_>, network: &Network) {
    let dhcp = json!({"address": {"address": "198.51.100.50", "prefix_length": 24}});
    let netboot = json!({"allow_pxe": true, "allow_workflow": true});
    let interface = json!({"mac": MACS[0], "dhcp": dhcp, "netboot": netboot});
    let machine = json!({"hardware": {"name": "booting", "interfaces": [interface]}});
    site.create("booting", "HardwareService/CreateHardware", machine).await;
    let leasing = json!({"hardware": {"name": "leasing", "interfaces": [{"mac": MACS[2]}]}});
    site.create("leasing", "HardwareService/CreateHardware", leasing).await;
    let has_record = |it: &Value| it["inputs"]["hardware_id"].is_string();
    for name in ["booting", "leasing"] {
        let id = json!({"hardware_id": site.id(name)});
        site.until("NetbootService/ExplainBoot", id, has_record).await;
    }
    for machine in 0..MACS.len() {
        network.run(machine, "busybox udhcpc -i eth0 -n -q -f -t 3 -T 1 -s /bin/true");
    }
    let id = json!({"hardware_id": site.id("booting")});
    network.set(0, "addr add 198.51.100.50/24 dev eth0");
    network.run(0, &format!("curl -s http://{OURS}:7080/auto.ipxe"));
    let is_listed = |it: &Value| it["boots"].is_array();
    site.until("NetbootService/ListBoots", id, is_listed).await;
    let is_leased = |it: &Value| it["leases"].is_array();
    site.until("LeaseService/ListLeases", json!({}), is_leased).await;
    let withheld = json!({"blocks": ["198.51.100.110"], "holder": "grant x"});
    site.call("LeaseService/WithholdAddresses", withheld).await;
    let withheld = json!({"blocks": ["198.51.100.111"], "holder": "grant y"});
    site.call("LeaseService/WithholdAddresses", withheld).await;
    site.call("LeaseService/DeleteLease", json!({"address": "198.51.100.111"})).await;
    site.call("NetbootService/ReadBootLog", json!({"unknown": true, "lines": 5})).await;
    let explained = json!({"hardware_id": site.id("installed")});
    site.call("MetadataService/ExplainMetadata", explained).await;
}
