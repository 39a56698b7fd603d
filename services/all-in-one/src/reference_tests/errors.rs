//! `docs/reference/errors.md`: the codes of errors, their HTTP status and what to do, and every reason with the calls that give it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gateway::errors::{code_name, http_status};
use gateway::openapi::comments::Comments;
use tonic::{Code, Status};

use super::row;

/// The codes, what each means, and what its caller does.
const CODES: &[(Code, &str, &str)] = &[
    (Code::InvalidArgument, "a field is wrong", "correct the fields that `BadRequest` names"),
    (Code::OutOfRange, "a value is beyond a limit", "change the value"),
    (
        Code::Unauthenticated,
        "no valid certificate or key was presented",
        "present one; a reason says what is wrong with it",
    ),
    (
        Code::PermissionDenied,
        "the caller may not make the call",
        "ask for another [role](access.md)",
    ),
    (
        Code::NotFound,
        "an object does not exist, or belongs to another tenant",
        "correct the name in `ResourceInfo`",
    ),
    (
        Code::AlreadyExists,
        "an object is in the way",
        "use the object in `ResourceInfo`, or another name",
    ),
    (
        Code::FailedPrecondition,
        "the state of the system forbids it",
        "change what the reason names; repeating alone does not help",
    ),
    (Code::Aborted, "the object was changed meanwhile", "read it again, then repeat"),
    (
        Code::ResourceExhausted,
        "something is used up, or too many requests came",
        "wait for the time in `RetryInfo`; without one, until somebody gives something back",
    ),
    (
        Code::Unimplemented,
        "this server does not have the call",
        "call the process that has the service, or update the server",
    ),
    (Code::Unavailable, "the server or its store does not answer", "repeat, later and later"),
    (
        Code::DeadlineExceeded,
        "the time limit of the call has passed",
        "read whether it was carried out, then repeat",
    ),
    (Code::Internal, "an error of the program", "look into the server's log, and report it"),
    (Code::DataLoss, "a record is damaged", "stop, and restore a backup"),
];

/// The reasons, and what each says. The code and the calls are those of the sources and of the contract.
const REASONS: &[(&str, Code, &str)] = &[
    (
        "ADDRESSES_EXHAUSTED",
        Code::ResourceExhausted,
        "no block of the range, subnet or location is free; the metadata has `taken` and `total`",
    ),
    (
        "ADDRESS_IN_USE",
        Code::AlreadyExists,
        "another object has the address; the metadata names it",
    ),
    ("CREDENTIAL_EXPIRED", Code::Unauthenticated, "the credential has expired"),
    ("CREDENTIAL_UNKNOWN", Code::Unauthenticated, "no credential has these fields"),
    ("DRAINING", Code::FailedPrecondition, "the location or subnet is being deleted"),
    (
        "EDGES_OF_FORMER_KEY",
        Code::FailedPrecondition,
        "edges still use secrets of the former site key",
    ),
    (
        "ENROLMENT_LIMIT",
        Code::FailedPrecondition,
        "too many machines of the network wait for acceptance",
    ),
    ("GRANT_ATTACHED", Code::FailedPrecondition, "the grant is attached to another instance"),
    (
        "GRANT_IS_BLOCK",
        Code::FailedPrecondition,
        "the grant is a block, which no interface can have",
    ),
    ("GRANT_RELEASED", Code::FailedPrecondition, "the grant was released"),
    (
        "INSTANCE_DELETED",
        Code::FailedPrecondition,
        "the id, or the external id, is that of a deleted instance",
    ),
    ("INSTANCE_ENDING", Code::FailedPrecondition, "the instance is being deleted"),
    ("IN_USE", Code::FailedPrecondition, "instances or machines refer to the template"),
    ("JOBS", Code::FailedPrecondition, "the BMC has power jobs that have not ended"),
    ("KEY_IN_USE", Code::FailedPrecondition, "a server still uses the former key"),
    ("KNOWN_MACHINE", Code::FailedPrecondition, "another machine has the UUID or a MAC"),
    ("LEASE", Code::FailedPrecondition, "the attempt at the action was replaced by a later one"),
    ("LOCATION_IN_USE", Code::FailedPrecondition, "machines stand there"),
    ("NAME_NOT_UNIQUE", Code::FailedPrecondition, "several nodes have the name: give the id"),
    ("NODE_CONNECTED", Code::FailedPrecondition, "the node is connected"),
    ("NODE_IN_USE", Code::FailedPrecondition, "the node has an instance"),
    ("NODE_NOT_CONNECTED", Code::Unavailable, "the node is not connected; it did not get the call"),
    (
        "NOTHING_TO_INSTALL",
        Code::FailedPrecondition,
        "the instance has no template, script or image stack",
    ),
    ("NO_AUTHORITY_KEY", Code::FailedPrecondition, "this server lacks the key of the authority"),
    ("NO_BMC", Code::FailedPrecondition, "the machine has no BMC"),
    ("NO_EARLIER_VERSION", Code::FailedPrecondition, "the stack has no earlier version"),
    (
        "NO_IDENTITY",
        Code::FailedPrecondition,
        "the BMC reports neither a UUID nor a MAC of the machine",
    ),
    ("NO_MACHINE", Code::FailedPrecondition, "the instance has no machine yet, or no longer"),
    (
        "NO_MACHINE_FITS",
        Code::ResourceExhausted,
        "no free machine fits the order; the metadata counts the machines by what is in the way",
    ),
    ("OCCUPANT", Code::FailedPrecondition, "the named instance does not occupy the machine"),
    ("OCCUPIED", Code::FailedPrecondition, "an instance occupies the machine"),
    ("OTHER_TENANT", Code::FailedPrecondition, "the grant is of another tenant than the instance"),
    ("PROTECTED", Code::FailedPrecondition, "the object is protected"),
    (
        "QUEUE",
        Code::FailedPrecondition,
        "the queue of the machine is full, or it has a workflow that must not be passed",
    ),
    ("QUOTA", Code::ResourceExhausted, "the tenant has as many as it may have"),
    ("RANGE_IN_USE", Code::FailedPrecondition, "addresses of the range are granted"),
    ("ROOT_DISK_AMBIGUOUS", Code::FailedPrecondition, "several disks can be the root disk"),
    (
        "ROOT_DISK_MISSING",
        Code::FailedPrecondition,
        "no disk can be the root disk, or the machine has no inventory yet",
    ),
    (
        "ROTATION_NOT_FINISHED",
        Code::FailedPrecondition,
        "a replacement of the key has begun and not ended, or none has begun",
    ),
    ("SEVERAL_NODES", Code::FailedPrecondition, "no node is named, and there are several"),
    ("STACK_IN_USE", Code::FailedPrecondition, "it is the desired stack of a node"),
    (
        "STATE",
        Code::FailedPrecondition,
        "the state of the object forbids it; the text names the state",
    ),
    ("SUBNET_IN_USE", Code::FailedPrecondition, "addresses of the subnet are granted"),
    ("TEMPLATE", Code::FailedPrecondition, "the template cannot be rendered for the machine"),
    (
        "TENANT_DELETED",
        Code::FailedPrecondition,
        "a tenant of this name was deleted; the name is not used again",
    ),
    ("TENANT_IN_USE", Code::FailedPrecondition, "the tenant has objects"),
    (
        "TOO_MANY_ATTACHED",
        Code::FailedPrecondition,
        "the instance has as many grants as an instance may have",
    ),
    ("WORKFLOW", Code::FailedPrecondition, "a workflow of the machine has not ended"),
    ("ZONE_IN_USE", Code::FailedPrecondition, "machines stand in the zone"),
];
/// The services, and the folder of the contract's own errors.
const FOLDERS: [&str; 10] = [
    "services/address",
    "services/hardware",
    "services/identity",
    "services/instance",
    "services/metadata",
    "services/netboot",
    "services/node",
    "services/power",
    "services/workflow",
    ".",
];
/// Texts in capitals in their sources that are no reasons.
const OTHER_TEXTS: &str = "ADMINISTRATOR BIOS CARGO_PKG_VERSION DEST_DISK DHCP FALSE IPMI_PASSWORD JSON LC_ALL OUT_DIR PATH POST RAKP \
    SYSLOG TRUE UEFI UUID VLANID WIPE_DISKS";

