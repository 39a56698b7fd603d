//! The clients that machines run (curl, cloud-init's data sources and its phone-home call, botocore) against the service at
//! 169.254.169.254 in a network of their own. `peers.sh` downloads them once.

#[path = "fixture/image.rs"]
mod image;
#[path = "fixture/machines.rs"]
mod machines;
#[path = "fixture/network.rs"]
mod network;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use metadata::http::{NotStored, PhoneHomeCall};
use metadata::machine::{Bond, Nic, TokenPolicy};
use metadata::{Index, Machine, PhoneHome, serve};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use machines::{Feed as _, USER_DATA, node1, service};
use network::Network;

/// The directory of the clients.
static PEERS: LazyLock<PathBuf> = LazyLock::new(|| {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers.sh");
    let done = Command::new(script).arg(&peers).status().expect("tests/peers.sh");
    assert!(done.success(), "tests/peers.sh could not fetch the clients: {done}");
    peers.canonicalize().expect("the clients")
});

/// The time that cloud-init has to find the service, in seconds.
const MAX_WAIT_SECONDS: &str = "60";
/// The same where it finds nothing, which takes all of it.
const SHORT_MAX_WAIT_SECONDS: &str = "5";

/// The service, and the machine that is its client.
struct Lab {
    network: Network,
    index: Arc<Index>,
    calls: mpsc::UnboundedReceiver<PhoneHomeCall>,
    directory: TempDir,
    stop: CancellationToken,
}

/// Sends phone-home calls to the test.
struct Reports(mpsc::UnboundedSender<PhoneHomeCall>);

#[async_trait::async_trait]
impl PhoneHome for Reports {
    async fn report(&self, call: PhoneHomeCall) -> Result<(), NotStored> {
        self.0.send(call).map_err(|gone| NotStored(gone.into()))
    }
}

