//! The API description has what the tables have, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{DESCRIPTION, description};
use crate::operation::{BASE_PATH, Operation, OperationRoute, PATHS};
use crate::schema::{
    DefaultValue, IPV4_PATTERN, MAX_NAME_CHARS, NAME_PATTERN, ObjectSchema, Property, TextRule,
    Usage, ValueType, is_container_name, is_ipv4, is_monitor_with_port,
};

fn document() -> Value {
    serde_json::from_str(DESCRIPTION).unwrap()
}

/// Adds the keywords of a rule to those of a text.
fn text(rule: TextRule) -> Value {
    match rule {
        TextRule::Any => json!({"type": "string"}),
        TextRule::NotEmpty => json!({"type": "string", "minLength": 1}),
        TextRule::OneOf(texts) => json!({"type": "string", "enum": texts}),
        TextRule::ContainerName => {
            json!({"type": "string", "pattern": NAME_PATTERN, "maxLength": MAX_NAME_CHARS})
        }
        TextRule::Ipv4 | TextRule::MonitorAddress => {
            json!({"type": "string", "pattern": IPV4_PATTERN})
        }
    }
}

fn reference(object: &ObjectSchema) -> Value {
    json!({"$ref": format!("#/definitions/{}", object.name)})
}

/// The schema of a property, without the description in words.
fn schema(property: &Property) -> Value {
    let mut schema = match property.value {
        ValueType::Boolean => json!({"type": "boolean"}),
        ValueType::Integer => json!({"type": "integer", "format": "int64"}),
        ValueType::Text(rule) => text(rule),
        ValueType::Texts(rule) => json!({"type": "array", "items": text(rule)}),
        ValueType::Object(object) => reference(object),
        ValueType::Objects(object) => json!({"type": "array", "items": reference(object)}),
    };
    match property.usage {
        Usage::ReadOnly => schema["readOnly"] = true.into(),
        Usage::Defaulted(DefaultValue::Boolean(value)) => schema["default"] = value.into(),
        Usage::Defaulted(DefaultValue::Integer(value)) => schema["default"] = value.into(),
        Usage::Defaulted(DefaultValue::Text(value)) => schema["default"] = value.into(),
        Usage::Required | Usage::Nullable | Usage::Optional => {}
    }
    schema
}

/// Removes descriptions in words, which every schema must have that is not a reference.
fn without_words(mut schema: Value) -> Value {
    let words = schema.as_object_mut().unwrap().remove("description");
    assert!(words.is_some() || schema.get("$ref").is_some(), "{schema}");
    schema
}

/// Collects the tables that are reachable from `object`.
fn collect(object: &'static ObjectSchema, found: &mut Vec<&'static ObjectSchema>) {
    if found.iter().any(|other| std::ptr::eq(*other, object)) {
        return;
    }
    found.push(object);
    for property in object.properties {
        if let ValueType::Object(inner) | ValueType::Objects(inner) = property.value {
            collect(inner, found);
        }
    }
}

fn objects() -> Vec<&'static ObjectSchema> {
    let mut found = Vec::new();
    PATHS.iter().for_each(|path| collect(path.object, &mut found));
    found
}

#[test]
fn the_definitions_are_those_of_the_tables() {
    let definitions = document()["definitions"].as_object().unwrap().clone();
    let names: BTreeSet<_> = objects().iter().map(|object| object.name).chain(["error"]).collect();
    assert_eq!(definitions.keys().map(String::as_str).collect::<BTreeSet<_>>(), names);
    for object in objects() {
        let definition = &definitions[object.name];
        let required = object.properties.iter().filter(|p| p.usage == Usage::Required);
        let required: Vec<_> = required.map(|p| p.name).collect();
        let described = definition.get("required").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(described, json!(required), "{}", object.name);
        let described = definition["properties"].as_object().unwrap().clone();
        let described: Map<_, _> =
            described.into_iter().map(|(name, it)| (name, without_words(it))).collect();
        let expected: Map<_, _> =
            object.properties.iter().map(|p| (p.name.to_owned(), schema(p))).collect();
        assert_eq!(described, expected, "{}", object.name);
    }
}

