//! Orders by placement, many at once, to a server that is killed again and again: each machine is given once, and each refusal has counts.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use runtime::{MachinePurpose, Role};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::model_service_client::ModelServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tokio::sync::Semaphore;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::kills::{Caller, seed, with_kills};
use super::process::{Place, Process};

const GIB: u64 = 1 << 30;
/// The models: name, cores, memory and medium of the disks.
const MODELS: [(&str, u32, u64, hw::DiskMedium); 3] = [
    ("small", 8, 32 * GIB, hw::DiskMedium::Hdd),
    ("large", 32, 256 * GIB, hw::DiskMedium::Ssd),
    ("fast", 32, 256 * GIB, hw::DiskMedium::Nvme),
];
/// The machines that are created at once.
const CREATED_AT_ONCE: usize = 16;

/// The kills of a server: so many that a busy machine gets to the end.
const MAX_KILLS: usize = 8;

/// The inventory of the machine with this number, which is of the model with this number.
fn inventory(machine: usize, model: usize) -> hw::Inventory {
    let (_, cores, memory_bytes, medium) = MODELS[model];
    let disk = |n: usize| hw::InventoryDisk {
        name: format!("disk{n}"),
        serial: format!("D{machine}-{n}"),
        size_bytes: 480_000_000_000,
        medium: medium.into(),
        ..hw::InventoryDisk::default()
    };
    let processors = hw::Processors { sockets: 2, cores, threads: cores * 2, ..Default::default() };
    hw::Inventory {
        uuid: format!("00000000-0000-4000-8000-{machine:012x}"),
        serial: format!("S{machine}"),
        processors: Some(processors),
        memory_bytes,
        disks: vec![disk(0), disk(1)],
        architecture: "x86_64".into(),
        ..hw::Inventory::default()
    }
}

/// The constraints that the machines of the model with this number meet, and no others.
fn constraints(model: usize) -> hw::ModelConstraints {
    let (_, cores, memory, medium) = MODELS[model];
    let exactly = |number: u64| Some(hw::Bounds { min: Some(number), max: Some(number) });
    let disks =
        hw::DiskConstraint { count: exactly(2), medium: medium.into(), ..Default::default() };
    hw::ModelConstraints {
        architecture: "x86_64".into(),
        cores: exactly(cores.into()),
        memory_bytes: Some(hw::Bounds { min: Some(memory), max: None }),
        disks: vec![disks],
        ..hw::ModelConstraints::default()
    }
}

/// Creates a machine in a rack. It reports that it is of the model with this number. Returns its id.
async fn create_machine(
    site: &Process,
    caller: &Caller,
    n: usize,
    model: usize,
    rack: usize,
) -> String {
    let interface = hw::Interface {
        mac: format!("02:00:00:00:{:02x}:{:02x}", n >> 8, n & 0xff),
        ..Default::default()
    };
    let hardware = hw::Hardware {
        interfaces: vec![interface],
        labels: [("rack".to_owned(), format!("r{rack}"))].into(),
        architecture: "x86_64".into(),
        state: hw::State::Provisionable.into(),
        ..hw::Hardware::default()
    };
    let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
    let mut machines = HardwareServiceClient::new(caller.channel.clone());
    let id = machines.create_hardware(request).await.unwrap().into_inner().hardware.unwrap().id;
    let own = Role::Machine(id.parse().unwrap(), MachinePurpose::Work);
    let mut worker = WorkerServiceClient::new(site.channel_as(site, &own.into()).await);
    let report = wf::ReportInventoryRequest { inventory: Some(inventory(n, model)) };
    worker.report_inventory(report).await.unwrap();
    id
}

/// A server with machines and models.
struct Site {
    process: Process,
    caller: Caller,
    /// The ids of the machines, in the order of their numbers.
    machines: Vec<String>,
}

impl Site {
    /// Starts a server, and creates `machines` machines, which are of the models and in the `racks` racks in turn.
    async fn start(machines: usize, racks: usize) -> Self {
        let process = Place::new().start(&[]).await;
        let caller = Caller::of(&process);
        let mut models = ModelServiceClient::new(caller.channel.clone());
        for (n, (name, ..)) in MODELS.into_iter().enumerate() {
            let constraints = Some(constraints(n));
            let model = hw::Model { name: name.into(), constraints, ..hw::Model::default() };
            let request = hw::CreateModelRequest { model: Some(model), ..Default::default() };
            models.create_model(request).await.unwrap();
        }
        let create = |n| create_machine(&process, &caller, n, n % MODELS.len(), n % racks);
        let machines = stream::iter(0..machines).map(create).buffered(CREATED_AT_ONCE);
        let machines = machines.collect().await;
        Self { process, caller, machines }
    }
}

/// Returns an order by `placement`.
fn order(placement: inst::Placement, n: usize) -> inst::CreateInstanceRequest {
    let placement = Some(Box::new(placement));
    let instance = inst::Instance { placement, reserve_only: true, ..inst::Instance::default() };
    let request_id = format!("order-{n}");
    inst::CreateInstanceRequest { instance: Some(instance), request_id, validate_only: false }
}

/// Sends `order` until there is a response.
async fn send(
    caller: &Caller,
    order: &inst::CreateInstanceRequest,
) -> Result<inst::Instance, Status> {
    let instances = InstanceServiceClient::new(caller.channel.clone());
    let created = caller.repeat(async || instances.clone().create_instance(order.clone()).await);
    Ok(created.await?.instance.unwrap())
}

/// Returns the numbers in a refusal that are not zero.
fn counts(status: &Status) -> BTreeMap<String, u64> {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "NO_MACHINE_FITS");
    let numbers = info.metadata.into_iter().map(|(key, value)| (key, value.parse().unwrap()));
    numbers.filter(|(_, number)| *number > 0).collect()
}

