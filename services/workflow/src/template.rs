//! Parsing, checking and rendering of templates: Tinkerbell's YAML with Go template placeholders (`{{…}}`).
//!
//! ```text
//! text ──parse──▶ Template ──render(values), once──▶ YAML ──parse──▶ Rendered
//!                    └─check─▶ Definition, its quoted values still holding {{…}}
//! ```
//!
//! [`Template::parse`] checks the placeholders (grammar, functions), [`Template::check`] the YAML around them, so that most
//! mistakes are found when a template is created. A text with placeholders outside of quotes (`{{range .disks}}` on a line
//! of its own) is not YAML before it is rendered: its actions cannot be checked, only rendered ([`Template::check_readable`]). If they stand for
//! single values (`DEST_DISK: {{ .disk }}`), the rest of the actions is checked ([`Template::with_open_values`]).
//! `actions` compares the actions with the table of built-in ones.
//!
//! An error names the template, the line and the field or function at fault, and never quotes values. The functions and
//! values are described in `docs/reference/templates.md`.

mod actions;
mod bounded_yaml;
pub mod definition;
mod engine;
mod error;
mod functions;
mod image;
mod placeholders;
mod rendered;
mod strict;
#[cfg(test)]
mod tests;
mod values;

pub use self::actions::{ActionError, ActionErrorCause};
pub use definition::{Action, AfterLoss, Definition, Namespaces, RuleViolation, Stage, Task};
pub use engine::MAX_TEMPLATE_BYTES;
pub use error::{PlaceholderError, PlaceholderErrorCause};
pub(crate) use image::short_name;
pub use placeholders::{top_level_name, unused_values};
pub use rendered::{DEFAULT_ACTION_TIMEOUT, Rendered};
pub use values::Values;

use self::placeholders::Loose;

/// The reason why a template was not accepted or not rendered. Its author has to correct it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A placeholder is invalid.
    #[error(transparent)]
    Placeholder(#[from] PlaceholderError),
    /// The text is not the YAML of a template. Line numbers refer to the rendered text, if it was rendered.
    #[error("parsing yaml data")]
    Yaml(#[source] yaml_serde::Error),
    /// The actions, each with the volumes and variables of its task, are larger than any workflow that can be stored.
    #[error("the actions have {0} bytes with the volumes and environments of their tasks, at most {most} are allowed", most = bounded_yaml::MAX_EXPANDED_BYTES)]
    TooLarge(usize),
    /// It breaks a rule.
    #[error("validating workflow template")]
    Invalid(#[from] RuleViolation),
    /// The worker of this task rendered to an empty text.
    #[error("failed to render template, invalid hardware address: task {0:?} names no worker")]
    NoWorker(String),
}

impl Error {
    /// Returns the error itself if it is that the values lack a field of this name.
    pub fn missing_field(&self, name: &str) -> Option<&PlaceholderError> {
        let Self::Placeholder(error) = self else { return None };
        let is_missing =
            matches!(&error.cause, PlaceholderErrorCause::NoField(field) if field == name);
        is_missing.then_some(error)
    }
}

/// A template with valid placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    name: String,
    text: String,
}

impl Template {
    /// Parses a template, which errors call `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, PlaceholderError> {
        engine::check(name, text)?;
        Ok(Self { name: name.to_owned(), text: text.to_owned() })
    }

    /// Checks the YAML before rendering. Fails if a placeholder is outside of quotes, or a rule is broken whatever the
    /// placeholders become.
    pub fn check(&self) -> Result<Definition, Error> {
        let definition = Definition::parse(&self.text)?;
        definition.validate(Stage::Unrendered)?;
        Ok(definition)
    }

    /// Does the same, as far as a text that becomes YAML only by rendering can be checked: then there is no definition. A mistake that no
    /// placeholder can mend is refused.
    pub fn check_readable(&self) -> Result<Option<Definition>, Error> {
        let error = match self.check() {
            Err(Error::Yaml(error)) => error,
            checked => return checked.map(Some),
        };
        let stays = match placeholders::loose(&self.text) {
            Loose::None => Some(error),
            // An unknown key stays unknown, whatever the placeholders become.
            Loose::Parts => Some(error).filter(|error| error.to_string().contains("unknown field")),
            Loose::Values { text, lines } => Definition::parse(&text).err().and_then(|error| {
                let Error::Yaml(error) = error else { return None };
                // The value that is rendered there may be a right one.
                let is_open = error.location().is_none_or(|at| lines.contains(&at.line()));
                Some(error).filter(|_| !is_open)
            }),
        };
        stays.map_or(Ok(None), |error| Err(Error::Yaml(error)))
    }

    /// Returns the definition of a text that becomes YAML by rendering single values, which are open in it. None of any other text, and if an open
    /// value would have to be a number.
    pub fn with_open_values(&self) -> Option<Definition> {
        match placeholders::loose_with(&self.text, placeholders::OPEN) {
            Loose::Values { text, .. } => Definition::parse(&text).ok(),
            Loose::None | Loose::Parts => None,
        }
    }

    /// Renders the template with `values`.
    pub fn render(&self, values: Values) -> Result<Rendered, Error> {
        let text = engine::render(&self.name, &self.text, values.into_json())?;
        Rendered::parse(text)
    }
}
