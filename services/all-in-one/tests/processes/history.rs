//! The memory and the start of a server with a long history of workflows.
//!
//! The whole, 10,000 machines, is part of `cargo rack test --long`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prost_types::Timestamp;
use store::sled::Sled;
use store::{ScopedStore, Store};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tinwright::{HardwareId, WorkflowId};
use workflow::workflows::WorkflowKind;

use super::process::{Place, Process, arguments, soon};

/// Workflows of each machine: as many as are kept for ever.
const PER_MACHINE: usize = 20;
/// Bytes of a record, most of them text of its actions.
const RECORD_BYTES: usize = 5 * 1024;
/// Workflows that are written in one commit.
const PER_COMMIT: usize = 40;
/// The most memory that the history of 10,000 machines may cost: a tenth of its bytes, and a fifth more, since runs differ by a tenth.
const MAX_MEMORY: u64 = 120 * 1024 * 1024;
/// The most memory that the history of a thousand machines may cost: twice what it does, and less than its bytes.
const MAX_MEMORY_OF_A_THOUSAND: u64 = 60 * 1024 * 1024;

/// Returns a workflow of `machine` that ended `age` ago.
fn ended(machine: &str, age: Duration) -> pb::Workflow {
    let end = Some(Timestamp::from(SystemTime::now() - age));
    let action = pb::Action {
        name: "stream".into(),
        reason: "r".repeat(RECORD_BYTES / 5),
        state: pb::ActionState::Success.into(),
        ..pb::Action::default()
    };
    pb::Workflow {
        id: WorkflowId::new().to_string(),
        hardware_id: machine.into(),
        state: pb::WorkflowState::Success.into(),
        create_time: end,
        start_time: end,
        end_time: end,
        state_time: end,
        actions: vec![action; 5],
        ..pb::Workflow::default()
    }
}

/// Writes the history of `machines` into the store of `place`. Returns the id of its only workflow that is too old to be kept.
async fn write_history(place: &Place, machines: usize) -> String {
    let path = place.path("data/store");
    let store: Arc<dyn Store> = Arc::new(Sled::open(&path).unwrap());
    let records = store::records::Records::<WorkflowKind>::new(ScopedStore::new(store, "workflow"));
    let machines: Vec<_> = (0..machines).map(|_| HardwareId::new().to_string()).collect();
    let of_all = machines.iter().flat_map(|machine| std::iter::repeat_n(machine, PER_MACHINE));
    let all: Vec<_> = of_all.collect();
    for part in all.chunks(PER_COMMIT) {
        let changes = part.iter().map(|machine| records.to_create(&ended(machine, Duration::ZERO)));
        records.commit(changes.reduce(store::records::Change::and).unwrap()).await.unwrap();
    }
    let expired = ended(&machines[0], 2 * workflow::retention::MAX_AGE);
    records.commit(records.to_create(&expired)).await.unwrap();
    expired.id
}

/// Waits until `server` has no workflow `id`.
async fn until_deleted(server: &Process, id: &str) {
    let mut workflows = WorkflowServiceClient::new(server.channel().await);
    let request = pb::GetWorkflowRequest { id: id.into(), ..Default::default() };
    let deleted = async {
        loop {
            match workflows.get_workflow(request.clone()).await {
                Err(status) if status.code() == tonic::Code::NotFound => return,
                Err(status) => panic!("{status}"),
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    soon(deleted).await;
}

/// Reads a page of all workflows and returns the peak of the memory so far.
async fn peak_memory(server: &Process) -> u64 {
    let mut workflows = WorkflowServiceClient::new(server.channel().await);
    let request = pb::ListWorkflowsRequest { page_size: 100, ..Default::default() };
    workflows.list_workflows(request).await.unwrap();
    server.memory("VmHWM")
}

/// Starts and ends a server with the history of `machines`, and again after a kill. Returns the most memory that it costs. Prints it with
/// the times of the three starts: after the history was written, clean, and after a kill.
async fn measure(machines: usize) -> u64 {
    let flags = arguments(&["--drain-seconds", "1"]);
    let server = Place::new().start(&flags).await;
    let without = peak_memory(&server).await;
    let place = server.terminate();
    let expired = write_history(&place, machines).await;
    let start = async |place: Place| {
        let began = Instant::now();
        (place.start(&flags).await, began.elapsed())
    };
    let (server, first) = start(place).await;
    // Then all workflows were counted.
    until_deleted(&server, &expired).await;
    let mut memory = peak_memory(&server).await;
    let (server, clean) = start(server.terminate()).await;
    memory = memory.max(peak_memory(&server).await);
    let (server, killed) = start(server.kill()).await;
    memory = memory.max(peak_memory(&server).await).saturating_sub(without);
    println!(
        "{machines} machines: {} KiB more than {} KiB; starts: {first:?}, clean {clean:?}, killed {killed:?}",
        memory / 1024,
        without / 1024,
    );
    memory
}

#[tokio::test]
async fn the_history_of_a_thousand_machines_costs_a_server_little_memory() {
    let memory = measure(1000).await;
    assert!(memory < MAX_MEMORY_OF_A_THOUSAND, "{memory} bytes");
}

#[tokio::test]
#[ignore = "writes a gigabyte: cargo rack test --long"]
async fn the_history_of_10_000_machines_costs_less_than_120_mib() {
    let memory = measure(10_000).await;
    assert!(memory < MAX_MEMORY, "{memory} bytes");
}
