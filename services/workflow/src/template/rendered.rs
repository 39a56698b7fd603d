//! What a workflow is made of: a template after rendering, every choice made and every default filled in.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Error, Image, Invalid,
    definition::{self, Definition, Namespaces, Restart, Stage},
};

/// How long a try may take where the template does not say.
pub const ACTION_TIMEOUT: Duration = Duration::from_secs(3600);

/// A template's meaning for one set of values. It is made once and never again for the same workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The template's name as its text gives it.
    pub name: String,
    /// The rendered YAML, for people and old tools to read.
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
    /// The machine's MAC or IPv4 address, not looked up yet; never empty.
    pub worker: String,
    /// In order; there may be none.
    pub actions: Vec<Action>,
}

/// One step with all it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Unique inside the task.
    pub name: String,
    /// What runs.
    pub image: Image,
    /// How long one try may take.
    pub timeout: Duration,
    /// Instead of the image's own command; empty for that.
    pub command: Vec<String>,
    /// What runs after a timeout, if anything.
    pub on_timeout: Vec<String>,
    /// What runs after a failure, if anything.
    pub on_failure: Vec<String>,
    /// Namespaces shared with the host; `pid` has taken in the older spelling.
    pub namespaces: Namespaces,
    /// The task's mounts and the action's, sorted.
    pub volumes: Vec<String>,
    /// The task's variables under the action's.
    pub environment: BTreeMap<String, String>,
    /// Its `if` is false.
    pub skipped: bool,
    /// Further tries after a failure or a timeout.
    pub retries: u32,
    /// Counts as done as soon as it runs.
    pub background: bool,
    /// The template's word on a lost try.
    pub restart: Option<Restart>,
}

impl Rendered {
    /// From YAML without actions left in it.
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
    let shared = Shared { volumes: task.volumes, environment: task.environment };
    let actions =
        task.actions.into_iter().map(|action| shared.action(action)).collect::<Result<_, _>>()?;
    Ok(Task { name: task.name, worker: task.worker, actions })
}

/// What a task gives each of its actions.
struct Shared {
    volumes: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Shared {
    fn action(&self, action: definition::Action) -> Result<Action, Invalid> {
        let skipped = is_skipped(&action)?;
        let mut environment = self.environment.clone();
        environment.extend(action.environment);
        let mut namespaces = action.namespaces;
        if namespaces.pid.is_empty() {
            namespaces.pid = action.pid;
        }
        Ok(Action {
            image: action.image.parse().map_err(|_| Invalid::Image(action.image))?,
            timeout: if action.timeout == 0 {
                ACTION_TIMEOUT
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

/// Go's `ParseBool`, in which templates are used to think.
fn is_skipped(action: &definition::Action) -> Result<bool, Invalid> {
    match action.condition.as_deref().map(str::trim) {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(false),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(true),
        Some(value) => {
            Err(Invalid::Condition { action: action.name.clone(), value: value.to_owned() })
        }
    }
}

/// One mount for each source: what stands before the first colon. The later one wins, so `over` does.
fn merged(under: &[String], over: &[String]) -> Vec<String> {
    let source = |volume: &String| volume.split(':').next().unwrap_or_default().to_owned();
    let by_source: BTreeMap<String, &String> =
        under.iter().chain(over).map(|it| (source(it), it)).collect();
    by_source.into_values().cloned().collect()
}
