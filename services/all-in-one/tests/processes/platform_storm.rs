//! Orders of an outside platform over IAL, each sent three times at once to two replicas and to a gateway of its own, all of which are
//! killed again and again: each order gets one machine, no machine is given twice, and none is left without an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use instance::instances::Instances;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use runtime::authority::SiteAuthority;
use runtime::{Channel, Clock, MachinePurpose, Role};
use serde_json::{Value, json};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::location_binding_service_client::LocationBindingServiceClient;
use tinwright::address::v1::subnet_service_client::SubnetServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::hardware::v1::model_service_client::ModelServiceClient;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tokio_util::sync::CancellationToken;

use super::kills::seed;
use super::peer::Peer;
use super::process::{Place, Process, arguments, free_address, soon};

const MACHINES: usize = 50;
/// The requests with which each order is sent.
const REPEATS: usize = 3;
const MAX_KILLS: usize = 10;
/// The requests without an answer after which an order that was answered is not sent again.
const MIN_INTERRUPTED: usize = 20;
/// The most times that an order is sent again after it was answered.
const MAX_ROUNDS: usize = 100;
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The pause after too many requests.
const RATE_LIMIT_INTERVAL: Duration = Duration::from_secs(1);
const HUB: &str = "66b1f0c2a9d34e5b7c081f2a";
const MONTH: Duration = Duration::from_secs(31 * 24 * 60 * 60);
/// The time after which the platform is taken to have an answer, and a little more.
const RECEIVED_AFTER: Duration = Duration::from_secs(12);
/// The time after which the last of the answers that are lost is given up at first. It is doubled until an answer was written.
const FIRST_DELAY: Duration = Duration::from_millis(800);
/// The longest such time.
const MAX_DELAY: Duration = Duration::from_secs(52);
const SECRET: &str = "w0Jt-RkQ2mZ8-w0Jt-RkQ2mZ8";

/// The platform, whose requests go to these gateways.
struct Platform {
    http: reqwest::Client,
    /// A client that keeps no connections.
    impatient: reqwest::Client,
    gateways: Vec<SocketAddr>,
    interrupted: AtomicUsize,
}

impl Platform {
    fn new(site: &Process, gateways: Vec<SocketAddr>) -> Self {
        let authority = SiteAuthority::open(&site.place.secrets()).unwrap().authority();
        let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
        let http = || reqwest::Client::builder().tls_certs_only([authority.clone()]);
        let impatient = http().pool_max_idle_per_host(0).build().unwrap();
        let http = http().build().unwrap();
        Self { http, impatient, gateways, interrupted: AtomicUsize::new(0) }
    }

    /// Sends one request; none if the connection broke before the response was complete.
    async fn send(&self, gateway: usize, path: &str, request: &Value) -> Option<Value> {
        self.send_by(&self.http, gateway, path, request).await
    }

