//! The definition of a template: Tinkerbell's YAML, read strictly.
//!
//! The keys are those of Tinkerbell's version 0.1, its later `namespaces`, and four of ours: `if`, `retries`,
//! `background` and `restart` on an action. An unknown or repeated key is an error: a misspelt `on-failure` that is silently
//! dropped would be noticed only when it is needed.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Deserializer};

use super::{Error, bounded_yaml, image, strict};

/// The most actions of a template. Of a workflow with more, the results alone would not fit into its record.
pub const MAX_ACTIONS: usize = 100;
/// Names must be shorter than this, as in Tinkerbell.
const NAME_BYTES_LIMIT: usize = 200;

/// A whole template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the keys of a template, such as name and tasks")]
pub struct Definition {
    /// `0.1` or absent.
    pub version: Option<String>,
    /// Name of the template.
    pub name: String,
    /// Accepted and ignored: older tools write it.
    pub id: Option<String>,
    /// Seconds from the first lease to the end of all; 0 is no limit.
    pub global_timeout: u64,
    /// In order.
    #[serde(deserialize_with = "or_default")]
    pub tasks: Vec<Task>,
}

/// The actions for one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the keys of a task, such as name and actions")]
pub struct Task {
    /// Unique among the tasks.
    pub name: String,
    /// MAC or IPv4 address of the machine, once rendered.
    pub worker: String,
    /// Mounts for every action, `source:target[:mode]`.
    #[serde(deserialize_with = "or_default")]
    pub volumes: Vec<String>,
    /// Variables for every action.
    #[serde(deserialize_with = "strict::map")]
    pub environment: BTreeMap<String, String>,
    /// In order; there may be none.
    #[serde(deserialize_with = "or_default")]
    pub actions: Vec<Action>,
}

/// One step: an image, or the built-in action of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "the keys of an action, such as name and image"
)]
pub struct Action {
    /// Unique inside the task.
    pub name: String,
    /// A container image's reference.
    pub image: String,
    /// Time limit of one attempt in seconds; 0 is the server's default.
    pub timeout: u64,
    /// Instead of the image's own command.
    #[serde(deserialize_with = "or_default")]
    pub command: Vec<String>,
    /// Run in the same image after a timeout, with the same time limit; its result is only logged.
    #[serde(deserialize_with = "or_default")]
    pub on_timeout: Vec<String>,
    /// Run in the same image after a failure, with the same time limit; its result is only logged.
    #[serde(deserialize_with = "or_default")]
    pub on_failure: Vec<String>,
    /// The older spelling of `namespaces.pid`.
    pub pid: String,
    /// Namespaces shared with the host.
    #[serde(deserialize_with = "or_default")]
    pub namespaces: Namespaces,
    /// Added to the task's, and replaces those with the same source.
    #[serde(deserialize_with = "or_default")]
    pub volumes: Vec<String>,
    /// Added to the task's, and replaces those with the same name.
    #[serde(deserialize_with = "strict::map")]
    pub environment: BTreeMap<String, String>,
    /// The action is skipped if this renders to false.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// Further attempts after a failure or a timeout.
    pub retries: u32,
    /// The action counts as done as soon as it starts.
    pub background: bool,
    /// The reaction to an attempt whose result is unknown; by default the image decides.
    pub restart: Option<AfterLoss>,
    /// True if its condition is false. Set by rendering.
    #[serde(skip)]
    pub skipped: bool,
}

/// The host's namespaces an action runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the keys of namespaces: network and pid")]
pub struct Namespaces {
    /// The network namespace, as `host`.
    pub network: String,
    /// The process namespace, as `host`.
    pub pid: String,
}

/// The reaction to an attempt whose result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterLoss {
    /// Run the action again: it overwrites what it did.
    Retry,
    /// Fail: running the action twice may do harm.
    Fail,
    /// The action was to end the boot: it succeeded if a new boot is seen, and failed otherwise.
    #[serde(skip)]
    ExpectBoot,
}

