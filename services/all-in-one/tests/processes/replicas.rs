//! Replicas with one etcd cluster.

use runtime::Channel;
use runtime::authority::SiteAuthority;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{self as hw, watch_hardware_response::Event};
use tonic::Streaming;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::authority::Authority;
use super::gate::Gate;
use super::peer::Peer;
use super::process::{Place, Process, arguments, machine, soon};

/// Returns the arguments of a replica with the cluster at `peer`.
fn over(peer: &Peer) -> Vec<String> {
    arguments(&["--store", "etcd", "--etcd-endpoints", &peer.url()])
}

async fn hardware(of: &Process) -> HardwareServiceClient<Channel> {
    HardwareServiceClient::new(of.channel().await)
}

async fn watch(of: &Process) -> Streaming<hw::WatchHardwareResponse> {
    let request = hw::WatchHardwareRequest::default();
    hardware(of).await.watch_hardware(request).await.unwrap().into_inner()
}

async fn create(through: &Process, mac: &str, address: &str) -> hw::Hardware {
    let made = hardware(through).await.create_hardware(machine(mac, address)).await;
    made.unwrap().into_inner().hardware.unwrap()
}

/// Waits until `events` contain `made`.
async fn until_received(events: &mut Streaming<hw::WatchHardwareResponse>, made: &hw::Hardware) {
    let received = async {
        while let Some(message) = events.message().await.unwrap() {
            if matches!(message.event, Some(Event::Hardware(hardware)) if hardware == *made) {
                return;
            }
        }
        panic!("the watch ended");
    };
    soon(received).await;
}

#[tokio::test]
async fn what_one_replica_stores_the_other_reports_and_it_goes_on_when_the_first_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new("cluster");
    let peer = Peer::guarded(ours.guard(dir.path())).await;
    let own = ours.issue("tinwright");
    let mut over = over(&peer);
    for (flag, text) in [("certificate", &own.certificate), ("key", &own.key)] {
        let path = dir.path().join(format!("own-{flag}.pem"));
        std::fs::write(&path, text).unwrap();
        over.extend([format!("--etcd-{flag}"), path.display().to_string()]);
    }
    over.extend(["--etcd-ca".into(), dir.path().join("ca.pem").display().to_string()]);

    let first = Place::new().start(&over).await;
    let second = Place::new().with_secrets_of(&first.place, &[]).start(&over).await;
    let mut events = watch(&second).await;
    let made = create(&first, "02:00:00:00:00:01", "198.51.100.1").await;
    until_received(&mut events, &made).await;

    let left = first.kill();
    let made = create(&second, "02:00:00:00:00:02", "198.51.100.2").await;
    until_received(&mut events, &made).await;

    let first = left.start(&over).await;
    until_received(&mut watch(&first).await, &made).await;
}

#[tokio::test]
async fn a_replica_with_secrets_of_its_own_is_refused() {
    let peer = Peer::start().await;
    let _first = Place::new().start(&over(&peer)).await;
    let other = Place::new();
    SiteAuthority::open(&other.secrets()).unwrap();
    let why = other.refused(&over(&peer)).await;
    assert!(why.contains("the store belongs to another site than these secrets"), "{why}");
}

#[tokio::test]
async fn a_replica_is_not_ready_while_its_cluster_is_away() {
    let peer = Peer::start().await;
    let mut gate = Gate::to(peer.port()).await;
    let flags = arguments(&["--store", "etcd", "--etcd-endpoints", &gate.url()]);
    let replica = Place::new().start(&flags).await;
    let mut health = HealthClient::new(replica.channel().await);
    let mut becomes = async |ready: bool| loop {
        let status = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();
        let serving = status.status() == ServingStatus::Serving;
        if (serving, replica.is_ready().await) == (ready, ready) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    gate.cut().await;
    soon(becomes(false)).await;
    gate.mend().await;
    soon(becomes(true)).await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_named() {
    let nowhere = super::peer::url(super::peer::free_port());
    let flags = arguments(&["--store", "etcd", "--etcd-endpoints", &nowhere]);
    let why = Place::new().refused(&flags).await;
    assert!(why.contains("opening the store in etcd: store unavailable: connecting to"), "{why}");
    assert!(why.contains(&nowhere), "{why}");
}
