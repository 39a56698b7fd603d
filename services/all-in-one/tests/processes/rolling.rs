//! Two replicas over etcd that are stopped and started again, one after the other, while clients call.
//!
//! With an older program in `TINWRIGHT_OLD_BINARY`, both replicas begin with it, and are started again with this one, as in an upgrade.

use std::collections::HashMap;
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
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};
use uuid::Uuid;

use super::peer::Peer;
use super::process::{Place, Process, arguments, machine, soon};

/// Clients that call at the same time.
const CLIENTS: usize = 3;

/// The clients of both replicas.
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
fn channel(replicas: [&Process; 2]) -> Channel {
    let site = SiteAuthority::open(&replicas[0].place.secrets()).unwrap();
    let own = site.client(&Role::Admin.into()).unwrap();
    let tls = client_config(&site.authority(), &own.certificate, own.key.expose()).unwrap();
    let urls = replicas.map(|it| format!("https://{}", it.place.grpc).parse().unwrap());
    Servers::new(&urls, Some(tls)).unwrap().channel().unwrap()
}

impl Load {
    fn start(replicas: [&Process; 2]) -> Self {
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
        let left = soon(self.clients.join_all()).await.concat();
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
        let made =
            self.until_answered(request, |mut it, request| async move {
                it.create_hardware(request).await
            })
            .await;
        made.unwrap().hardware.unwrap()
    }

    async fn update(&self, made: hw::Hardware) -> hw::Hardware {
        let mut wanted = made.clone();
        wanted.labels.insert("round".into(), "changed".into());
        let update_mask = Some(prost_types::FieldMask { paths: vec!["labels".into()] });
        let request = hw::UpdateHardwareRequest { hardware: Some(wanted.clone()), update_mask };
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

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_two_replicas_loses_no_call() {
    let old = std::env::var_os("TINWRIGHT_OLD_BINARY").map(PathBuf::from);
    let new = PathBuf::from(env!("CARGO_BIN_EXE_tinwright"));
    let old = || old.clone().unwrap_or_else(|| new.clone());
    let peer = Peer::start().await;
    let flags = arguments(&["--store", "etcd", "--etcd-endpoints", &peer.url()]);
    let first = Place::new().with_program(old()).start(&flags).await;
    let second = Place::new().with_program(old()).with_secrets_of(&first.place, &[]);
    let second = second.start(&flags).await;
    let mut load = Load::start([&first, &second]);
    load.goes_on().await;

    let stopped = tokio::task::block_in_place(|| first.terminate());
    load.goes_on().await;
    let first = stopped.with_program(new.clone()).start(&flags).await;
    load.goes_on().await;
    let stopped = tokio::task::block_in_place(|| second.terminate());
    load.goes_on().await;
    let second = stopped.with_program(new.clone()).start(&flags).await;
    load.goes_on().await;

    let left = load.end().await;
    for replica in [&first, &second] {
        until_watched(replica, &left).await;
    }
}
