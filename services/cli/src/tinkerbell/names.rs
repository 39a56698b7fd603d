//! Names of Tinkerbell's machines and templates, as names here.
//!
//! A name of Kubernetes may have dots, a name here has none: each dot becomes a hyphen, in names
//! and in references to them. The original name becomes a label of the object. Host names are
//! fields of their own, and keep their dots.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};
use tinwright::check;

use super::push;

/// The label with the original name of an object that has another name here.
pub(crate) const ORIGINAL_NAME: &str = "tinkerbell.org/name";

/// Kinds of objects here that Tinkerbell's objects become, and refer to by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Machines.
    Hardware,
    /// Templates, also those that were a Task.
    Template,
}

/// Names of all objects in the files.
#[derive(Debug, Default)]
pub(super) struct ObjectNames {
    /// The objects that have a name here.
    objects: BTreeMap<(Kind, String), BTreeSet<NamedObject>>,
}

/// An object with its own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedObject {
    name: String,
    /// Namespace in Kubernetes; empty for an object of ours.
    namespace: String,
}

impl ObjectNames {
    /// Adds the name of `object`, if it is of Tinkerbell and becomes an object of a [`Kind`], or is
    /// one of ours.
    pub(super) fn add(&mut self, object: &Value) {
        if push::is_hardware(object) {
            if let Some((here, hostname)) = push::name(object) {
                self.insert(Kind::Hardware, here, hostname, "");
            }
            return;
        }
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("/kind").to_ascii_lowercase().as_str() {
            "hardware" => Kind::Hardware,
            "template" | "task" => Kind::Template,
            "" if object.get("tasks").is_some() => Kind::Template,
            _ => return,
        };
        let is_own = object.get("apiVersion").is_none();
        let path = if is_own { "/name" } else { "/metadata/name" };
        let name = text(path);
        if !name.is_empty() {
            self.insert(kind, without_dots(name), name, text("/metadata/namespace"));
        }
    }

    fn insert(&mut self, kind: Kind, here: String, name: &str, namespace: &str) {
        let object = NamedObject { name: name.to_owned(), namespace: namespace.to_owned() };
        self.objects.entry((kind, here)).or_default().insert(object);
    }

    /// Returns the name here of the object of `kind` with this `name`; empty if `name` is. Fails if
    /// another object in the files would have the same one, and if no machine may have it.
    pub(super) fn here(&self, kind: Kind, name: &str) -> anyhow::Result<String> {
        if name.is_empty() {
            return Ok(String::new());
        }
        let here = without_dots(name);
        if kind == Kind::Hardware && here != name {
            let valid = check::label(&here).map(drop);
            valid.with_context(|| format!("the {kind:?} {name:?} cannot be {here:?} here"))?;
        }
        self.check(kind, &here)?;
        Ok(here)
    }

    /// Passes if no two objects in the files have the name `here`.
    pub(super) fn check(&self, kind: Kind, here: &str) -> anyhow::Result<()> {
        let objects = self.objects.get(&(kind, here.to_owned()));
        let texts: Vec<_> = objects.into_iter().flatten().map(NamedObject::text).collect();
        anyhow::ensure!(
            objects.is_none_or(are_one),
            "the {kind:?} {here:?} would stand for {}: rename them, or apply one namespace at a time",
            texts.join(" and ")
        );
        Ok(())
    }
}

impl NamedObject {
    fn text(&self) -> String {
        let Self { name, namespace } = self;
        match namespace.as_str() {
            "" => format!("{name:?}"),
            namespace => format!("{name:?} (namespace {namespace:?})"),
        }
    }
}

/// True if all objects may be the same object. An object of ours may add fields to one of
/// Kubernetes.
fn are_one(objects: &BTreeSet<NamedObject>) -> bool {
    let names: BTreeSet<_> = objects.iter().map(|object| &object.name).collect();
    let namespaces = objects.iter().map(|object| &object.namespace);
    let namespaces: BTreeSet<_> = namespaces.filter(|namespace| !namespace.is_empty()).collect();
    names.len() < 2 && namespaces.len() < 2
}

/// Adds the label with the `original` name to `object`, in the form in which people write it.
pub(super) fn add_label(object: &mut Value, original: &str) {
    let Value::Object(fields) = object else { return };
    // Labels in another form are an error of the conversion into a message.
    if let Value::Object(labels) = fields.entry("labels").or_insert_with(|| json!({})) {
        labels.insert(ORIGINAL_NAME.to_owned(), original.into());
    }
}

fn without_dots(name: &str) -> String {
    name.replace('.', "-")
}
