//! Templates that render.

#![allow(clippy::unwrap_used)]

mod properties;
mod refusals;

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

/// A typical template that uses every key.
pub(super) const DEBIAN: &str = r#"version: "0.1"
name: debian
id: ""
global_timeout: 1800
tasks:
  - name: os-installation
    worker: "{{.device_1}}"
    volumes: ["/dev:/dev", "/dev/console:/dev/console", "/lib/firmware:/lib/firmware:ro"]
    environment: {MIRROR_HOST: 192.0.2.1, LANG: C}
    actions:
      - name: stream-image
        image: quay.io/tinkerbell/actions/image2disk:v1.0.0
        timeout: 600
        retries: 2
        environment:
          IMG_URL: "{{ .image.url }}"
          DEST_DISK: "{{ index .Hardware.Disks 0 }}"
          LANG: de
      - name: run
        image: cexec
        command: ["/bin/true"]
        on-failure: ["/bin/fail", "{{.device_1}}"]
        on-timeout: ["/bin/late"]
        volumes: ["/dev:/host/dev"]
        namespaces: {network: host}
        pid: host
        if: "{{ eq .arch `arm64` }}"
        restart: retry
      - name: reboot
        image: ghcr.io/tinkerbell/waitdaemon
        background: true
"#;

/// Values that suit [`DEBIAN`].
pub(super) fn values() -> Values {
    let map = json!({"device_1": "02:00:5e:10:00:01", "arch": "amd64", "image": {"url": "http://192.0.2.1/d.gz"}});
    let serde_json::Value::Object(hardware_map) = map else { unreachable!() };
    Values { hardware_map, legacy_hardware: json!({"Disks": ["/dev/sda"]}), ..Values::default() }
}

/// A template of one task whose actions are these lines.
pub(super) fn template(actions: &str) -> Template {
    let text = format!("name: t\ntasks:\n- name: a\n  worker: w\n  actions:\n{actions}");
    Template::parse("t", &text).unwrap()
}

fn rendered() -> Definition {
    Template::parse("debian", DEBIAN).unwrap().render(values()).unwrap().definition
}

#[test]
fn a_template_renders_to_typed_actions() {
    let rendered = rendered();
    assert_eq!(rendered.name, "debian");
    assert_eq!(rendered.global_timeout, 1800);
    let [task] = rendered.tasks.as_slice() else { panic!("{:?}", rendered.tasks) };
    assert_eq!((task.worker.as_str(), task.actions.len()), ("02:00:5e:10:00:01", 3));
    let run = &task.actions[1];
    assert_eq!(run.on_failure, ["/bin/fail", "02:00:5e:10:00:01"]);
    assert_eq!(run.namespaces, Namespaces { network: "host".into(), pid: "host".into() });
    assert_eq!(run.restart, Some(AfterLoss::Retry));
}

#[test]
fn an_actions_variables_replace_its_tasks() {
    let expected = [
        ("DEST_DISK", "/dev/sda"),
        ("IMG_URL", "http://192.0.2.1/d.gz"),
        ("LANG", "de"),
        ("MIRROR_HOST", "192.0.2.1"),
    ];
    let expected: BTreeMap<_, _> =
        expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(rendered().tasks[0].actions[0].environment, expected);
}

#[test]
fn an_actions_volume_replaces_its_tasks_with_the_same_source() {
    let expected =
        ["/dev:/host/dev", "/dev/console:/dev/console", "/lib/firmware:/lib/firmware:ro"];
    assert_eq!(rendered().tasks[0].actions[1].volumes, expected);
}

#[test]
fn without_a_timeout_the_servers_default_applies() {
    let actions = &rendered().tasks[0].actions;
    assert_eq!((actions[0].timeout, actions[1].timeout), (600, DEFAULT_ACTION_TIMEOUT));
}

#[test]
fn an_action_whose_if_is_false_is_skipped() {
    let skipped: Vec<bool> =
        rendered().tasks[0].actions.iter().map(|action| action.skipped).collect();
    assert_eq!(skipped, [false, true, false]);
}

#[test]
fn the_yaml_around_quoted_placeholders_is_checked() {
    let definition = Template::parse("debian", DEBIAN).unwrap().check().unwrap();
    assert_eq!(
        (definition.name.as_str(), definition.tasks[0].worker.as_str()),
        ("debian", "{{.device_1}}")
    );
    let image = template("  - {name: x, image: \"{{.registry}}/cexec\"}");
    assert!(image.check().is_ok());
}

