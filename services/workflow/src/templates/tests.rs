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
      - {name: wipe, image: wipe}
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
    assert_eq!(text, r#"template.data: template "template" line 5: function "env" is unknown"#);
    let text = refusal(&DATA.replace("name: disks", "name: ''")).await;
    assert_eq!(text, "template.data: validating workflow template: name cannot be empty");
}

#[tokio::test]
async fn a_text_that_is_yaml_only_after_rendering_needs_a_name() {
    let data = DATA.replace("      - {name", "{{ range .disks }}\n      - {name");
    let data = format!("{data}{{{{ end }}}}\n");
    let text = refusal(&data).await;
    assert!(text.starts_with("template.name: is empty"), "{text}");
    let named = pb::Template { name: "loop".into(), ..template(&data) };
    assert!(templates().create(named, None).await.is_ok());
}

#[tokio::test]
async fn a_name_is_unique_and_has_only_allowed_characters() {
    let templates = templates();
    let first = templates.create(template(DATA), None).await.unwrap();
    let taken = templates.create(template(DATA), None).await.unwrap_err().to_string();
    assert_eq!(taken, format!("template-name wipe is taken by template {}", first.id));
    let odd = pb::Template { name: "a b".into(), ..template(DATA) };
    assert!(templates.create(odd, None).await.is_err());
}

#[tokio::test]
async fn an_update_is_checked_like_a_creation_and_a_stale_one_changes_nothing() {
    let templates = templates();
    let made = templates.create(template(DATA), None).await.unwrap();
    let data = |data: &str| pb::Template { data: data.into(), ..made.clone() };
    assert!(templates.update(data("name: {"), &["data".into()]).await.is_err());
    let new = templates.update(data(&DATA.replace("wipe}", "rootio}")), &[]).await.unwrap();
    let stale = templates.update(data(DATA), &["data".into()]).await;
    assert!(matches!(stale, Err(Error::Changed { .. })));
    assert_eq!(templates.records().require_by("template-name", "wipe").await.unwrap(), new);
}
