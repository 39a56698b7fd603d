//! Which crate may depend on which.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// What every crate may import.
const FOUNDATIONS: [&str; 5] = ["tinwright", "store", "runtime", "tftp", "dhcp"];
/// The crates that name services: the program, what drives it from outside, and what feeds its codecs.
const NAMES_SERVICES: [&str; 4] = ["all-in-one", "fuzz", "load", "rack"];
/// What runs on machines and in clouds of other people: no store comes along.
const STORELESS: [&str; 5] = ["runtime", "dhcp", "tftp", "worker", "cli"];

fn members() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// What `package` is built with, tests left out.
fn imports(package: &Value) -> BTreeSet<&str> {
    let dependencies = package["dependencies"].as_array().unwrap();
    dependencies.iter().filter(|d| d["kind"].is_null()).map(name).collect()
}

#[test]
fn services_meet_only_in_the_program() {
    let members = members();
    let ours: BTreeSet<_> = members.iter().map(name).collect();
    for package in members.iter().filter(|package| !NAMES_SERVICES.contains(&name(package))) {
        for import in imports(package).intersection(&ours) {
            let package = name(package);
            assert!(FOUNDATIONS.contains(import), "{package} imports {import}: call it over gRPC");
        }
    }
}

#[test]
fn the_contract_imports_none_of_us_and_the_foundations_not_each_other() {
    let members = members();
    let ours: BTreeSet<_> = members.iter().map(name).collect();
    for foundation in FOUNDATIONS {
        let package = members.iter().find(|package| name(package) == foundation).unwrap();
        let imported: Vec<_> = imports(package).intersection(&ours).copied().collect();
        assert!(imported.iter().all(|import| *import == "tinwright"), "{foundation}: {imported:?}");
    }
}

#[test]
fn no_store_comes_along_to_machines() {
    for package in members().iter().filter(|package| STORELESS.contains(&name(package))) {
        assert!(!imports(package).contains("store"), "{}", name(package));
    }
}
