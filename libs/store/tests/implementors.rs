//! Every store in the sources implements the methods of `Store` that have a default.
//!
//! The defaults are for the stores of tests. A store around another one that forgets `sealer` stores secrets in clear; one that forgets
//! `frozen` cannot be backed up; one that forgets `failed` hides a failed disk; one that forgets `is_unchanged` makes pages slow.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use std::path::Path;

/// The stores that are not around another one. Secrets are sealed above them.
const ENGINES: [&str; 3] = ["MemoryStore", "Etcd", "Sled"];
/// A part of a store, of which no backup is made.
const PARTS: [&str; 1] = ["ScopedStore"];

/// Adds the stores below `folder` that are not for tests, each with the text of its implementation.
fn find_stores(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "target" {
            find_stores(&path, found);
        } else if name.ends_with(".rs") && !name.starts_with("test") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("\nimpl Store for ").skip(1) {
                let (store, body) = part.split_once(" {\n").unwrap();
                let (body, _) = body.split_once("\n}\n").unwrap();
                found.push((store.to_owned(), body.to_owned()));
            }
        }
    }
}

#[test]
fn every_store_passes_on_what_the_one_below_it_can_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut stores = Vec::new();
    for folder in ["libs", "services"] {
        find_stores(&root.join(folder), &mut stores);
    }
    for known in ENGINES.iter().chain(&PARTS).chain(&["SealedStore", "MeasuredStore"]) {
        assert!(stores.iter().any(|(store, _)| store == known), "{known} is not found");
    }
    for (store, body) in &stores {
        let mut needed = Vec::new();
        if store != "Etcd" {
            needed.push("fn is_unchanged(");
        }
        if !ENGINES.contains(&store.as_str()) {
            needed.extend(["fn sealer(", "async fn failed("]);
        }
        if !PARTS.contains(&store.as_str()) {
            needed.push("async fn frozen(");
        }
        for method in needed {
            assert!(body.contains(method), "{store} does not implement `{method}…)`");
        }
    }
}
