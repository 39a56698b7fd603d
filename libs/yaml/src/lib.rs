//! Writes values as YAML that readers of YAML 1.1 and of YAML 1.2 read alike.
//!
//! Readers differ in the words that they take for something else than text. PyYAML reads `on` as
//! true and `12:30` as 750, Ruby's Psych reads `12:30` as 45,000 and `1,000` as a number, and the
//! second version of go-yaml reads `y` as true. A text that any reader misreads is in quotes.
//! Libraries quote what the reader of one version misreads, most of them their own.
//!
//! - [`to_string()`] writes any value, [`document()`] a value of JSON.
//! - `scalar`: the forms of texts and numbers.
//!
//! `tests/readers.rs` compares what the readers make of a corpus with what was written.

mod scalar;

use serde::Serialize;
use serde_json::{Map, Value};

/// Maximum length of a key that is followed by its colon on the same line. Readers look for the
/// colon in the first 1,024 characters only.
const MAX_SIMPLE_KEY_BYTES: usize = 1000;
/// Columns by which the parts of a list or mapping are indented.
const INDENT: usize = 2;

/// Returns `value` as one YAML document in block style, with a final newline. Fails if JSON cannot
/// hold the value, such as a mapping with keys that are lists.
pub fn to_string(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(document(&serde_json::to_value(value)?))
}

/// Returns `value` as one YAML document in block style, with a final newline.
pub fn document(value: &Value) -> String {
    let mut writer = Writer { text: String::new() };
    writer.value(value, 0, Preceding::Start);
    if !writer.text.ends_with('\n') {
        writer.text.push('\n');
    }
    writer.text
}

/// The end of the text before a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preceding {
    /// Nothing: the value is the document.
    Start,
    /// The colon after a key. A list or mapping begins on the next line.
    Key,
    /// A dash, question mark or colon and a space. A list or mapping begins on the same line.
    Indicator,
}

/// A document in the making.
struct Writer {
    text: String,
}

impl Writer {
    /// Writes `value`, whose parts begin in the column `indent`.
    fn value(&mut self, value: &Value, indent: usize, preceding: Preceding) {
        match value {
            Value::Object(fields) if !fields.is_empty() => self.mapping(fields, indent, preceding),
            Value::Array(items) if !items.is_empty() => self.list(items, indent, preceding),
            Value::String(text) => self.string(text, indent, preceding),
            Value::Number(number) => self.scalar(&scalar::number(number), preceding),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.scalar(&value.to_string(), preceding);
            }
        }
    }

    fn mapping(&mut self, fields: &Map<String, Value>, indent: usize, preceding: Preceding) {
        for (position, (key, value)) in fields.iter().enumerate() {
            self.begin_line(indent, position, preceding);
            let key = scalar::key(key);
            if key.len() > MAX_SIMPLE_KEY_BYTES {
                self.text.push_str("? ");
                self.text.push_str(&key);
                self.new_line(indent);
                self.text.push_str(": ");
                self.value(value, indent + INDENT, Preceding::Indicator);
            } else {
                self.text.push_str(&key);
                self.text.push(':');
                self.value(value, indent + INDENT, Preceding::Key);
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize, preceding: Preceding) {
        for (position, item) in items.iter().enumerate() {
            self.begin_line(indent, position, preceding);
            self.text.push_str("- ");
            self.value(item, indent + INDENT, Preceding::Indicator);
        }
    }

    /// Writes a text: as a literal block if it has several lines that every reader keeps.
    fn string(&mut self, text: &str, indent: usize, preceding: Preceding) {
        let literal = if preceding == Preceding::Start { None } else { scalar::literal(text) };
        let Some((header, lines)) = literal else {
            return self.scalar(&scalar::inline(text), preceding);
        };
        self.scalar(header, preceding);
        for line in lines {
            // An empty line has no spaces, which some editors remove.
            self.new_line(if line.is_empty() { 0 } else { indent });
            self.text.push_str(line);
        }
    }

    fn scalar(&mut self, text: &str, preceding: Preceding) {
        if preceding == Preceding::Key {
            self.text.push(' ');
        }
        self.text.push_str(text);
    }

    /// Begins the line of the part of a list or mapping at `position`. The first part may stand
    /// behind what is before the list or mapping.
    fn begin_line(&mut self, indent: usize, position: usize, preceding: Preceding) {
        if position > 0 || preceding == Preceding::Key {
            self.new_line(indent);
        }
    }

    fn new_line(&mut self, indent: usize) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', indent));
    }
}

#[cfg(test)]
mod tests;
