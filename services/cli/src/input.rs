//! Objects from files: YAML or JSON, one or several. The file `-` is standard input.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use prost::{Message, Name};
use serde::Deserialize as _;
use serde_json::Value;
use tinwright::json;

/// Reads all objects in the file at `path`: its YAML documents, or the elements of a list.
pub fn objects(path: &Path) -> anyhow::Result<Vec<Value>> {
    parse(&text(path)?).with_context(|| path.display().to_string())
}

/// Reads the file at `path`.
pub fn text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Parses an option of the form KEY=VALUE.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not of the form KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

/// Parses all objects in `text`.
pub fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in yaml_serde::Deserializer::from_str(text) {
        let value = Value::deserialize(document)?;
        if let Value::Array(members) = value {
            objects.extend(members);
        } else if !value.is_null() {
            objects.push(value);
        }
    }
    anyhow::ensure!(!objects.is_empty(), "no object in it");
    Ok(objects)
}

/// Converts `object` into a message.
pub fn message<M: Message + Name + Default>(object: Value) -> anyhow::Result<M> {
    Ok(json::read(object)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_are_split_into_objects() {
        let names = |text: &str| -> Vec<String> {
            let name = |v: &Value| v["name"].as_str().unwrap().to_owned();
            parse(text).unwrap().iter().map(name).collect()
        };
        assert_eq!(names("name: a\n---\nname: b\n"), ["a", "b"]);
        assert_eq!(names(r#"[{"name": "a"}, {"name": "b"}]"#), ["a", "b"]);
        assert!(parse("").is_err());
    }
}
