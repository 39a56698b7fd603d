//! The calls that each service makes of other ones. A caller of the role `service` may make the calls of the services that its
//! subject names, and no others.
//!
//! ```text
//! service:instance            one service: its pipe inside a process
//! service:hardware.power      the services of a process, whose certificate it is
//! service:tinwright           all services: the certificate for split-off processes
//! ```
//!
//! A caller of the role `edge` may make the calls of [`EDGE_SERVICES`], whatever its subject.
//!
//! A test compares the table with the sources of the services.

use crate::identity::Caller;

/// The kind of these subjects.
const KIND: &str = "service:";
/// The name in the subject that stands for all services.
const ALL: &str = "tinwright";

/// The calls that each service makes, by its name.
pub const SERVICE_CALLS: &[(&str, &[&str])] = &[
    (
        "address",
        &[
            "/tinwright.hardware.v1.HardwareService/GetHardware",
            "/tinwright.hardware.v1.LocationService/GetLocation",
            "/tinwright.identity.v1.TenantService/GetTenant",
            "/tinwright.instance.v1.InstanceService/GetInstance",
            "/tinwright.netboot.v1.LeaseService/WithholdAddresses",
        ],
    ),
    (
        "hardware",
        &[
            "/tinwright.address.v1.ClaimService/ClaimAddresses",
            "/tinwright.address.v1.ClaimService/ListClaims",
            "/tinwright.address.v1.ClaimService/ReleaseAddresses",
            "/tinwright.instance.v1.InstanceService/GetInstance",
            "/tinwright.instance.v1.InstanceService/ListInstances",
            "/tinwright.power.v1.PowerService/CancelPowerJob",
            "/tinwright.power.v1.PowerService/DeleteBmc",
            "/tinwright.power.v1.PowerService/GetBmc",
            "/tinwright.power.v1.PowerService/ListPowerJobs",
            "/tinwright.workflow.v1.WorkflowService/CancelWorkflow",
            "/tinwright.workflow.v1.WorkflowService/ListWorkflows",
        ],
    ),
    (
        "identity",
        &[
            "/tinwright.address.v1.GrantService/ListGrants",
            "/tinwright.event.v1.OwnerEventService/ListOwnerEvents",
            "/tinwright.event.v1.OwnerEventService/WatchOwnerEvents",
            "/tinwright.instance.v1.InstanceService/ListInstances",
            "/tinwright.workflow.v1.TemplateService/ListTemplates",
        ],
    ),
    (
        "instance",
        &[
            "/tinwright.address.v1.ClaimService/ClaimAddresses",
            "/tinwright.address.v1.ClaimService/ListClaims",
            "/tinwright.address.v1.ClaimService/ReleaseAddresses",
            "/tinwright.address.v1.GrantService/AttachGrant",
            "/tinwright.address.v1.GrantService/CreateGrant",
            "/tinwright.address.v1.GrantService/DetachGrant",
            "/tinwright.address.v1.GrantService/ReleaseGrant",
            "/tinwright.address.v1.GrantService/WatchGrants",
            "/tinwright.hardware.v1.HardwareService/GetHardware",
            "/tinwright.hardware.v1.HardwareService/ListHardware",
            "/tinwright.hardware.v1.HardwareService/SetHardwareState",
            "/tinwright.hardware.v1.LocationService/GetLocation",
            "/tinwright.hardware.v1.ModelService/GetModel",
            "/tinwright.identity.v1.TenantService/GetTenant",
            "/tinwright.power.v1.PowerService/CancelPowerJob",
            "/tinwright.power.v1.PowerService/CreatePowerJob",
            "/tinwright.power.v1.PowerService/GetBmc",
            "/tinwright.power.v1.PowerService/ReleasePowerJob",
            "/tinwright.workflow.v1.WorkflowService/CancelWorkflow",
            "/tinwright.workflow.v1.WorkflowService/CreateWorkflow",
            "/tinwright.workflow.v1.WorkflowService/GetBootEpoch",
            "/tinwright.workflow.v1.WorkflowService/GetWorkflow",
            "/tinwright.workflow.v1.WorkflowService/ListWorkflows",
            "/tinwright.workflow.v1.WorkflowService/NoteBoot",
            "/tinwright.workflow.v1.WorkflowService/PlanWorkflow",
            "/tinwright.workflow.v1.WorkflowService/ReleaseWorkflow",
            "/tinwright.workflow.v1.WorkflowService/WatchWorkflows",
        ],
    ),
    (
        "metadata",
        &[
            "/tinwright.hardware.v1.HardwareService/WatchHardware",
            "/tinwright.instance.v1.InstanceService/ReportPhoneHome",
            "/tinwright.instance.v1.InstanceService/WatchInstances",
            "/tinwright.netboot.v1.LeaseService/WatchLeases",
        ],
    ),
    (
        "netboot",
        &[
            "/tinwright.address.v1.GrantService/WatchGrants",
            "/tinwright.hardware.v1.HardwareService/GetHardware",
            "/tinwright.hardware.v1.HardwareService/UpdateHardware",
            "/tinwright.hardware.v1.HardwareService/WatchHardware",
            "/tinwright.hardware.v1.UnknownMachineService/RecordUnknownMachines",
            "/tinwright.instance.v1.InstanceService/ReportPhoneHome",
            "/tinwright.instance.v1.InstanceService/ReportScript",
            "/tinwright.instance.v1.InstanceService/WatchInstances",
            "/tinwright.workflow.v1.WorkflowService/NoteBoot",
            "/tinwright.workflow.v1.WorkflowService/WatchWorkflows",
        ],
    ),
    (
        "node",
        &[
            "/tinwright.hardware.v1.HardwareService/GetHardware",
            "/tinwright.hardware.v1.HardwareService/WatchHardware",
            "/tinwright.instance.v1.InstanceService/ReportStackRunning",
            "/tinwright.instance.v1.InstanceService/WatchInstances",
            "/tinwright.workflow.v1.WorkflowService/GetBootEpoch",
        ],
    ),
    (
        "power",
        &[
            "/tinwright.hardware.v1.HardwareService/CreateHardware",
            "/tinwright.hardware.v1.HardwareService/GetHardware",
            "/tinwright.hardware.v1.HardwareService/RecordBmcInventory",
            "/tinwright.instance.v1.InstanceService/GetInstance",
            "/tinwright.workflow.v1.WorkflowService/ListWorkflows",
        ],
    ),
    (
        "workflow",
        &[
            "/tinwright.hardware.v1.HardwareService/EnrolMachine",
            "/tinwright.hardware.v1.HardwareService/GetHardware",
            "/tinwright.hardware.v1.HardwareService/ListHardware",
            "/tinwright.hardware.v1.HardwareService/RecordInventory",
            "/tinwright.hardware.v1.ModelService/ListModels",
            "/tinwright.identity.v1.TenantService/GetTenant",
            "/tinwright.instance.v1.InstanceService/GetInstance",
            "/tinwright.instance.v1.InstanceService/ListInstances",
            "/tinwright.node.v1.NodeService/GetNode",
            "/tinwright.power.v1.PowerService/CancelPowerJob",
            "/tinwright.power.v1.PowerService/CreatePowerJob",
            "/tinwright.power.v1.PowerService/GetPowerJob",
            "/tinwright.power.v1.PowerService/WatchPowerJobs",
        ],
    ),
];