impl Lab {
    /// A service for `machine`, in a network of its own.
    fn new(machine: Machine) -> Self {
        let network = Network::new();
        let listener = network.listen();
        listener.set_nonblocking(true).expect("a socket for tokio");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket for tokio");
        let index = Arc::new(Index::default());
        index.replace([machine]);
        let (reports, calls) = mpsc::unbounded_channel();
        let service = Arc::new(service(index.clone(), Arc::new(Reports(reports))));
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, service, stop.clone()));
        Self { network, index, calls, directory: TempDir::new().expect("a directory"), stop }
    }

    fn with_tokens(tokens: TokenPolicy) -> Self {
        Self::new(Machine { tokens, ..node1() })
    }

    fn run(&self, program: &[&str]) -> String {
        let done = self.network.run(self.directory.path(), program);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{program:?}: {}\n{errors}", done.status);
        String::from_utf8(done.stdout).expect("text")
    }

    fn curl(&self, arguments: &[&str], path: &str) -> String {
        let url = format!("http://169.254.169.254{path}");
        self.run(&[&["curl", "--silent", "--max-time", "60"], arguments, &[&url]].concat())
    }

    /// Returns the status and the size of the response that curl gets.
    fn status(&self, arguments: &[&str], path: &str) -> String {
        let outcome = ["--output", "/dev/null", "--write-out", "%{http_code} %{size_download}"];
        self.curl(&[&outcome, arguments].concat(), path)
    }

    /// Runs one of the Python files in this directory, and parses the JSON it prints.
    fn python(&self, file: &str, arguments: &[&str]) -> Value {
        let python = PEERS.join("metadata-venv/bin/python");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
        let program = [python.to_str().expect("text"), file.to_str().expect("text")];
        serde_json::from_str(&self.run(&[&program, arguments].concat())).expect("JSON")
    }

    /// Returns what cloud-init finds on hardware that it identifies as `platform`.
    fn cloud_init(&self, platform: &str, then: &[&str]) -> Value {
        self.cloud_init_within(MAX_WAIT_SECONDS, platform, then)
    }

    /// Returns what it finds within so many seconds.
    fn cloud_init_within(&self, seconds: &str, platform: &str, then: &[&str]) -> Value {
        let library = PEERS.join("cloud-init/usr/lib/python3/dist-packages");
        let library = library.to_str().expect("text");
        self.python("cloud_init.py", &[&[library, platform, seconds], then].concat())
    }

    /// Returns what cloud-init finds with another data source than EC2's.
    fn seed(&self, which: &[&str]) -> Value {
        let library = PEERS.join("cloud-init/usr/lib/python3/dist-packages");
        self.python("seeds.py", &[&[library.to_str().expect("text")], which].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_reads_listings_and_values() {
    let lab = Lab::new(node1());
    assert!(lab.curl(&[], "/").ends_with("\nlatest"));
    assert_eq!(lab.curl(&[], "/latest/"), "dynamic\nmeta-data\nuser-data");
    assert!(lab.curl(&[], "/2009-04-04/meta-data/").contains("\nplacement/\n"));
    assert_eq!(lab.curl(&[], "/latest/meta-data/instance-id"), "i-0001");
    assert_eq!(lab.curl(&[], "/latest/user-data"), USER_DATA);
    assert_eq!(lab.status(&[], "/2099-01-01/"), "404 0");
    assert_eq!(lab.status(&["--request", "POST"], "/latest/meta-data/"), "405 0");
    assert!(
        lab.curl(&["--head"], "/latest/meta-data/instance-id").contains("content-length: 6\r\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_opens_a_session_and_uses_it() {
    let lab = Lab::with_tokens(TokenPolicy::Required);
    assert_eq!(lab.status(&[], "/latest/meta-data/instance-id"), "401 0");
    let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60";
    let opened = lab.curl(&["--include", "-X", "PUT", "-H", ttl], "/latest/api/token");
    let (head, token) = opened.split_once("\r\n\r\n").expect("head and body");
    assert!(head.to_lowercase().contains(&ttl.to_lowercase()), "{head}");
    let token = format!("X-aws-ec2-metadata-token: {token}");
    assert_eq!(lab.curl(&["-H", &token], "/latest/meta-data/instance-id"), "i-0001");
    assert_eq!(lab.status(&["-H", &format!("{token}x")], "/latest/meta-data/instance-id"), "401 0");
    let forwarded = ["-X", "PUT", "-H", ttl, "-H", "X-Forwarded-For: 198.51.100.50"];
    assert_eq!(lab.status(&forwarded, "/latest/api/token"), "403 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_address_finds_nothing_until_a_machine_has_it() {
    let lab = Lab::new(node1());
    let from = ["--interface", "198.51.100.77"];
    assert_eq!(lab.status(&from, "/latest/meta-data/"), "404 0");
    let mut moved = node1();
    moved.nics[0].addresses.push(machines::address("198.51.100.77", 24, false));
    lab.index.put(moved);
    assert_eq!(lab.curl(&from, "/latest/meta-data/instance-id"), "i-0001");
}

/// Asserts what cloud-init finds on node1, on every platform.
#[track_caller]
fn assert_is_node1(found: &Value) {
    assert_eq!(found["instance_id"], "i-0001");
    assert_eq!(found["hostname"], "node1.lab");
    assert_eq!(found["keys"], json!(["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey user@host"]));
    assert_eq!(found["user_data"], USER_DATA);
    assert_eq!((&found["zone"], &found["region"]), (&json!("lab1a"), &json!("lab1")));
    let eth0 = &found["network"]["ethernets"]["eth0"];
    assert_eq!((&eth0["dhcp4"], &eth0["addresses"]), (&json!(true), &json!(["198.51.100.51/24"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_on_bare_metal_finds_everything_without_a_token() {
    assert_is_node1(&Lab::with_tokens(TokenPolicy::Optional).cloud_init("unknown", &[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_on_what_looks_like_aws_finds_everything_with_a_token() {
    for tokens in [TokenPolicy::Optional, TokenPolicy::Required] {
        let found = Lab::with_tokens(tokens).cloud_init("aws", &[]);
        assert_is_node1(&found);
        assert_eq!(found["identity"]["instanceId"], "i-0001", "{tokens:?}");
        assert_eq!(found["asked_for_token"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_on_bare_metal_finds_nothing_with_required_tokens() {
    let lab = Lab::with_tokens(TokenPolicy::Required);
    assert_eq!(lab.cloud_init_within(SHORT_MAX_WAIT_SECONDS, "unknown", &[]), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_finds_nothing_in_a_closed_tree() {
    for platform in ["unknown", "aws"] {
        let lab = Lab::with_tokens(TokenPolicy::Disabled);
        let found = lab.cloud_init_within(SHORT_MAX_WAIT_SECONDS, platform, &[]);
        assert_eq!(found, Value::Null, "{platform}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_works_on_a_machine_without_an_instance() {
    let bare = Machine { instance: None, ..node1() };
    let found = Lab::new(bare).cloud_init("unknown", &[]);
    assert_eq!(found["instance_id"], node1().id.to_string());
    assert_eq!((&found["hostname"], &found["keys"]), (&json!("rack1-slot7.lab"), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_finds_every_key_though_two_have_the_same_comment() {
    let keys = ["ssh-rsa AAAA me@laptop", "ssh-ed25519 BBBB me@laptop"];
    let mut machine = node1();
    machine.instance.as_mut().expect("an instance").ssh_keys = keys.map(String::from).into();
    let found = Lab::new(machine).cloud_init("unknown", &[]);
    assert_eq!(found["keys"], json!(keys));
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_reads_tags_with_special_characters() {
    let tags = ["a b=1", "50%=2", "ü=3", "q?x#y=4", "a/b=5", " lost =6"].map(String::from);
    let mut machine = node1();
    machine.instance.as_mut().expect("an instance").tags = tags.into();
    let found = Lab::new(machine).cloud_init("unknown", &[]);
    let wanted = json!({ "a b": "1", "50%": "2", "ü": "3", "q?x#y": "4" });
    assert_eq!(found["tags"], wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_phones_home_with_its_instance_id() {
    let mut lab = Lab::new(node1());
    lab.cloud_init("unknown", &["http://169.254.169.254/phone-home"]);
    let call = lab.calls.try_recv().expect("a call");
    assert_eq!((call.hardware, call.instance_id.as_str()), (node1().id, "i-0001"));
    for (field, value) in [("instance_id", "i-0001"), ("hostname", "node1"), ("fqdn", "node1.lab")]
    {
        assert_eq!(call.fields.get(field).map(String::as_str), Some(value));
    }
}

/// Settings of an image that make ds-identify start cloud-init, as docs/site.md lists them, and some that do not.
#[test]
fn ds_identify_starts_cloud_init_if_the_image_is_set_up_for_it() {
    let cloud_init = PEERS.join("cloud-init");
    let sources = |line: &str, files: &[(&str, &str)]| image::sources(&cloud_init, line, files);
    const FILE: &str = "etc/cloud/cloud.cfg.d/90-metadata.cfg";
    let strict = "datasource: {Ec2: {strict_id: false}}\n";
    assert_eq!(sources("root=/dev/sda1 ci.ds=Ec2", &[]), "[ Ec2, None ]");
    assert_eq!(sources("", &[(FILE, "datasource_list: [ Ec2 ]\n")]), "[ Ec2, None ]");
    let cfg = ("etc/cloud/ds-identify.cfg", "datasource: Ec2\n");
    assert_eq!(sources("", &[cfg]), "[ Ec2, None ]");
    let seed = "ds=nocloud;s=http://169.254.169.254/nocloud/";
    assert_eq!(sources(seed, &[]), "[ NoCloud, None ]");
    for (line, text) in
        [("", ""), ("", strict), ("ds=ec2", ""), ("", "datasource_list: [ NoCloud, Ec2 ]\n")]
    {
        assert_eq!(sources(line, &[(FILE, text)]), "", "{line} {text}");
    }
}

/// node1 with a bond of two interfaces and a VLAN on it.
fn bonded() -> Machine {
    let mut machine = node1();
    let mac = "52:54:00:00:00:11".parse().expect("a MAC address");
    let second = Nic { mac, name: "eth1".into(), addresses: vec![], ..machine.nics[0].clone() };
    machine.nics.push(Nic { primary: false, ..second });
    for nic in &mut machine.nics {
        (nic.bond, nic.vlan) = ("bond0".into(), Some(100));
    }
    machine.bonds = vec![Bond { name: "bond0".into(), mode: "802.3ad".into() }];
    machine
}

/// Asserts what cloud-init finds in either seed of node1.
#[track_caller]
fn assert_seeded(found: &Value) {
    assert_eq!(found["repeated"], 0, "{found}");
    assert_eq!(found["instance_id"], "i-0001");
    assert_eq!(found["hostname"], "node1.lab");
    assert_eq!(found["keys"], json!(["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey user@host"]));
    assert_eq!(found["user_data"], USER_DATA);
}

/// Returns the addresses of a link, without the prefix length, which only some versions of cloud-init print.
fn addresses_of(found: &Value, link: &str) -> Vec<String> {
    let all = found["network"][link].as_array().into_iter().flatten();
    let bare = |address: &str| address.split('/').next().unwrap_or_default().to_owned();
    all.filter_map(|address| Some(bare(address.as_str()?))).collect()
}

const ADDRESSES: [&str; 3] = ["198.51.100.50", "198.51.100.51", "2001:db8::50"];

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_finds_its_seed_by_address_and_by_lookup_id() {
    let lab = Lab::new(node1());
    for path in ["".to_owned(), format!("{}/", machines::LOOKUP)] {
        let found = lab.seed(&["nocloud", &format!("http://169.254.169.254/nocloud/{path}")]);
        assert_seeded(&found);
        assert_eq!(addresses_of(&found, "eth0"), ADDRESSES);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_finds_openstacks_documents() {
    let found = Lab::new(node1()).seed(&["openstack"]);
    assert_seeded(&found);
    assert_eq!(addresses_of(&found, "eth0"), ADDRESSES);
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_init_sets_up_the_bond_and_the_vlan_of_the_record() {
    let lab = Lab::new(bonded());
    for seed in [&["nocloud", "http://169.254.169.254/nocloud/"][..], &["openstack"]] {
        let found = lab.seed(seed);
        assert_seeded(&found);
        assert_eq!(addresses_of(&found, "bond0.100"), ADDRESSES, "{seed:?}");
        assert!(addresses_of(&found, "eth0").is_empty() && found["network"]["bond0"].is_array());
    }
}

/// The headers of every request of bosh-agent.
const BOSH: [&str; 6] = [
    "-H",
    "User-Agent: Go-http-client/1.1",
    "-H",
    "Accept-Encoding: gzip",
    "-H",
    "Connection: close",
];

/// Requests these paths as bosh-agent does: on images for AWS with a new token for each, on those for OpenStack without.
fn assert_bosh_reads(lab: &Lab, with_token: bool, documents: &[(&str, &str)]) {
    for (path, wanted) in documents {
        let mut get: Vec<String> = BOSH.map(String::from).into();
        if with_token {
            let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 300";
            let put = [&["-X", "PUT", "-H", ttl, "-H", "Content-Length: 0"][..], &BOSH].concat();
            let token = lab.curl(&put, "/latest/api/token");
            get.extend(["-H".into(), format!("X-aws-ec2-metadata-token: {token}")]);
        }
        let get: Vec<_> = get.iter().map(String::as_str).collect();
        let path = format!("/latest/{path}");
        assert_eq!(lab.status(&get, &path), format!("200 {}", wanted.len()), "{path}");
        assert_eq!(lab.curl(&get, &path), *wanted, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bosh_agent_reads_its_documents_with_and_without_a_key() {
    let key = node1().ssh_keys()[0].to_owned();
    let (id, bare) = (node1().id.to_string(), Machine { instance: None, ..node1() });
    let (name, keys) = ("meta-data/instance-id", "meta-data/public-keys/0/openssh-key");
    for (tokens, with_token) in [(TokenPolicy::Required, true), (TokenPolicy::Optional, false)] {
        let documents = [("user-data", USER_DATA), (keys, &key), (name, "i-0001")];
        assert_bosh_reads(&Lab::with_tokens(tokens), with_token, &documents);
        let lab = Lab::new(Machine { tokens, ..bare.clone() });
        assert_bosh_reads(&lab, with_token, &[(keys, ""), (name, &id)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn afterburn_can_split_each_key_into_two_fields() {
    let mut machine = node1();
    let keys = ["ssh-rsa AAAA me=you@laptop", "ssh-ed25519 BBBB"].map(String::from);
    machine.instance.as_mut().expect("an instance").ssh_keys = keys.into();
    let listing = Lab::new(machine).curl(&[], "/2021-01-03/meta-data/public-keys");
    assert_eq!(listing.lines().count(), 2);
    assert!(listing.lines().all(|line| line.split('=').count() == 2), "{listing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn botocore_finds_the_region_and_no_account() {
    for tokens in [TokenPolicy::Optional, TokenPolicy::Required] {
        let found = Lab::with_tokens(tokens).python("sdk.py", &[]);
        let wanted = json!({ "region": "lab1", "credentials": {}, "instance_id": "i-0001" });
        assert_eq!(found, wanted, "{tokens:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn botocore_finds_nothing_in_a_closed_tree() {
    let found = Lab::with_tokens(TokenPolicy::Disabled).python("sdk.py", &[]);
    assert_eq!(found, json!({ "region": null, "credentials": {}, "instance_id": null }));
}
