use std::collections::BTreeSet;

use super::*;

fn mirror() -> Value {
    let pool = tinwright::json::pool().unwrap();
    document(pool, &Routes::new(pool))
}

/// All values of the member `name` in `value`, however deep.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name));
            object.values().for_each(|inner| members(inner, name, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| members(inner, name, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn references_lead_to_components_and_each_component_is_used() {
    let document = mirror();
    let mut references = Vec::new();
    members(&document, "$ref", &mut references);
    members(&document, "x-item-schema", &mut references);
    let texts: BTreeSet<_> = references.into_iter().filter_map(Value::as_str).collect();
    for reference in &texts {
        let found = document.pointer(reference.trim_start_matches('#'));
        assert!(found.is_some(), "{reference}");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(texts.contains(format!("#/components/schemas/{name}").as_str()), "{name}");
    }
}

#[test]
fn every_operation_has_its_own_id_a_summary_and_answers() {
    let document = mirror();
    let mut ids = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{id} twice");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{id}");
            assert!(
                operation["responses"]["200"]["content"]
                    .as_object()
                    .is_some_and(|it| !it.is_empty()),
                "{id}"
            );
            assert!(operation["responses"]["404"].is_object(), "{id}");
        }
    }
    assert!(ids.contains("ReinstallInstance"));
}

#[test]
fn fields_say_what_their_options_say() {
    let document = mirror();
    let schemas = &document["components"]["schemas"];
    let instance = &schemas["instance.v1.Instance"]["properties"];
    assert_eq!(instance["revision"]["readOnly"], true);
    assert_eq!(instance["revision"]["type"], json!(["string", "integer"]));
    assert_eq!(instance["create_time"]["format"], "date-time");
    assert_eq!(instance["extra"]["type"], "object");
    assert!(
        instance["hardware_id"]["description"].as_str().unwrap().contains("Set at creation only.")
    );
    assert_eq!(instance["userdata"]["writeOnly"], Value::Null, "full views have it");
    assert_eq!(schemas["power.v1.Bmc"]["properties"]["password"]["writeOnly"], true);
    let state = schemas["instance.v1.State"]["description"].as_str().unwrap();
    assert!(state.contains("- `STATE_ACTIVE`: The machine is installed"), "{state}");
}

#[test]
fn what_two_routes_share_is_one_operation() {
    let document = mirror();
    let list = &document["paths"]["/api/v1/hardware"]["get"];
    let content = &list["responses"]["200"]["content"];
    assert_eq!(content["application/json"]["schema"]["anyOf"].as_array().unwrap().len(), 2);
    assert_eq!(
        content["text/event-stream"]["x-item-schema"]["$ref"],
        "#/components/schemas/hardware.v1.WatchHardwareResponse"
    );
    let names: Vec<_> = list["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"mac") && names.contains(&"labels"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "view").count(), 1);
}

#[test]
fn a_creation_leads_to_the_operations_of_its_object() {
    let document = mirror();
    let links = &document["paths"]["/api/v1/hardware"]["post"]["responses"]["200"]["links"];
    for id in ["GetHardware", "UpdateHardware", "DeleteHardware", "SetHardwareState"] {
        let expected =
            json!({"operationId": id, "parameters": {"id": "$response.body#/hardware/id"}});
        assert_eq!(links[id], expected, "{id}");
    }
    let list = &document["paths"]["/api/v1/hardware"]["get"]["responses"]["200"];
    assert_eq!(list["links"], Value::Null);
}

#[test]
fn an_operation_names_its_callers() {
    let document = mirror();
    let text = |path: &str, method: &str| {
        document["paths"][path][method]["description"].as_str().unwrap().to_owned()
    };
    let hardware = text("/api/v1/hardware", "post");
    assert!(hardware.ends_with("Callers: operator, admin; without a tenant."), "{hardware}");
    let instances = text("/api/v1/instances", "get");
    assert!(
        instances.ends_with("Callers: viewer, operator, admin; also with a tenant."),
        "{instances}"
    );
}
