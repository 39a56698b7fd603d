//! The OpenAPI document of the REST mirror, as a tool of others reads it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use gateway::pages::Document;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Returns what the validator says of `document`.
fn validate(document: &Value) -> Result<(), String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("openapi.json");
    fs::write(&file, document.to_string()).unwrap();
    let program = setup::tools().unwrap().join("openapi-spec-validator");
    let output = Command::new(program).args(["--schema", "3.1"]).arg(&file).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    output.status.success().then_some(()).ok_or(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_document_is_valid() {
    validate(&(Document::mirror().make)()).unwrap();
}

#[test]
fn a_document_with_a_wrong_response_is_not() {
    let mut document = (Document::mirror().make)();
    document["paths"]["/api/v1/hardware"]["get"]["responses"]["200"] = json!({"content": 7});
    validate(&document).unwrap_err();
}
