//! One filter: compiled once, run for each request.

use std::fmt::{self, Write as _};
use std::time::Instant;

use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, compile, unwrap_valr};
use jaq_json::{Val, read};
use runtime::Clock;

use super::Failure;
use super::allowed::{self, NotAllowed};
use crate::tree::{Body, Kind};

/// The longest result.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

type Data = JustLut<Val>;

/// A jq filter.
pub(crate) struct Filter(jaq_core::Filter<Data>);

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}

/// An error in the text of a filter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidFilter {
    #[error("{expected} expected before {found}")]
    Syntax { expected: String, found: String },
    #[error("there is no {kind} {name}")]
    Undefined { kind: &'static str, name: String },
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
}

impl Filter {
    /// Compiles `code`.
    pub(super) fn new(code: &str) -> Result<Self, InvalidFilter> {
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let defs = defs.filter(|def| allowed::is_defined(def.name, def.args.len()));
        let funs = jaq_core::funs().chain(jaq_std::base_funs()).chain(jaq_json::funs());
        let (arena, file) = (Arena::default(), File { code, path: () });
        let modules = Loader::new(defs).load(&arena, file).map_err(|errors| syntax(&errors))?;
        let term = load::parse(code, |parser| parser.term());
        allowed::check(&term.ok_or_else(|| NotAllowed::name("import"))?)?;
        let compiled = Compiler::default().with_funs(funs).compile(modules);
        compiled.map(Self).map_err(|errors| undefined(&errors))
    }

    /// Runs the filter over `document`. Each value is one line: a text as it is, another value as JSON. Nulls are left out.
    /// Returns none if the result is empty.
    pub(super) fn run(&self, document: &[u8], deadline: Instant) -> Result<Option<Body>, Failure> {
        let document = read::parse_single(document).map_err(|_| Failure::Failed)?;
        let ctx = Ctx::<Data>::new(&self.0.lut, Vars::new([]));
        let mut result = FilterResult::default();
        for value in self.0.id.run((ctx, document)).map(unwrap_valr) {
            if Clock::system().monotonic() > deadline {
                return Err(Failure::TooLate);
            }
            // The error is not reported, because it quotes the document.
            let value = value.map_err(|_| Failure::Failed)?;
            result.add(&value).map_err(|_| Failure::TooLong)?;
        }
        Ok(result.into_body())
    }
}

/// The lines of a result.
#[derive(Default)]
struct FilterResult {
    text: LimitedText,
    lines: usize,
    /// True if one of the values is a text.
    has_text: bool,
}

impl FilterResult {
    /// Adds a value as a line. Fails if the result would be too long.
    fn add(&mut self, value: &Val) -> fmt::Result {
        if let Val::Null = value {
            return Ok(());
        }
        if self.lines > 0 {
            self.text.push(b"\n")?;
        }
        self.lines += 1;
        if let Val::TStr(text) | Val::BStr(text) = value {
            self.has_text = true;
            return self.text.push(text);
        }
        write!(self.text, "{value}")
    }

    /// One value that is not a text is JSON; several values, or a text, are not.
    fn into_body(self) -> Option<Body> {
        let kind = if self.lines == 1 && !self.has_text { Kind::Json } else { Kind::Text };
        let LimitedText(bytes) = self.text;
        (!bytes.is_empty()).then(|| Body { bytes: bytes.into(), kind })
    }
}

/// A text of [`MAX_RESULT_BYTES`] at most. A value may be much larger as text than in memory, where its parts are shared, so
/// formatting stops at the limit.
#[derive(Default)]
struct LimitedText(Vec<u8>);

impl LimitedText {
    fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        if self.0.len() + bytes.len() > MAX_RESULT_BYTES {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

impl fmt::Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}

/// Returns the first of several syntax errors.
fn syntax(errors: &load::Errors<&str, ()>) -> InvalidFilter {
    let first = match errors.first() {
        Some((_, load::Error::Lex(all))) => {
            all.first().map(|(name, found)| (name.as_str(), *found))
        }
        Some((_, load::Error::Parse(all))) => {
            all.first().map(|(name, found)| (name.as_str(), *found))
        }
        // Only imports read files.
        Some((_, load::Error::Io(_))) => return NotAllowed::name("import").into(),
        None => None,
    };
    let (expected, found) = first.unwrap_or(("filter", ""));
    let found = if found.is_empty() { "its end".to_owned() } else { format!("{found:?}") };
    InvalidFilter::Syntax { expected: expected.to_owned(), found }
}

fn undefined(errors: &compile::Errors<&str, ()>) -> InvalidFilter {
    let first = errors.iter().flat_map(|(_, all)| all).next();
    let (name, kind) = first.map_or(("", "filter"), |(name, kind)| (*name, kind.as_str()));
    InvalidFilter::Undefined { kind, name: name.to_owned() }
}
