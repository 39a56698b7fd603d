//! Takes fields out of an object, and names the remaining ones.

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Fields that Kubernetes keeps for itself.
const BOOKKEEPING: [&str; 9] = [
    "/apiVersion",
    "/kind",
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/generation",
    "/metadata/creationTimestamp",
    "/metadata/managedFields",
    "/metadata/selfLink",
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
];

/// Parts that are named as a whole.
const WHOLE: [&str; 4] = ["status", "spec.references", "spec.resources", "spec.metadata.instance"];

/// The fields of an object that were not taken yet.
#[derive(Debug)]
pub(super) struct Fields(Value);

impl Fields {
    /// Returns all fields of `object`, except the internal ones of Kubernetes.
    pub(super) fn new(object: Value) -> Self {
        let mut fields = Self(object);
        for path in BOOKKEEPING {
            fields.take_value(path);
        }
        fields
    }

    /// Takes the value at `path`, a JSON pointer.
    pub(super) fn take_value(&mut self, path: &str) -> Option<Value> {
        let (parent, key) = path.rsplit_once('/')?;
        let key = key.replace("~1", "/");
        let value = self.0.pointer_mut(parent)?.as_object_mut()?.shift_remove(&key)?;
        (!value.is_null()).then_some(value)
    }

    /// Takes the value at `path`, or the default if there is none. The error names the path.
    pub(super) fn take<T: Default + DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<T> {
        match self.take_value(path) {
            None => Ok(T::default()),
            Some(value) => serde_json::from_value(value).with_context(|| dotted(path)),
        }
    }

    /// Takes the text, or the number as a text, at `path`; empty if there is none.
    pub(super) fn text(&mut self, path: &str) -> anyhow::Result<String> {
        match self.take_value(path) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(Value::Number(number)) => Ok(number.to_string()),
            Some(_) => anyhow::bail!("{} is not a text", dotted(path)),
        }
    }

    /// Takes the text at the first of `paths` that has one.
    pub(super) fn first_text(&mut self, paths: &[&str]) -> anyhow::Result<String> {
        for path in paths {
            let text = if self.0.pointer(path).is_some_and(Value::is_object) {
                String::new()
            } else {
                self.text(path)?
            };
            if !text.is_empty() {
                return Ok(text);
            }
        }
        Ok(String::new())
    }

    /// Moves the fields below `at` to their places in `object`, unless they are empty.
    pub(super) fn move_to(&mut self, object: &mut Value, at: &str, places: &[(&str, &str)]) {
        for (from, to) in places {
            if let Some(value) = self.take_value(&format!("{at}/{from}")).filter(|it| !is_empty(it))
            {
                put(object, to, value);
            }
        }
    }

    /// Returns what `convert` makes of each element of the list at `path`. It gets the path of an element.
    pub(super) fn each<T>(
        &mut self,
        path: &str,
        mut convert: impl FnMut(&mut Self, &str) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        (0..self.count(path)).map(|index| convert(self, &format!("{path}/{index}"))).collect()
    }

    /// Returns the text at `path`, without taking it; empty if there is none.
    pub(super) fn peek(&self, path: &str) -> String {
        self.0.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns the number at `path`, without taking it.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.0.pointer(path)?.as_u64()
    }

    /// Returns the keys of the object at `path`.
    pub(super) fn keys(&self, path: &str) -> Vec<String> {
        let object = self.0.pointer(path).and_then(Value::as_object);
        object.map(|object| object.keys().cloned().collect()).unwrap_or_default()
    }

    /// Returns the number of elements of the list at `path`.
    pub(super) fn count(&self, path: &str) -> usize {
        self.0.pointer(path).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Returns the paths of what was not taken and is not empty.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect(&self.0, "", &mut paths);
        paths
    }
}

/// Puts `value` at `place` in `object`, such as `dhcp/hostname`.
pub(super) fn put(object: &mut Value, place: &str, value: impl Into<Value>) {
    let place = place.split('/').fold(object, |object, key| &mut object[key]);
    *place = value.into();
}

fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    if is_empty(value) {
        return;
    }
    match (value.as_object(), value.as_array()) {
        (Some(object), _) if !WHOLE.contains(&path) => {
            for (key, value) in object {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(value, &inner, paths);
            }
        }
        (_, Some(elements)) if elements.iter().any(Value::is_object) => {
            for (index, element) in elements.iter().enumerate() {
                collect(element, &format!("{path}[{index}]"), paths);
            }
        }
        _ => paths.push(path.to_owned()),
    }
}

/// True for what Go's encoder writes for an absent field.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.iter().all(is_empty),
        Value::Object(object) => object.values().all(is_empty),
    }
}

fn dotted(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}
