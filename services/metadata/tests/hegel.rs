//! Hegel's calls, over connections from several addresses of the loopback interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

#[path = "fixture/machines.rs"]
mod machines;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use metadata::machine::{TokenPolicy, UserData};
use metadata::token::Tokens;
use metadata::{Hegel, Index, Machine, serve_calls};
use runtime::Channel;
use serde_json::Value;
use tinwright::hegel::hegel_client::HegelClient;
use tinwright::hegel::{GetRequest, SubscribeRequest, SubscribeResponse};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status, Streaming};

use fleet::BoundLease;
use machines::{Discard, Feed as _, USER_DATA, address, node1, node2, service};

/// Longer than every step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(30);
const NODE1: &str = "127.0.0.50";
const NODE2: &str = "127.0.0.60";
const UNKNOWN: &str = "127.0.0.77";
const TOKEN: &str = "x-aws-ec2-metadata-token";

/// `machine` with no other address than `ip`.
fn at(machine: Machine, ip: &str) -> Machine {
    let mut machine = machine;
    machine.nics[0].addresses = vec![address(ip, 8, false)];
    machine.instance.iter_mut().for_each(|instance| instance.addresses.clear());
    machine
}

fn named(hostname: &str) -> Machine {
    let mut machine = at(node1(), NODE1);
    machine.instance.as_mut().unwrap().hostname = hostname.into();
    machine
}

struct Server {
    index: Arc<Index>,
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<anyhow::Result<()>>,
}

