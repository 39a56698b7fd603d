//! Plans: what a workflow would do to a machine.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tinwright::disk_hint;
use tinwright::image::v1::Image;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::planned_image::Check;

use super::image::is_file_of;
use super::{Error, Parts, new_workflow};
use crate::template::{Definition, unused_values};

/// The variables of built-in actions with the URL of what they download.
const IMAGE_VARIABLES: [&str; 2] = ["IMG_URL", "ARCHIVE_URL"];

/// Returns what a workflow from `parts` would do, with these values for the placeholders of its template, which the template `later` gets, too.
/// Nothing is rendered if there is neither a text nor an image.
pub fn plan(
    values: BTreeMap<String, String>,
    parts: &Parts,
    later: &pb::Template,
    now: SystemTime,
) -> Result<pb::PlanWorkflowResponse, Error> {
    let Parts { template, machine, image } = parts;
    let disk = disk_hint::root_disk(machine.root_disk.as_deref(), machine.inventory.as_deref());
    // A template that uses a disk that is not found is not rendered.
    let disk = disk.unwrap_or_default();
    let texts = [template.data.as_str(), later.data.as_str()];
    // Without a template, nothing is known of their use.
    let is_known = texts.iter().any(|text| !text.is_empty());
    let unused_values = if is_known { unused_values(&texts, &values) } else { Vec::new() };
    if template.data.is_empty() && image.is_none() {
        let nothing = pb::PlanWorkflowResponse::default();
        return Ok(pb::PlanWorkflowResponse { disk, unused_values, ..nothing });
    }
    let request = pb::CreateWorkflowRequest {
        template_id: template.id.clone(),
        hardware_id: machine.id.clone(),
        image_id: image.as_ref().map_or_else(String::new, |image| image.id.clone()),
        values,
        ..pb::CreateWorkflowRequest::default()
    };
    super::check(&request)?;
    let workflow = new_workflow(&request, parts, now)?;
    let stored = |action: &pb::Action| planned_image(action, image.as_ref());
    Ok(pb::PlanWorkflowResponse {
        template_id: workflow.template_id,
        template_name: workflow.template_name,
        disk,
        erasures: workflow.actions.iter().filter_map(erasure).collect(),
        images: workflow.actions.iter().filter_map(stored).collect(),
        unused_values,
    })
}

/// Returns what the template of `request` would run.
pub fn render(
    request: &pb::CreateWorkflowRequest,
    parts: &Parts,
    now: SystemTime,
) -> Result<pb::RenderTemplateResponse, Error> {
    super::check(request)?;
    let workflow = new_workflow(request, parts, now)?;
    let mut warnings = Vec::new();
    // It was read before.
    if let Ok(definition) = Definition::parse(&workflow.rendered) {
        warnings.extend(definition.unknown_variables().iter().map(ToString::to_string));
    }
    for unused in unused_values(&[&parts.template.data], &request.values) {
        warnings.push(format!("the template does not use the value {unused}"));
    }
    let pb::Workflow { template_name, rendered, actions, .. } = workflow;
    let erasures = actions.iter().filter_map(erasure).collect();
    Ok(pb::RenderTemplateResponse { template_name, rendered, actions, warnings, erasures })
}

/// Returns what `action` erases, if it is a built-in action that does (docs/reference/actions.md).
fn erasure(action: &pb::Action) -> Option<pb::PlannedErasure> {
    let image = actions::short_name(&action.image);
    let command: Vec<_> = action.command.iter().filter(|word| !word.is_empty()).collect();
    let command = match command.as_slice() {
        [] => "",
        [word] => word.as_str(),
        [_, _, ..] => return None,
    };
    let disks = match (image, command) {
        ("image2disk", "") => disks(action),
        ("wipe", "") if variable(action, "WIPE_DISKS") == Some("all") => vec!["all".to_owned()],
        ("wipe", "") => disks(action),
        // The instance's metadata names them, when the machine reads it.
        ("rootio", "partition" | "format" | "wipe") => Vec::new(),
        (_, _) => return None,
    };
    Some(pb::PlannedErasure { action: action.name.clone(), image: action.image.clone(), disks })
}

