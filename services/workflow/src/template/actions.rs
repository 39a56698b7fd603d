//! Checks of a template's actions against the table of built-in actions.

use std::collections::BTreeMap;

use actions::{Environment, UnknownAction, VariableError};

use super::definition::{Action, Definition, Stage};
use super::placeholders::OPEN;

/// A mistake in an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("action {action:?}: {cause}")]
pub struct ActionError {
    /// The name of the action.
    pub action: String,
    /// The mistake.
    pub cause: ActionErrorCause,
}

/// The kind of a mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionErrorCause {
    /// There is no such action.
    #[error(transparent)]
    Unknown(#[from] UnknownAction),
    /// Its variables are wrong.
    #[error(transparent)]
    Variable(#[from] VariableError),
}

impl Definition {
    /// Returns the mistakes in its actions that are seen at this stage. Before rendering, what has placeholders is not checked; afterwards, the
    /// actions have the variables of their tasks, and those that are skipped are not checked.
    pub fn action_errors(&self, stage: Stage) -> Vec<ActionError> {
        let tasks = self.tasks.iter();
        let errors = tasks.flat_map(|task| {
            let actions = task.actions.iter().filter(|action| !action.skipped);
            actions.flat_map(move |action| action_errors(action, &task.environment, stage))
        });
        errors.collect()
    }

    /// Returns the variables of actions of their own that the actions do not have.
    pub fn unknown_variables(&self) -> Vec<ActionError> {
        let is_unknown = |error: &ActionError| {
            matches!(&error.cause, ActionErrorCause::Variable(VariableError::Unknown { .. }))
        };
        self.action_errors(Stage::Unrendered).into_iter().filter(is_unknown).collect()
    }
}

fn action_errors(
    action: &Action,
    of_task: &BTreeMap<String, String>,
    stage: Stage,
) -> Vec<ActionError> {
    let has_placeholder = |text: &str| text.contains("{{") || text.contains(OPEN);
    let is_open = |text: &str| stage == Stage::Unrendered && has_placeholder(text);
    let mut all = of_task.clone();
    all.extend(action.environment.clone());
    let is_waitdaemon = actions::is_waitdaemon(&action.image);
    if is_open(&action.image)
        || action.command.iter().any(|word| is_open(word))
        || is_waitdaemon && is_open(actions::waitdaemon_image(&all))
    {
        return Vec::new();
    }
    let error = |cause: ActionErrorCause| ActionError { action: action.name.clone(), cause };
    let builtin = match builtin(action, &all) {
        Ok(builtin) => builtin,
        Err(unknown) => return vec![error(unknown.into())],
    };
    let own = match stage {
        Stage::Unrendered => own_variables(action, is_open),
        // They cannot be told from those of the task.
        Stage::Rendered => BTreeMap::new(),
    };
    let runs_programs = !action.on_failure.is_empty() || !action.on_timeout.is_empty();
    let wrong = actions::check_variables(builtin, &all, &own, runs_programs);
    wrong.into_iter().map(|cause| error(cause.into())).collect()
}

/// Returns the variables of `action` that its built-in action gets, except those whose name is open.
fn own_variables(action: &Action, is_open: impl Fn(&str) -> bool) -> Environment {
    let is_waitdaemon = actions::is_waitdaemon(&action.image);
    let is_passed_on = |name: &str| !is_waitdaemon || !actions::is_waitdaemon_variable(name);
    let mut own = action.environment.clone();
    own.retain(|name, _| !is_open(name) && is_passed_on(name));
    own
}

/// Returns the built-in action that `action` is, or that takes the place of waitdaemon with the variables `all`.
fn builtin(action: &Action, all: &Environment) -> Result<&'static actions::Action, UnknownAction> {
    match actions::is_waitdaemon(&action.image) {
        true => actions::find(actions::in_place_of_waitdaemon(&action.command, all)?, &[]),
        false => actions::find(&action.image, &action.command),
    }
}
