//! Servers that are stopped and started again while clients call: replicas one after the other, and
//! a single one.
//!
//! The tests of upgrades begin with a former program, and start this one in its place.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use runtime::authority::SiteAuthority;
use runtime::connect::{Servers, client_config};
use runtime::retry::is_final;
use runtime::{Channel, Role};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::watch_hardware_response::Event;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};
use uuid::Uuid;

use super::peer::Peer;
use super::process::{Place, Process, arguments, free_address, machine, soon};

/// Maximum time for which an address is claimed by a creation that ended with its replica, and some more.
const CLAIM_SECONDS: u32 = 90;
/// Clients that call at the same time.
const CLIENTS: usize = 3;

/// The clients of all replicas.
struct Load {
    answered: Arc<AtomicUsize>,
    repeated: Arc<AtomicUsize>,
    stop: CancellationToken,
    clients: JoinSet<Vec<hw::Hardware>>,
}

/// A client that creates machines, and reads, changes and deletes them.
struct Client {
    hardware: HardwareServiceClient<Channel>,
    number: usize,
    answered: Arc<AtomicUsize>,
    repeated: Arc<AtomicUsize>,
}

/// Returns a channel to the first of `replicas` that answers, with an admin's certificate.
fn channel(replicas: &[&Process]) -> Channel {
    let site = SiteAuthority::open(&replicas[0].place.secrets()).unwrap();
    let own = site.client(&Role::Admin.into()).unwrap();
    let tls = client_config(&site.authority(), &own.certificate, own.key.expose()).unwrap();
    let urls = replicas.iter().map(|it| format!("https://{}", it.place.grpc).parse().unwrap());
    let urls: Vec<_> = urls.collect();
    Servers::new(&urls, Some(tls)).unwrap().channel().unwrap()
}

impl Load {
    fn start(replicas: &[&Process]) -> Self {
        let mut load = Self {
            answered: Arc::default(),
            repeated: Arc::default(),
            stop: CancellationToken::new(),
            clients: JoinSet::new(),
        };
        for number in 0..CLIENTS {
            let client = Client {
                hardware: HardwareServiceClient::new(channel(replicas)),
                number,
                answered: load.answered.clone(),
                repeated: load.repeated.clone(),
            };
            load.clients.spawn(client.run(load.stop.clone()));
        }
        load
    }