/// The calls that every process makes, whatever services it has.
const COMMON_CALLS: &[&str] = &["/tinwright.identity.v1.IdentityService/WatchRevocations"];

/// The services that an edge serves: it makes their calls.
pub const EDGE_SERVICES: [&str; 2] = ["metadata", "netboot"];

/// Returns the subject of a process with these services, or of the pipe of one of them.
pub fn service_subject<'a>(services: impl IntoIterator<Item = &'a str>) -> String {
    KIND.to_owned() + &services.into_iter().collect::<Vec<_>>().join(".")
}

/// Returns the names of the services that make the call `path`.
pub(super) fn callers(path: &str) -> impl Iterator<Item = &'static str> {
    let makes_call = move |calls: &[&str]| COMMON_CALLS.contains(&path) || calls.contains(&path);
    SERVICE_CALLS.iter().filter(move |(_, calls)| makes_call(calls)).map(|(service, _)| *service)
}

/// True if a service of edges makes the call `path`.
pub(super) fn is_of_edges(path: &str) -> bool {
    callers(path).any(|service| EDGE_SERVICES.contains(&service))
}

/// True if one of the services that `caller` names makes the call `path`.
pub(super) fn is_of(caller: &Caller, path: &str) -> bool {
    let Some(services) = caller.subject().strip_prefix(KIND) else { return false };
    callers(path).any(|service| services == ALL || services.split('.').any(|it| it == service))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use prost_reflect::DescriptorPool;

    use super::*;
    use crate::identity::Role;

    const GET_HARDWARE: &str = "/tinwright.hardware.v1.HardwareService/GetHardware";
    const WATCH_LEASES: &str = "/tinwright.netboot.v1.LeaseService/WatchLeases";

    fn service(subject: &str) -> Caller {
        Caller::new(Role::Service, subject).unwrap()
    }

    #[test]
    fn a_subject_has_the_calls_of_the_services_that_it_names() {
        let both = service_subject(["metadata", "netboot"]);
        assert_eq!(both, "service:metadata.netboot");
        for (subject, gets_hardware, watches_leases) in [
            (both.as_str(), true, true),
            ("service:instance", true, false),
            ("service:metadata", false, true),
            ("service:power", true, false),
            ("service:tinwright", true, true),
            ("service:tinwright.x", false, false),
            ("service:net", false, false),
            ("person:tinwright", false, false),
            ("credential:netboot", false, false),
        ] {
            assert_eq!(is_of(&service(subject), GET_HARDWARE), gets_hardware, "{subject}");
            assert_eq!(is_of(&service(subject), WATCH_LEASES), watches_leases, "{subject}");
        }
    }

    #[test]
    fn every_service_follows_the_revocations() {
        for (name, _) in SERVICE_CALLS {
            assert!(is_of(&service(&service_subject([*name])), COMMON_CALLS[0]), "{name}");
        }
        assert!(!is_of(&service("service:other"), COMMON_CALLS[0]));
    }

    /// The calls of the contract: path, package without version, name as a method of a client.
    fn contract() -> Vec<(String, String, String)> {
        let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        let services = pool.services().filter(|service| service.name() != "WorkerService");
        let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
        // Only agents open these streams, and other clients have a method of this name.
        let methods = methods.filter(|method| method.name() != "Connect");
        let call = |method: prost_reflect::MethodDescriptor| {
            let service = method.parent_service();
            let noun = service.package_name().split('.').nth(1).unwrap().to_owned();
            let mut name = String::new();
            for letter in method.name().chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.extend(letter.to_lowercase());
            }
            (format!("/{}/{}", service.full_name(), method.name()), noun, name)
        };
        methods.map(call).collect()
    }

    /// The text of all sources below `folder`, without tests.
    fn sources(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut text = String::new();
        for path in entries {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                text += &sources(&path);
            } else if path.is_file() && name.ends_with(".rs") && name != "tests.rs" {
                let source = std::fs::read_to_string(&path).unwrap();
                text += source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            }
        }
        text
    }

    #[test]
    fn the_table_has_the_calls_in_the_sources_of_each_service_and_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let contract = contract();
        for (service, calls) in SERVICE_CALLS {
            // Calls of shared libraries are those of the services that use them.
            let folder = root.join("services").join(service).join("src");
            let mut text = sources(&folder);
            if text.contains("phone_home::report(") {
                text +=
                    &std::fs::read_to_string(root.join("libs/runtime/src/phone_home.rs")).unwrap();
            }
            for (name, file) in
                [("TenantDirectory::", "tenants.rs"), ("AddressClaims", "address_claims.rs")]
            {
                if text.contains(name) {
                    let file = root.join("libs/runtime/src").join(file);
                    text += &std::fs::read_to_string(file).unwrap();
                }
            }
            if text.contains("fleet::") {
                let followed =
                    std::fs::read_to_string(root.join("libs/fleet/src/follow.rs")).unwrap();
                text += &followed;
            }
            // Metadata does not follow workflows, and netboot does not follow leases, which are its own.
            let not_followed = match *service {
                "metadata" => "watch_workflows",
                _ => "",
            };
            let made: BTreeSet<_> = contract
                .iter()
                .filter(|(_, noun, name)| noun != service && name != not_followed)
                .filter(|(_, _, name)| text.contains(&format!(".{name}(")))
                .map(|(path, ..)| path.as_str())
                .collect();
            assert_eq!(made, calls.iter().copied().collect(), "{service}: see SERVICE_CALLS");
        }
    }

    #[test]
    fn services_make_only_calls_that_their_role_may_make_and_rows_are_sorted() {
        for (service, calls) in SERVICE_CALLS {
            assert!(calls.is_sorted(), "{service}");
            for call in *calls {
                let audience = super::super::audience(call).unwrap();
                assert!(audience.admits(Some(Role::Service)), "{service}: {call}");
            }
        }
    }
}
