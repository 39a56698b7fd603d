//! Errors in a template's placeholders: the line and the field or function at fault, in one line of text.
//!
//! The library's texts are interpreted here. They are not passed on when there was data, because they quote it.

use gtmpl_ng::{ExecError, ParseError};

use super::{engine, functions};

/// The most characters of a template that an error quotes.
const MAX_EXCERPT_CHARS: usize = 60;

/// A mistake in a template's placeholders.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template {template:?}{}: {cause}", line.map(|line| format!(" line {line}")).unwrap_or_default())]
pub struct PlaceholderError {
    /// The template's name.
    pub template: String,
    /// From 1, in the text before rendering; none if no single line is at fault.
    pub line: Option<usize>,
    /// The mistake.
    pub cause: PlaceholderErrorCause,
}

/// The kind of a mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderErrorCause {
    /// A placeholder does not follow Go's grammar.
    #[error("{0}")]
    Syntax(String),
    /// The function does not exist.
    #[error("function {0:?} is unknown")]
    UnknownFunction(String),
    /// The values lack a key.
    #[error("no field {0:?} in the values given")]
    NoField(String),
    /// A function refused its arguments.
    #[error("{0}")]
    Function(String),
    /// Another error in this part of the template.
    #[error("cannot evaluate {excerpt:?}: {reason}")]
    Evaluate {
        /// The part, shortened.
        excerpt: String,
        /// The cause, without values.
        reason: &'static str,
    },
    /// The text is larger than 256 KiB, before or after rendering.
    #[error("larger than {} bytes", engine::MAX_TEMPLATE_BYTES)]
    TooLarge,
}

/// Beginnings of the library's texts, and our texts for them.
const REASONS: &[(&str, &str)] = &[
    ("only maps and objects have fields", "only a map has fields"),
    ("index out of range", "index out of range"),
    ("unable to get", "no such item"),
    ("unable to compare", "the values cannot be compared"),
    ("unable to call len", "the value has no length"),
    ("range can't iterate over", "only a list, a map or a number can be ranged over"),
    ("range over", "too many iterations"),
    ("the render would run more", "too many iterations"),
    ("the render did not finish", "rendering takes too long"),
    ("a function produced a value", "a function returned too large a value"),
    ("exceeded the maximum", "nested too deeply"),
    ("can't give argument", "not a function"),
];

impl PlaceholderError {
    /// Converts an error of parsing. Its text may be passed on, because it can only quote the template.
    pub(super) fn parsing(template: &str, text: &str, error: &ParseError) -> Self {
        let (line, message) = if let ParseError::WithContext(context, message) = error {
            (context.line, message.clone())
        } else {
            (first_line_with(text, &error.to_string()), error.to_string())
        };
        let unknown =
            message.strip_prefix("function ").and_then(|rest| rest.strip_suffix(" not defined"));
        let cause = match unknown {
            Some(function) => PlaceholderErrorCause::UnknownFunction(function.to_owned()),
            None => PlaceholderErrorCause::Syntax(one_line(&message)),
        };
        Self { template: template.to_owned(), line: Some(line), cause }
    }

    /// Converts an error of rendering. Its text may quote data.
    pub(super) fn rendering(template: &str, text: &str, error: &ExecError) -> Self {
        let (line, cause) = match error.as_structured() {
            Some(error) => {
                let at = &error.context;
                (Some(at.line), cause(&error.message, || excerpt(text, at.line, at.col, at.len)))
            }
            None if matches!(error, ExecError::OutputTooLarge { .. }) => {
                (None, PlaceholderErrorCause::TooLarge)
            }
            None => (None, cause(&error.to_string(), String::new)),
        };
        Self { template: template.to_owned(), line, cause }
    }
}

fn cause(message: &str, excerpt: impl Fn() -> String) -> PlaceholderErrorCause {
    let field = message.strip_prefix("no field `").and_then(|rest| rest.split_once('`'));
    if let Some((field, _)) = field {
        return PlaceholderErrorCause::NoField(field.to_owned());
    }
    if message.starts_with("the render would write more") {
        return PlaceholderErrorCause::TooLarge;
    }
    // Errors of our own functions begin with the function's name and never quote a value.
    if message.split_once(": ").is_some_and(|(name, _)| functions::exists(name)) {
        return PlaceholderErrorCause::Function(message.to_owned());
    }
    let reason = REASONS.iter().find(|(theirs, _)| message.starts_with(theirs));
    let reason = reason.map_or("the values do not fit", |(_, ours)| ours);
    PlaceholderErrorCause::Evaluate { excerpt: excerpt(), reason }
}

/// Returns the part of the template at a line and a byte column, both from 1.
fn excerpt(text: &str, line: usize, col: usize, len: usize) -> String {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let from = start.saturating_add(col.saturating_sub(1));
    let piece = text
        .get(from..from.saturating_add(len))
        .or_else(|| text.lines().nth(line.saturating_sub(1)));
    one_line(piece.unwrap_or_default())
}

/// Returns the first line at which parsing fails with this message. The parser only moves forward, so a text that fails after
/// `n` lines also fails after more.
fn first_line_with(text: &str, message: &str) -> usize {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let fails = |count: &usize| {
        let head: String = lines.iter().take(*count).copied().collect();
        engine::parse(&head).err().is_some_and(|error| error.to_string() == message)
    };
    let (mut sound, mut failing) = (0, lines.len());
    while failing - sound > 1 {
        let middle = sound.midpoint(failing);
        if fails(&middle) { failing = middle } else { sound = middle }
    }
    failing
}

/// Removes line breaks, and cuts a long text.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let joined = words.join(" ");
    match joined.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", joined.get(..end).unwrap_or_default()),
        None => joined,
    }
}
