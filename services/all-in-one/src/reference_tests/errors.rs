//! `docs/reference/errors.md`: the codes of errors, their HTTP status and what to do, and every reason with the calls that give it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use clap::Parser as _;
use gateway::errors::{code_name, http_status};
use gateway::openapi::comments::Comments;
use tinwright::status;
use tonic::{Code, Status};

use super::row;
use crate::{Arguments, EX_CONFIG};

/// The codes, the meaning of each, and the action of its caller.
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
    (
        Code::Cancelled,
        "the caller has ended the call, or the server stops",
        "repeat, unless the caller has ended it",
    ),
    (Code::Internal, "an error of the program", "look into the server's log, and report it"),
    (
        Code::Unknown,
        "an error without a code, such as one of a proxy",
        "look into the logs of the server and of the proxy",
    ),
    (Code::DataLoss, "a record is damaged", "stop, and restore a backup"),
];

/// The reasons, and the meaning of each. Its codes and calls are those of the sources and of the contract.
const REASONS: &[(&str, &str)] = &[
    (
        "ADDRESSES_EXHAUSTED",
        "no block of the range, subnet or location is free; the metadata has `taken` and `total`",
    ),
    ("ADDRESS_IN_USE", "another object has the address; the metadata names it"),
    ("BLOB_MISSING", "the content is not stored: store it, and repeat the call"),
    ("BUILD_ENDED", "the build has ended, or was deleted with its image"),
    ("CREDENTIAL_EXPIRED", "the credential has expired"),
    ("CREDENTIAL_UNKNOWN", "no credential has these fields"),
    ("DRAINING", "the location or subnet is being deleted"),
    ("EDGES_OF_FORMER_KEY", "edges still use secrets of the former site key"),
    ("ENROLMENT_LIMIT", "too many machines of the network wait for acceptance"),
    ("FIRMWARE_MODE", "the machine's firmware cannot boot the image"),
    ("GRANT_ATTACHED", "the grant is attached to another instance"),
    ("GRANT_IS_BLOCK", "the grant is a block, which no interface can have"),
    ("GRANT_RELEASED", "the grant was released"),
    ("IMAGE_DAMAGED", "some of the image's content is missing or changed"),
    ("IMAGE_KIND", "the image is an archive, which needs a template"),
    ("IMAGE_NOT_READY", "the image has no content yet, or never will"),
    ("IMAGE_TOO_LARGE", "the image is larger than the machine's disk"),
    ("INSTANCE_DELETED", "the id, or the external id, is that of a deleted instance"),
    ("INSTANCE_ENDING", "the instance is being deleted"),
    (
        "IN_USE",
        "instances or machines refer to the template, or are about to be installed with the image",
    ),
    ("JOBS", "the BMC has power jobs that have not ended"),
    ("KEY_IN_USE", "a server still uses the former key"),
    ("KNOWN_MACHINE", "another machine has the UUID or a MAC"),
    ("LEASE", "the attempt at the action was replaced by a later one"),
    ("LEASE_LOST", "another attempt at the build has begun"),
    ("LOCATION_IN_USE", "machines stand there"),
    ("NAME_NOT_UNIQUE", "several nodes have the name: give the id"),
    ("NODE_CONNECTED", "the node is connected"),
    ("NODE_IN_USE", "the node has an instance"),
    ("NODE_NOT_CONNECTED", "the node is not connected; it did not get the call"),
    ("NOTHING_TO_INSTALL", "the instance has no template, image, script or image stack"),
    ("NO_AUTHORITY_KEY", "this server lacks the key of the authority"),
    ("NO_BMC", "the machine has no BMC"),
    ("NO_EARLIER_VERSION", "the stack has no earlier version"),
    ("NO_IDENTITY", "the BMC reports neither a UUID nor a MAC of the machine"),
    ("NO_MACHINE", "the instance has no machine yet, or no longer"),
    (
        "NO_MACHINE_FITS",
        "no free machine fits the order; the metadata counts the machines by what is in the way",
    ),
    ("NO_OBJECT_STORE", "the site has no store for the content of images"),
    ("OCCUPANT", "the named instance does not occupy the machine"),
    ("OCCUPIED", "an instance occupies the machine"),
    ("OTHER_MACHINE", "the BMC lists another machine than that of its record"),
    ("OTHER_TENANT", "the grant is of another tenant than the instance"),
    ("PROTECTED", "the object is protected"),
    ("QUEUE", "the queue of the machine is full, or it has a workflow that must not be passed"),
    ("QUOTA", "the tenant has as many as it may have"),
    ("RANGE_IN_USE", "addresses of the range are granted"),
    ("ROOT_DISK_AMBIGUOUS", "several disks can be the root disk"),
    ("ROOT_DISK_MISSING", "no disk can be the root disk, or the machine has no inventory yet"),
    (
        "ROTATION_NOT_FINISHED",
        "a replacement of the key has begun and not ended, or none has begun",
    ),
    ("SEVERAL_NODES", "no node is named, and there are several"),
    ("STACK_IN_USE", "it is the desired stack of a node"),
    ("STATE", "the state of the object forbids it; the text names the state"),
    ("STORAGE_FULL", "the store for the content of images is full"),
    ("SUBNET_IN_USE", "addresses of the subnet are granted"),
    ("TEMPLATE", "the template cannot be rendered for the machine"),
    ("TENANT_DELETED", "a tenant of this name was deleted; the name is not used again"),
    ("TENANT_IN_USE", "the tenant has objects"),
    ("TOO_LATE", "the workflow's outcome is decided, or its machine leaves the last boot already"),
    ("TOO_MANY_ATTACHED", "the instance has as many grants as an instance may have"),
    ("TOO_MANY_SIGNATURES", "the image has as many signatures as an image may have"),
    ("WORKFLOW", "a workflow of the machine has not ended"),
    ("ZONE_IN_USE", "machines stand in the zone"),
];
/// The services, and the folder of the contract's own errors.
const FOLDERS: [&str; 11] = [
    "services/address",
    "services/hardware",
    "services/identity",
    "services/image",
    "services/instance",
    "services/metadata",
    "services/netboot",
    "services/node",
    "services/power",
    "services/workflow",
    ".",
];
/// Texts in capitals in their sources that are no reasons.
const OTHER_TEXTS: &str = "ADMINISTRATOR ARCHIVE_URL BIOS CARGO_PKG_VERSION DEST_DISK DHCP FALSE IMAGE_STATE IMG_MAP IMG_URL IPMI_PASSWORD JSON LC_ALL \
    OPERATOR OUT_DIR PATCH PATH POST RAKP SYSLOG TRUE UEFI UUID VLANID WIPE_DISKS";

