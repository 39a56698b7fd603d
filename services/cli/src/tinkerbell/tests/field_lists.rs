//! The field lists of Tinkerbell's CRDs (tinkerbell/tinkerbell, crd/bases, August 2026): each field of an object has an effect, or is named.
//!
//! `fields` has the paths of a CRD's schema, one a line: `[]` stands for the elements of a list, `{}` for the values of a map.
//! `objects` has an object with all of them.

use std::collections::BTreeSet;

use super::*;

/// The fields of a CRD, and an object that has all of them.
struct Crd {
    name: &'static str,
    fields: &'static str,
    object: &'static str,
}

macro_rules! crds {
    ($($name:literal)*) => {
        [$(Crd {
            name: $name,
            fields: include_str!(concat!("fields/", $name, ".txt")),
            object: include_str!(concat!("objects/", $name, ".yaml")),
        },)*]
    };
}

static CRDS: [Crd; 7] = crds!(
    "hardware-v1alpha1" "template-v1alpha1" "workflow-v1alpha1" "machine-v1alpha1"
    "hardware-v1alpha2" "task-v1alpha2" "workflow-v1alpha2"
);

/// Fields whose absence has no effect, with another value that has one.
const OTHER_VALUES: [(&str, &str); 5] = [
    ("spec.bmcRef.apiGroup", "example.com"),
    ("spec.bmcRef.kind", "Switch"),
    ("spec.interfaces[0].dhcp.ip.family", "6"),
    ("spec.connection.providerOptions.preferredOrder[0]", "ipmitool"),
    ("spec.bmc.connection.providerOptions.preferredOrder[0]", "ipmitool"),
];

/// The keys and indexes from an object to a value in it.
type Steps = Vec<String>;

/// Adds the steps to all values in `value` that have no values inside.
fn leaves(value: &Value, steps: &[String], found: &mut Vec<Steps>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(index, it)| (format!("[{index}]"), it)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    if inner.is_empty() {
        found.push(steps.to_vec());
    }
    for (step, value) in inner {
        leaves(value, &[steps, &[step]].concat(), found);
    }
}

/// Returns the path that `steps` are, as output has it.
fn path(steps: &[String]) -> String {
    let mut path = String::new();
    for step in steps {
        let dot = if path.is_empty() || step.starts_with('[') { "" } else { "." };
        path.push_str(&format!("{dot}{step}"));
    }
    path
}

/// True if `field` of a list stands for `steps`.
fn stands_for(field: &str, steps: &[String]) -> bool {
    let field = field.replace("[]", ".[]").replace("{}", ".{}");
    let parts: Vec<_> = field.split('.').collect();
    let fits = |(part, step): (&&str, &String)| match *part {
        "[]" => step.starts_with('['),
        "{}" => true,
        key => step == key,
    };
    parts.len() == steps.len() && parts.iter().zip(steps).all(fits)
}

/// Puts `new` in the place of the value at `steps`, or takes it out.
fn put(value: &mut Value, steps: &[String], new: Option<&Value>) {
    let [step, rest @ ..] = steps else { panic!("no step") };
    match value {
        Value::Object(object) if rest.is_empty() => match new {
            Some(new) => drop(object.insert(step.clone(), new.clone())),
            None => drop(object.shift_remove(step)),
        },
        Value::Object(object) => put(object.get_mut(step).unwrap(), rest, new),
        Value::Array(elements) => {
            let index: usize = step.trim_matches(['[', ']']).parse().unwrap();
            match (rest.is_empty(), new) {
                (false, _) => put(&mut elements[index], rest, new),
                (true, Some(new)) => elements[index] = new.clone(),
                (true, None) => drop(elements.remove(index)),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            panic!("{value} has no {step}")
        }
    }
}

/// All objects, and the Secrets of their BMCs.
fn site() -> Vec<Value> {
    let mut objects: Vec<Value> =
        CRDS.iter().map(|crd| yaml_serde::from_str(crd.object).unwrap()).collect();
    for name in ["bmc-71", "bmc-72"] {
        let data = json!({"username": "admin", "password": "secret"});
        let metadata = json!({"name": name});
        objects.push(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}),
        );
    }
    objects
}

