//! The mistakes in an action of a template that can be found without the machine.

use std::collections::BTreeMap;

use crate::suggest;
use crate::table::{ACTIONS, Action, Need, STANDARD_VARIABLES, Variable};

/// The variables of an action by name.
pub type Environment = BTreeMap<String, String>;

/// An image and command that no built-in action replaces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAction {
    /// No action has this image.
    #[error("no action {name}{}{}; actions: {}", of(name, image), hint(name), images().join(", "))]
    Image {
        /// The last part of the image's path.
        name: String,
        /// The image.
        image: String,
    },
    /// The image has no such command.
    #[error("{image} {}", commands(image, command))]
    Command {
        /// The image.
        image: &'static str,
        /// The command, its words separated by spaces.
        command: String,
    },
    /// waitdaemon would start what no built-in action replaces.
    #[error("{}", start(image, command))]
    Start {
        /// The image that it would start; empty if it is not set.
        image: String,
        /// The command, its words separated by spaces.
        command: String,
    },
}

/// A variable that an action cannot run with, or does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// A required one has no value.
    #[error("{action} needs {name}{}: {meaning}", alternatives(unless))]
    Missing {
        /// The action.
        action: String,
        /// The variable.
        name: &'static str,
        /// Other variables, one of which would do as well.
        unless: &'static [&'static str],
        /// What the variable is for.
        meaning: &'static str,
    },
    /// The action has no such variable.
    #[error("{action} has no variable {name}{}", question(suggestion.as_deref()))]
    Unknown {
        /// The action.
        action: String,
        /// The variable.
        name: String,
        /// The variable that may be meant.
        suggestion: Option<String>,
    },
}

/// Returns the last part of the path of an image reference: `image2disk` of `quay.io/tinkerbell/actions/image2disk:v1`.
pub fn short_name(image: &str) -> &str {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    last.split_once(':').map_or(last, |(name, _)| name)
}

/// Returns the action that replaces `image` with `command`. Empty words of the command do not count.
pub fn find(image: &str, command: &[String]) -> Result<&'static Action, UnknownAction> {
    let name = short_name(image);
    let words: Vec<_> = command.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    let command = words.join(" ");
    let mut of_image = ACTIONS.iter().filter(|action| action.image == name).peekable();
    let Some(first) = of_image.peek() else {
        return Err(UnknownAction::Image { name: name.to_owned(), image: image.to_owned() });
    };
    let unknown = UnknownAction::Command { image: first.image, command: command.clone() };
    of_image.find(|action| action.command == command).ok_or(unknown)
}

/// Returns what is wrong with the variables of `action`: required ones of `all` that have no value, then unknown ones of `own`. The variables of
/// a task are in `all` only, since they are for all its actions. With `runs_programs` any variable may be meant for a program.
pub fn check_variables(
    action: &'static Action,
    all: &Environment,
    own: &Environment,
    runs_programs: bool,
) -> Vec<VariableError> {
    let has = |name: &str| all.get(name).is_some_and(|value| !value.is_empty());
    let missing = action.variables.iter().filter_map(|variable| {
        let Variable { name, meaning, .. } = *variable;
        let unless: &'static [&'static str] = match variable.need {
            Need::Optional => return None,
            Need::Required => &[],
            Need::Unless(others) => others,
        };
        let is_given = has(name) || unless.iter().any(|other| has(other));
        let action = action.to_string();
        (!is_given).then_some(VariableError::Missing { action, name, unless, meaning })
    });
    let passes_all = runs_programs || action.runs_programs;
    let names: Vec<_> = action.variables.iter().map(|variable| variable.name).collect();
    let is_known = |name: &str| names.contains(&name) || STANDARD_VARIABLES.contains(&name);
    let unknown = own.keys().filter(|name| !passes_all && !is_known(name)).map(|name| {
        let suggestion = suggest(name, names.iter().copied()).map(str::to_owned);
        VariableError::Unknown { action: action.to_string(), name: name.clone(), suggestion }
    });
    missing.chain(unknown).collect()
}

/// Returns the images of all actions, each once.
fn images() -> Vec<&'static str> {
    let mut images: Vec<_> = ACTIONS.iter().map(|action| action.image).collect();
    images.dedup();
    images
}

/// Returns the image, if it is more than the name.
fn of(name: &str, image: &str) -> String {
    if image == name { String::new() } else { format!(" (image {image})") }
}

fn hint(name: &str) -> String {
    question(suggest(name, images()))
}

fn question(meant: Option<&str>) -> String {
    meant.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default()
}

fn commands(image: &str, command: &str) -> String {
    let known = ACTIONS.iter().filter(|action| action.image == image);
    let known: Vec<_> = known.map(|action| action.command).filter(|it| !it.is_empty()).collect();
    match (known.is_empty(), command) {
        (true, _) => format!("takes no command, and has {command:?}: containers are not supported"),
        (false, "") => format!("needs a command: {}", known.join(", ")),
        (false, _) => {
            let hint = question(suggest(command, known.iter().copied()));
            format!("has no command {command:?}{hint}; commands: {}", known.join(", "))
        }
    }
}

fn start(image: &str, command: &str) -> String {
    let supported =
        "kexec, poweroff or reboot as IMAGE without a command, or the command reboot or poweroff";
    match (image, command) {
        ("", _) => format!("waitdaemon needs IMAGE: image that it starts; supported: {supported}"),
        (image, "") => format!("waitdaemon does not start {image}; supported: {supported}"),
        (image, command) => {
            format!("waitdaemon does not start {image} with {command:?}; supported: {supported}")
        }
    }
}

fn alternatives(unless: &[&str]) -> String {
    if unless.is_empty() { String::new() } else { format!(" or {}", unless.join(" or ")) }
}