/// Adds the texts in capitals in the source below `folder` to `found`, each with `service`.
fn scan(folder: &Path, service: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            scan(&path, service, found);
        } else if name.ends_with(".rs") && !name.contains("test") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            for literal in code.split('"').skip(1).filter(|text| is_capitals(text)) {
                found.entry(literal.to_owned()).or_default().insert(service.to_owned());
            }
        }
    }
}

/// True for a text such as `IN_USE`.
fn is_capitals(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    text.len() > 3 && text.chars().all(is_part) && !text.ends_with('_') && !text.starts_with('_')
}

/// Returns the reasons in the sources, with the services that give them.
fn reasons() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for folder in FOLDERS {
        let path = setup::root().join(folder).join("src");
        scan(&path, folder.trim_start_matches("services/"), &mut found);
    }
    found.retain(|text, _| !OTHER_TEXTS.split_whitespace().any(|other| other == text));
    found
}

#[test]
fn each_reason_of_the_sources_is_described_and_no_other() {
    let found: Vec<_> = reasons().into_keys().collect();
    let described: Vec<_> = REASONS.iter().map(|(reason, ..)| *reason).collect();
    assert_eq!(found, described);
}

/// Returns the calls whose comments name `reason`.
fn calls(reason: &str, comments: &Comments) -> Vec<String> {
    let names = |text: &str| {
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|word| word == reason)
    };
    let pool = tinwright::json::pool().unwrap();
    let calls = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let naming = calls.filter(|call| names(comments.of_call(call)));
    naming.map(|call| format!("{}/{}", call.parent_service().name(), call.name())).collect()
}

fn page() -> String {
    let mut page = String::from(
        "## Codes\n\n| code | HTTP status of REST | meaning | do |\n|---|---|---|---|\n",
    );
    for (code, meaning, action) in CODES {
        let http = http_status(&Status::new(*code, "")).as_u16().to_string();
        page += &row(&[code_name(*code), &http, meaning, action]);
    }
    page += "\n## Reasons\n\n| reason | code | meaning | given by |\n|---|---|---|---|\n";
    let (pool, sources) = (tinwright::json::pool().unwrap(), reasons());
    let comments = Comments::new(pool);
    for (reason, code, meaning) in REASONS {
        let mut by = calls(reason, &comments);
        if by.is_empty() {
            let services = sources.get(*reason).into_iter().flatten();
            by = services.filter(|it| *it != ".").map(|it| format!("the service {it}")).collect();
        }
        page += &row(&[&format!("`{reason}`"), code_name(*code), meaning, &by.join(", ")]);
    }
    page
}

#[test]
fn the_reference_page_has_every_error() {
    setup::reference::check("docs/reference/errors.md", &page());
}
