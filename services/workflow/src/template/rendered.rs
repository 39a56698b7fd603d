//! A template after rendering, with defaults applied.

use std::collections::BTreeMap;
use std::mem;

use super::bounded_yaml::MAX_EXPANDED_BYTES;
use super::definition::{Action, Definition, Stage, Task};
use super::{Error, RuleViolation};

/// The time limit of an attempt in seconds, unless the template sets one.
pub const DEFAULT_ACTION_TIMEOUT: u64 = 3600;

/// A rendered template. A workflow's template is rendered once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The rendered YAML.
    pub text: String,
    /// The tasks, of which each names its worker. The actions have their task's volumes and variables as well, the namespaces
    /// of either spelling, and a time limit.
    pub definition: Definition,
}

impl Rendered {
    /// Reads rendered YAML.
    pub(super) fn parse(text: String) -> Result<Self, Error> {
        let mut definition = Definition::parse(&text)?;
        definition.validate(Stage::Rendered)?;
        match definition.tasks.iter().map(expanded_bytes).sum::<usize>() {
            0..=MAX_EXPANDED_BYTES => {}
            bytes => return Err(Error::TooLarge(bytes)),
        }
        for task in &mut definition.tasks {
            if task.worker.trim().is_empty() {
                return Err(Error::NoWorker(task.name.clone()));
            }
            for action in &mut task.actions {
                apply_defaults(action, &task.volumes, &task.environment)?;
            }
        }
        Ok(Self { text, definition })
    }
}

/// Returns the size of a task's volumes and variables once each of its actions has them as well as its own.
fn expanded_bytes(task: &Task) -> usize {
    let bytes = |volumes: &[String], environment: &BTreeMap<String, String>| {
        let variables = environment.iter().map(|(name, value)| name.len() + value.len());
        volumes.iter().map(String::len).chain(variables).sum::<usize>()
    };
    let own = task.actions.iter().map(|action| bytes(&action.volumes, &action.environment));
    let of_task = bytes(&task.volumes, &task.environment);
    of_task.saturating_mul(task.actions.len()).saturating_add(own.sum())
}

fn apply_defaults(
    action: &mut Action,
    volumes: &[String],
    environment: &BTreeMap<String, String>,
) -> Result<(), RuleViolation> {
    action.skipped = is_skipped(action)?;
    action.volumes = merged(volumes, &action.volumes);
    let own = mem::replace(&mut action.environment, environment.clone());
    action.environment.extend(own);
    replace_waitdaemon(action);
    if action.namespaces.pid.is_empty() {
        action.namespaces.pid = mem::take(&mut action.pid);
    }
    if action.timeout == 0 {
        action.timeout = DEFAULT_ACTION_TIMEOUT;
    }
    Ok(())
}

/// Puts the built-in action that waitdaemon would start in its place: the worker, the default of `restart` and the plan of what is
/// erased know that one only. waitdaemon around anything else stays, and is refused when the actions are checked.
fn replace_waitdaemon(action: &mut Action) {
    if !actions::is_waitdaemon(&action.image) {
        return;
    }
    if let Ok(image) = actions::in_place_of_waitdaemon(&action.command, &action.environment) {
        action.image = image.to_owned();
        action.command.clear();
        action.environment.retain(|name, _| !actions::is_waitdaemon_variable(name));
    }
}

/// Reads the condition like Go's `ParseBool`.
fn is_skipped(action: &Action) -> Result<bool, RuleViolation> {
    match action.condition.as_deref().map(str::trim) {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(false),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(true),
        Some(value) => {
            Err(RuleViolation::Condition { action: action.name.clone(), value: value.to_owned() })
        }
    }
}

/// Merges mounts by source, the part before the first colon; those of `over` replace those of `under`.
fn merged(under: &[String], over: &[String]) -> Vec<String> {
    let source = |volume: &String| volume.split(':').next().unwrap_or_default().to_owned();
    let by_source: BTreeMap<String, &String> =
        under.iter().chain(over).map(|it| (source(it), it)).collect();
    by_source.into_values().cloned().collect()
}
