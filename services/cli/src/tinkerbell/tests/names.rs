//! Names with dots, and references to them.

use super::*;

/// Objects whose names are in the form of DNS.
const DOTTED: &str = r##"
apiVersion: tinkerbell.org/v1alpha1
kind: Hardware
metadata: {name: node7.example.org}
spec:
  bmcRef: {name: bmc7.example.org}
  interfaces: [{dhcp: {mac: "02:00:00:00:00:07", hostname: node7.example.org}}]
---
apiVersion: tinkerbell.org/v1alpha1
kind: Template
metadata: {name: debian.12}
spec: {data: "tasks: []"}
---
apiVersion: tinkerbell.org/v1alpha1
kind: Workflow
metadata: {name: install.node7}
spec: {templateRef: debian.12, hardwareRef: node7.example.org}
---
apiVersion: v1
kind: Secret
metadata: {name: login.example.org}
stringData: {username: admin, password: secret}
---
apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Machine
metadata: {name: bmc7.example.org}
spec: {connection: {host: 192.0.2.70, authSecretRef: {name: login.example.org}}}
"##;

fn hardware(name: &str, namespace: &str) -> String {
    format!(
        "---\napiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
    )
}

#[test]
fn dots_become_hyphens_in_names_and_references_but_not_in_host_names() {
    let all = converted(DOTTED);
    let machine: Hardware = message(&all[0].0);
    let dhcp = machine.interfaces[0].dhcp.as_ref().unwrap();
    assert_eq!(machine.name, "node7-example-org");
    assert_eq!(dhcp.hostname, "node7.example.org");
    assert_eq!(machine.labels[ORIGINAL_NAME], "node7.example.org");
    let template: Template = message(&all[1].0);
    assert_eq!(
        (template.name.as_str(), &*template.labels[ORIGINAL_NAME]),
        ("debian-12", "debian.12")
    );
    let workflow = &all[2].0;
    assert_eq!(
        (&workflow["template"], &workflow["hardware"], &workflow["labels"][LABEL]),
        (&json!("debian-12"), &json!("node7-example-org"), &json!("install.node7"))
    );
    assert_eq!(message::<Bmc>(&all[3].0).hardware_id, "node7-example-org");
}

#[test]
fn a_task_and_references_of_v1alpha2_have_names_without_dots() {
    let text = "apiVersion: tinkerbell.org/v1alpha2\nkind: Task\nmetadata: {name: wipe.all}\nspec: {}\n---\napiVersion: tinkerbell.org/v1alpha2\nkind: Workflow\nmetadata: {name: w}\nspec: {tasks: [{taskRef: {name: wipe.all}, hardware: {hardwareRef: {name: n.a}}}]}\n";
    let all = converted(text);
    let template: Template = message(&all[0].0);
    assert_eq!(template.name, "wipe-all");
    assert!(template.data.contains("name: wipe-all\n"), "{}", template.data);
    assert_eq!((&all[1].0["template"], &all[1].0["hardware"]), (&json!("wipe-all"), &json!("n-a")));
}

#[test]
fn an_original_name_is_a_label_besides_those_of_the_object() {
    let labelled = |name: &str, labels: &str| {
        let text = format!(
            "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {{name: {name}, labels: {labels}}}\n"
        );
        converted(&text).remove(0).0.get("labels").cloned()
    };
    let (team, both) = (json!({"team": "a"}), json!({"team": "a", ORIGINAL_NAME: "node.a"}));
    assert_eq!(labelled("node.a", "{team: a}"), Some(both));
    assert_eq!(labelled("node-a", "{team: a}"), Some(team));
    assert_eq!(labelled("node-a", "{}"), None);
    assert_eq!(labelled("node.a", "wrong"), Some(json!("wrong")), "refused as a message");
}

#[test]
fn a_changed_name_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.yaml");
    std::fs::write(&path, DOTTED).unwrap();
    let notes = crate::files::read_all(&[path]).into_iter().flat_map(|it| it.unwrap().notes);
    let expected = ["node7.example.org", "debian.12"]
        .map(|name| format!("renamed from {name}: names have no dots here"));
    assert_eq!(notes.collect::<Vec<_>>(), expected);
}

#[test]
fn a_name_that_is_too_long_is_refused_with_both_forms() {
    let name = format!("{}.example.org", "n".repeat(60));
    let refused = error(&hardware(&name, "tink"));
    let mapped = name.replace('.', "-");
    assert_eq!(refused, format!("the Hardware \"{name}\" cannot be \"{mapped}\" here"));
}

#[test]
fn two_objects_that_would_have_one_name_are_refused_with_both_names() {
    let two = [hardware("node.a", "tink"), hardware("node-a", "tink")].concat();
    let text = "the Hardware \"node-a\" would stand for \"node-a\" (namespace \"tink\") and \"node.a\" (namespace \"tink\"): rename them, or apply one namespace at a time";
    assert_eq!(error(&two), text);
    let own = "---\nkind: Hardware\nname: node-a\n";
    let with_own = [&hardware("node.a", "tink"), own].concat();
    assert!(error(&with_own).contains("stand for \"node-a\" and \"node.a\" (namespace"));
    let namespaces = [hardware("node-a", "one"), hardware("node-a", "two")].concat();
    assert!(error(&namespaces).starts_with("the Hardware \"node-a\" would stand for"));
    let workflow = "---\napiVersion: tinkerbell.org/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {templateRef: t, hardwareRef: node.a}\n";
    let own_twice = [own, "---\nkind: Hardware\nname: node.a\n", workflow].concat();
    assert!(error(&own_twice).contains("stand for"), "a reference");
    let same = [hardware("node.a", "tink"), hardware("node.a", "tink")].concat();
    assert_eq!(converted(&same).len(), 2);
}

#[test]
fn host_names_that_differ_in_their_domain_only_are_not_the_name_of_two_machines() {
    let pushed = |hostname: &str| {
        format!(
            "---\n{{\"network\": {{\"interfaces\": [{{\"dhcp\": {{\"hostname\": \"{hostname}\"}}}}]}}}}\n"
        )
    };
    let two = [pushed("node-1.a.example"), pushed("node-1.b.example")].concat();
    let text =
        "the Hardware \"node-1\" would stand for \"node-1.a.example\" and \"node-1.b.example\"";
    assert!(error(&two).starts_with(text), "{}", error(&two));
}
