//! Templates in a store, and the errors of refused ones.

use std::sync::Arc;

use store::memory::MemoryStore;

use super::*;

fn templates() -> Templates {
    Templates::new(ScopedStore::new(Arc::new(MemoryStore::default()), "workflow"), Clock::system())
}

fn template(data: &str) -> pb::Template {
    pb::Template { data: data.into(), ..pb::Template::default() }
}

const DATA: &str = r#"version: "0.1"
name: wipe
tasks:
  - name: disks
    worker: "{{.device_1}}"
    actions:
      - {name: wipe, image: wipe, environment: {WIPE_DISKS: all}}
"#;

async fn refusal(data: &str) -> String {
    templates().create(template(data), None).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_template_is_found_by_the_name_in_its_data_and_by_id() {
    let templates = templates();
    let made = templates.create(template(DATA), None).await.unwrap();
    assert_eq!(made.name, "wipe");
    assert_eq!(templates.records().require_by("template-name", "wipe").await.unwrap(), made);
    assert_eq!(templates.records().require(&made.id).await.unwrap(), made);
}

#[tokio::test]
async fn a_mistyped_key_is_refused_with_its_line_although_placeholders_surround_it() {
    let text = refusal(&DATA.replace("image: wipe", "imgae: wipe")).await;
    assert!(text.starts_with("template.data: parsing yaml data: "), "{text}");
    assert!(text.contains("unknown field `imgae`") && text.contains("line 7"), "{text}");
}

#[tokio::test]
async fn an_unknown_function_and_a_broken_rule_are_refused() {
    let text = refusal(&DATA.replace(".device_1", "env \"HOME\"")).await;
    assert_eq!(text, r#"template.data: template "wipe" line 5: function "env" is unknown"#);
    let text = refusal(&DATA.replace("name: disks", "name: ''")).await;
    assert_eq!(text, "template.data: validating workflow template: name cannot be empty");
}

#[tokio::test]
async fn a_text_that_is_yaml_only_after_rendering_has_its_name_in_a_line_of_its_own() {
    let data = DATA.replace("      - {name", "{{ range .disks }}\n      - {name");
    let data = format!("{data}{{{{ end }}}}\n");
    assert_eq!(templates().create(template(&data), None).await.unwrap().name, "wipe");
    let nameless = data.replace("name: wipe\n", "");
    let text = refusal(&nameless).await;
    assert!(
        text.starts_with("template.name: is missing: ") && text.ends_with("(--name)"),
        "{text}"
    );
    let named = pb::Template { name: "loop".into(), ..template(&nameless) };
    assert!(templates().create(named, None).await.is_ok());
    let value = DATA.replace("WIPE_DISKS: all", "WIPE_DISKS: {{ .disks }}");
    assert_eq!(templates().create(template(&value), None).await.unwrap().name, "wipe");
    let timeout = DATA.replace("image: wipe", "image: wipe, timeout: {{ .t }}");
    assert!(templates().create(template(&timeout), None).await.is_ok(), "it may be a number");
}

#[tokio::test]
async fn actions_are_checked_although_a_value_is_rendered_outside_of_quotes() {
    let loose = DATA.replace("WIPE_DISKS: all", "WIPE_DISKS: {{ index .Hardware.Disks 0 }}");
    let own = loose.replace("image: wipe", "image: registry.example/own/action:v1");
    let text = refusal(&own).await;
    let wanted = "template.data: action \"wipe\": no action action (image registry.example/own/action:v1); actions: ";
    assert!(text.starts_with(wanted), "{text}");
    let misspelt = loose.replace("WIPE_DISKS:", "WIPE_DISK:");
    assert!(refusal(&misspelt).await.contains("did you mean WIPE_DISKS?"));
    let open = loose.replace("image: wipe", "image: \"{{ .image }}\"");
    assert!(templates().create(template(&open), None).await.is_ok());
    let open = loose.replace("image: wipe", "image: a/{{ .image }}");
    assert!(templates().create(template(&open), None).await.is_ok());
}

#[tokio::test]
async fn a_mistyped_key_has_the_one_that_is_meant_and_types_have_no_names_of_the_program() {
    let text = refusal(&DATA.replace("image: wipe", "image: wipe, tiemout: 5")).await;
    assert!(
        text.contains(": unknown field `tiemout`: did you mean `timeout`? at line 7"),
        "{text}"
    );
    assert!(text.ends_with(" of the data"), "{text}");
    let text = refusal(&DATA.replace("image: wipe", "image: wipe, colour: 5")).await;
    assert!(text.contains("unknown field `colour`, expected one of `name`"), "{text}");
    let text = refusal("tasks").await;
    assert!(text.contains("expected the keys of a template, such as name and tasks"), "{text}");
}

#[tokio::test]
async fn yaml_that_no_value_mends_is_refused_with_its_line_and_column() {
    let loose = DATA.replace("\"{{.device_1}}\"", "{{.device_1}}");
    for data in [DATA, &loose] {
        let text = refusal(&data.replace("image: wipe", "image: wipe, timeout: ten")).await;
        assert!(text.starts_with("template.data: parsing yaml data: "), "{text}");
        assert!(text.contains("expected u64") && text.contains("at line 7 column"), "{text}");
        let text = refusal(&data.replace("    actions", "   actions")).await;
        assert!(text.contains("at line 6 column"), "{text}");
    }
}

#[tokio::test]
async fn every_mistake_in_an_action_is_named() {
    let actions = r#"{name: a, image: imagetodisk}
      - {name: b, image: image2disk, environment: {IMG_ULR: "{{ .img }}", DEST_DISK: "{{ .disk }}"}}
      - {name: c, image: "{{ .image }}"}
      - {name: d, image: rootio, command: ["{{ .step }}"]}
      - {name: e, image: cexec, command: [sh]}
      - {name: f, image: wipe, environment: {WIPE_DISKS: "{{ .disks }}", LANG: C}, on-failure: [a]}"#;
    let data = DATA.replace("{name: wipe, image: wipe, environment: {WIPE_DISKS: all}}", actions);
    let refused = templates().create(template(&data), None).await.unwrap_err();
    let Error::Invalid(violations) = refused else { panic!("{refused}") };
    let found: Vec<_> =
        violations.iter().map(|it| (it.field.as_str(), it.reason.as_str())).collect();
    let texts: Vec<_> = found.iter().map(|(_, reason)| *reason).collect();
    assert!(found.iter().all(|(field, _)| *field == "template.data"));
    let wanted = [
        "action \"a\": no action imagetodisk: did you mean image2disk?; actions: archive2disk, cexec, grub2disk, image2disk, kexec, poweroff, reboot, rootio, wipe, writefile",
        "action \"b\": image2disk needs IMG_URL: URL of the image: `http`, `https`, or a path on the boot server",
        "action \"b\": image2disk has no variable IMG_ULR: did you mean IMG_URL?",
        "action \"e\": cexec takes no command, and has \"sh\": containers are not supported",
    ];
    assert_eq!(texts, wanted);
}

#[tokio::test]
async fn a_template_that_is_stored_already_can_be_renamed_whatever_its_actions() {
    let templates = templates();
    let made = templates.create(template(DATA), None).await.unwrap();
    let old = pb::Template { data: DATA.replace("image: wipe", "image: other"), ..made.clone() };
    let old = templates.records().replace(&made, old).await.unwrap();
    let renamed = pb::Template { name: "new".into(), ..old.clone() };
    assert_eq!(templates.update(renamed, &["name".into()]).await.unwrap().name, "new");
    let other = pb::Template { data: format!("{}\n", old.data), revision: 0, ..old };
    assert!(templates.update(other, &["data".into()]).await.is_err());
}

#[tokio::test]
async fn a_name_is_unique_and_has_only_allowed_characters() {
    let templates = templates();
    let first = templates.create(template(DATA), None).await.unwrap();
    let taken = templates.create(template(DATA), None).await.unwrap_err().to_string();
    assert_eq!(taken, format!("name wipe is taken by template {}", first.id));
    let odd = pb::Template { name: "a b".into(), ..template(DATA) };
    assert!(templates.create(odd, None).await.is_err());
}

#[tokio::test]
async fn an_update_is_checked_like_a_creation_and_a_stale_one_changes_nothing() {
    let templates = templates();
    let made = templates.create(template(DATA), None).await.unwrap();
    let data = |data: &str| pb::Template { data: data.into(), ..made.clone() };
    assert!(templates.update(data("name: {"), &["data".into()]).await.is_err());
    let new = templates.update(data(&DATA.replace("all}", "'all'}")), &[]).await.unwrap();
    let stale = templates.update(data(DATA), &["data".into()]).await;
    assert!(matches!(stale, Err(Error::Changed { .. })));
    assert_eq!(templates.records().require_by("template-name", "wipe").await.unwrap(), new);
}