impl AfterLoss {
    /// The default for an image, by the last part of its name. Only Tinkerbell's actions are known to be safe to retry.
    pub fn of(reference: &str) -> Self {
        match image::short_name(reference) {
            "image2disk" | "oci2disk" | "qemuimg2disk" | "archive2disk" | "writefile"
            | "rootio" | "grub2disk" | "syslinux" | "slurp" => Self::Retry,
            "kexec" | "reboot" | "poweroff" => Self::ExpectBoot,
            _ => Self::Fail,
        }
    }
}

/// A broken rule. The texts are Tinkerbell's, except those for keys and limits of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleViolation {
    /// A template, task or action without a name.
    #[error("name cannot be empty")]
    NoName,
    /// A name that is too long.
    #[error("name cannot have more than 200 characters: {0}")]
    LongName(String),
    /// A version that is not 0.1.
    #[error("invalid template version: {0}; the version is 0.1")]
    Version(String),
    /// Two tasks have the same name.
    #[error("two tasks in a template cannot have same name: {0}")]
    TaskTwice(String),
    /// Two actions of a task have the same name.
    #[error("two actions in a task cannot have same name: {0}")]
    ActionTwice(String),
    /// An invalid image reference.
    #[error("invalid action image: {0}")]
    Image(String),
    /// No task.
    #[error("template must have at least one task defined")]
    NoTasks,
    /// Too many actions in all tasks together.
    #[error("the tasks have {0} actions, at most {MAX_ACTIONS} are allowed")]
    TooManyActions(usize),
    /// A condition that did not render to a boolean.
    #[error("action {action:?} has an if that is neither true nor false: {value:?}")]
    Condition {
        /// Name of the action.
        action: String,
        /// The rendered condition.
        value: String,
    },
}

/// A stage of a template's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Texts may hold placeholders, which are not checked.
    Unrendered,
    /// Placeholders are replaced.
    Rendered,
}

impl Definition {
    /// Reads the YAML. Refuses unknown and repeated keys.
    pub fn parse(text: &str) -> Result<Self, Error> {
        bounded_yaml::read(text).map_err(Error::Yaml)
    }

    /// Checks the rules that apply at this stage.
    pub fn validate(&self, stage: Stage) -> Result<(), RuleViolation> {
        check_name(&self.name)?;
        if let Some(version) = self.version.as_ref().filter(|version| *version != "0.1") {
            return Err(RuleViolation::Version(version.clone()));
        }
        if self.tasks.is_empty() {
            return Err(RuleViolation::NoTasks);
        }
        match self.tasks.iter().map(|task| task.actions.len()).sum::<usize>() {
            0..=MAX_ACTIONS => {}
            actions => return Err(RuleViolation::TooManyActions(actions)),
        }
        let mut names = HashSet::new();
        for task in &self.tasks {
            check_name(&task.name)?;
            if !names.insert(&task.name) {
                return Err(RuleViolation::TaskTwice(task.name.clone()));
            }
            task.validate(stage)?;
        }
        Ok(())
    }
}

impl Task {
    fn validate(&self, stage: Stage) -> Result<(), RuleViolation> {
        let mut names = HashSet::new();
        for action in &self.actions {
            check_name(&action.name)?;
            let placeholder = stage == Stage::Unrendered && action.image.contains("{{");
            if !placeholder && !image::is_valid(&action.image) {
                return Err(RuleViolation::Image(action.image.clone()));
            }
            if !names.insert(&action.name) {
                return Err(RuleViolation::ActionTwice(action.name.clone()));
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), RuleViolation> {
    match name.len() {
        0 => Err(RuleViolation::NoName),
        NAME_BYTES_LIMIT.. => Err(RuleViolation::LongName(name.to_owned())),
        _ => Ok(()),
    }
}

/// Treats a key without a value as absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
