//! The calls that each service makes. A caller of the role `service` may make the calls of the
//! services that its subject names, and no others.
//!
//! ```text
//! service:instance            one service: its channel inside a process
//! service:hardware.power      the services of a process, whose certificate it is
//! service:tinwright           all services: the certificate for split-off processes
//! ```
//!
//! A caller of the role `edge` may make the calls of [`EDGE_SERVICES`], whatever its subject.
//!
//! The contract names the services of each call. A test compares them with the sources of the
//! services.

use tinwright::calls::Call;

use crate::identity::Caller;

/// The kind of these subjects.
const KIND: &str = "service:";
/// The name in the subject that stands for all services.
const ALL: &str = "tinwright";

/// The services that an edge serves: it makes their calls.
pub const EDGE_SERVICES: [&str; 2] = ["metadata", "netboot"];

/// Returns the subject of a process with these services, or of the channel of one of them.
pub fn service_subject<'a>(services: impl IntoIterator<Item = &'a str>) -> String {
    KIND.to_owned() + &services.into_iter().collect::<Vec<_>>().join(".")
}

/// True if a service of edges makes `call`.
pub(super) fn is_of_edges(call: &Call) -> bool {
    call.services.iter().any(|service| EDGE_SERVICES.contains(service))
}

/// True if one of the services that `caller` names makes `call`.
pub(super) fn is_of(caller: &Caller, call: &Call) -> bool {
    let Some(services) = caller.subject().strip_prefix(KIND) else { return false };
    let is_named = |service: &&str| services == ALL || services.split('.').any(|it| it == *service);
    call.services.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use prost_reflect::DescriptorPool;
    use tinwright::calls::{CALLS, find};

    use super::*;
    use crate::identity::Role;

    const GET_HARDWARE: &str = "/tinwright.hardware.v1.HardwareService/GetHardware";
    const WATCH_LEASES: &str = "/tinwright.netboot.v1.LeaseService/WatchLeases";
    /// The call of every service.
    const WATCH_REVOCATIONS: &str = "/tinwright.identity.v1.IdentityService/WatchRevocations";

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
            let may_make = |path| is_of(&service(subject), find(path).unwrap());
            assert_eq!(may_make(GET_HARDWARE), gets_hardware, "{subject}");
            assert_eq!(may_make(WATCH_LEASES), watches_leases, "{subject}");
        }
    }

    #[test]
    fn every_service_follows_the_revocations() {
        let call = find(WATCH_REVOCATIONS).unwrap();
        for name in CALLS.iter().flat_map(|call| call.services) {
            assert!(is_of(&service(&service_subject([*name])), call), "{name}");
        }
        assert!(!is_of(&service("service:other"), call));
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
        for service in find(WATCH_REVOCATIONS).unwrap().services {
            // Calls of shared libraries are those of the services that use them.
            let folder = root.join("services").join(service).join("src");
            let mut text = sources(&folder);
            if text.contains("phone_home::report(") {
                text +=
                    &std::fs::read_to_string(root.join("libs/runtime/src/phone_home.rs")).unwrap();
            }
            for (name, file) in [
                ("TenantDirectory::", "tenants.rs"),
                ("AddressClaims", "address_claims.rs"),
                ("ImageDirectory::", "images.rs"),
            ] {
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
                .filter(|(path, _, name)| {
                    let (_, call) = path.rsplit_once('/').unwrap();
                    let request = format!("{call}Request {{");
                    let count = |part: &str| text.matches(part).count();
                    // The service that answers the call takes the request apart.
                    count(&request) > count(&format!("let pb::{request}"))
                        || text.contains(&format!("{call}Request::default()"))
                        || text.contains(&format!(".{name}("))
                })
                .map(|(path, ..)| path.as_str())
                .collect();
            let calls = CALLS.iter().filter(|call| call.services.contains(service));
            let calls = calls.map(|call| call.path).filter(|path| *path != WATCH_REVOCATIONS);
            assert_eq!(made, calls.collect(), "{service}: see the option `call` of these calls");
        }
    }

    #[test]
    fn services_make_only_calls_that_their_role_may_make() {
        for call in CALLS.iter().filter(|call| !call.services.is_empty()) {
            assert!(super::super::admits_role(call.audience, Some(Role::Service)), "{}", call.path);
        }
    }
}
