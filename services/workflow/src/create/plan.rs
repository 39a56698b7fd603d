//! Plans: what a workflow would do to a machine.

use std::time::SystemTime;

use tinwright::disk_hint;
use tinwright::hardware::v1 as hw;
use tinwright::workflow::v1 as pb;

use super::{Error, new_workflow};

/// Returns what a workflow from `template` would do to `machine`, with these values for its placeholders. Nothing is rendered if `template` has no
/// text.
pub fn plan(
    values: std::collections::BTreeMap<String, String>,
    template: &pb::Template,
    machine: &hw::Hardware,
    now: SystemTime,
) -> Result<pb::PlanWorkflowResponse, Error> {
    let disk = disk_hint::root_disk(machine.root_disk.as_deref(), machine.inventory.as_deref());
    // A template that uses a disk that is not found is not rendered.
    let disk = disk.unwrap_or_default();
    if template.data.is_empty() {
        return Ok(pb::PlanWorkflowResponse { disk, ..pb::PlanWorkflowResponse::default() });
    }
    let request = pb::CreateWorkflowRequest {
        template_id: template.id.clone(),
        hardware_id: machine.id.clone(),
        values,
        ..pb::CreateWorkflowRequest::default()
    };
    super::check(&request)?;
    let workflow = new_workflow(&request, template, machine, now)?;
    Ok(pb::PlanWorkflowResponse {
        template_id: workflow.template_id,
        template_name: workflow.template_name,
        disk,
        erasures: workflow.actions.iter().filter_map(erasure).collect(),
    })
}

/// Returns what `action` erases, if it is a built-in action that does (docs/reference/actions.md).
fn erasure(action: &pb::Action) -> Option<pb::PlannedErasure> {
    let image = action.image.split('@').next()?.rsplit('/').next()?.split(':').next()?;
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

/// Returns the paths in `DEST_DISK`. Other text there is not shown: it may be a secret.
fn disks(action: &pb::Action) -> Vec<String> {
    let paths = variable(action, "DEST_DISK").unwrap_or_default().split(',').map(str::trim);
    paths.filter(|path| path.starts_with("/dev/")).map(str::to_owned).collect()
}

/// Returns the value of a variable of `action`.
fn variable<'a>(action: &'a pb::Action, name: &str) -> Option<&'a str> {
    let pairs = action.environment.iter().filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

#[cfg(test)]
mod tests {
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
  - {name: split, image: rootio, command: [partition]}
  - {name: user, image: cexec, environment: {BLOCK_DEVICE: /dev/sda1}}
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
        plan(values, &template, &machine(), SystemTime::UNIX_EPOCH)
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
