//! Workflows from a template, hardware and values.

use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;

const DATA: &str = r#"
name: install
global_timeout: 60
tasks:
- name: os
  worker: "{{ .device_1 }}"
  environment: {DISK: "{{ index .Hardware.Disks 0 }}"}
  actions:
  - {name: write, image: image2disk, environment: {IMG_URL: "{{ .url }}", DEST_DISK: /dev/sda, PLAN: "{{ .hardware.plan }}"}}
  - {name: skip, image: cexec, if: "false"}
"#;

const ID: &str = "0193a6c5-0000-7000-8000-000000000001";

fn machine() -> hw::Hardware {
    let address =
        hw::Address { address: "192.0.2.7".into(), prefix_length: 24, gateway: String::new() };
    let dhcp = hw::Dhcp { address: Some(address), ..hw::Dhcp::default() };
    let mac = "02:00:00:00:00:07".into();
    let interface = hw::Interface { mac, dhcp: Some(dhcp), ..hw::Interface::default() };
    hw::Hardware {
        id: ID.into(),
        plan: "big".into(),
        interfaces: vec![interface],
        disks: vec![hw::Disk { device: "/dev/sda".into() }],
        ..hw::Hardware::default()
    }
}

fn request(values: &[(&str, &str)]) -> pb::CreateWorkflowRequest {
    let values =
        values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    pb::CreateWorkflowRequest {
        values,
        hardware_id: ID.into(),
        template_id: "x".into(),
        ..Default::default()
    }
}

fn created(data: &str, values: &[(&str, &str)]) -> Result<pb::Workflow, String> {
    let template = pb::Template { name: "install".into(), data: data.into(), ..Default::default() };
    let parts = Parts { template, machine: machine(), image: None };
    new_workflow(&request(values), &parts, SystemTime::now()).map_err(|wrong| wrong.to_string())
}

#[test]
fn values_and_both_forms_of_hardware_are_rendered_into_actions() {
    let workflow = created(DATA, &[("url", "http://192.0.2.1/d.gz")]).unwrap();
    let environment =
        ["DEST_DISK=/dev/sda", "DISK=/dev/sda", "IMG_URL=http://192.0.2.1/d.gz", "PLAN=big"];
    assert_eq!(workflow.actions[0].environment, environment);
    assert_eq!(workflow.actions[1].state(), pb::ActionState::Skipped);
    assert!(workflow.wants_machine && workflow.rendered.contains("02:00:00:00:00:07"));
    assert_eq!(workflow.time_limit.map(|limit| limit.seconds), Some(60));
}

