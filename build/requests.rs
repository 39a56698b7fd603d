//! The standard calls of nouns (create, get, list, update, delete and watch), by the names of the
//! calls and the fields of their messages.

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor, MethodDescriptor};

use crate::names::{camel, oneof_path, type_path};

/// Fields by which objects are filtered, and the names of the fields of objects that have the value.
const FILTERS: [(&str, &[&str]); 5] = [
    ("labels", &["labels"]),
    ("tenant", &["tenant"]),
    ("state", &["state"]),
    ("hardware_id", &["hardware_id"]),
    ("name", &["name", "hostname"]),
];

/// Returns the rows of the macro in `src/requests.rs`: all standard calls.
pub(crate) fn rows(pool: &DescriptorPool) -> String {
    let calls = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    calls.flat_map(|call| rows_of(&call)).collect()
}

/// Returns the rows of `call`; none if it is not a standard call.
///
/// The second one names the request of the noun's call. Events have none: they have two lists.
fn rows_of(call: &MethodDescriptor) -> Vec<String> {
    let Some((verb, object, arguments)) = standard_call(call) else { return Vec::new() };
    let mut rows = vec![format!("{verb} ({arguments});\n")];
    if object.get_field_by_name("revision").is_some() {
        let (object, request) = (type_path(&object), type_path(&call.input()));
        let name = camel(verb);
        rows.push(format!("call (Has{name}, {name}, {object}, {request});\n"));
    }
    rows
}

/// Returns the macro of `call`, the object and the macro's arguments; none if it is not a standard
/// call.
fn standard_call(call: &MethodDescriptor) -> Option<(&'static str, MessageDescriptor, String)> {
    let (request, response) = (call.input(), call.output());
    let has = |field: &str| request.get_field_by_name(field).is_some();
    let types = format!("{}, {}", type_path(&request), type_path(&response));
    let view = if has("view") { "view" } else { "" };
    let object = |field: &FieldDescriptor| field.kind().as_message().cloned();
    let named = |object: &MessageDescriptor, field: &FieldDescriptor| {
        format!("{types}, {}, {}", type_path(object), field.name())
    };
    let name = call.name();
    if name.starts_with("Create") && has("request_id") {
        let field =
            one_object(&response).and_then(|field| request.get_field_by_name(field.name()))?;
        let object = object(&field)?;
        return Some(("create", object.clone(), named(&object, &field)));
    }
    if name.starts_with("Update") && has("update_mask") {
        let field = one_object(&response)?;
        let object = object(&field)?;
        return Some(("update", object.clone(), named(&object, &field)));
    }
    if name.starts_with("Get") {
        let field = one_object(&response)?;
        let object = object(&field)?;
        let arguments = format!("{}, {}, [{view}]", named(&object, &field), by(&request)?);
        return Some(("get", object, arguments));
    }
    if let Some(noun) = name.strip_prefix("Delete").filter(|_| has("revision")) {
        let object = format!("{}.{noun}", request.package_name());
        let object = call.parent_pool().get_message_by_name(&object)?;
        return Some(("delete", object, format!("{types}, {}", id(&request)?)));
    }
    if name.starts_with("List") && response.get_field_by_name("next_page_token").is_some() {
        let field = response.fields().find(FieldDescriptor::is_list)?;
        let object = object(&field)?;
        let filters = filters(&request, &object);
        let arguments = format!("{}, [{view}], [{filters}]", named(&object, &field));
        return Some(("list", object, arguments));
    }
    if name.starts_with("Watch") {
        let object = object(&response.oneofs().next()?.fields().next()?)?;
        let filters = filters(&request, &object);
        let arguments = format!("{types}, {}, [{view}], [{filters}]", id(&request)?);
        return Some(("watch", object, arguments));
    }
    None
}

/// Returns the first field of `response`, if it is the object of a standard call.
fn one_object(response: &MessageDescriptor) -> Option<FieldDescriptor> {
    let field = response.get_field(1).filter(|field| !field.is_list())?;
    let is_noun = field.kind().as_message()?.get_field_by_name("revision").is_some();
    is_noun.then_some(field)
}

/// Returns the field with which `request` names one object.
fn id(request: &MessageDescriptor) -> Option<&'static str> {
    ["id", "mac", "address"].into_iter().find(|field| request.get_field_by_name(field).is_some())
}

/// Returns the type of the oneof with which `request` names an object by id or name, and not
/// otherwise.
fn by(request: &MessageDescriptor) -> Option<String> {
    let by = request.oneofs().find(|oneof| oneof.name() == "by")?;
    let fields: Vec<_> = by.fields().map(|field| field.name().to_owned()).collect();
    (fields == ["id", "name"]).then(|| oneof_path(request, &by))
}

/// Returns the fields of `request` by which it filters objects.
fn filters(request: &MessageDescriptor, object: &MessageDescriptor) -> String {
    let is_filter = |(name, fields): &&(&str, &[&str])| {
        request.get_field_by_name(name).is_some() && attribute(object, name, fields).is_some()
    };
    FILTERS.iter().filter(is_filter).map(|(name, _)| format!("{name} ")).collect()
}

/// Returns the values of `object` by which it is filtered: each with the name of its field.
pub(crate) fn attributes(object: &MessageDescriptor) -> String {
    let mut attributes = String::new();
    for (name, fields) in FILTERS {
        if let Some(field) = attribute(object, name, fields) {
            attributes += &format!("{name} {}, ", field.name());
        }
    }
    attributes
}

/// True if callers change fields of `object` by a standard call.
pub(crate) fn has_update(object: &MessageDescriptor) -> bool {
    let file = object.parent_file();
    let calls = file.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    calls
        .filter_map(|call| standard_call(&call))
        .any(|(verb, it, _)| verb == "update" && it == *object)
}

/// Returns the field of `object` with the name that people gave it.
pub(crate) fn name_field(object: &MessageDescriptor) -> Option<String> {
    let (name, fields) = FILTERS.iter().find(|(name, _)| *name == "name")?;
    Some(attribute(object, name, fields)?.name().to_owned())
}

/// Returns the first of `fields` that `object` has, which is its attribute `name`.
fn attribute(object: &MessageDescriptor, name: &str, fields: &[&str]) -> Option<FieldDescriptor> {
    let field = fields.iter().find_map(|field| object.get_field_by_name(field))?;
    (field.is_map() == (name == "labels")).then_some(field)
}