/// A reason in the sources.
#[derive(Default)]
struct Source {
    /// The services that give it, and `.` for the contract's own errors.
    services: BTreeSet<String>,
    /// The codes of the functions that are called with it.
    codes: BTreeSet<&'static str>,
}

/// Returns the code of the error that a function makes, if a text after `before` is its first argument, the reason.
fn built_code(before: &str) -> Option<&'static str> {
    let called = before.trim_end().strip_suffix('(')?;
    let name = called.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
    let made = match name {
        "deleted" => status::deleted("", "", ""),
        "exhausted" => status::exhausted("", HashMap::new(), None, ""),
        "failed_precondition" => status::failed_precondition("", "", ""),
        "unauthenticated" => status::unauthenticated("", ""),
        _ => return None,
    };
    Some(code_name(made.code()))
}

/// Adds the texts in capitals in the source below `folder` to `found`, each with `service`.
fn scan(folder: &Path, service: &str, found: &mut BTreeMap<String, Source>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            scan(&path, service, found);
        } else if name.ends_with(".rs") && !name.contains("test") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let parts: Vec<_> = code.split('"').collect();
            for (before, literal) in parts.iter().zip(&parts[1..]).filter(|(_, it)| is_capitals(it))
            {
                let source = found.entry((*literal).to_owned()).or_default();
                source.services.insert(service.to_owned());
                source.codes.extend(built_code(before));
            }
        }
    }
}

