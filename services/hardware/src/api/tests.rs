//! Calls whose callers go away.

use std::sync::Arc;
use std::time::Duration;

use runtime::Clock;
use store::memory::MemoryStore;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::in_process;
use tonic::transport::Server;

use super::*;
use crate::fake_peers;

#[tokio::test(start_paused = true)]
async fn a_delete_is_completed_although_its_caller_goes_away() {
    let records = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
    let interface = pb::Interface { mac: "02:00:00:00:00:01".into(), ..pb::Interface::default() };
    let new = pb::Hardware { interfaces: vec![interface], ..pb::Hardware::default() };
    let made = records.create(new, None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    let api = Api::new(records.clone(), peers, CancellationToken::new());
    let (channel, accepted) = in_process::pair();
    let server = Server::builder().add_service(api.into_service());
    tokio::spawn(server.serve_with_incoming(accepted));
    let delete = pb::DeleteHardwareRequest { id: made.id.clone(), revision: 0 };
    let mut client = HardwareServiceClient::new(channel);
    let caller = tokio::spawn(async move { client.delete_hardware(delete).await });
    let call = calls.recv().await.unwrap();
    caller.abort();
    // The paused time moves on once the server has processed the cancellation.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let _sent = call.send(None);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(records.records().get(&made.id).await.unwrap(), None);
}
