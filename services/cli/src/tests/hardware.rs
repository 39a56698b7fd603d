//! Machines: effective states for people, and records for programs.

use serde_json::{Value, json};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_server::{HardwareService, HardwareServiceServer};
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tokio_stream::Iter;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::{fake, tinwright};
use crate::output::Row as _;

type Stream<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

pub(super) const IDS: [&str; 3] = [
    "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10",
    "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a11",
    "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a12",
];

/// Three provisionable machines.
struct Machines;

fn machine(id: &str) -> hw::Hardware {
    let state = hw::State::Provisionable.into();
    let revision = 7;
    hw::Hardware { id: id.into(), state, revision, ..hw::Hardware::default() }
}

mod machines {
    use tinwright::hardware::v1 as pb;

    use super::*;

    fake! {
        impl HardwareService for Machines {
            type WatchHardwareStream = Stream<pb::WatchHardwareResponse>;

            async fn get_hardware(
                &self,
                request: Request<pb::GetHardwareRequest>,
            ) -> Result<Response<pb::GetHardwareResponse>, Status> {
                let Some(pb::get_hardware_request::By::Id(id)) = request.into_inner().by else {
                    return Err(Status::invalid_argument("by"));
                };
                Ok(Response::new(pb::GetHardwareResponse { hardware: Some(machine(&id)) }))
            }

            async fn list_hardware(
                &self,
                _: Request<pb::ListHardwareRequest>,
            ) -> Result<Response<pb::ListHardwareResponse>, Status> {
                let hardware = IDS.map(machine).into();
                Ok(Response::new(pb::ListHardwareResponse { hardware, ..Default::default() }))
            }

            async fn update_hardware(
                &self,
                request: Request<pb::UpdateHardwareRequest>,
            ) -> Result<Response<pb::UpdateHardwareResponse>, Status> {
                let pb::UpdateHardwareRequest { hardware, update_mask, .. } = request.into_inner();
                let update = hardware.unwrap_or_default();
                let paths = update_mask.unwrap_or_default().paths;
                if !(paths == ["protect"] || paths == ["root_disk"]) || update.revision != 0 {
                    return Err(Status::invalid_argument("update_mask"));
                }
                let pb::Hardware { id, protect, root_disk, .. } = update;
                let hardware = Some(pb::Hardware { protect, root_disk, ..machine(&id) });
                Ok(Response::new(pb::UpdateHardwareResponse { hardware }))
            }

            async fn watch_hardware(
                &self,
                _: Request<pb::WatchHardwareRequest>,
            ) -> Result<Response<Self::WatchHardwareStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            create_hardware: CreateHardwareRequest => CreateHardwareResponse,
            set_hardware_state: SetHardwareStateRequest => SetHardwareStateResponse,
            delete_hardware: DeleteHardwareRequest => DeleteHardwareResponse,
            record_inventory: RecordInventoryRequest => RecordInventoryResponse,
            record_bmc_inventory: RecordBmcInventoryRequest => RecordBmcInventoryResponse,
            check_bmc_identity: CheckBmcIdentityRequest => CheckBmcIdentityResponse,
            enrol_machine: EnrolMachineRequest => EnrolMachineResponse,
        }
    }
}

/// Three instances, each on a page of its own: two that occupy machines, and one that released the first machine.
pub(super) struct Instances;

fn instance(place: usize) -> inst::Instance {
    use inst::State::{Active, DeprovisionFailed, Failed};
    let (on, state, released) =
        [(0, Active, false), (1, DeprovisionFailed, false), (0, Failed, true)][place];
    inst::Instance {
        id: format!("i{place}"),
        hardware_id: IDS[on].into(),
        state: state.into(),
        released,
        ..inst::Instance::default()
    }
}

mod instances {
    use tinwright::instance::v1 as pb;

    use super::*;

    fake! {
        impl InstanceService for Instances {
            type WatchInstancesStream = Stream<pb::WatchInstancesResponse>;

            async fn get_instance(
                &self,
                request: Request<pb::GetInstanceRequest>,
            ) -> Result<Response<pb::GetInstanceResponse>, Status> {
                match request.into_inner().by {
                    Some(pb::get_instance_request::By::HardwareId(id)) if id == IDS[0] => {
                        let instance = Some(instance(0));
                        Ok(Response::new(pb::GetInstanceResponse { instance }))
                    }
                    _ => Err(Status::not_found("no instance")),
                }
            }

            async fn list_instances(
                &self,
                request: Request<pb::ListInstancesRequest>,
            ) -> Result<Response<pb::ListInstancesResponse>, Status> {
                let place: usize = request.into_inner().page_token.parse().unwrap_or_default();
                let next = if place < 2 { (place + 1).to_string() } else { String::new() };
                let (instances, next_page_token) = (vec![instance(place)], next);
                Ok(Response::new(pb::ListInstancesResponse { instances, next_page_token }))
            }

            async fn watch_instances(
                &self,
                _: Request<pb::WatchInstancesRequest>,
            ) -> Result<Response<Self::WatchInstancesStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            create_instance: CreateInstanceRequest => CreateInstanceResponse,
            update_instance: UpdateInstanceRequest => UpdateInstanceResponse,
            delete_instance: DeleteInstanceRequest => DeleteInstanceResponse,
            retry_instance: RetryInstanceRequest => RetryInstanceResponse,
            reinstall_instance: ReinstallInstanceRequest => ReinstallInstanceResponse,
            restart_instance: RestartInstanceRequest => RestartInstanceResponse,
            report_phone_home: ReportPhoneHomeRequest => ReportPhoneHomeResponse,
            report_script: ReportScriptRequest => ReportScriptResponse,
            report_stack_running: ReportStackRunningRequest => ReportStackRunningResponse,
        }
    }
}