/// True for a text such as `IN_USE`.
fn is_capitals(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    text.len() > 3 && text.chars().all(is_part) && !text.ends_with('_') && !text.starts_with('_')
}

/// Returns the reasons in the sources.
fn reasons() -> BTreeMap<String, Source> {
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

/// Returns the calls whose comments name `reason`, and the codes that they name right before it.
fn in_contract(reason: &str, comments: &Comments) -> (Vec<String>, BTreeSet<&'static str>) {
    let (mut calls, mut codes) = (Vec::new(), BTreeSet::new());
    let services = tinwright::json::pool().unwrap().services();
    for call in services.flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let text = comments.of_call(&call);
        let words = || text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if !words().any(|word| word == reason) {
            continue;
        }
        calls.push(format!("{}/{}", call.parent_service().name(), call.name()));
        let mut last = None;
        for word in words() {
            last = code_names().find(|name| *name == word).or(last);
            codes.extend(last.filter(|_| word == reason));
        }
    }
    (calls, codes)
}

/// Returns the names of all codes of errors.
fn code_names() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|(code, ..)| code_name(*code))
}

#[test]
fn each_code_of_grpc_is_described_once() {
    let mut described: Vec<_> = CODES.iter().map(|(code, ..)| *code as i32).collect();
    described.sort_unstable();
    // Number 0 is OK, and those that gRPC does not define are read as UNKNOWN.
    assert_eq!(described, Vec::from_iter(1..=16));
    assert_eq!(Code::from_i32(17), Code::Unknown);
}

#[test]
fn the_contract_names_the_codes_with_which_the_sources_give_a_reason() {
    let comments = Comments::new(tinwright::json::pool().unwrap());
    let mut count = 0;
    for (reason, Source { codes, .. }) in reasons() {
        let (calls, named) = in_contract(&reason, &comments);
        if calls.is_empty() {
            assert_eq!(codes.len(), 1, "{reason}: {codes:?}");
        } else {
            count += codes.len();
            assert!(codes.is_subset(&named), "{reason}: {codes:?}, in the contract {named:?}");
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn the_page_of_the_gateway_has_the_http_status_of_each_code() {
    let page = std::fs::read_to_string(setup::root().join("docs/gateway.md")).unwrap();
    let rows = || page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    for (code, ..) in CODES {
        let (name, http) = (code_name(*code), http_status(&Status::new(*code, "")));
        let is_named = |(numbers, text): (&str, &str)| {
            let mut words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
            numbers.split(", ").any(|it| it == http.as_str()) && words.any(|it| it == name)
        };
        assert!(rows().any(is_named), "{name}: {http}");
    }
}

#[test]
fn the_pages_have_the_exit_codes_of_the_program() {
    let wrong = Arguments::try_parse_from(["tinwright", "--nothing"]).unwrap_err().exit_code();
    for (page, text) in [
        (
            "docs/reference/commands.md",
            format!(
                "with {wrong} if its arguments are wrong, and a server with {EX_CONFIG} if its configuration is"
            ),
        ),
        ("docs/reference/settings.md", format!("ends the server with exit code {EX_CONFIG}.")),
        ("docs/troubleshooting.md", format!("Exit code {EX_CONFIG} means that the configuration")),
    ] {
        let found = std::fs::read_to_string(setup::root().join(page)).unwrap();
        assert!(found.contains(&text), "{page}: {text}");
    }
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
    let mut sources = reasons();
    let comments = Comments::new(tinwright::json::pool().unwrap());
    for (reason, meaning) in REASONS {
        let Source { services, mut codes } = sources.remove(*reason).unwrap_or_default();
        let (mut by, named) = in_contract(reason, &comments);
        codes.extend(named);
        if by.is_empty() {
            let services = services.iter().filter(|it| *it != ".");
            by = services.map(|it| format!("the service {it}")).collect();
        }
        let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
        page += &row(&[&format!("`{reason}`"), &codes, meaning, &by.join(", ")]);
    }
    page
}

#[test]
fn the_reference_page_has_every_error() {
    setup::reference::check("docs/reference/errors.md", &page());
}
