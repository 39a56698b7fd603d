//! Objects of Tinkerbell that have one name here, in files that are applied one after the other.

use super::{Site, file};

const MAC: &str = "52:54:00:00:01:01";
const OTHER_MAC: &str = "52:54:00:00:01:02";

/// Pairs of names in Tinkerbell that are `a-b-c` here.
const PAIRS: [(&str, &str); 3] = [("a.b-c", "a-b.c"), ("a.b-c", "a-b-c"), ("a-b-c", "a.b-c")];

/// Returns the Hardware `name` of Tinkerbell.
fn machine(name: &str, mac: &str) -> String {
    format!(
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {{name: {name}}}\nspec: {{interfaces: [{{dhcp: {{mac: '{mac}'}}}}]}}\n"
    )
}

/// Returns a machine in our own form, with the label `rack`.
fn own_machine(name: &str, mac: &str) -> String {
    format!("kind: Hardware\nname: {name}\nlabels: {{rack: r1}}\ninterfaces: [{{mac: '{mac}'}}]\n")
}

/// Returns the Template `name` of Tinkerbell, with a task of this name.
fn template(name: &str, task: &str) -> String {
    format!(
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Template\nmetadata: {{name: {name}}}\nspec: {{data: 'tasks: [{{name: {task}}}]'}}\n"
    )
}

/// Runs `command`, such as `apply`, with a file of this `text`. Returns the output, or the error.
async fn run(site: &Site, command: &str, text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "site.yaml", text);
    let (printed, result) = site.run(&format!("{command} -f {path}")).await;
    result.map(|()| printed)
}

/// Requires that `text` is refused, and nothing is written: its object is `name`, and the record
/// `a-b-c` is that of the object `original`.
async fn check_refused(site: &Site, text: &str, [original, name]: [&str; 2]) {
    site.writes();
    for command in ["apply", "apply --dry-run"] {
        let error = run(site, command, text).await.unwrap_err();
        let expected = format!("\"a-b-c\" stands for {original:?}, not for {name:?}: rename one");
        assert!(error.contains(&expected), "{error}");
        assert_eq!(site.writes(), 0, "{command}");
    }
}

#[tokio::test]
async fn a_file_changes_no_machine_with_another_original_name() {
    for (first, second) in PAIRS {
        let site = Site::default();
        run(&site, "apply", &machine(first, MAC)).await.unwrap();
        check_refused(&site, &machine(second, OTHER_MAC), [first, second]).await;
        let error = run(&site, "hardware update", &machine(second, OTHER_MAC)).await.unwrap_err();
        let id = site.machine("a-b-c").id;
        let hint = format!("if they are one, give {id} the label tinkerbell.org/name: {second}");
        assert!(error.contains(&hint), "{error}");
        assert_eq!(site.machine("a-b-c").interfaces[0].mac, MAC);
        let again = run(&site, "apply", &machine(first, MAC)).await.unwrap();
        assert!(again.ends_with("hardware/a-b-c unchanged\n"), "{again}");
    }
}

#[tokio::test]
async fn a_machine_of_ours_is_not_one_of_tinkerbell_without_a_common_mac() {
    let site = Site::default();
    run(&site, "apply", &own_machine("a-b-c", MAC)).await.unwrap();
    check_refused(&site, &machine("a.b-c", OTHER_MAC), ["a-b-c", "a.b-c"]).await;
    let site = Site::default();
    run(&site, "apply", &machine("a.b-c", MAC)).await.unwrap();
    check_refused(&site, &own_machine("a-b-c", OTHER_MAC), ["a.b-c", "a-b-c"]).await;
    let changed = run(&site, "apply", &own_machine("a-b-c", MAC)).await.unwrap();
    assert_eq!(changed, "hardware/a-b-c changed\n");
    assert_eq!(site.machine("a-b-c").labels["tinkerbell.org/name"], "a.b-c", "which is kept");
}

#[tokio::test]
async fn a_record_without_the_original_name_gets_it_from_the_machine_with_its_mac() {
    let site = Site::default();
    run(&site, "apply", &own_machine("a-b-c", MAC)).await.unwrap();
    for word in ["changed", "unchanged", "unchanged"] {
        let printed = run(&site, "apply", &machine("a.b-c", MAC)).await.unwrap();
        assert!(printed.ends_with(&format!("hardware/a-b-c {word}\n")), "{printed}");
        let labels = site.machine("a-b-c").labels;
        let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["rack=r1", "tinkerbell.org/name=a.b-c"]);
    }
}

#[tokio::test]
async fn a_machine_of_the_same_original_name_with_other_macs_is_another_one() {
    let site = Site::default();
    run(&site, "apply", &machine("a.b-c", MAC)).await.unwrap();
    site.writes();
    let error = run(&site, "apply", &machine("a.b-c", OTHER_MAC)).await.unwrap_err();
    let expected = "\"a-b-c\" stands for another \"a.b-c\", without a MAC of this one";
    assert!(error.contains(expected) && site.writes() == 0, "{error}");
}

#[tokio::test]
async fn a_file_changes_no_template_with_another_original_name() {
    for (first, second) in PAIRS {
        let site = Site::default();
        run(&site, "apply", &template(first, "one")).await.unwrap();
        check_refused(&site, &template(second, "two"), [first, second]).await;
        let again = run(&site, "apply", &template(first, "one")).await.unwrap();
        assert!(again.ends_with("template/a-b-c unchanged\n"), "{again}");
        let newer = run(&site, "apply --dry-run", &template(first, "two")).await.unwrap();
        assert!(newer.ends_with("template/a-b-c changed (dry run)\n"), "{newer}");
    }
}

#[tokio::test]
async fn a_template_of_ours_with_the_same_text_gets_the_original_name() {
    let site = Site::default();
    run(&site, "apply", &template("a-b-c", "one")).await.unwrap();
    let same = run(&site, "apply --dry-run", &template("a.b-c", "one")).await.unwrap();
    assert!(same.ends_with("template/a-b-c changed (dry run)\n"), "{same}");
}

#[tokio::test]
async fn a_bmc_is_not_given_to_the_machine_that_is_not_that_of_the_file() {
    let site = Site::default();
    run(&site, "apply", &machine("a-b-c", MAC)).await.unwrap();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {username: admin, password: secret}\n";
    let bmc = "apiVersion: bmc.tinkerbell.org/v1alpha1\nkind: Machine\nmetadata: {name: a.b-c}\nspec: {connection: {host: 192.0.2.70, authSecretRef: {name: s}}}\n";
    let text = [&machine("a.b-c", OTHER_MAC), secret, bmc].join("---\n");
    let error = run(&site, "apply", &text).await.unwrap_err();
    assert!(
        error.contains("its hardware: the record \"a-b-c\" is not that of the files"),
        "{error}"
    );
    assert!(error.contains("2 of 2 objects failed"), "{error}");
}
