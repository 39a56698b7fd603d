//! A contract as text: a line for each message, enumeration and service.
//!
//! ```text
//! common.v1.Synced:
//! hardware.v1.Address: 1 address string, 2 prefix_length uint32, 3 gateway string
//! hardware.v1.State: 0 STATE_UNSPECIFIED, 1 STATE_ENROLLED
//! store.v1.StoreService: Backup BackupRequest stream BackupResponse
//! ```
//!
//! Types of the same package, and Google's, are named without their package.

use std::collections::BTreeMap;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MethodDescriptor};

/// The beginning of the names of our packages. The text leaves it out.
const PACKAGES: &str = "tinwright.";

/// The parts of each message, enumeration and service, by name.
pub(crate) type Contract = BTreeMap<String, Vec<String>>;

/// Returns what the contract of `pool` has of ours.
pub(crate) fn described(pool: &DescriptorPool) -> Contract {
    let messages = pool.all_messages().filter(|message| !message.is_map_entry());
    let messages =
        messages.map(|it| (it.full_name().to_owned(), it.fields().map(|it| field(&it)).collect()));
    let value = |it: prost_reflect::EnumValueDescriptor| format!("{} {}", it.number(), it.name());
    let enumerations =
        pool.all_enums().map(|it| (it.full_name().to_owned(), it.values().map(value).collect()));
    let services = pool
        .services()
        .map(|it| (it.full_name().to_owned(), it.methods().map(|it| call(&it)).collect()));
    let all = messages.chain(enumerations).chain(services);
    let ours = |(name, parts): (String, _)| Some((name.strip_prefix(PACKAGES)?.to_owned(), parts));
    all.filter_map(ours).collect()
}

/// Returns the text of `contract`.
pub(crate) fn text(contract: &Contract) -> String {
    contract.iter().map(|(name, parts)| format!("{name}: {}\n", parts.join(", "))).collect()
}

/// True if the contract `text` has the call.
pub(crate) fn has_call(text: &str, method: &MethodDescriptor) -> bool {
    let service = method.parent_service().full_name().trim_start_matches(PACKAGES).to_owned();
    let mut lines = text.lines().filter_map(|line| line.split_once(": "));
    let calls = lines.find(|(name, _)| *name == service).map(|(_, calls)| calls);
    calls.is_some_and(|calls| calls.split(", ").any(|it| it == call(method)))
}

/// Returns the parts of the contract `text` that `now` lacks.
pub(crate) fn missing(text: &str, now: &Contract) -> Vec<String> {
    let mut missing = Vec::new();
    for line in text.lines() {
        let (name, parts) = line.split_once(':').unwrap();
        let Some(now) = now.get(name) else {
            missing.push(name.to_owned());
            continue;
        };
        let parts = parts.split(',').map(str::trim).filter(|part| !part.is_empty());
        let lost = parts.filter(|part| !now.iter().any(|it| it == part));
        missing.extend(lost.map(|part| format!("{name}: {part}")));
    }
    missing
}

/// Returns number, name, oneof and type of a field.
fn field(field: &FieldDescriptor) -> String {
    let choice = field.containing_oneof().map(|it| format!("{}/", it.name())).unwrap_or_default();
    let repeated = if field.is_list() { "repeated " } else { "" };
    let package = field.parent_message().package_name().to_owned();
    let kind = if let (Kind::Message(entry), true) = (field.kind(), field.is_map()) {
        let [key, value] = [entry.map_entry_key_field(), entry.map_entry_value_field()];
        format!("map<{}={}>", kind(&key, &package), kind(&value, &package))
    } else {
        kind(field, &package)
    };
    format!("{} {choice}{} {repeated}{kind}", field.number(), field.name())
}

fn kind(field: &FieldDescriptor, package: &str) -> String {
    let kind = field.kind();
    if let Kind::Message(message) = kind {
        short(message.full_name(), package)
    } else if let Kind::Enum(values) = kind {
        short(values.full_name(), package)
    } else {
        format!("{kind:?}").to_lowercase()
    }
}

/// Returns the name of a message or an enumeration as fields of `package` have it.
fn short(name: &str, package: &str) -> String {
    let prefixes = [&format!("{package}."), "google.protobuf.", PACKAGES];
    let short = prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix));
    short.unwrap_or(name).to_owned()
}

/// Returns the name and the messages of a call.
fn call(method: &MethodDescriptor) -> String {
    let stream = |is_stream: bool| if is_stream { "stream " } else { "" };
    let package = method.parent_service().package_name().to_owned();
    let [request, response] =
        [method.input(), method.output()].map(|it| short(it.full_name(), &package));
    let [up, down] = [method.is_client_streaming(), method.is_server_streaming()].map(stream);
    format!("{} {up}{request} {down}{response}", method.name())
}
