//! `apply` and `create`: objects of several kinds, against a site in memory.

mod originals;
mod site;

use std::path::Path;

use tinwright::{HardwareId, LocationId};

pub(super) use site::Site;

/// Writes `text` into a file of `folder`, and returns its path.
pub(super) fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const RACK: &str = "\
name: node-1
state: provisionable
location: kir1
interfaces:
  - mac: 52-54-00-00-01-01
    dhcp: {address: 198.51.100.11/24, lease_time: 1d}
    netboot: {ipxe: {contents: '#!ipxe'}}
extra: {a: b}
---
kind: Location
name: kir1
---
version: '0.1'
name: debian
tasks: []
";

/// A machine in Tinkerbell's form, with the MAC of the one in [`RACK`].
const CRD: &str = "\
apiVersion: tinkerbell.org/v1alpha1
kind: Hardware
metadata: {name: node-7, namespace: t}
spec:
  interfaces: [{dhcp: {mac: '52:54:00:00:01:01'}}]
";

#[tokio::test]
async fn objects_of_several_kinds_are_created_in_their_order_and_then_unchanged() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    file(folder.path(), "rack.yaml", RACK);
    let command = format!("apply -f {}", folder.path().display());
    let (printed, result) = site.run(&format!("{command} --dry-run")).await;
    let dry = "location/kir1 created (dry run)\ntemplate/debian created (dry run)\nhardware/node-1 created (dry run)\n";
    assert_eq!((printed.as_str(), result, site.writes()), (dry, Ok(()), 0));
    let (printed, result) = site.run(&command).await;
    assert_eq!((printed.as_str(), result), (dry.replace(" (dry run)", "").as_str(), Ok(())));
    assert_eq!(site.writes(), 3);
    let machine = site.machine("node-1");
    assert_eq!(machine.interfaces[0].mac, "52:54:00:00:01:01");
    assert!(machine.location_id.parse::<LocationId>().is_ok(), "{}", machine.location_id);
    let (printed, result) = site.run(&command).await;
    assert_eq!((printed.matches(" unchanged\n").count(), result, site.writes()), (3, Ok(()), 0));
}

#[tokio::test]
async fn printed_objects_are_unchanged_when_applied_and_hidden_secrets_stay() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let rack = file(folder.path(), "rack.yaml", RACK);
    site.run(&format!("apply -f {rack}")).await.1.unwrap();
    for (command, format) in [
        ("hardware get node-1", "yaml"),
        ("hardware list", "yaml"),
        ("hardware get node-1", "json"),
        ("template get debian", "yaml"),
        ("location list", "json"),
    ] {
        let (printed, _) = site.run(&format!("{command} -o {format}")).await;
        assert!(printed.contains("kind"), "{printed}");
        let again = file(folder.path(), "again.yaml", &printed);
        site.writes();
        let (applied, result) = site.run(&format!("apply -f {again}")).await;
        assert_eq!(result, Ok(()), "{command}: {printed}");
        assert!(applied.ends_with(" unchanged\n") && site.writes() == 0, "{command}: {applied}");
    }
    let (printed, _) = site.run("hardware get node-1 -o yaml").await;
    assert!(printed.starts_with("kind: Hardware\n"), "{printed}");
    assert!(
        printed.contains("address: 198.51.100.11/24") && printed.contains("lease_time: 1d"),
        "{printed}"
    );
    let renamed =
        file(folder.path(), "again.yaml", &printed.replace("name: node-1", "name: node-9"));
    let (applied, _) = site.run(&format!("apply --diff -f {renamed}")).await;
    assert!(
        applied.starts_with("hardware/node-9 changed (its name was node-1)\n")
            && applied.contains("-name: node-1\n+name: node-9\n"),
        "{applied}"
    );
    let machine = site.machine("node-9");
    assert_eq!(
        machine.interfaces[0].netboot.as_ref().unwrap().ipxe.as_ref().unwrap().contents,
        "#!ipxe"
    );
    assert_eq!(machine.extra, br#"{"a":"b"}"#);
}

#[tokio::test]
async fn a_protection_ends_only_by_a_file_that_says_so() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let text = "kind: Hardware\nname: node-1\ninterfaces: [{mac: '52:54:00:00:01:01'}]\n";
    for (field, is_protected) in
        [("protect: true", true), ("labels: {a: b}", true), ("protect: false", false)]
    {
        let path = file(folder.path(), "node.yaml", &format!("{text}{field}\n"));
        site.run(&format!("apply -f {path}")).await.1.unwrap();
        assert_eq!(site.machine("node-1").protect, is_protected, "{field}");
    }
}

