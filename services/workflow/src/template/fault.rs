//! What is wrong with a template's actions: where, and the field or function at fault, in one line.
//!
//! The library's texts are read, never passed on while data is at hand, since they quote it.

use gtmpl_ng::{ExecError, ParseError};

use super::{engine, functions};

/// The longest excerpt of a template that an error quotes, in characters.
const EXCERPT: usize = 60;

/// One mistake in a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template {template:?}{}: {cause}", line.map(|line| format!(" line {line}")).unwrap_or_default())]
pub struct Fault {
    /// The template's name.
    pub template: String,
    /// Counted from 1 in the text before rendering; none where no line is more at fault than the others.
    pub line: Option<usize>,
    /// What it is.
    pub cause: Cause,
}

/// What kind of mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The actions do not follow Go's grammar.
    #[error("{0}")]
    Syntax(String),
    /// A function we do not have.
    #[error("function {0:?} is unknown")]
    UnknownFunction(String),
    /// A key that the values lack.
    #[error("no field {0:?} in the values given")]
    NoField(String),
    /// One of our functions refused its arguments.
    #[error("{0}")]
    Function(String),
    /// Something else in this piece of the template.
    #[error("cannot evaluate {excerpt:?}: {reason}")]
    Evaluate {
        /// The piece, shortened.
        excerpt: String,
        /// Why, as far as it can be told without quoting values.
        reason: &'static str,
    },
    /// More than 256 KiB, before or after rendering.
    #[error("larger than {} bytes", engine::LIMIT)]
    TooLarge,
}

/// Beginnings of the library's texts, and what we say instead.
const REASONS: &[(&str, &str)] = &[
    ("only maps and objects have fields", "only a map has fields"),
    ("index out of range", "index out of range"),
    ("unable to get", "nothing there"),
    ("unable to compare", "these cannot be compared"),
    ("unable to call len", "this has no length"),
    ("range can't iterate over", "only a list, a map or a number can be ranged over"),
    ("range over", "too many iterations"),
    ("the render would run more", "too many iterations"),
    ("the render did not finish", "it takes too long"),
    ("a function produced a value", "a function made too large a value"),
    ("exceeded the maximum", "nested too deeply"),
    ("can't give argument", "this is no function"),
];

impl Fault {
    /// From an error before any data was at hand: its text can only quote the template.
    pub(super) fn parsing(template: &str, text: &str, error: &ParseError) -> Self {
        let (line, message) = if let ParseError::WithContext(context, message) = error {
            (context.line, message.clone())
        } else {
            (first_line_with(text, &error.to_string()), error.to_string())
        };
        let unknown =
            message.strip_prefix("function ").and_then(|rest| rest.strip_suffix(" not defined"));
        let cause = match unknown {
            Some(function) => Cause::UnknownFunction(function.to_owned()),
            None => Cause::Syntax(one_line(&message)),
        };
        Self { template: template.to_owned(), line: Some(line), cause }
    }

    /// From an error that may quote data.
    pub(super) fn rendering(template: &str, text: &str, error: &ExecError) -> Self {
        let (line, cause) = match error.as_structured() {
            Some(error) => {
                let at = &error.context;
                (Some(at.line), cause(&error.message, || excerpt(text, at.line, at.col, at.len)))
            }
            None if matches!(error, ExecError::OutputTooLarge { .. }) => (None, Cause::TooLarge),
            None => (None, cause(&error.to_string(), String::new)),
        };
        Self { template: template.to_owned(), line, cause }
    }
}

fn cause(message: &str, excerpt: impl Fn() -> String) -> Cause {
    let field = message.strip_prefix("no field `").and_then(|rest| rest.split_once('`'));
    if let Some((field, _)) = field {
        return Cause::NoField(field.to_owned());
    }
    if message.starts_with("the render would write more") {
        return Cause::TooLarge;
    }
    // Our own functions begin with their name and never quote a value.
    if message.split_once(": ").is_some_and(|(name, _)| functions::is_ours(name)) {
        return Cause::Function(message.to_owned());
    }
    let known = REASONS.iter().find(|(theirs, _)| message.starts_with(theirs));
    let reason = known.map_or("the values given do not fit", |(_, ours)| ours);
    Cause::Evaluate { excerpt: excerpt(), reason }
}

/// The piece of the template at a 1-based line and byte column.
fn excerpt(text: &str, line: usize, col: usize, len: usize) -> String {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let from = start.saturating_add(col.saturating_sub(1));
    let piece = text
        .get(from..from.saturating_add(len))
        .or_else(|| text.lines().nth(line.saturating_sub(1)));
    one_line(piece.unwrap_or_default())
}

/// The first line whose reading fails with this message. The parser goes forward only, so what fails after
/// `n` lines fails so after more.
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

/// Without line breaks and no longer than an error should be.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let joined = words.join(" ");
    match joined.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", joined.get(..end).unwrap_or_default()),
        None => joined,
    }
}
