//! Nouns, from the option `noun`, and the responses of watches.

use std::collections::{BTreeMap, BTreeSet};

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};

use crate::names::{camel, oneof_path, snake, type_path};
use crate::options::{self, Options};
use crate::{requests, states};

/// Fields of the messages that implement `Object`.
const OBJECT_FIELDS: [&str; 4] = ["labels", "revision", "create_time", "update_time"];

/// A message with the option `noun`.
pub(crate) struct Noun {
    message: MessageDescriptor,
    singular: String,
    plural: String,
    owner: String,
    has_events: bool,
    has_uuid: bool,
    tenant_rule: String,
    quota: Option<Quota>,
}

/// The option `quota` of a noun.
struct Quota {
    max_objects: u64,
    max_bytes: u64,
    /// The field with the size of an object; empty if sizes are not limited.
    size: String,
}

/// Returns the nouns of `pool`. Each message that a call lists in pages or watches has to be one.
pub(crate) fn all(pool: &DescriptorPool) -> Result<Vec<Noun>, String> {
    let lists = lists(pool);
    let watched: BTreeSet<_> = watches(pool).map(|(_, object)| full_name(&object)).collect();
    let mut nouns = Vec::new();
    for message in pool.all_messages() {
        let file = message.parent_file();
        let name = message.full_name();
        let option = match lists.contains_key(name) || watched.contains(name) {
            true => Some(Options::require(&file, name, &message.options(), "noun")?),
            false => Options::find(&file, name, &message.options(), "noun"),
        };
        if let Some(option) = option {
            nouns.push(noun(&message, &option, lists.get(name))?);
        }
    }
    Ok(nouns)
}

/// Returns the noun of `message`. `lists` are the calls that list it in pages.
fn noun(
    message: &MessageDescriptor,
    option: &Options,
    lists: Option<&BTreeSet<String>>,
) -> Result<Noun, String> {
    let owner = option.text("owner");
    if !owner.is_empty() {
        option.require_package("owner", &owner)?;
    }
    let plural = option.text("plural").to_lowercase().replace(' ', "_");
    if plural.is_empty() {
        return Err(option.error("plural: missing"));
    }
    let list = format!("List{}", camel(&plural));
    if lists.is_some_and(|lists| !lists.contains(&list)) {
        return Err(option.error(&format!("plural: no call {list}")));
    }
    let singular = match option.text("singular") {
        name if name.is_empty() => snake(message.name()).replace('_', " "),
        name => name,
    };
    let tenant_rule = option.choice("tenant_rule")?;
    Ok(Noun {
        message: message.clone(),
        singular,
        plural,
        owner,
        has_events: !option.flag("no_events"),
        has_uuid: option.choice("id_form")? == "Uuid",
        quota: option.group("quota").map(|it| quota(message, &it, &tenant_rule)).transpose()?,
        tenant_rule,
    })
}

/// Returns the quota in `option` of the noun `message`.
fn quota(message: &MessageDescriptor, option: &Options, rule: &str) -> Result<Quota, String> {
    let (max_objects, max_bytes) = (option.number("max_objects"), option.number("max_bytes"));
    if max_objects == 0 && max_bytes == 0 {
        return Err(option.error("no limit"));
    }
    if !rule.starts_with("Own") || message.get_field_by_name("tenant").is_none() {
        return Err(option.error("the objects are not those of tenants"));
    }
    let has_size = |field: &FieldDescriptor| options::is_marked(field, "counted_bytes");
    let size = message.fields().find(has_size).map(|field| field.name().to_owned());
    if max_bytes > 0 && size.is_none() {
        return Err(option.error("max_bytes: no field with the option `counted_bytes`"));
    }
    Ok(Quota { max_objects, max_bytes, size: size.filter(|_| max_bytes > 0).unwrap_or_default() })
}

/// Returns the calls that list messages in pages, by the names of the messages.
fn lists(pool: &DescriptorPool) -> BTreeMap<String, BTreeSet<String>> {
    let mut lists = BTreeMap::<_, BTreeSet<_>>::new();
    for call in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let response = call.output();
        if response.get_field_by_name("next_page_token").is_some() {
            for objects in response.fields().filter(FieldDescriptor::is_list) {
                lists.entry(full_name(&objects)).or_default().insert(call.name().to_owned());
            }
        }
    }
    lists
}

/// Returns the responses of watches, and the field of each that has the object.
fn watches(pool: &DescriptorPool) -> impl Iterator<Item = (MessageDescriptor, FieldDescriptor)> {
    pool.all_messages().filter_map(|response| {
        let oneof = response.get_field_by_name("deleted_id")?.containing_oneof()?;
        let is_object = |field: &FieldDescriptor| {
            field.name() != "synced" && field.kind().as_message().is_some()
        };
        let object = oneof.fields().find(is_object)?;
        Some((response, object))
    })
}

