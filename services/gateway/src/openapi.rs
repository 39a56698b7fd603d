//! The OpenAPI 3.1 document of the REST mirror, made from the descriptors of the contract and their comments.
//!
//! ```text
//! Routes ─▶ operations: paths, parameters, bodies, answers ─┐
//! descriptors ─▶ schemas: messages and enums as JSON ───────┼─▶ document
//!             └▶ comments: what the proto files say ────────┘
//! ```
//!
//! The crates for OpenAPI describe what attributes of Rust types say. Here the descriptors say it, and a document of JSON is enough.

pub mod comments;
mod operations;
mod problems;
mod schemas;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use prost_reflect::DescriptorPool;
use serde_json::{Map, Value, json};

use self::comments::Comments;
use self::schemas::Schemas;
use crate::routes::Routes;

/// The name of the key's header.
const API_KEY: &str = "X-Api-Key";

/// Returns the document of `routes`. Their calls are in `pool`.
pub fn document(pool: &DescriptorPool, routes: &Routes) -> Value {
    let comments = Comments::new(pool);
    let schemas = Schemas::new(&comments, routes);
    let mut components = schemas.components();
    components.extend(problems::schemas());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tinwright",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags(&comments, routes),
        "security": [{"api_key": []}, {"bearer": []}, {"certificate": []}],
        "paths": operations::paths(&schemas, routes),
        "components": {
            "schemas": components,
            "responses": problems::responses(),
            "securitySchemes": security_schemes(),
        },
    })
}

/// The introduction of the document.
const INTRODUCTION: &str = "\
The calls of Tinwright's contract as JSON over HTTP. Fields have the names of the contract; their lower-camel forms are read, too. A \
field with its default value is not written. Times, durations, masks and 64-bit integers are texts, as in protobuf's JSON.

An error is a problem document (RFC 9457). Its `code` is the one that the description of a call names, such as `NOT_FOUND`, and its \
`reason`, if there is one, is for programs.";

fn security_schemes() -> Value {
    json!({
        "api_key": {
            "type": "apiKey",
            "in": "header",
            "name": API_KEY,
            "description": "The key that the creation of a credential returned.",
        },
        "bearer": {"type": "http", "scheme": "bearer", "description": "The same key."},
        "certificate": {
            "type": "mutualTLS",
            "description": "A client certificate of the site.",
        },
    })
}

/// Returns a tag for each service.
fn tags(comments: &Comments, routes: &Routes) -> Value {
    let mut seen = BTreeSet::new();
    let mut tags = Vec::new();
    for route in routes.iter() {
        let service = route.call.parent_service();
        if seen.insert(service.full_name().to_owned()) {
            let (name, text) = (service.name(), comments.of_service(service));
            tags.push(json!({"name": name, "description": text}));
        }
    }
    tags.sort_by_key(|tag| tag["name"].to_string());
    tags.into()
}

/// Adds `text` to the description in `object`.
fn describe(object: &mut Map<String, Value>, text: &str) {
    let present = object.get("description").and_then(Value::as_str).unwrap_or_default();
    let parts: Vec<_> = [present, text].into_iter().filter(|part| !part.is_empty()).collect();
    if !parts.is_empty() {
        object.insert("description".to_owned(), parts.join(" ").into());
    }
}