    /// Waits until some calls were begun and answered from now on. Panics if a client failed.
    async fn goes_on(&mut self) {
        let wanted = self.answered.load(Ordering::Relaxed) + 20 * CLIENTS;
        let answered = async {
            while self.answered.load(Ordering::Relaxed) < wanted {
                if let Some(ended) = self.clients.try_join_next() {
                    panic!("a client ended: {ended:?}");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(answered).await;
    }

    /// Stops the clients. Returns the machines that they left.
    async fn end(self) -> Vec<hw::Hardware> {
        self.stop.cancel();
        // A client may wait for the end of a claim.
        let limit = 2 * Duration::from_secs(CLAIM_SECONDS.into());
        let left = tokio::time::timeout(limit, self.clients.join_all()).await;
        let left = left.expect("the clients end").concat();
        println!(
            "{:?} calls answered, {:?} repetitions, {} machines left",
            self.answered,
            self.repeated,
            left.len()
        );
        left
    }
}

impl Client {
    /// Calls until `stop`. Returns the machines that it left.
    async fn run(self, stop: CancellationToken) -> Vec<hw::Hardware> {
        let mut left = Vec::new();
        for round in 0_u16.. {
            if stop.is_cancelled() {
                break;
            }
            let made = self.create(round).await;
            let changed = Box::pin(self.update(made)).await;
            let read = self.read(&changed.id).await;
            assert_eq!(read, changed);
            if round.is_multiple_of(4) {
                self.delete(changed).await;
            } else {
                left.push(changed);
            }
        }
        left
    }

    async fn create(&self, round: u16) -> hw::Hardware {
        let [high, low] = round.to_be_bytes();
        let mac = format!("02:00:00:{:02x}:{high:02x}:{low:02x}", self.number);
        let mut request = machine(&mac, &format!("10.{}.{high}.{low}", self.number));
        request.request_id = Uuid::new_v4().to_string();
        for _ in 0..CLAIM_SECONDS {
            let created = self.until_answered(request.clone(), |mut it, request| async move {
                it.create_hardware(request).await
            });
            match created.await {
                // The address is claimed by the same request, which ended with its replica.
                Err(status) if status.code() == Code::Aborted => {
                    println!("client {}: repeated after: {status}", self.number);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                made => return made.unwrap().hardware.unwrap(),
            }
        }
        panic!("the address of {mac} is claimed for ever");
    }

    async fn update(&self, made: hw::Hardware) -> hw::Hardware {
        let mut wanted = made.clone();
        wanted.labels.insert("round".into(), "changed".into());
        let update_mask = Some(prost_types::FieldMask { paths: vec!["labels".into()] });
        let request =
            hw::UpdateHardwareRequest { hardware: Some(wanted.clone()), update_mask, force: true };
        let changed =
            self.until_answered(request, |mut it, request| async move {
                it.update_hardware(request).await
            })
            .await;
        match changed {
            Ok(changed) => changed.hardware.unwrap(),
            // A repeated update, of which only the response was lost.
            Err(status) => {
                assert_eq!(status.code(), Code::Aborted, "{status}");
                let found = self.read(&made.id).await;
                assert_eq!(found.labels, wanted.labels);
                found
            }
        }
    }

    async fn read(&self, id: &str) -> hw::Hardware {
        let by = Some(hw::get_hardware_request::By::Id(id.into()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let found =
            self.until_answered(request, |mut it, request| async move {
                it.get_hardware(request).await
            })
            .await;
        found.unwrap().hardware.unwrap()
    }

    async fn delete(&self, hardware: hw::Hardware) {
        let request = hw::DeleteHardwareRequest { id: hardware.id, revision: 0 };
        let before = self.repeated.load(Ordering::Relaxed);
        let deleted =
            self.until_answered(request, |mut it, request| async move {
                it.delete_hardware(request).await
            })
            .await;
        if let Err(status) = deleted {
            let was_repeated = self.repeated.load(Ordering::Relaxed) > before;
            assert!(was_repeated && status.code() == Code::NotFound, "{status}");
        }
    }

    /// Makes a call, and repeats it while there may be another answer. ABORTED is an answer to a call with a revision.
    async fn until_answered<Q: Clone, A, F>(
        &self,
        request: Q,
        call: impl Fn(HardwareServiceClient<Channel>, Q) -> F,
    ) -> Result<A, Status>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let answered = async {
            loop {
                match call(self.hardware.clone(), request.clone()).await {
                    Err(status) if !is_final(status.code()) && status.code() != Code::Aborted => {
                        println!("client {}: repeated after: {status}", self.number);
                        self.repeated.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    answer => return answer.map(Response::into_inner),
                }
            }
        };
        let answer = soon(answered).await;
        self.answered.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

/// Waits until a watch of `replica` has sent exactly the machines `left`, each at its revision.
async fn until_watched(replica: &Process, left: &[hw::Hardware]) {
    let wanted: HashMap<_, _> = left.iter().map(|it| (it.id.clone(), it.revision)).collect();
    let mut hardware = HardwareServiceClient::new(replica.channel().await);
    let request = hw::WatchHardwareRequest::default();
    let mut events = hardware.watch_hardware(request).await.unwrap().into_inner();
    let (mut found, mut is_synced) = (HashMap::new(), false);
    let same = async {
        while !is_synced || found != wanted {
            match events.message().await.unwrap().expect("the watch goes on").event {
                Some(Event::Hardware(hardware)) => {
                    found.insert(hardware.id, hardware.revision);
                }
                Some(Event::DeletedId(id)) => {
                    found.remove(&id);
                }
                Some(Event::Synced(_)) | None => is_synced = true,
            }
        }
    };
    soon(same).await;
}

/// A gateway in a process of its own, and a client that lists machines through it.
struct Door {
    process: Process,
    listed: Arc<AtomicUsize>,
    client: JoinSet<()>,
}

impl Door {
    /// Starts a gateway with `program`, which calls `replicas`.
    async fn start(program: PathBuf, replicas: [&Process; 2]) -> Self {
        let address = free_address();
        let peers = replicas.map(|it| format!("https://{}", it.place.grpc)).join(",");
        let listen = address.to_string();
        let flags = ["--only", "gateway", "--peers", &peers, "--gateway-listen", &listen];
        let place = Place::new().with_program(program).with_secrets_of(&replicas[0].place, &[]);
        let process = place.start(&arguments(&flags)).await;
        let key = api_key(replicas[0]).await;
        let authority = std::fs::read(replicas[0].place.secrets().join("ca.pem")).unwrap();
        let (listed, mut client) = (Arc::<AtomicUsize>::default(), JoinSet::new());
        client.spawn(list_for_ever(address, key, authority, listed.clone()));
        Self { process, listed, client }
    }

    /// Waits until some lists were begun and answered from now on. Panics if the client failed.
    async fn goes_on(&mut self) {
        let expected = self.listed.load(Ordering::Relaxed) + 20;
        let listed = async {
            while self.listed.load(Ordering::Relaxed) < expected {
                if let Some(ended) = self.client.try_join_next() {
                    panic!("the client ended: {ended:?}: {}", self.process.log());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(listed).await;
    }
}

/// Returns a key for the gateway.
async fn api_key(server: &Process) -> String {
    let credential = Some(id::Credential { role: id::Role::Viewer.into(), ..Default::default() });
    let request = id::CreateCredentialRequest { credential, ..Default::default() };
    let mut identity = IdentityServiceClient::new(server.channel().await);
    identity.create_credential(request).await.unwrap().into_inner().api_key
}

/// Lists machines. Repeats what the gateway could not pass on; any other failure is a panic.
async fn list_for_ever(
    gateway: SocketAddr,
    key: String,
    authority: Vec<u8>,
    listed: Arc<AtomicUsize>,
) {
    let authority = reqwest::Certificate::from_pem(&authority).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([authority]).build().unwrap();
    let url = format!("https://{gateway}/api/v1/hardware?page_size=1");
    loop {
        let request = client.get(&url).header("X-Api-Key", &key);
        let response = soon(request.send()).await.unwrap();
        match response.status().as_u16() {
            200 => drop(listed.fetch_add(1, Ordering::Relaxed)),
            503 => println!("gateway: repeated after: {}", response.text().await.unwrap()),
            _ => panic!("{response:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Replaces two replicas with the program `old` by this one, one after the other, while clients
/// call them, and through gateways with the programs `gateways`.
async fn replace_replicas(old: PathBuf, gateways: &[PathBuf]) {
    let new = PathBuf::from(env!("CARGO_BIN_EXE_tinwright"));
    let peer = Peer::start().await;
    let flags = arguments(&["--store", "etcd", "--etcd-endpoints", &peer.url()]);
    let first = Place::new().with_program(old.clone()).start(&flags).await;
    let second = Place::new().with_program(old).with_secrets_of(&first.place, &[]);
    let second = second.start(&flags).await;
    let mut load = Load::start(&[&first, &second]);
    let mut doors = Vec::new();
    for program in gateways {
        doors.push(Door::start(program.clone(), [&first, &second]).await);
    }
    let mut go_on = async || {
        load.goes_on().await;
        for door in &mut doors {
            door.goes_on().await;
        }
    };
    go_on().await;

    let stopped = tokio::task::block_in_place(|| first.terminate());
    go_on().await;
    let first = stopped.with_program(new.clone()).start(&flags).await;
    go_on().await;
    println!("the second replica, before it is stopped: {}", last_error(&second));
    let stopped = tokio::task::block_in_place(|| second.terminate());
    go_on().await;
    let second = stopped.with_program(new.clone()).start(&flags).await;
    go_on().await;

    let left = load.end().await;
    for replica in [&first, &second] {
        until_watched(replica, &left).await;
    }
}

/// Returns the last line of the log.
fn last_error(process: &Process) -> String {
    process.log().lines().last().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_two_replicas_loses_no_call() {
    replace_replicas(env!("CARGO_BIN_EXE_tinwright").into(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds a former program: cargo rack test --long upgrade"]
async fn a_rolling_upgrade_of_two_replicas_loses_no_call() {
    let former = setup::former::server().unwrap();
    let gateways = [former.clone(), env!("CARGO_BIN_EXE_tinwright").into()];
    replace_replicas(former, &gateways).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds a former program: cargo rack test --long upgrade"]
async fn an_upgrade_in_place_loses_no_call_and_ends_watches() {
    for stop in [Process::terminate, Process::kill] {
        let place = Place::new().with_program(setup::former::server().unwrap());
        let server = place.start(&[]).await;
        let mut load = Load::start(&[&server]);
        load.goes_on().await;
        let mut hardware = HardwareServiceClient::new(server.channel().await);
        let watch = hardware.watch_hardware(hw::WatchHardwareRequest::default()).await;
        let mut watch = watch.unwrap().into_inner();

        let stopped = tokio::task::block_in_place(|| stop(server));
        let ended = async {
            while watch.message().await?.is_some() {}
            Ok::<(), Status>(())
        };
        let ended = soon(ended).await;
        assert!(ended.is_err_and(|it| !is_final(it.code())), "a client watches again");
        let server = stopped.with_program(env!("CARGO_BIN_EXE_tinwright").into());
        let server = server.start(&[]).await;
        load.goes_on().await;
        let left = load.end().await;
        until_watched(&server, &left).await;
        let place = tokio::task::block_in_place(|| server.terminate());
        place.check_store();
    }
}