#[test]
fn the_tables_are_in_alphabetical_order() {
    let queries = PATHS.iter().flat_map(|path| path.methods).map(|route| route.query);
    for object in objects().into_iter().chain(queries) {
        let names: Vec<_> = object.properties.iter().map(|p| p.name).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}

/// The query parameters of a route as the description has them, without words.
fn parameters(route: &OperationRoute) -> Vec<Value> {
    let parameters = route.query.properties.iter().map(|property| {
        let mut parameter = schema(property);
        parameter["name"] = property.name.into();
        parameter["in"] = "query".into();
        if property.usage == Usage::Required {
            parameter["required"] = true.into();
        }
        if matches!(property.value, ValueType::Boolean) {
            parameter["default"] = false.into();
        }
        parameter
    });
    parameters.collect()
}

/// The operation id, from which generated clients take the name of the call. Two operations have none.
fn operation_id(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::ListAttachments => Some("list_attachments"),
        Operation::CreateAttachment => Some("attach"),
        Operation::ListMounts => Some("list_mounts"),
        Operation::CreateMount => Some("mount"),
        Operation::DeleteAttachment | Operation::DeleteMount => None,
        Operation::ListContainers => Some("list_containers"),
        Operation::CreateContainer => Some("create_container"),
        Operation::DeleteContainer => Some("delete_container"),
        Operation::SetContainerState => Some("set_container_state"),
    }
}

fn check_operation(described: &Value, route: &OperationRoute, object: &ObjectSchema) {
    let operation = route.operation;
    assert_eq!(described.get("operationId").and_then(Value::as_str), operation_id(operation));
    let mut expected = parameters(route);
    if operation.success_status() == 201 {
        let body = json!({"name": object.name, "in": "body", "required": true,
            "schema": reference(object)});
        expected.push(body);
    }
    let described_parameters = described.get("parameters").and_then(Value::as_array);
    let by_name = |parameter: &Value| parameter["name"].as_str().unwrap().to_owned();
    let mut found: Vec<_> =
        described_parameters.unwrap().iter().cloned().map(without_words).collect();
    found.sort_by_key(by_name);
    assert_eq!(found, expected, "{operation:?}");
    let success = match operation.is_read() {
        true => json!({"type": "array", "items": reference(object)}),
        false => reference(object),
    };
    let responses = described["responses"].as_object().unwrap();
    assert_eq!(responses.len(), 2, "{operation:?}");
    assert_eq!(responses[operation.success_status().as_str()]["schema"], success);
    assert_eq!(responses["default"]["schema"]["$ref"], "#/definitions/error");
}

#[test]
fn the_operations_are_those_of_the_tables() {
    let document = document();
    let described = document["paths"].as_object().unwrap();
    assert_eq!(described.len(), PATHS.len());
    for path in &PATHS {
        let methods = described[path.path].as_object().unwrap();
        assert_eq!(methods.len(), path.methods.len(), "{}", path.path);
        let allow: Vec<_> = path.methods.iter().map(|route| route.method.as_str()).collect();
        assert_eq!(path.allow, allow.join(","));
        for route in path.methods {
            let method = route.method.as_str().to_lowercase();
            check_operation(&methods[&method], route, path.object);
        }
    }
}

#[test]
fn the_description_is_served_as_json_for_the_base_path() {
    let response = description();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    let document = document();
    assert_eq!(response.body(), DESCRIPTION);
    assert_eq!((&document["swagger"], &document["basePath"]), (&json!("2.0"), &json!(BASE_PATH)));
    assert_eq!(document["info"]["version"], "0.2.0");
    assert_eq!(
        (&document["consumes"], &document["produces"]),
        (&json!(["application/json"]), &json!(["application/json"]))
    );
    let error = json!({"code": "integer", "message": "string"});
    for (name, expected) in error.as_object().unwrap() {
        assert_eq!(&document["definitions"]["error"]["properties"][name]["type"], expected);
    }
    assert_eq!(document["definitions"]["error"]["required"], json!(["message"]));
}

#[test]
fn texts_match_the_patterns_that_the_description_has() {
    for text in ["", "n2", "a.B-c_9", "-", "..."] {
        assert!(is_container_name(text), "{text}");
    }
    for text in ["a b", "a/b", "é", "a\n", "\n", "a:b"] {
        assert!(!is_container_name(text), "{text}");
    }
    for text in ["1.2.3.4", "999.999.999.999", "000.0.00.1"] {
        assert!(is_ipv4(text), "{text}");
    }
    for text in [
        "",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.",
        "1.2.3.4444",
        "1.2.3.x",
        "1.2.3.4:1",
        " 1.2.3.4",
        "1.2.3.4\n",
    ] {
        assert!(!is_ipv4(text), "{text}");
    }
    for text in ["1.2.3.4:6789", "[::1]", "[2001:db8::1]:3300"] {
        assert!(is_monitor_with_port(text), "{text}");
    }
    for text in ["1.2.3.4", "1.2.3.4:", "::1", "[::1", "[::1]:x", "mon:6789"] {
        assert!(!is_monitor_with_port(text), "{text}");
    }
}
