//! Checks of a template's actions against the table of built-in actions.

use std::collections::BTreeMap;

use actions::{UnknownAction, VariableError};

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
    let has_placeholder = |text: &String| text.contains("{{") || text.contains(OPEN);
    let is_open = |text: &String| stage == Stage::Unrendered && has_placeholder(text);
    if is_open(&action.image) || action.command.iter().any(is_open) {
        return Vec::new();
    }
    let error = |cause: ActionErrorCause| ActionError { action: action.name.clone(), cause };
    let builtin = match actions::find(&action.image, &action.command) {
        Ok(builtin) => builtin,
        Err(unknown) => return vec![error(unknown.into())],
    };
    let mut all = of_task.clone();
    all.extend(action.environment.clone());
    let own: BTreeMap<_, _> = match stage {
        Stage::Unrendered => {
            let own = action.environment.iter().filter(|(name, _)| !is_open(name));
            own.map(|(name, value)| (name.clone(), value.clone())).collect()
        }
        // They cannot be told from those of the task.
        Stage::Rendered => BTreeMap::new(),
    };
    let runs_programs = !action.on_failure.is_empty() || !action.on_timeout.is_empty();
    let wrong = actions::check_variables(builtin, &all, &own, runs_programs);
    wrong.into_iter().map(|cause| error(cause.into())).collect()
}
