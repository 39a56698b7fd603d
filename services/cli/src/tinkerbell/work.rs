//! Templates, Tasks and Workflows.

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::fields::{Fields, put};
use super::names::{Kind, ObjectNames};

/// The label by which a Workflow that was taken over is found again.
pub(crate) const LABEL: &str = "tinkerbell.org/workflow";

/// Fields of an action and their places in a template here.
const ACTION: [(&str, &str); 9] = [
    ("name", "name"),
    ("image", "image"),
    ("timeoutSeconds", "timeout"),
    ("if", "if"),
    ("retries", "retries"),
    ("background", "background"),
    ("env", "environment"),
    ("volumes", "volumes"),
    ("namespaces/pid", "pid"),
];

/// Converts a Template: its data is the template.
pub(super) fn template(fields: &mut Fields, names: &ObjectNames) -> anyhow::Result<Value> {
    let mut template = json!({"kind": "Template"});
    let name = names.here(Kind::Template, &fields.text("/metadata/name")?)?;
    if !name.is_empty() {
        put(&mut template, "name", name);
    }
    fields.move_to(&mut template, "/metadata", &[("labels", "labels")]);
    fields.move_to(&mut template, "/spec", &[("data", "data")]);
    anyhow::ensure!(template.get("data").is_some(), "spec.data is empty: no template");
    Ok(template)
}

/// Converts a Task of v1alpha2: a template with one task.
pub(super) fn task(fields: &mut Fields, names: &ObjectNames) -> anyhow::Result<Value> {
    let name = names.here(Kind::Template, &fields.text("/metadata/name")?)?;
    let mut task = json!({"name": name, "worker": "{{ .device_1 }}"});
    fields.move_to(&mut task, "/spec", &[("env", "environment"), ("volumes", "volumes")]);
    put(&mut task, "actions", fields.each("/spec/actions", action)?);
    let template = json!({"version": "0.1", "name": name, "tasks": [task]});
    let data = yaml::document(&template);
    let mut converted = json!({"kind": "Template", "name": name, "data": data});
    fields.move_to(&mut converted, "/metadata", &[("labels", "labels")]);
    Ok(converted)
}

fn action(fields: &mut Fields, path: &str) -> anyhow::Result<Value> {
    let mut action = json!({});
    fields.move_to(&mut action, path, &ACTION);
    let command = fields.text(&format!("{path}/command"))?;
    let arguments: Vec<String> = fields.take(&format!("{path}/args"))?;
    let command = Some(command).filter(|it| !it.is_empty());
    let words: Vec<_> = command.into_iter().chain(arguments).collect();
    if !words.is_empty() {
        put(&mut action, "command", words);
    }
    Ok(action)
}

/// Converts a Workflow of v1alpha1.
pub(super) fn v1alpha1(fields: &mut Fields, names: &ObjectNames) -> anyhow::Result<Value> {
    let (template, hardware) =
        (fields.text("/spec/templateRef")?, fields.text("/spec/hardwareRef")?);
    let values = fields.take_value("/spec/hardwareMap");
    let mode = fields.text("/spec/bootOptions/bootMode")?;
    workflow(fields, named(names, &template, &hardware)?, values, &mode)
}

/// Converts a Workflow of v1alpha2, which may have one task only.
pub(super) fn v1alpha2(fields: &mut Fields, names: &ObjectNames) -> anyhow::Result<Value> {
    let count = fields.count("/spec/tasks");
    anyhow::ensure!(
        count == 1,
        "it has {count} tasks: here a workflow is one template on one machine"
    );
    let at = |key: &str| format!("/spec/tasks/0/{key}");
    let template = fields.first_text(&[&at("taskRef/name"), &at("taskRef")])?;
    let hardware =
        fields.first_text(&[&at("hardware/hardwareRef/name"), &at("hardware/hardwareRef")])?;
    let mode = fields.text(&at("hardware/bootOptions/bootMode"))?;
    let values = fields.take_value("/spec/vars");
    workflow(fields, named(names, &template, &hardware)?, values, &mode)
}

/// Returns the names here of a template and of a machine.
fn named(names: &ObjectNames, template: &str, hardware: &str) -> anyhow::Result<[String; 2]> {
    Ok([names.here(Kind::Template, template)?, names.here(Kind::Hardware, hardware)?])
}

fn workflow(
    fields: &mut Fields,
    [template, hardware]: [String; 2],
    values: Option<Value>,
    mode: &str,
) -> anyhow::Result<Value> {
    let name = fields.text("/metadata/name").context("its name")?;
    anyhow::ensure!(!name.is_empty(), "metadata.name is empty");
    let is_disabled: bool = fields.take("/spec/disabled")?;
    let state = fields.text("/status/state")?;
    let mut labels: Map<String, Value> = fields.take("/metadata/labels")?;
    // Its name is a label only, which may have dots: by it the workflow is found again, and not run a second time.
    labels.insert(LABEL.into(), name.clone().into());
    let mut workflow = json!({
        "kind": "Workflow", "name": name, "template": template, "hardware": hardware, "labels": labels,
    });
    if let Some(values) = values {
        workflow["values"] = values;
    }
    match mode.to_lowercase().as_str() {
        "" => {}
        "netboot" => workflow["boot_options"] = json!({"mode": "netboot"}),
        other => anyhow::bail!(
            "its boot mode {other} is not one of a workflow here: docs/migration-tinkerbell.md"
        ),
    }
    if is_disabled {
        workflow["ended"] = "disabled".into();
    } else if !["", "PENDING", "STATE_PENDING"].contains(&state.to_uppercase().as_str()) {
        workflow["ended"] = state.to_lowercase().into();
    }
    Ok(workflow)
}