    async fn send_by(
        &self,
        http: &reqwest::Client,
        gateway: usize,
        path: &str,
        request: &Value,
    ) -> Option<Value> {
        let gateway = self.gateways[gateway % self.gateways.len()];
        let auth = json!({"client_id": "acme-metal", "secret": SECRET,
            "cycle": {"hub_name": "Acme", "hub_id": HUB}});
        let body = json!({"auth": auth, "request": request}).to_string();
        let sent = http.post(format!("https://{gateway}/v1/{path}")).body(body);
        let sent = sent.header("content-type", "application/json");
        let text = sent.timeout(Duration::from_secs(15)).send().await.ok()?.text().await.ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// Sends a request to one gateway after the other, until one says what became of it. Returns the data of its answer, or its error.
    async fn repeat(&self, first: usize, path: &str, request: Value) -> Result<Value, Value> {
        for gateway in first.. {
            match self.send(gateway, path, &request).await {
                Some(answer) if answer["error"].is_null() => return Ok(answer["data"].clone()),
                Some(answer) if answer["error"]["code"] == "429.rate-limiting" => {
                    tokio::time::sleep(RATE_LIMIT_INTERVAL).await;
                }
                Some(answer) if answer["error"]["status"].as_u64().unwrap() < 500 => {
                    return Err(answer["error"].clone());
                }
                _ => {
                    self.interrupted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
        unreachable!("the numbers do not end")
    }
}

/// Returns the platform's id of the server with this number.
fn platform_id(n: usize) -> String {
    format!("66b204d7a9d34e5b7c08{n:04x}")
}

fn order(n: usize) -> Value {
    json!({
        "hostname": format!("edge-{n}.fleet.example.net"),
        "model_id": "m2",
        "location_id": "kir1",
        "zone_id": null,
        "model_features": {"raid": null, "hypervisor": null},
        "provision_options": null,
        "location_configuration": null,
        "cycle": meta(n),
    })
}

fn meta(n: usize) -> Value {
    json!({
        "server_id": platform_id(n),
        "model_class": "m2",
        "model_category": "bare-metal",
        "model_id": "66b1f3f0a9d34e5b7c082044",
        "location_id": "66b1f3a1a9d34e5b7c08200c",
    })
}

/// Returns the request for the status of a server.
fn status(server: &str, n: usize) -> Value {
    json!({"server_id": server, "location_id": "kir1", "zone_id": null, "model_features":
        {"raid": null, "hypervisor": null}, "provision_options": null, "location_configuration": null,
        "extra": null, "cycle": meta(n)})
}

/// Returns the request to restart or to decommission a server.
fn operation(server: &str, n: usize) -> Value {
    json!({"server_id": server, "hostname": format!("edge-{n}.fleet.example.net"), "model_id": "m2",
        "location_id": "kir1", "zone_id": null, "extra": null, "cycle": meta(n)})
}

/// Returns the request for another address of a server.
fn allocate(server: &str, n: usize) -> Value {
    json!({"kind": "ipv4", "server_id": server, "location_id": "kir1", "zone_id": null,
        "location_configuration": null, "cycle": {"pool_id": null, "server_id": platform_id(n),
        "server_model_class": "", "server_model_category": "", "location_id": ""}})
}

/// Creates the tenant, the platform's credential, the location with its addresses, and the model.
async fn prepare(channel: &Channel) {
    let tenant = Some(id::Tenant { name: "acme".into(), ..id::Tenant::default() });
    let request = id::CreateTenantRequest { tenant, ..Default::default() };
    TenantServiceClient::new(channel.clone()).create_tenant(request).await.unwrap();
    let credential = id::Credential {
        tenant: "acme".into(),
        role: id::Role::Operator.into(),
        ..id::Credential::default()
    };
    let fields = [("client_id", "acme-metal"), ("secret", SECRET)];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let request =
        id::CreateCredentialRequest { credential: Some(credential), fields, ..Default::default() };
    IdentityServiceClient::new(channel.clone()).create_credential(request).await.unwrap();
    let location = hw::Location {
        name: "kir1".into(),
        boot_url: "http://192.0.2.1/boot.ipxe".into(),
        ..hw::Location::default()
    };
    let request = hw::CreateLocationRequest { location: Some(location), ..Default::default() };
    let mut locations = LocationServiceClient::new(channel.clone());
    let location = locations.create_location(request).await.unwrap().into_inner().location.unwrap();
    let constraints = hw::ModelConstraints { architecture: "x86_64".into(), ..Default::default() };
    let model =
        hw::Model { name: "m2".into(), constraints: Some(constraints), ..hw::Model::default() };
    let request = hw::CreateModelRequest { model: Some(model), ..Default::default() };
    ModelServiceClient::new(channel.clone()).create_model(request).await.unwrap();
    bind_addresses(channel, location.id.clone()).await;
    let create = |n| create_machine(channel, n, &location.id);
    let machines = stream::iter(0..MACHINES).map(create).buffered(8).collect::<Vec<_>>();
    machines.await;
}

/// Binds a subnet with a range to the location.
async fn bind_addresses(channel: &Channel, location_id: String) {
    let mut subnets = SubnetServiceClient::new(channel.clone());
    let subnet = addr::Subnet {
        name: "public".into(),
        cidr: "198.51.100.0/24".into(),
        ..Default::default()
    };
    let request = addr::CreateSubnetRequest { subnet: Some(subnet), ..Default::default() };
    let subnet = subnets.create_subnet(request).await.unwrap().into_inner().subnet.unwrap();
    let range = addr::Range {
        name: "hosts".into(),
        subnet_id: subnet.id.clone(),
        first: "198.51.100.10".into(),
        last: "198.51.100.250".into(),
        ..addr::Range::default()
    };
    let request = addr::CreateRangeRequest { range: Some(range), ..Default::default() };
    subnets.create_range(request).await.unwrap();
    let binding =
        addr::LocationBinding { location_id, subnet_ids: vec![subnet.id], ..Default::default() };
    let request = addr::CreateLocationBindingRequest {
        location_binding: Some(binding),
        ..Default::default()
    };
    let mut bindings = LocationBindingServiceClient::new(channel.clone());
    bindings.create_location_binding(request).await.unwrap();
}

async fn create_machine(channel: &Channel, n: usize, location_id: &str) -> String {
    let mac = format!("02:00:00:00:00:{n:02x}");
    let hardware = hw::Hardware {
        interfaces: vec![hw::Interface { mac, ..Default::default() }],
        architecture: "x86_64".into(),
        location_id: location_id.into(),
        state: hw::State::Provisionable.into(),
        ..hw::Hardware::default()
    };
    let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
    let mut machines = HardwareServiceClient::new(channel.clone());
    machines.create_hardware(request).await.unwrap().into_inner().hardware.unwrap().id
}

/// Reports the UUID of each machine, as its worker does.
async fn report(site: &Process, channel: &Channel) {
    let list = hw::ListHardwareRequest { page_size: 1000, ..Default::default() };
    let mut machines = HardwareServiceClient::new(channel.clone());
    let machines = machines.list_hardware(list).await.unwrap().into_inner().hardware;
    assert_eq!(machines.len(), MACHINES);
    for machine in machines {
        let own = Role::Machine(machine.id.parse().unwrap(), MachinePurpose::Work);
        let mut worker = WorkerServiceClient::new(site.channel_as(site, &own.into()).await);
        let inventory = hw::Inventory {
            uuid: machine.id.clone(),
            architecture: "x86_64".into(),
            memory_bytes: 8 << 30,
            ..hw::Inventory::default()
        };
        let report = wf::ReportInventoryRequest { inventory: Some(inventory) };
        worker.report_inventory(report).await.unwrap();
    }
}

/// The processes, and the arguments of each.
struct Site {
    processes: Vec<(Option<Process>, Vec<String>)>,
    etcd: Peer,
}

impl Site {
    /// Starts two replicas, and a gateway that calls both. Returns the addresses of the three gateways, too.
    async fn start() -> (Self, Vec<SocketAddr>) {
        let etcd = Peer::start().await;
        let gateways: Vec<_> = (0..3).map(|_| free_address()).collect();
        let replica = |gateway: SocketAddr| {
            let listen = gateway.to_string();
            let url = etcd.url();
            arguments(&["--store", "etcd", "--etcd-endpoints", &url, "--gateway-listen", &listen])
        };
        let places = [Place::new(), Place::new()];
        let peers = places.each_ref().map(|place| format!("https://{}", place.grpc)).join(",");
        let [first, second] = places;
        let first = first.start(&replica(gateways[0])).await;
        let second = second.with_secrets_of(&first.place, &[]).start(&replica(gateways[1])).await;
        let listen = gateways[2].to_string();
        let only =
            arguments(&["--only", "gateway", "--peers", &peers, "--gateway-listen", &listen]);
        let third = Place::new();
        issue_door(&first, &third, gateways[2]);
        let third = third.start(&only).await;
        let processes = vec![
            (Some(first), replica(gateways[0])),
            (Some(second), replica(gateways[1])),
            (Some(third), only),
        ];
        (Self { processes, etcd }, gateways)
    }

    fn first(&self) -> &Process {
        self.processes[0].0.as_ref().unwrap()
    }

    /// Does to the records of deleted instances what a replica whose clock is ahead by this time does.
    async fn forget_deleted_after(&self, time: Duration) {
        let clock = Clock::manual(Clock::system().wall() + time);
        let instances = Instances::new(Arc::new(self.etcd.store().await), clock);
        assert_eq!(instances.expire_deleted().await.unwrap(), MACHINES);
    }

    /// Kills a process at random and starts it again, until `done`, at most [`MAX_KILLS`] times. Returns the number of kills.
    async fn kill_until(&mut self, done: &CancellationToken, seed: u64) -> usize {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for count in 0..MAX_KILLS {
            let uptime = Duration::from_millis(random.random_range(20..1500));
            if done.run_until_cancelled(tokio::time::sleep(uptime)).await.is_none() {
                return count;
            }
            let victim = random.random_range(0..self.processes.len());
            let (process, arguments) = &mut self.processes[victim];
            let place = process.take().unwrap().kill();
            *process = Some(place.start(arguments).await);
        }
        done.cancelled().await;
        MAX_KILLS
    }
}

/// Writes the secrets of a door at `gateway` into `place`.
fn issue_door(site: &Process, place: &Place, gateway: SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(["identity", "issue", "--role", "door", "--subject", "service:gateway"]);
    command.args(["--server-name", &gateway.ip().to_string(), "--out"]).arg(place.secrets());
    command.args(["--server", &format!("https://{}", site.place.grpc), "--secrets"]);
    let done = command.arg(site.place.secrets()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Returns all instances.
async fn instances(channel: &Channel) -> Vec<inst::Instance> {
    let list = inst::ListInstancesRequest { page_size: 1000, ..Default::default() };
    let mut instances = InstanceServiceClient::new(channel.clone());
    instances.list_instances(list).await.unwrap().into_inner().instances
}

/// Polls until the server is provisioned, and returns its identity.
async fn identity(platform: &Platform, server: &str, n: usize) -> (String, String, String) {
    let provisioned = async {
        loop {
            let path = "infrastructure/server/provision-status";
            let data = platform.repeat(n, path, status(server, n)).await.unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let auth = &data["auth"];
            if data["provisioned"] == json!(true) {
                let [ip] = auth["initial_ips"].as_array().unwrap().as_slice() else {
                    panic!("{data}")
                };
                return (text(&auth["uuid"]), text(&auth["mac_addr"]), text(ip));
            }
            assert_eq!(*auth, json!({"uuid": null, "initial_ips": [], "mac_addr": null}));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    soon(provisioned).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_orders_sent_thrice_get_fifty_machines_while_gateways_and_replicas_are_killed() {
    let seed = seed();
    let (mut site, gateways) = Site::start().await;
    let channel = site.first().lasting_channel(&Role::Admin.into());
    prepare(&channel).await;
    report(site.first(), &channel).await;
    let platform = Platform::new(site.first(), gateways);

    let done = CancellationToken::new();
    let path = "infrastructure/server/provision";
    let requests = (0..MACHINES * REPEATS).map(|n| {
        let (machine, gateway) = (n / REPEATS, n);
        let platform = &platform;
        async move {
            let mut servers = BTreeSet::new();
            for _ in 0..MAX_ROUNDS {
                let data = platform.repeat(gateway, path, order(machine)).await.unwrap();
                servers.insert(data["server_id"].as_str().unwrap().to_owned());
                if platform.interrupted.load(Ordering::Relaxed) >= MIN_INTERRUPTED {
                    break;
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            servers
        }
    });
    let work = async {
        let _done = done.clone().drop_guard();
        join_all(requests).await
    };
    let (answers, kills) = tokio::join!(work, site.kill_until(&done, seed));
    let interrupted = platform.interrupted.load(Ordering::Relaxed);
    println!("{kills} kills, {interrupted} requests without an answer");
    assert!(interrupted >= MIN_INTERRUPTED, "{kills} kills interrupted {interrupted} requests");

    let mut servers = Vec::new();
    for (n, answers) in answers.chunks(REPEATS).enumerate() {
        let ids: BTreeSet<_> = answers.iter().flatten().cloned().collect();
        assert_eq!(ids.len(), 1, "order {n} has several servers: {ids:?}");
        servers.extend(ids);
    }
    assert_eq!(servers.iter().collect::<BTreeSet<_>>().len(), MACHINES);
    let stored = instances(&channel).await;
    let machines: BTreeSet<_> = stored.iter().map(|it| &it.hardware_id).collect();
    assert_eq!((stored.len(), machines.len()), (MACHINES, MACHINES));
    let named: BTreeSet<_> = stored.iter().map(|it| it.id.clone()).collect();
    assert_eq!(named, servers.iter().cloned().collect());

    let polled = servers.iter().enumerate().map(|(n, id)| identity(&platform, id, n));
    let identities = join_all(polled).await;
    let uuids: BTreeSet<_> = identities.iter().map(|(uuid, ..)| uuid).collect();
    let macs: BTreeSet<_> = identities.iter().map(|(_, mac, _)| mac).collect();
    let addresses: BTreeSet<_> = identities.iter().map(|(.., address)| address).collect();
    assert_eq!([uuids, macs, addresses].map(|all| all.len()), [MACHINES; 3]);
    lost_answers_block_nothing(&platform, &channel, &servers).await;
    are_gone(&platform, &servers).await;
    forget(&channel, &servers).await;
    are_gone(&platform, &servers).await;
    site.forget_deleted_after(MONTH).await;
    are_gone(&platform, &servers).await;
}

/// Allocates addresses without reading the answers. Returns their grants.
async fn lose_answers(
    platform: &Platform,
    channel: &Channel,
    servers: &[String],
) -> Vec<addr::Grant> {
    let (path, http) = ("infrastructure/ip/allocate", &platform.impatient);
    let mut longest = FIRST_DELAY;
    loop {
        let allocated = servers.iter().enumerate().take(20).map(async |(n, server)| {
            let request = allocate(server, n);
            let sent = platform.send_by(http, n, path, &request);
            // From before the handshake to after the answer, whose connection then ends, too.
            let _lost = tokio::time::timeout(longest * (n * n) as u32 / 400, sent).await;
        });
        join_all(allocated).await;
        tokio::time::sleep(RECEIVED_AFTER).await;
        let lost = allocated_grants(channel).await;
        println!("{} addresses whose answers were lost within {longest:?}", lost.len());
        // A busy host may answer none of them in time.
        if !lost.is_empty() || longest * 2 > MAX_DELAY {
            return lost;
        }
        longest *= 2;
    }
}

/// Allocates addresses whose answers are lost, and decommissions the servers. Repeats have the same answers as before.
async fn lost_answers_block_nothing(platform: &Platform, channel: &Channel, servers: &[String]) {
    let lost = lose_answers(platform, channel, servers).await;
    assert!(!lost.is_empty(), "no answer was written before it was lost");
    assert_eq!(lost.iter().filter(|grant| grant.confirm_time.is_some()).count(), 0);
    let path = "infrastructure/server/decommission";
    let ended = servers.iter().enumerate();
    let ended = ended.map(|(n, server)| platform.repeat(n, path, operation(server, n)));
    for answer in join_all(ended).await {
        assert_eq!(answer, Ok(json!(true)));
    }
    let open: BTreeMap<_, _> = instances(channel)
        .await
        .into_iter()
        .filter(|it| it.boot_gate.as_ref().is_some_and(|gate| gate.open))
        .map(|it| (it.id, it.hardware_id))
        .collect();
    assert_eq!(open, BTreeMap::new());
    assert_eq!(allocated_grants(channel).await, []);
}

/// Returns the grants that the platform allocated, and that were not released.
async fn allocated_grants(channel: &Channel) -> Vec<addr::Grant> {
    let all = addr::ListGrantsRequest { page_size: 1000, ..Default::default() };
    let grants = GrantServiceClient::new(channel.clone()).list_grants(all).await.unwrap();
    let mut grants = grants.into_inner().grants;
    let released = addr::GrantState::Released;
    grants.retain(|it| it.state() != released && !it.key.starts_with("instance/"));
    grants
}

/// Requests for servers that were given back have the answers that the platform relies on.
async fn are_gone(platform: &Platform, servers: &[String]) {
    for (n, server) in servers.iter().enumerate() {
        let answer = platform.repeat(n, "infrastructure/server/decommission", operation(server, n));
        assert_eq!(answer.await, Ok(json!(true)));
        for (path, request) in [
            ("infrastructure/server/provision", order(n)),
            ("infrastructure/server/provision-status", status(server, n)),
            ("infrastructure/server/restart", operation(server, n)),
            ("infrastructure/ip/allocate", allocate(server, n)),
        ] {
            let refused = platform.repeat(n, path, request).await.unwrap_err();
            assert_eq!(refused["code"], "403.invalid-state", "{path}: {refused}");
        }
    }
}

/// Releases the machines of all instances without cleaning them, and waits until nothing of the instances is left but that they were deleted.
async fn forget(channel: &Channel, servers: &[String]) {
    let mut client = InstanceServiceClient::new(channel.clone());
    for id in servers {
        let request = inst::DeleteInstanceRequest { id: id.clone(), revision: 0, force: true };
        client.delete_instance(request).await.unwrap();
    }
    let deleted = async {
        while !instances(channel).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    soon(deleted).await;
}
