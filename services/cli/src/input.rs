//! Objects from files: YAML or JSON, one or several. The file `-` is standard input.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

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

/// Parses a duration of one unit, such as `30d`, `12h`, `45m` or `90s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration such as 30d, 12h, 45m or 90s");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
    let number: u32 = number.and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
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
    fn a_duration_has_one_unit() {
        for (text, seconds) in [("90s", 90), ("45m", 2700), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "d", "30", "-1d", "1.5h", "1w", "1d2h", "30ä", "99999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

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