/// Returns the image that `action` downloads, if it does; `image` is that of the workflow.
fn planned_image(action: &pb::Action, image: Option<&Image>) -> Option<pb::PlannedImage> {
    let url = IMAGE_VARIABLES.iter().find_map(|name| variable(action, name))?;
    let is_url = ["http://", "https://", "/"].iter().any(|start| url.starts_with(start));
    let mut planned = pb::PlannedImage {
        action: action.name.clone(),
        url: url.to_owned(),
        ..pb::PlannedImage::default()
    };
    if let Some(image) = image.filter(|image| is_file_of(image, url)) {
        planned.set_check(Check::Found);
        planned.size_bytes = image.stored_bytes;
        planned.detail = format!("image {}", image.name);
    }
    is_url.then_some(planned)
}

/// Returns the paths in `DEST_DISK`. Other text there is not shown: it may be a secret.
fn disks(action: &pb::Action) -> Vec<String> {
    let paths = variable(action, "DEST_DISK").unwrap_or_default().split(',').map(str::trim);
    paths.filter(|path| path.starts_with("/dev/")).map(str::to_owned).collect()
}

/// Returns the value of a variable of `action`.
pub(super) fn variable<'a>(action: &'a pb::Action, name: &str) -> Option<&'a str> {
    let pairs = action.environment.iter().filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

#[cfg(test)]
mod tests {
    use tinwright::hardware::v1 as hw;

    use super::*;

    const DATA: &str = r#"
version: "0.1"
name: install
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: clear, image: wipe, environment: {WIPE_DISKS: all}}
  - {name: write, image: "quay.io/a/image2disk:v1", environment: {DEST_DISK: "{{ .to }}", IMG_URL: "{{ .key }}"}}
  - {name: split, image: rootio, command: [partition], environment: {MIRROR_HOST: 192.0.2.1}}
  - {name: user, image: cexec, environment: {BLOCK_DEVICE: /dev/sda1, FS_TYPE: ext4, CMD_LINE: ls}}
"#;

    fn machine() -> hw::Hardware {
        let mac = "02:00:00:00:00:07".to_owned();
        let interfaces = vec![hw::Interface { mac, ..Default::default() }];
        hw::Hardware {
            id: tinwright::HardwareId::new().to_string(),
            interfaces,
            ..Default::default()
        }
    }

    fn planned(to: &str, data: &str) -> Result<pb::PlanWorkflowResponse, Error> {
        let values = [("to", to), ("key", "hunter22")];
        let values = values.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let (id, name) = ("t-1".to_owned(), "debian".to_owned());
        let template = pb::Template { id, name, data: data.to_owned(), ..Default::default() };
        let parts = Parts { template, machine: machine(), image: None };
        plan(values, &parts, &pb::Template::default(), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_plan_names_each_erasing_action_with_its_disks() {
        let plan = planned("/dev/vda, /dev/vdb", DATA).unwrap();
        assert_eq!((plan.template_id.as_str(), plan.template_name.as_str()), ("t-1", "debian"));
        let erasures = plan.erasures.iter().map(|it| (it.action.as_str(), it.disks.join(" ")));
        let expected = [("clear", "all"), ("write", "/dev/vda /dev/vdb"), ("split", "")];
        let expected = expected.map(|(action, disks)| (action, disks.to_owned()));
        assert_eq!(erasures.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_text_that_is_no_path_is_not_shown_and_a_wrong_template_is_refused() {
        assert_eq!(planned("hunter22", DATA).unwrap().erasures[1].disks, Vec::<String>::new());
        let refused = planned("/dev/vda", &DATA.replace(".to", ".disk")).unwrap_err();
        assert!(matches!(refused, Error::RootDisk { .. }), "{refused}");
        assert_eq!(planned("", "").unwrap(), pb::PlanWorkflowResponse::default());
    }
}