/// A server with a snapshot of `machines`, or before the first snapshot.
async fn server_of(machines: Option<Vec<Machine>>) -> Server {
    let index = Arc::new(Index::default());
    if let Some(machines) = machines {
        index.replace(machines);
    }
    let service = Arc::new(service(index.clone(), Arc::new(Discard)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let hegel = Hegel::new(service.clone(), stop.clone()).into_service();
    let (calls, until) = (Routes::new(hegel).into_axum_router(), stop.clone());
    let served = tokio::spawn(async move { serve_calls(listener, &service, calls, until).await });
    Server { index, address, stop, served }
}

async fn server() -> Server {
    server_of(Some(vec![at(node1(), NODE1), at(node2(), NODE2)])).await
}

impl Server {
    /// A client at address `from`, which receives no more than one message before it reads.
    async fn client(&self, from: &str) -> HegelClient<Channel> {
        let endpoint = Endpoint::try_from(format!("http://{}", self.address)).unwrap();
        let endpoint = endpoint.local_address(Some(from.parse().unwrap()));
        let endpoint =
            endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
        HegelClient::new(endpoint.connect().await.unwrap().into())
    }

    async fn get(&self, from: &str) -> Result<Value, Status> {
        let response = self.client(from).await.get(GetRequest {}).await?.into_inner();
        Ok(serde_json::from_str(&response.json).unwrap())
    }

    async fn get_with(&self, name: &'static str, value: &str) -> Result<Value, Code> {
        let mut request = Request::new(GetRequest {});
        request.metadata_mut().insert(name, value.parse().unwrap());
        let response = self.client(NODE1).await.get(request).await;
        response
            .map(|response| serde_json::from_str(&response.into_inner().json).unwrap())
            .map_err(|status| status.code())
    }

    async fn subscribe(&self, from: &str) -> Result<Streaming<SubscribeResponse>, Status> {
        let request = SubscribeRequest { id: String::new() };
        Ok(self.client(from).await.subscribe(request).await?.into_inner())
    }

    fn put(&self, machine: Machine) {
        self.index.put(machine);
    }
}

/// The next message, or the end of the stream.
async fn next(stream: &mut Streaming<SubscribeResponse>) -> Result<Option<Value>, Code> {
    let message =
        tokio::time::timeout(TIMEOUT, stream.message()).await.expect("a message or an end");
    let message = message.map_err(|status| status.code())?;
    Ok(message.map(|message| serde_json::from_str(&message.json).unwrap()))
}

/// The host name in the next message.
async fn hostname(stream: &mut Streaming<SubscribeResponse>) -> String {
    let document = next(stream).await.unwrap().expect("a message");
    document["hostname"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_caller_gets_its_own_hardware() {
    let server = server().await;
    let document = server.get(NODE1).await.unwrap();
    assert_eq!(document["id"], node1().id.to_string());
    for instance in [&document["metadata"]["instance"], &document["instance"]] {
        assert_eq!((&instance["id"], &instance["userdata"]), (&"i-0001".into(), &USER_DATA.into()));
    }
    assert!(!document.to_string().contains("$6$salt"));
    assert_eq!(server.get(NODE2).await.unwrap()["id"], node2().id.to_string());
}

#[tokio::test]
async fn an_unknown_caller_is_refused_and_rate_limited() {
    let server = server().await;
    let mut client = server.client(UNKNOWN).await;
    let mut refused = Vec::new();
    for _ in 0..60 {
        refused.push(client.get(GetRequest {}).await.unwrap_err().code());
    }
    assert_eq!((refused[0], refused[59]), (Code::NotFound, Code::ResourceExhausted));
    assert_eq!(server.subscribe(UNKNOWN).await.unwrap_err().code(), Code::ResourceExhausted);
    assert!(server.get(NODE1).await.is_ok());
}

#[tokio::test]
async fn calls_are_unavailable_before_the_first_snapshot() {
    let server = server_of(None).await;
    assert_eq!(server.get(NODE1).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.subscribe(NODE1).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_forwarded_call_is_refused() {
    let forwarded = server().await.get_with("x-forwarded-for", "203.0.113.9").await;
    assert_eq!(forwarded, Err(Code::PermissionDenied));
}

#[tokio::test]
async fn required_tokens_are_required_of_calls() {
    let machine = Machine { tokens: TokenPolicy::Required, ..at(node1(), NODE1) };
    let server = server_of(Some(vec![machine])).await;
    assert_eq!(server.get(NODE1).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(server.subscribe(NODE1).await.unwrap_err().code(), Code::Unauthenticated);
    let token = Tokens::new(&runtime::SiteKey::new([7; 32]))
        .unwrap()
        .mint("i-0001", 60, SystemTime::now())
        .unwrap();
    assert!(server.get_with(TOKEN, &token).await.is_ok());
    assert_eq!(server.get_with(TOKEN, "bad").await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn a_subscriber_gets_its_document_at_once_and_after_each_change() {
    let server = server().await;
    let mut stream = server.subscribe(NODE1).await.unwrap();
    assert_eq!(hostname(&mut stream).await, "node1.lab");
    server.put(named("a"));
    assert_eq!(hostname(&mut stream).await, "a.lab");
    // Another machine's change sends no message, nor does one that does not change the document.
    server.put(Machine { plan: "other".into(), ..at(node2(), NODE2) });
    server.put(named("a"));
    assert_eq!(server.get(NODE2).await.unwrap()["plan_slug"], "other");
    server.put(named("b"));
    assert_eq!(hostname(&mut stream).await, "b.lab");
}

#[tokio::test]
async fn a_subscription_ends_with_the_lease_which_may_be_renewed() {
    let server = server_of(Some(vec![at(node1(), "127.0.0.51")])).await;
    let mac = node1().nics[0].mac;
    let lease = |until| (UNKNOWN.parse().unwrap(), BoundLease { mac, until, at_port: false });
    let mut duration = Duration::from_millis(200);
    let (mut stream, end) = loop {
        let first_end = Instant::now() + duration;
        server.index.replace_leases([lease(first_end)]);
        let stream = server.subscribe(UNKNOWN).await;
        let end = first_end + duration;
        server.index.replace_leases([lease(end)]);
        if Instant::now() < first_end {
            break (stream.unwrap(), end);
        }
        // The machine is too busy for a lease that is this short.
        duration *= 2;
    };
    assert_eq!(hostname(&mut stream).await, "node1.lab");
    // The index does not change at the end of a lease.
    assert_eq!(next(&mut stream).await, Err(Code::NotFound));
    assert!(Instant::now() >= end);
}

#[tokio::test]
async fn a_subscription_ends_with_the_address_and_sends_nothing_of_the_next_owner() {
    let server = server().await;
    let mut stream = server.subscribe(NODE1).await.unwrap();
    assert_eq!(hostname(&mut stream).await, "node1.lab");
    server.put(at(node1(), "127.0.0.51"));
    assert_eq!(next(&mut stream).await, Err(Code::NotFound));

    let mut stream = server.subscribe(NODE2).await.unwrap();
    assert_eq!(hostname(&mut stream).await, "rack1-slot7.lab");
    let next_owner = at(node1(), NODE2);
    server.index.views.update(|snapshot| {
        snapshot.remove(node2().id);
        snapshot.put(next_owner.id, vec![next_owner], &[]);
    });
    assert_eq!(next(&mut stream).await, Err(Code::NotFound));
}

#[tokio::test]
async fn a_subscription_ends_when_its_token_becomes_invalid() {
    let machine = Machine { tokens: TokenPolicy::Required, ..at(node1(), NODE1) };
    let server = server_of(Some(vec![machine.clone()])).await;
    let token = Tokens::new(&runtime::SiteKey::new([7; 32]))
        .unwrap()
        .mint("i-0001", 60, SystemTime::now())
        .unwrap();
    let mut request = Request::new(SubscribeRequest { id: String::new() });
    request.metadata_mut().insert(TOKEN, token.parse().unwrap());
    let mut stream = server.client(NODE1).await.subscribe(request).await.unwrap().into_inner();
    assert_eq!(hostname(&mut stream).await, "node1.lab");
    let mut next_instance = machine;
    next_instance.instance.as_mut().unwrap().id = "i-0002".into();
    server.put(next_instance);
    assert_eq!(next(&mut stream).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn a_slow_reader_gets_the_latest_document() {
    let server = server().await;
    let big = |hostname: &str| {
        let mut machine = named(hostname);
        machine.instance.as_mut().unwrap().user_data = UserData("x".repeat(60_000).into());
        machine
    };
    server.put(big("0"));
    let mut stream = server.subscribe(NODE1).await.unwrap();
    for n in 1..=20 {
        server.put(big(&n.to_string()));
        tokio::task::yield_now().await;
    }
    let mut received = Vec::new();
    while received.last().map(String::as_str) != Some("20.lab") {
        received.push(hostname(&mut stream).await);
    }
    assert!(received.len() < 10, "{received:?}");
}

#[tokio::test]
async fn a_machine_has_at_most_eight_subscriptions_at_a_time() {
    let server = server().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(server.subscribe(NODE1).await.unwrap());
    }
    assert_eq!(server.subscribe(NODE1).await.unwrap_err().code(), Code::ResourceExhausted);
    assert!(server.subscribe(NODE2).await.is_ok());
    streams.clear();
    let again = async { while server.subscribe(NODE1).await.is_err() {} };
    tokio::time::timeout(TIMEOUT, again).await.expect("a free slot");
}

#[tokio::test]
async fn the_id_of_another_machine_is_refused() {
    let server = server().await;
    let mut client = server.client(NODE1).await;
    for (id, code) in [
        (node1().id.to_string(), None),
        (node2().id.to_string(), Some(Code::PermissionDenied)),
        ("nobody".into(), Some(Code::PermissionDenied)),
    ] {
        let subscribed = client.subscribe(SubscribeRequest { id }).await;
        assert_eq!(subscribed.err().map(|status| status.code()), code);
    }
}

#[tokio::test]
async fn a_stop_ends_subscriptions_in_order() {
    let server = server().await;
    let mut stream = server.subscribe(NODE1).await.unwrap();
    assert_eq!(hostname(&mut stream).await, "node1.lab");
    server.stop.cancel();
    assert_eq!(next(&mut stream).await, Ok(None));
    tokio::time::timeout(TIMEOUT, server.served).await.unwrap().unwrap().unwrap();
}
