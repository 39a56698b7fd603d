//! Templates, Tasks and Workflows.

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::fields::Fields;

/// The label by which a Workflow that was taken over is found again.
pub(crate) const LABEL: &str = "tinkerbell.org/workflow";

/// Converts a Template: its data is the template.
pub(super) fn template(fields: &mut Fields) -> anyhow::Result<Value> {
    let mut template = Map::from_iter([("kind".to_owned(), Value::from("Template"))]);
    fields.copy("/metadata/name", &mut template, "name");
    fields.copy("/metadata/labels", &mut template, "labels");
    fields.copy("/spec/data", &mut template, "data");
    anyhow::ensure!(template.contains_key("data"), "spec.data is empty: no template");
    Ok(Value::Object(template))
}

/// Converts a Task of v1alpha2: a template with one task.
pub(super) fn task(fields: &mut Fields) -> anyhow::Result<Value> {
    let name = fields.text("/metadata/name")?;
    let mut task = Map::from_iter([
        ("name".to_owned(), Value::from(name.as_str())),
        ("worker".to_owned(), "{{ .device_1 }}".into()),
    ]);
    fields.copy("/spec/env", &mut task, "environment");
    fields.copy("/spec/volumes", &mut task, "volumes");
    let mut actions = Vec::new();
    for index in 0..fields.count("/spec/actions") {
        actions.push(action(fields, &format!("/spec/actions/{index}"))?);
    }
    task.insert("actions".into(), actions.into());
    let template = json!({"version": "0.1", "name": name, "tasks": [task]});
    let mut converted = Map::from_iter([
        ("kind".to_owned(), Value::from("Template")),
        ("name".to_owned(), name.into()),
        ("data".to_owned(), yaml_serde::to_string(&template)?.into()),
    ]);
    fields.copy("/metadata/labels", &mut converted, "labels");
    Ok(Value::Object(converted))
}

fn action(fields: &mut Fields, path: &str) -> anyhow::Result<Value> {
    let at = |key: &str| format!("{path}/{key}");
    let mut action = Map::new();
    for (from, to) in [
        ("name", "name"),
        ("image", "image"),
        ("timeoutSeconds", "timeout"),
        ("if", "if"),
        ("retries", "retries"),
        ("background", "background"),
        ("env", "environment"),
        ("volumes", "volumes"),
        ("namespaces/pid", "pid"),
    ] {
        fields.copy(&at(from), &mut action, to);
    }
    let command = fields.text(&at("command"))?;
    let arguments: Vec<String> = fields.take(&at("args"))?;
    let words: Vec<_> =
        Some(command).filter(|it| !it.is_empty()).into_iter().chain(arguments).collect();
    if !words.is_empty() {
        action.insert("command".into(), words.into());
    }
    Ok(Value::Object(action))
}

/// Converts a Workflow of v1alpha1.
pub(super) fn v1alpha1(fields: &mut Fields) -> anyhow::Result<Value> {
    let (template, hardware) =
        (fields.text("/spec/templateRef")?, fields.text("/spec/hardwareRef")?);
    let values = fields.take_value("/spec/hardwareMap");
    let mode = fields.text("/spec/bootOptions/bootMode")?;
    workflow(fields, template, hardware, values, &mode)
}

/// Converts a Workflow of v1alpha2, which may have one task only.
pub(super) fn v1alpha2(fields: &mut Fields) -> anyhow::Result<Value> {
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
    workflow(fields, template, hardware, values, &mode)
}

fn workflow(
    fields: &mut Fields,
    template: String,
    hardware: String,
    values: Option<Value>,
    mode: &str,
) -> anyhow::Result<Value> {
    let name = fields.text("/metadata/name").context("its name")?;
    anyhow::ensure!(!name.is_empty(), "metadata.name is empty");
    let is_disabled: bool = fields.take("/spec/disabled")?;
    let state = fields.text("/status/state")?;
    let mut labels: Map<String, Value> = fields.take("/metadata/labels")?;
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
