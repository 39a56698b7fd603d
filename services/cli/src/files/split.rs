//! The documents of a text, and the values in them.

use serde::Deserialize as _;
use serde_json::Value;

/// A document of a file.
#[derive(Debug)]
pub(super) struct Document {
    /// Its text.
    pub text: String,
    /// Its first line in the file.
    pub first_line: usize,
}

/// Splits `text` at lines that begin with `---`, which YAML allows nowhere else. A text with one document stays as it is.
/// Documents of comments only are left out.
pub(super) fn documents(text: &str) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = vec![Document { text: String::new(), first_line: 1 }];
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let after = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        match after {
            None => {
                if let Some(last) = documents.last_mut() {
                    last.text.push_str(line);
                }
            }
            // The same lines and columns as in the file.
            Some(rest) => {
                let text = if is_empty(rest) { "\n".into() } else { format!("   {rest}") };
                documents.push(Document { text, first_line: number + 1 });
            }
        }
    }
    documents.retain(|document| !is_empty(&document.text));
    if let [only] = documents.as_mut_slice() {
        *only = Document { text: text.to_owned(), first_line: 1 };
    }
    documents
}

fn is_empty(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

/// Returns the objects in a document: itself, the elements of a list, or the items of a Kubernetes list.
pub(super) fn values(text: &str) -> Result<Vec<Value>, yaml_serde::Error> {
    let mut objects = Vec::new();
    for document in yaml_serde::Deserializer::from_str(text) {
        let mut value = Value::deserialize(document)?;
        if is_list(&value) {
            value = value["items"].take();
        }
        if let Value::Array(elements) = value {
            objects.extend(elements);
        } else if !value.is_null() {
            objects.push(value);
        }
    }
    Ok(objects)
}

/// True for the list that `kubectl get -o yaml` prints.
fn is_list(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("List")
        && object.get("items").is_none_or(Value::is_array)
}

/// True for a workflow template, which need not be YAML before it is rendered.
pub(super) fn is_unrendered_template(text: &str) -> bool {
    text.contains("{{") && text.lines().any(|line| line.trim_end() == "tasks:")
}