#[test]
fn a_text_that_is_yaml_only_after_rendering_renders_and_cannot_be_checked() {
    let template = template(
        "{{- range .disks }}\n  - {name: wipe-{{ . }}, image: rootio, timeout: {{ 5 }}}\n{{- end }}",
    );
    assert!(matches!(template.check(), Err(Error::Yaml(_))));
    let hardware_map = [("disks".to_owned(), json!(["sda", "sdb"]))].into_iter().collect();
    let values = Values { hardware_map, ..Values::default() };
    let rendered = template.render(values).unwrap().definition;
    let names: Vec<_> =
        rendered.tasks[0].actions.iter().map(|action| action.name.as_str()).collect();
    assert_eq!(names, ["wipe-sda", "wipe-sdb"]);
}

#[test]
fn keys_without_a_value_count_as_absent() {
    let empty =
        template("  - {name: x, image: y, volumes: , environment: , command: ~, namespaces: }");
    let bare = template("  - {name: x, image: y}");
    assert_eq!(empty.check().unwrap(), bare.check().unwrap());
}

#[test]
fn a_variables_scalar_stays_as_written() {
    let action =
        template("  - {name: x, image: y, environment: {MODE: 0644, ON: yes, N: 1e3, E: }}");
    let rendered = action.render(Values::default()).unwrap().definition;
    let environment = &rendered.tasks[0].actions[0].environment;
    let values: Vec<&str> = environment.values().map(String::as_str).collect();
    assert_eq!(values, ["", "0644", "1e3", "yes"]);
}

/// Actions as Tinkerbell's guides have them.
const WAITDAEMONS: &str = r#"
  - name: reboot
    image: ghcr.io/jacobweinstock/waitdaemon:v0.2.1
    pid: host
    command: ["reboot"]
    environment: {IMAGE: alpine, WAIT_SECONDS: 10}
    volumes: ["/var/run/docker.sock:/var/run/docker.sock"]
  - name: kexec
    image: ghcr.io/jacobweinstock/waitdaemon
    environment:
      BLOCK_DEVICE: {{ formatPartition "/dev/sda" 1 }}
      FS_TYPE: ext4
      IMAGE: quay.io/tinkerbell-actions/kexec:v1.0.0
"#;

#[test]
fn the_action_that_waitdaemon_starts_takes_its_place() {
    let template = template(WAITDAEMONS);
    let open = template.with_open_values().unwrap();
    assert_eq!(open.action_errors(Stage::Unrendered), []);
    let rendered = template.render(Values::default()).unwrap().definition;
    assert_eq!(rendered.action_errors(Stage::Rendered), []);
    let [reboot, kexec] = rendered.tasks[0].actions.as_slice() else { panic!("{rendered:?}") };
    assert_eq!((reboot.image.as_str(), reboot.command.len()), ("reboot", 0));
    assert!(reboot.environment.is_empty(), "{reboot:?}");
    assert_eq!(kexec.image, "quay.io/tinkerbell-actions/kexec:v1.0.0");
    let expected = [("BLOCK_DEVICE", "/dev/sda1"), ("FS_TYPE", "ext4")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(kexec.environment, BTreeMap::from(expected));
    for action in [reboot, kexec] {
        assert_eq!(AfterLoss::of(&action.image), AfterLoss::ExpectBoot);
    }
}

#[test]
fn waitdaemon_is_checked_as_the_action_that_it_starts() {
    let errors = |actions: &str, stage| {
        let definition = match stage {
            Stage::Unrendered => template(actions).check().unwrap(),
            Stage::Rendered => template(actions).render(Values::default()).unwrap().definition,
        };
        let errors = definition.action_errors(stage);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let kexec = "  - {name: k, image: a/waitdaemon, environment: {IMAGE: kexec, FS_TIPE: ext4}}";
    let missing = "action \"k\": kexec needs BLOCK_DEVICE: partition with kernel and initrd";
    let unknown = "action \"k\": kexec has no variable FS_TIPE: did you mean FS_TYPE?";
    assert_eq!(errors(kexec, Stage::Unrendered), format!("{missing}\n{unknown}"));
    assert_eq!(errors(kexec, Stage::Rendered), missing);
    let other = "  - {name: o, image: a/waitdaemon, environment: {IMAGE: alpine}, command: [ls]}";
    for stage in [Stage::Unrendered, Stage::Rendered] {
        let refused = errors(other, stage);
        let expected =
            "action \"o\": waitdaemon does not start alpine with \"ls\"; supported: kexec";
        assert!(refused.starts_with(expected), "{refused}");
    }
    let open = "  - {name: o, image: waitdaemon, environment: {IMAGE: \"{{ .x }}\"}}";
    assert_eq!(errors(open, Stage::Unrendered), "");
}

#[test]
fn the_fixed_names_replace_those_of_the_map() {
    let mut values = values();
    values.hardware_map.insert("hardware".into(), json!("mine"));
    values.hardware = json!({"plan": "big"});
    assert_eq!(values.into_json()["hardware"], json!({"plan": "big"}));
}