#[tokio::test]
async fn a_machine_without_a_name_is_found_by_its_mac_and_a_partial_form_keeps_the_rest() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let enrolled = file(folder.path(), "enrolled.yaml", &RACK.replacen("name: node-1\n", "", 1));
    site.run(&format!("apply -f {enrolled}")).await.1.unwrap();
    let crd = file(folder.path(), "crd.yaml", CRD);
    let (printed, result) = site.run(&format!("apply -f {crd}")).await;
    assert_eq!(result, Ok(()));
    assert_eq!(
        printed,
        "hardware/node-7: no place here for metadata.namespace\nhardware/node-7 changed\n"
    );
    assert_eq!(site.machine("node-7").extra, br#"{"a":"b"}"#);
    let (printed, _) = site.run(&format!("hardware apply -f {crd}")).await;
    assert!(printed.ends_with("hardware/node-7 unchanged\n"), "{printed}");
}

#[tokio::test]
async fn a_file_takes_over_no_machine_of_another_name_by_its_mac() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let rack = file(folder.path(), "rack.yaml", RACK);
    site.run(&format!("apply -f {rack}")).await.1.unwrap();
    site.writes();
    let crd = file(folder.path(), "crd.yaml", CRD);
    for option in ["", " --dry-run"] {
        let error = site.run(&format!("apply -f {crd}{option}")).await.1.unwrap_err();
        let id = site.machine("node-1").id;
        let reason = format!(
            "52:54:00:00:01:01 is the MAC of node-1, not of node-7: to rename it, add to the file: id: {id}"
        );
        assert!(error.contains(&reason), "{error}");
        assert_eq!(site.writes(), 0);
    }
}

#[tokio::test]
async fn a_creation_goes_on_after_an_object_that_is_taken_and_prints_the_stored_ones() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let path = file(folder.path(), "three.yaml", "name: a\n---\nname: taken\n---\nname: c\n");
    let (printed, result) = site.run(&format!("hardware create -o name -f {path}")).await;
    assert_eq!(printed, "hardware/a\nhardware/c\n");
    let errors = result.unwrap_err();
    assert!(
        errors.contains("three.yaml:3: hardware.name: is taken\n1 of 3 objects failed"),
        "{errors}"
    );
    let wrong = file(folder.path(), "wrong.yaml", "name: d\n---\nnmae: e\n");
    let (printed, result) = site.run(&format!("hardware create -f {wrong}")).await;
    let expected = format!(
        "{wrong}:3: nmae: unknown field: did you mean name?\nnothing was sent: 1 of 2 objects failed"
    );
    assert_eq!((printed.as_str(), result), ("", Err(expected)));
    assert_eq!(site.writes(), 2, "nothing of a file with a wrong object is sent");
}

#[tokio::test]
async fn all_machines_are_found_before_one_is_deleted_and_each_error_is_reported() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let text = "[{name: a, interfaces: []}, {name: b, protect: true}, {name: c, interfaces: []}]";
    let path = file(folder.path(), "all.yaml", text);
    site.run(&format!("hardware create -f {path}")).await.1.unwrap();
    let (printed, result) = site.run("hardware delete a nosuch none").await;
    assert_eq!((printed.as_str(), result.unwrap_err().lines().count()), ("", 3));
    let (printed, result) = site.run("hardware delete a b c").await;
    assert_eq!(printed.lines().count(), 2, "{printed}");
    let errors = result.unwrap_err();
    assert_eq!(errors, "hardware b: it is protected\n1 of 3 objects failed");
}

#[tokio::test]
async fn lists_are_selected_and_printed_for_scripts() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let text = "[{name: a, labels: {rack: r1}}, {name: b, labels: {rack: r2}}, {name: c}]";
    let path = file(folder.path(), "all.yaml", text);
    site.run(&format!("hardware create -f {path}")).await.1.unwrap();
    for (options, wanted) in [
        ("-o name", "hardware/a\nhardware/b\nhardware/c\n"),
        ("-o name -l rack!=r1", "hardware/b\nhardware/c\n"),
        ("-o name -l !rack", "hardware/c\n"),
        ("-o jsonpath={[*].labels.rack}", "r1\nr2\n"),
        ("-o name -l rack=r9,rack", ""),
    ] {
        let (printed, result) = site.run(&format!("hardware list {options}")).await;
        assert_eq!((printed.as_str(), result), (wanted, Ok(())), "{options}");
    }
    let (quiet, _) = site.run("hardware list -q").await;
    assert!(
        quiet.lines().count() == 3 && quiet.lines().all(|id| id.parse::<HardwareId>().is_ok()),
        "{quiet}"
    );
    let (rows, _) = site.run("hardware list --no-headers").await;
    assert_eq!(rows.lines().count(), 3);
    let (wide, _) = site.run("hardware list -o wide --no-headers").await;
    assert!(wide.lines().next().unwrap().split_whitespace().next().unwrap().len() == 36, "{wide}");
    let (wide, _) = site.run("hardware list -o wide").await;
    assert!(wide.lines().next().unwrap().trim_end().ends_with("ARCHITECTURE  LOCATION"), "{wide}");
    assert!(rows.lines().next().unwrap().split_whitespace().next().unwrap().len() < 36, "{rows}");
    let (empty, _) = site.run("location list").await;
    assert_eq!(empty, "no location: create one with `tinwright location create NAME`\n");
}