/// Returns what is sent for all objects, and what is named for the object at `place`. An error says that a field is used.
fn outcome(objects: &[Value], place: usize) -> (Vec<Result<Vec<Value>, String>>, Vec<String>) {
    let all = convert_all(&objects.iter().collect::<Vec<_>>());
    let mut named = Vec::new();
    let mut sent = Vec::new();
    for (at, converted) in all.into_iter().enumerate() {
        sent.push(match converted {
            Err(error) => Err(format!("{error:#}")),
            Ok(Conversion::Own) => panic!("object {at} is not Tinkerbell's"),
            Ok(Conversion::Converted(all)) => {
                if at == place {
                    named = all.iter().flat_map(|it| it.leftovers.clone()).collect();
                }
                Ok(all.into_iter().map(|it| it.value).collect())
            }
        });
    }
    (sent, named)
}

/// True if one of the paths in `named` is that of a field, or of a part around it.
fn is_named(named: &[String], field: &str) -> bool {
    named.iter().any(|path| {
        let rest = field.strip_prefix(path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

#[test]
fn each_object_has_all_fields_of_its_crd_and_no_others() {
    for (crd, object) in CRDS.iter().zip(site()) {
        let mut found = Vec::new();
        leaves(&object, &[], &mut found);
        let fields: BTreeSet<_> = crd.fields.lines().collect();
        for field in &fields {
            let has = found.iter().any(|steps| stands_for(field, steps));
            assert!(has, "the object of {} has no {field}", crd.name);
        }
        for steps in found.iter().filter(|steps| steps.len() > 1) {
            let is_field = fields.iter().any(|field| stands_for(field, steps));
            assert!(is_field, "{} has no field {}", crd.name, path(steps));
        }
    }
}

#[test]
fn each_field_of_a_crd_changes_what_is_sent_or_is_named() {
    let objects = site();
    let (mut fields, mut lost) = (0, Vec::new());
    for (place, crd) in CRDS.iter().enumerate() {
        let (sent, named) = outcome(&objects, place);
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        let mut found = Vec::new();
        leaves(&objects[place], &[], &mut found);
        for steps in found.iter().filter(|steps| steps.len() > 1) {
            fields += 1;
            let field = path(steps);
            let other = OTHER_VALUES.iter().find(|(name, _)| *name == field);
            let other = other
                .map(|(_, text)| text.parse().map_or_else(|_| json!(text), |it: u64| json!(it)));
            let mut changed = objects.clone();
            put(&mut changed[place], steps, other.as_ref());
            let (sent_without, named_without) = outcome(&changed, place);
            let has_effect = sent_without != sent || (other.is_some() && named_without != named);
            if !has_effect && !is_named(&named, &field) {
                lost.push(format!("{}: {field}", crd.name));
            }
        }
    }
    assert!(lost.is_empty(), "neither used nor named: {lost:#?}");
    assert!(fields > 500, "{fields}");
}

#[test]
fn converted_objects_have_our_form() {
    for converted in outcome(&site(), 0).0.into_iter().flat_map(Result::unwrap) {
        match converted["kind"].as_str().unwrap() {
            "Hardware" => drop(message::<Hardware>(&converted)),
            "Bmc" => drop(message::<Bmc>(&converted)),
            "Template" => drop(message::<Template>(&converted)),
            "Workflow" => {
                let object = parse("a.yaml", &converted.to_string()).unwrap().remove(0);
                let order = object.without(&["name", "ended"]);
                drop(order.message::<CreateWorkflowRequest>().unwrap());
            }
            other => panic!("{other}"),
        }
    }
}
