//! Objects of Tinkerbell: its Kubernetes objects of v1alpha1 and v1alpha2, and the older hardware JSON, as our objects.
//!
//! | Tinkerbell | here |
//! |---|---|
//! | Hardware | Hardware; of v1alpha2 with `bmc.connection` also Bmc |
//! | Machine (rufio), with its Secret in the same files | Bmc |
//! | Template; Task of v1alpha2 | Template |
//! | Workflow | Workflow, made once |
//!
//! Names without dots take the place of names with dots, which become labels (`names`). Each
//! conversion takes the fields that it knows out of the object. The fields that are left have no
//! place here, and are named (docs/migration-tinkerbell.md).

mod bmc;
mod fields;
mod hardware;
mod names;
mod push;
mod work;

use std::collections::{HashMap, HashSet};

use anyhow::Context as _;
use serde_json::{Value, json};
use tinwright::json;

use fields::Fields;
pub(crate) use names::ORIGINAL_NAME;
use names::{Kind, ObjectNames};
pub(crate) use work::LABEL;

/// Kinds that others refer to by name.
const SECRET: &str = "Secret";
const MACHINE: &str = "Machine";
/// Groups of Tinkerbell's API.
const GROUPS: [&str; 2] = ["tinkerbell.org", "bmc.tinkerbell.org"];

/// An object of a file, ours or converted.
#[derive(Debug)]
pub enum Conversion {
    /// An object of ours.
    Own,
    /// Objects that were converted.
    Converted(Vec<Converted>),
}

/// An object of ours, in the form in which people write it.
#[derive(Debug)]
pub struct Converted {
    /// The object, with its kind.
    pub value: Value,
    /// The paths of the fields that have no place in it.
    pub leftovers: Vec<String>,
    /// The name that it had, if it has another one here.
    pub former_name: Option<String>,
}

impl Converted {
    /// Returns the object `value` of one with the `original` name. It becomes a label if the object
    /// has another name here.
    fn new(mut value: Value, original: &str, leftovers: Vec<String>) -> Self {
        let has_other_name = value.get("name").is_some_and(|it| it != original);
        if has_other_name && !original.is_empty() {
            names::add_label(&mut value, original);
        }
        Self { value, leftovers, former_name: has_other_name.then(|| original.to_owned()) }
    }
}

/// The references between the objects of all files.
#[derive(Debug, Default)]
struct Site {
    /// User name and password of Secrets, by name.
    secrets: HashMap<String, (String, String)>,
    /// Names of machines, by the names of their BMCs.
    machines: HashMap<String, String>,
    /// Names of BMCs.
    bmcs: HashSet<String>,
    /// Kinds and names that stand for different objects, of several namespaces.
    ambiguous: HashSet<(&'static str, String)>,
    /// Names of machines and templates.
    names: ObjectNames,
}

/// Converts each of `objects`.
pub fn convert_all(objects: &[&Value]) -> Vec<anyhow::Result<Conversion>> {
    let mut site = Site::default();
    for object in objects {
        site.add(object);
    }
    objects.iter().map(|object| convert(object, &site)).collect()
}

impl Site {
    fn add(&mut self, object: &Value) {
        self.names.add(object);
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let (Some(kind), Some(name)) = (text("/kind"), text("/metadata/name")) else { return };
        let bmc =
            || text("/spec/bmcRef/name").or_else(|| text("/spec/references/builtin/bmc/name"));
        if kind == SECRET {
            let credentials = bmc::credentials(object);
            let before = self.secrets.insert(name.clone(), credentials.clone());
            if before.is_some_and(|before| before != credentials) {
                self.ambiguous.insert((SECRET, name));
            }
        } else if kind == MACHINE {
            self.bmcs.insert(name);
        } else if kind == "Hardware"
            && let Some(bmc) = bmc()
        {
            let before = self.machines.insert(bmc.clone(), name.clone());
            if before.is_some_and(|before| before != name) {
                self.ambiguous.insert((MACHINE, bmc));
            }
        }
    }

    /// Fails if several namespaces have different objects of this kind and name: names of BMCs and Secrets have none here.
    fn check_unique(&self, kind: &'static str, name: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.ambiguous.contains(&(kind, name.to_owned())),
            "the files have different objects for the {kind} {name:?}: apply one namespace at a time"
        );
        Ok(())
    }
}

fn convert(object: &Value, site: &Site) -> anyhow::Result<Conversion> {
    let Some((group, version, kind)) = api(object) else {
        return match push::is_hardware(object) {
            true => pushed(object, site),
            false => Ok(Conversion::Own),
        };
    };
    if (group, kind) == ("", "Secret") {
        return Ok(Conversion::Converted(Vec::new()));
    }
    let slash = if group.is_empty() { "" } else { "/" };
    let is_known = GROUPS.contains(&group);
    anyhow::ensure!(is_known, "{kind} of {group}{slash}{version} is not a kind of Tinkerbell");
    let mut fields = Fields::new(object.clone());
    let values = match (kind, version) {
        ("Hardware", "v1alpha1") => vec![hardware::v1alpha1(&mut fields, site)?],
        ("Hardware", "v1alpha2") => hardware::v1alpha2(&mut fields, site)?,
        ("Machine", _) => vec![bmc::machine(&mut fields, site)?],
        ("Template", _) => vec![work::template(&mut fields, &site.names)?],
        ("Task", "v1alpha2") => vec![work::task(&mut fields, &site.names)?],
        ("Workflow", "v1alpha1") => vec![work::v1alpha1(&mut fields, &site.names)?],
        ("Workflow", "v1alpha2") => vec![work::v1alpha2(&mut fields, &site.names)?],
        _ => anyhow::bail!(
            "Tinkerbell's {kind} of {version} has no counterpart here{}: docs/migration-tinkerbell.md",
            in_its_place(kind)
        ),
    };
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let mut leftovers = Some(fields.leftovers());
    let converted = |value| Converted::new(value, name, leftovers.take().unwrap_or_default());
    Ok(Conversion::Converted(values.into_iter().map(converted).collect()))
}

/// Returns a hint on what does here what an object of this `kind` does for Tinkerbell; empty if nothing does.
fn in_its_place(kind: &str) -> &'static str {
    match kind {
        "Job" | "Task" => ", use power jobs (`tinwright power`)",
        "WorkflowRuleSet" => ", use enrolment and models (`tinwright hardware accept`)",
        _ => "",
    }
}

/// Returns group, version and kind of a Kubernetes object.
fn api(object: &Value) -> Option<(&str, &str, &str)> {
    let version = object.get("apiVersion")?.as_str()?;
    let kind = object.get("kind")?.as_str()?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    Some((group, version, kind))
}

fn pushed(object: &Value, site: &Site) -> anyhow::Result<Conversion> {
    let hardware = push::hardware(object).context("hardware in Tinkerbell's JSON")?;
    site.names.check(Kind::Hardware, &hardware.name)?;
    let mut value = json!({"kind": "Hardware"});
    if let (Value::Object(value), Value::Object(fields)) = (&mut value, json::write(&hardware)?) {
        value.extend(fields);
    }
    let leftovers = push::leftovers(object);
    Ok(Conversion::Converted(vec![Converted { value, leftovers, former_name: None }]))
}

#[cfg(test)]
mod tests;
