//! Templates: Tinkerbell's YAML with Go template actions in it, and what comes of rendering one.
//!
//! ```text
//! text ──parse──▶ Template ──render(values), once──▶ YAML ──parse──▶ Rendered
//!                    └─check─▶ Definition, its quoted values still holding {{…}}
//! ```
//!
//! [`Template::parse`] judges the actions (grammar, unknown functions), [`Template::check`] the YAML around them as
//! old command-line tools do, so that most mistakes are found when a template is created. A text whose actions
//! stand outside of quotes (`{{range .disks}}` on a line of its own) is no YAML before it is rendered: it cannot be
//! checked, only rendered.
//!
//! An error names the template, the line and the field or function at fault, and never quotes the values.

pub mod definition;
mod engine;
mod fault;
mod functions;
mod image;
mod rendered;
mod strict;
#[cfg(test)]
mod tests;
mod values;

pub use definition::{Definition, Invalid, Namespaces, Restart, Stage};
pub use engine::LIMIT;
pub use fault::{Cause, Fault};
pub use image::{Image, NotAnImage};
pub use rendered::{ACTION_TIMEOUT, Action, Rendered, Task};
pub use values::Values;

/// Why a template is not taken, or not rendered. Each is for its author to mend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is wrong with its actions.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The text is no YAML of a template's shape; lines are those of the rendered text, if it was rendered.
    #[error("parsing yaml data")]
    Yaml(#[source] yaml_serde::Error),
    /// It breaks a rule.
    #[error("validating workflow template")]
    Invalid(#[from] Invalid),
    /// This task's worker rendered to nothing.
    #[error("failed to render template, invalid hardware address: task {0:?} names no worker")]
    NoWorker(String),
}

/// A template whose actions are well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    name: String,
    text: String,
}

impl Template {
    /// A template called `name` in errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, Fault> {
        engine::check(name, text)?;
        Ok(Self { name: name.to_owned(), text: text.to_owned() })
    }

    /// As its author wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The definition before rendering, if every action stands in quotes and no rule is broken whatever they become.
    pub fn check(&self) -> Result<Definition, Error> {
        let definition = Definition::parse(&self.text)?;
        definition.validate(Stage::Unrendered)?;
        Ok(definition)
    }

    /// What the template means for these values.
    pub fn render(&self, values: Values) -> Result<Rendered, Error> {
        let text = engine::render(&self.name, &self.text, values.into_json())?;
        Rendered::parse(text)
    }
}