/// Returns the machine and the id of each instance.
async fn stored(caller: &Caller) -> BTreeMap<String, String> {
    let (mut all, mut page_token) = (BTreeMap::new(), String::new());
    loop {
        let list = inst::ListInstancesRequest { page_size: 100, page_token, ..Default::default() };
        let mut instances = InstanceServiceClient::new(caller.channel.clone());
        let page = instances.list_instances(list).await.unwrap().into_inner();
        for instance in page.instances {
            let other = all.insert(instance.hardware_id, instance.id);
            assert!(other.is_none(), "{other:?} has the same machine as another instance");
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

/// Sends `orders` orders at once for `machines` machines, each order twice, while the server is killed.
async fn order_by_model(machines: usize, orders: usize) {
    let (seed, Site { process, caller, machines }) = (seed(), Site::start(machines, 1).await);
    let by_model = |n: usize| {
        let model_id = MODELS[n % MODELS.len()].0.into();
        order(inst::Placement { model_id, ..inst::Placement::default() }, n)
    };
    let orders: Vec<_> = (0..orders).map(by_model).collect();
    let begun = std::time::Instant::now();
    let sent = join_all(orders.iter().chain(&orders).map(|order| send(&caller, order)));
    let (responses, process, kills) =
        Box::pin(with_kills(process, seed, (MAX_KILLS, 20..1000), sent)).await;
    let (elapsed, interrupted) = (begun.elapsed(), caller.interrupted());
    println!(
        "{} orders, each twice, in {elapsed:?}: {kills} kills, {interrupted} calls without a response",
        orders.len()
    );
    assert!(kills > 0 && interrupted > 2 * kills, "{kills} kills interrupted {interrupted} calls");

    let model_of: BTreeMap<_, _> =
        machines.iter().enumerate().map(|(n, id)| (id, n % MODELS.len())).collect();
    let each = (machines.len() / MODELS.len()) as u64;
    let expected = BTreeMap::from([("matching".to_owned(), each), ("occupied".to_owned(), each)]);
    let (mut taken, mut refused) = (BTreeMap::new(), 0);
    for (n, (first, second)) in responses.iter().zip(&responses[orders.len()..]).enumerate() {
        match (first, second) {
            (Ok(first), Ok(second)) => {
                assert_eq!((&first.id, &first.hardware_id), (&second.id, &second.hardware_id));
                assert_eq!(model_of[&first.hardware_id], n % MODELS.len());
                let other = taken.insert(first.hardware_id.clone(), first.id.clone());
                assert!(other.is_none(), "{other:?} has the machine of order {n}");
            }
            (Err(first), Err(second)) => {
                assert_eq!((&counts(first), &counts(second)), (&expected, &expected));
                refused += 1;
            }
            (first, second) => panic!("{first:?} and {second:?} for order {n}"),
        }
    }
    assert_eq!((taken.len(), refused), (machines.len(), orders.len() - machines.len()));
    // Repeated later, each order has the same result.
    for (order, first) in orders.iter().zip(&responses) {
        match (first, send(&caller, order).await) {
            (Ok(first), Ok(again)) => assert_eq!(first.id, again.id),
            (Err(_), Err(again)) => assert_eq!(counts(&again), expected),
            (first, again) => panic!("{first:?} and then {again:?}"),
        }
    }
    assert_eq!(stored(&caller).await, taken);
    process.terminate().check_store();
}

/// Sends `orders` orders for machines in `racks` racks with `machines` each, 64 at once, while the server is killed.
async fn order_by_rack(racks: usize, machines: usize, orders: usize) {
    let (seed, Site { process, caller, machines }) =
        (seed(), Site::start(racks * machines, racks).await);
    let placement = inst::Placement { spread_label: "rack".into(), ..Default::default() };
    let at_once = Semaphore::new(64);
    let sent = join_all((0..orders).map(async |n| {
        let _permit = at_once.acquire().await.unwrap();
        send(&caller, &order(placement.clone(), n)).await.unwrap()
    }));
    let begun = std::time::Instant::now();
    let (instances, process, kills) =
        Box::pin(with_kills(process, seed, (MAX_KILLS, 10..150), sent)).await;
    let (elapsed, interrupted) = (begun.elapsed(), caller.interrupted());
    println!(
        "{orders} orders in {elapsed:?}: {kills} kills, {interrupted} calls without a response"
    );
    assert!(kills > 0 && interrupted > kills, "{kills} kills interrupted {interrupted} calls");

    let rack_of: BTreeMap<_, _> =
        machines.iter().enumerate().map(|(n, id)| (id.as_str(), n % racks)).collect();
    let mut by_rack = vec![0; racks];
    for instance in &instances {
        by_rack[rack_of[instance.hardware_id.as_str()]] += 1;
    }
    let [fullest, emptiest] = [by_rack.iter().max().unwrap(), by_rack.iter().min().unwrap()];
    assert!(fullest - emptiest <= 1, "{by_rack:?}");
    let answered: BTreeSet<_> = instances.into_iter().map(|it| (it.hardware_id, it.id)).collect();
    assert_eq!(answered.len(), orders, "taken twice");
    assert_eq!(stored(&caller).await.into_iter().collect::<BTreeSet<_>>(), answered);
    process.terminate().check_store();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_250_orders_for_150_machines_100_are_refused_while_the_server_is_killed() {
    order_by_model(150, 250).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_120_orders_over_12_racks_each_rack_gets_ten_while_the_server_is_killed() {
    order_by_rack(12, 25, 120).await;
}
