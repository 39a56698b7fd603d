//! A template as its author writes it: Tinkerbell's YAML, strictly.
//!
//! The keys are those of Tinkerbell's version 0.1, its later `namespaces`, and four of ours: `if`, `retries`,
//! `background` and `restart` on an action. An unknown key or the same key twice is an error, because a misspelt
//! `on-failure` that is silently dropped is found out only when it was needed.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Deserializer, Serialize};

use super::{Error, Image, strict};

/// A name's limit in bytes; Tinkerbell refuses this length already.
const NAME: usize = 200;

/// A whole template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// `0.1` or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the template is called.
    #[serde(default)]
    pub name: String,
    /// Accepted and ignored: old tools write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Seconds from the first lease to the end of all; 0 is no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub global_timeout: u64,
    /// What is done, in order.
    #[serde(default, deserialize_with = "or_default")]
    pub tasks: Vec<Task>,
}

/// The actions for one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Unique among the tasks.
    #[serde(default)]
    pub name: String,
    /// MAC or IPv4 address of the machine, once rendered.
    #[serde(default)]
    pub worker: String,
    /// Mounts for every action, `source:target[:mode]`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub volumes: Vec<String>,
    /// Variables for every action.
    #[serde(default, deserialize_with = "strict::map", skip_serializing_if = "is_default")]
    pub environment: BTreeMap<String, String>,
    /// In order; there may be none.
    #[serde(default, deserialize_with = "or_default")]
    pub actions: Vec<Action>,
}

/// One step: an image, or the built-in action of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Action {
    /// Unique inside the task.
    #[serde(default)]
    pub name: String,
    /// A container image's reference.
    #[serde(default)]
    pub image: String,
    /// Seconds one try may take; 0 is the server's default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout: u64,
    /// Instead of the image's own command.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub command: Vec<String>,
    /// Run in the same image after a timeout, for as long again; its end is only logged.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub on_timeout: Vec<String>,
    /// Run in the same image after a failure, within the same timeout; its end is only logged.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub on_failure: Vec<String>,
    /// The older spelling of `namespaces.pid`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pid: String,
    /// Namespaces shared with the host.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub namespaces: Namespaces,
    /// Added to the task's; the same source here wins.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub volumes: Vec<String>,
    /// Added to the task's; the same name here wins.
    #[serde(default, deserialize_with = "strict::map", skip_serializing_if = "is_default")]
    pub environment: BTreeMap<String, String>,
    /// Skipped if this renders to false.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Further tries after a failure or a timeout.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// Counts as done as soon as it runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub background: bool,
    /// What to do when nobody can say how a try ended; absent asks the image's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

/// The host's namespaces an action runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespaces {
    /// The network namespace, as `host`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network: String,
    /// The process namespace, as `host`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pid: String,
}

/// A template's own word on a try whose end is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// Running it twice does no harm.
    Retry,
    /// Better to stop than to run it twice.
    Fail,
}

/// A rule the template breaks. The texts are Tinkerbell's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A template, task or action without a name.
    #[error("name cannot be empty")]
    NoName,
    /// A name that does not fit where names are kept.
    #[error("name cannot have more than 200 characters: {0}")]
    LongName(String),
    /// A version that is not 0.1.
    #[error("invalid template version: {0}")]
    Version(String),
    /// The tasks' names do not tell them apart.
    #[error("two tasks in a template cannot have same name: {0}")]
    TaskTwice(String),
    /// The actions' names do not tell them apart.
    #[error("two actions in a task cannot have same name: {0}")]
    ActionTwice(String),
    /// A reference no registry would understand.
    #[error("invalid action image: {0}")]
    Image(String),
    /// Nothing to do.
    #[error("template must have at least one task defined")]
    NoTasks,
    /// A condition that rendered to something else than a truth value.
    #[error("action {action:?} has an if that is neither true nor false: {value:?}")]
    Condition {
        /// Whose.
        action: String,
        /// As rendered.
        value: String,
    },
}

/// Which of a template's lives is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Values may still hold `{{…}}`, and what those will become is not judged.
    Unrendered,
    /// Every value is final.
    Rendered,
}

impl Definition {
    /// Reads the YAML, refusing unknown and repeated keys.
    pub fn parse(text: &str) -> Result<Self, Error> {
        yaml_serde::from_str(text).map_err(Error::Yaml)
    }

    /// As YAML that parses to the same definition.
    pub fn to_yaml(&self) -> Result<String, Error> {
        yaml_serde::to_string(self).map_err(Error::Yaml)
    }

    /// Passes if every rule holds that can be judged at this stage.
    pub fn validate(&self, stage: Stage) -> Result<(), Invalid> {
        check_name(&self.name)?;
        if let Some(version) = self.version.as_ref().filter(|version| *version != "0.1") {
            return Err(Invalid::Version(version.clone()));
        }
        if self.tasks.is_empty() {
            return Err(Invalid::NoTasks);
        }
        let mut names = HashSet::new();
        for task in &self.tasks {
            check_name(&task.name)?;
            if !names.insert(&task.name) {
                return Err(Invalid::TaskTwice(task.name.clone()));
            }
            task.validate(stage)?;
        }
        Ok(())
    }
}

impl Task {
    fn validate(&self, stage: Stage) -> Result<(), Invalid> {
        let mut names = HashSet::new();
        for action in &self.actions {
            check_name(&action.name)?;
            let open = stage == Stage::Unrendered && action.image.contains("{{");
            if !open && action.image.parse::<Image>().is_err() {
                return Err(Invalid::Image(action.image.clone()));
            }
            if !names.insert(&action.name) {
                return Err(Invalid::ActionTwice(action.name.clone()));
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), Invalid> {
    match name.len() {
        0 => Err(Invalid::NoName),
        NAME.. => Err(Invalid::LongName(name.to_owned())),
        _ => Ok(()),
    }
}

/// A key with nothing behind it is as good as absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
