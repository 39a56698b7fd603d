//! A template after rendering, with defaults applied.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Error, Image, RuleViolation,
    definition::{self, Definition, Namespaces, Restart, Stage},
};

/// The time limit of an attempt, unless the template sets one.
pub const DEFAULT_ACTION_TIMEOUT: Duration = Duration::from_secs(3600);

/// A rendered template. A workflow's template is rendered once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The template's name, from its text.
    pub name: String,
    /// The rendered YAML.
    pub text: String,
    /// From the first lease to the end of all; none is no limit.
    pub global_timeout: Option<Duration>,
    /// In order; at least one.
    pub tasks: Vec<Task>,
}

/// The actions for one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Unique among the tasks.
    pub name: String,
    /// Id, MAC or address of the machine; never empty.
    pub worker: String,
    /// In order; there may be none.
    pub actions: Vec<Action>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Unique inside the task.
    pub name: String,
    /// The image that runs.
    pub image: Image,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// Instead of the image's own command; empty for that.
    pub command: Vec<String>,
    /// Run after a timeout; may be empty.
    pub on_timeout: Vec<String>,
    /// Run after a failure; may be empty.
    pub on_failure: Vec<String>,
    /// Namespaces shared with the host; `pid` in either spelling.
    pub namespaces: Namespaces,
    /// The task's mounts and the action's, sorted.
    pub volumes: Vec<String>,
    /// The task's variables, replaced by the action's of the same name.
    pub environment: BTreeMap<String, String>,
    /// True if its `if` is false.
    pub skipped: bool,
    /// Further attempts after a failure or a timeout.
    pub retries: u32,
    /// True if it counts as done as soon as it starts.
    pub background: bool,
    /// The reaction to an attempt whose result is unknown, if the template sets one.
    pub restart: Option<Restart>,
}

impl Rendered {
    /// Reads rendered YAML.
    pub(super) fn parse(text: String) -> Result<Self, Error> {
        let definition = Definition::parse(&text)?;
        definition.validate(Stage::Rendered)?;
        let tasks = definition.tasks.into_iter().map(task).collect::<Result<_, _>>()?;
        let limit = Some(definition.global_timeout).filter(|seconds| *seconds > 0);
        Ok(Self {
            name: definition.name,
            text,
            global_timeout: limit.map(Duration::from_secs),
            tasks,
        })
    }
}

fn task(task: definition::Task) -> Result<Task, Error> {
    if task.worker.trim().is_empty() {
        return Err(Error::NoWorker(task.name));
    }
    let defaults = TaskDefaults { volumes: task.volumes, environment: task.environment };
    let actions =
        task.actions.into_iter().map(|action| defaults.action(action)).collect::<Result<_, _>>()?;
    Ok(Task { name: task.name, worker: task.worker, actions })
}

/// The part of a task that applies to each of its actions.
struct TaskDefaults {
    volumes: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl TaskDefaults {
    fn action(&self, action: definition::Action) -> Result<Action, RuleViolation> {
        let skipped = is_skipped(&action)?;
        let mut environment = self.environment.clone();
        environment.extend(action.environment);
        let mut namespaces = action.namespaces;
        if namespaces.pid.is_empty() {
            namespaces.pid = action.pid;
        }
        Ok(Action {
            image: action.image.parse().map_err(|_| RuleViolation::Image(action.image))?,
            timeout: if action.timeout == 0 {
                DEFAULT_ACTION_TIMEOUT
            } else {
                Duration::from_secs(action.timeout)
            },
            volumes: merged(&self.volumes, &action.volumes),
            name: action.name,
            command: action.command,
            on_timeout: action.on_timeout,
            on_failure: action.on_failure,
            retries: action.retries,
            background: action.background,
            restart: action.restart,
            namespaces,
            environment,
            skipped,
        })
    }
}

/// Reads the condition like Go's `ParseBool`.
fn is_skipped(action: &definition::Action) -> Result<bool, RuleViolation> {
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