fn server() -> Router {
    alone().add_service(InstanceServiceServer::new(Instances))
}

/// A server without the instance service.
fn alone() -> Router {
    Server::builder().add_service(HardwareServiceServer::new(Machines))
}

/// Returns the second word of each line after the first: the machines have no names.
async fn states(server: Router) -> Vec<String> {
    let (printed, result) = tinwright("hardware list", server).await;
    assert_eq!(result, Ok(()));
    let word = |line: &str| line.split_whitespace().nth(1).unwrap().to_owned();
    printed.lines().skip(1).map(word).collect()
}

#[tokio::test]
async fn machines_are_listed_with_effective_states() {
    assert_eq!(states(server()).await, ["in-use", "deprovisioning", "provisionable"]);
}

#[tokio::test]
async fn without_the_instance_service_machines_are_listed_with_their_own_states() {
    assert_eq!(states(alone()).await, ["provisionable"; 3]);
}

#[tokio::test]
async fn programs_get_the_records() {
    let (printed, _) = tinwright("hardware list -o json", server()).await;
    let listed: Value = serde_json::from_str(&printed).unwrap();
    let states: Vec<_> = listed.as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["STATE_PROVISIONABLE"; 3]);
    let (printed, _) = tinwright(&format!("hardware get {} -o yaml", IDS[0]), server()).await;
    assert!(printed.starts_with("kind: Hardware\nid: "), "{printed}");
}

#[tokio::test]
async fn machines_are_protected_and_unprotected_at_any_revision() {
    for (command, added) in [("protect", ",protected"), ("unprotect", "")] {
        let line = format!("hardware {command} {} {}", IDS[0], IDS[1]);
        let (printed, result) = tinwright(&line, server()).await;
        assert_eq!(result, Ok(()));
        let rows = printed.lines().skip(1);
        let rows: Vec<Vec<_>> = rows.map(|row| row.split_whitespace().take(2).collect()).collect();
        let states = ["in-use", "deprovisioning"].map(|state| format!("{state}{added}"));
        assert_eq!(rows, [[IDS[0], &states[0]], [IDS[1], &states[1]]]);
    }
}

#[tokio::test]
async fn the_root_disk_of_machines_is_set_and_removed() {
    let hint = json!({"serial": "A1", "medium": "DISK_MEDIUM_SSD", "choose": "CHOOSE_SMALLEST"});
    for (option, root_disk) in
        [("serial=A1,medium=ssd,choose=smallest", hint), ("none", Value::Null)]
    {
        let line = format!("hardware update {} {} --root-disk {option} -o json", IDS[0], IDS[1]);
        let (printed, result) = tinwright(&line, server()).await;
        assert_eq!(result, Ok(()));
        let updated: Value = serde_json::from_str(&printed).unwrap();
        for (n, id) in IDS[..2].iter().enumerate() {
            assert_eq!((&updated[n]["id"], &updated[n]["root_disk"]), (&json!(id), &root_disk));
        }
    }
}

#[test]
fn a_table_shows_which_instances_are_protected() {
    let instance = inst::Instance { protect: true, ..instance(0) };
    let now = std::time::SystemTime::UNIX_EPOCH;
    assert_eq!(instance.row(now)[2], "active,protected");
}

#[tokio::test]
async fn a_machine_is_shown_below_a_line_about_its_instance() {
    let (printed, result) = tinwright(&format!("hardware get {}", IDS[0]), server()).await;
    assert_eq!(result, Ok(()));
    assert!(
        printed.starts_with("# in-use: instance i0 is active\nkind: Hardware\nid: "),
        "{printed}"
    );
    for (id, server) in [(IDS[2], server()), (IDS[0], alone())] {
        let (printed, result) = tinwright(&format!("hardware get {id}"), server).await;
        assert_eq!(result, Ok(()));
        assert!(printed.starts_with("kind: Hardware\nid: "), "{printed}");
    }
}