#[test]
fn the_error_names_a_missing_value_and_its_line_and_quotes_no_other_value() {
    let wrong = created(DATA, &[("secret", "hunter2")]).unwrap_err();
    assert_eq!(wrong, r#"template: template "install" line 9: no field "url" in the values given"#);
}

#[test]
fn a_task_may_name_the_machine_by_id_mac_or_address_in_any_notation() {
    for worker in [
        ID,
        "0193A6C5-0000-7000-8000-000000000001",
        "02-00-00-00-00-07",
        "0200.0000.0007",
        "192.0.2.7",
    ] {
        let workflow = created(DATA, &[("url", "u"), ("device_1", worker)]);
        assert!(workflow.is_ok(), "{worker}");
    }
    for worker in ["02:00:00:00:00:08", "192.0.2.8", "x"] {
        let wrong = created(DATA, &[("url", "u"), ("device_1", worker)]).unwrap_err();
        let expected = format!(
            "template: task \"os\" names worker {worker:?}, which is not the workflow's machine, {ID}"
        );
        assert_eq!(wrong, expected);
    }
}

#[test]
fn a_request_has_one_template_and_the_size_of_its_values_is_limited() {
    let both = pb::CreateWorkflowRequest { template_data: "x".into(), ..request(&[]) };
    assert!(check(&both).unwrap_err().to_string().starts_with("template_id"));
    let large = "x".repeat(MAX_VALUES_BYTES);
    assert!(check(&request(&[("a", &large)])).unwrap_err().to_string().starts_with("values"));
    assert_eq!(check(&request(&[("a", "b")])), Ok(()));
}

#[test]
fn neither_names_nor_images_show_a_hidden_value_and_the_actions_get_it() {
    let data = r#"
name: install {{ .token }}
tasks:
- name: join {{ .hardware.extra.password }}
  worker: "{{ .device_1 }}"
  actions:
  - {name: "token {{ .token }}!", image: "{{ .token }}/rootio:v1", command: [version], environment: {A: "{{ .token }}"}}
  - {name: "for {{ .name }} and {{ .short }}", image: "quay.io/a/{{ .action }}", environment: {DEST_DISK: /a, IMG_URL: b}}
"#;
    let values =
        [("token", "hunter22"), ("name", "wanted"), ("short", "a"), ("action", "image2disk")];
    let template = pb::Template { data: data.replace("for ", "for wanted "), ..Default::default() };
    let extra = br#"{"password": "swordfish"}"#.to_vec();
    let machine = hw::Hardware { extra, ..machine() };
    let parts = Parts { template, machine, image: None };
    let workflow = new_workflow(&request(&values), &parts, SystemTime::now()).unwrap();
    let [first, second] = &workflow.actions[..] else { panic!("{workflow:?}") };
    assert_eq!(workflow.template_name, "install ***");
    assert_eq!((first.task_name.as_str(), first.name.as_str()), ("join ***", "token ***!"));
    let environment = &["A=hunter22".to_owned()][..];
    assert_eq!((first.image.as_str(), &first.environment[..]), ("rootio", environment));
    assert_eq!(second.name, "for wanted wanted and a", "the template has this word");
    assert_eq!(second.image, "image2disk");
}

#[test]
fn an_error_of_the_rendered_text_quotes_no_hidden_value() {
    for line in [
        r#"- {name: a, image: rootio, command: ["{{ .token }}"]}"#,
        r#"- {name: a, image: cexec, timeout: "{{ .token }}"}"#,
        r#"- {name: a, image: cexec, if: "{{ .token }}"}"#,
        r#"- {name: a, image: "{{ .token }}//"}"#,
    ] {
        let data = format!(
            "name: n\ntasks:\n- name: t\n  worker: \"{{{{ .device_1 }}}}\"\n  actions:\n  {line}\n"
        );
        let wrong = created(&data, &[("token", "hunter22 swordfish")]).unwrap_err();
        assert!(!wrong.contains("hunter22") && !wrong.contains("swordfish"), "{wrong}");
        assert!(wrong.contains("***"), "{wrong}");
    }
    let worker = created(DATA, &[("url", "u"), ("device_1", "hunter22")]).unwrap_err();
    assert!(worker.contains(r#"names worker "***""#), "{worker}");
}

const WITH_DISK: &str = r#"
name: install
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: image2disk, environment: {DEST_DISK: "{{ .disk }}", IMG_URL: "http://a/b", ROOT: "{{ formatPartition .disk 1 }}"}}
"#;

/// Returns a machine with disks of these serial numbers and sizes, and a hint.
fn with_disks(disks: &[(&str, u64)], hint: &str) -> hw::Hardware {
    let disk = |(n, (serial, size_bytes)): (usize, &(&str, u64))| hw::InventoryDisk {
        name: format!("sd{n}"),
        serial: (*serial).into(),
        size_bytes: *size_bytes,
        by_id: vec![format!("/dev/disk/by-id/scsi-S{serial}")],
        ..hw::InventoryDisk::default()
    };
    let disks = disks.iter().enumerate().map(disk).collect();
    let inventory = Some(Box::new(hw::Inventory { disks, ..hw::Inventory::default() }));
    let root_disk = hint.parse().ok().map(Box::new);
    hw::Hardware { inventory, root_disk, ..machine() }
}

/// Returns the disk that the workflow of a template writes to.
fn destination(
    data: &str,
    values: &[(&str, &str)],
    machine: &hw::Hardware,
) -> Result<String, Status> {
    let template = pb::Template { name: "install".into(), data: data.into(), ..Default::default() };
    let parts = Parts { template, machine: machine.clone(), image: None };
    let created = new_workflow(&request(values), &parts, SystemTime::now())?;
    let environment = created.actions[0].environment[0].split_once('=').unwrap();
    assert_eq!(created.actions[0].environment[2], format!("ROOT={}-part1", environment.1));
    Ok(environment.1.to_owned())
}

#[test]
fn a_template_gets_the_root_disk_as_a_path_that_stays() {
    let (one, two) = ([("A1", 4)], [("A1", 4), ("B2", 2)]);
    for (disks, hint, serial) in
        [(&one[..], "", "A1"), (&two, "serial=B2", "B2"), (&two, "choose=largest", "A1")]
    {
        let found = destination(WITH_DISK, &[], &with_disks(disks, hint)).unwrap();
        assert_eq!(found, format!("/dev/disk/by-id/scsi-S{serial}"), "{hint}");
    }
}

#[test]
fn a_template_that_uses_a_root_disk_that_is_not_found_is_refused_with_the_disks() {
    let two = [("A1", 4 << 30), ("B2", 2 << 30)];
    let disks = "sd0 (serial A1, 4 GB), sd1 (serial B2, 2 GB)";
    for (machine, reason, text) in [
        (
            with_disks(&two, ""),
            "ROOT_DISK_AMBIGUOUS",
            format!("several disks can be the root disk (without a hint): {disks}"),
        ),
        (
            with_disks(&two, "max-size=1TB"),
            "ROOT_DISK_AMBIGUOUS",
            format!("several disks can be the root disk (hint max-size=1TB): {disks}"),
        ),
        (
            with_disks(&two, "serial=C3"),
            "ROOT_DISK_MISSING",
            format!("no disk can be the root disk (hint serial=C3): the machine has {disks}"),
        ),
        (machine(), "ROOT_DISK_MISSING", "the machine has no inventory".to_owned()),
    ] {
        let refused = destination(WITH_DISK, &[], &machine).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(refused.get_details_error_info().unwrap().reason, reason);
        let start = format!("{ID}: {text}");
        assert!(refused.message().starts_with(&start), "{}", refused.message());
    }
}

#[test]
fn a_root_disk_that_is_not_found_matters_only_to_templates_that_use_it() {
    assert!(created(DATA, &[("url", "u")]).is_ok(), "a machine without an inventory");
    let other = WITH_DISK.replace(".disk", ".hardware.disk");
    let refused = destination(&other, &[], &machine()).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let both = WITH_DISK.replace("{{ .disk }}", "{{ .hardware.plan }}{{ .disk }}");
    let refused = destination(&both, &[], &machine()).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
}

#[test]
fn a_value_of_the_caller_replaces_the_root_disk() {
    for machine in [machine(), with_disks(&[("A1", 4)], "")] {
        let disk = "/dev/disk/by-id/x";
        assert_eq!(destination(WITH_DISK, &[("disk", disk)], &machine).unwrap(), disk);
    }
}