/// Returns the full name of the message in `field`; empty if it has another type.
fn full_name(field: &FieldDescriptor) -> String {
    field.kind().as_message().map(|message| message.full_name().to_owned()).unwrap_or_default()
}

/// Returns the rows of the macro in `src/id.rs`: the nouns with UUIDs.
pub(crate) fn ids(nouns: &[Noun]) -> String {
    let row = |noun: &Noun| format!("{0}, {0}Id, {1:?};\n", noun.message.name(), noun.singular);
    nouns.iter().filter(|noun| noun.has_uuid).map(row).collect()
}

/// Returns the rows of the macro in `src/nouns.rs`: all nouns, with their states.
pub(crate) fn infos(nouns: &[Noun]) -> Result<String, String> {
    let row = |noun: &Noun| {
        let Noun { message, singular, plural, owner, has_events, .. } = noun;
        let name = message.name();
        let states = states::words(message)?;
        Ok(format!("{name:?}, {singular:?}, {plural:?}, {owner:?}, {has_events}, [{states}];\n"))
    };
    nouns.iter().map(row).collect()
}

/// Returns the rows of the macro in `src/object.rs`: the messages with the fields of an object.
pub(crate) fn objects(nouns: &[Noun]) -> String {
    let has = |noun: &Noun, field: &str| noun.message.get_field_by_name(field).is_some();
    let is_object =
        |noun: &&Noun| noun.has_uuid && OBJECT_FIELDS.iter().all(|field| has(noun, field));
    let row = |noun: &Noun| {
        let name = noun.message.name();
        format!("{}, {name}, {:?};\n", type_path(&noun.message), snake(name))
    };
    nouns.iter().filter(is_object).map(row).collect()
}

/// Returns the rows of the macro in `src/object.rs`: what a store has to know of the objects, and the
/// fields that have it.
pub(crate) fn stored(nouns: &[Noun]) -> Result<String, String> {
    let is_record = |noun: &&Noun| noun.message.get_field_by_name("revision").is_some();
    nouns.iter().filter(is_record).map(stored_row).collect()
}

fn stored_row(noun: &Noun) -> Result<String, String> {
    let Noun { message, singular, plural, has_events, tenant_rule, quota, .. } = noun;
    let field = |name: &str| message.get_field_by_name(name).map(|field| field.name().to_owned());
    let id = message.get_field(1).ok_or_else(|| format!("{}: no id", message.full_name()))?;
    let name = requests::name_field(message).unwrap_or_default();
    let is_own = tenant_rule.starts_with("Own");
    let tenant = field("tenant").filter(|_| is_own).unwrap_or_default();
    let states = states::words(message)?;
    let state = if states.is_empty() { "" } else { "state" };
    let reason = field("state_reason").unwrap_or_default();
    let can_end = if states.contains(" true ") { "is_terminal" } else { "" };
    let since = field("state_time").or_else(|| field("start_time")).unwrap_or_default();
    let overdue = field("overdue").map(|overdue| format!("{overdue} {since}")).unwrap_or_default();
    let update = if requests::has_update(message) { "changed_fields" } else { "" };
    let limits = quota.as_ref().map(|Quota { max_objects, max_bytes, size }| {
        let index = format!("{}-tenant", snake(message.name()));
        let plural = plural.replace('_', " ");
        format!("{index:?} {plural:?} {max_objects} {max_bytes} [{size}]")
    });
    let limits = limits.unwrap_or_default();
    Ok(format!(
        "{}, {singular:?}, {has_events}, {tenant_rule}, {}, [{name}], [{tenant}], [{state}], [{reason}], \
         [{can_end}], [{overdue}], [{update}], [{limits}];\n",
        type_path(message),
        id.name(),
    ))
}

/// Returns the rows of the macro in `src/requests.rs`: the values of nouns by which they are
/// filtered.
pub(crate) fn attributes(nouns: &[Noun]) -> String {
    let row = |Noun { message, .. }: &Noun| {
        format!("{}, [{}];\n", type_path(message), requests::attributes(message))
    };
    nouns.iter().map(row).collect()
}

/// Returns the rows of the macro in `src/watch.rs`: the responses of watches.
pub(crate) fn watch_responses(pool: &DescriptorPool) -> String {
    let row = |(response, field): (MessageDescriptor, FieldDescriptor)| {
        let oneof = oneof_path(&response, &field.containing_oneof()?);
        let object = type_path(field.kind().as_message()?);
        let case = camel(field.name());
        Some(format!("{}, {oneof}, {case}, {object};\n", type_path(&response)))
    };
    watches(pool).filter_map(row).collect()
}
