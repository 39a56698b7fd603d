//! One filter: compiled once, run for each answer.

use std::fmt::{self, Write as _};
use std::time::Instant;

use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, compile, unwrap_valr};
use jaq_json::{Val, read};

use super::Failure;
use super::offered::{self, NotOffered};
use crate::tree::{Body, Kind};

/// How long an answer may be, in bytes.
const LONGEST: usize = 1024 * 1024;

type Data = JustLut<Val>;

/// A jq filter.
pub(crate) struct Filter(jaq_core::Filter<Data>);

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}

/// What is wrong with a filter's text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("{expected} expected before {found}")]
    Syntax { expected: String, found: String },
    #[error("there is no {kind} {name}")]
    Undefined { kind: &'static str, name: String },
    #[error(transparent)]
    NotOffered(#[from] NotOffered),
}

impl Filter {
    /// The filter that `code` says.
    pub(super) fn new(code: &str) -> Result<Self, Wrong> {
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let defs = defs.filter(|def| offered::is_defined(def.name, def.args.len()));
        let funs = jaq_core::funs().chain(jaq_std::base_funs()).chain(jaq_json::funs());
        let (arena, file) = (Arena::default(), File { code, path: () });
        let modules = Loader::new(defs).load(&arena, file).map_err(|errors| unread(&errors))?;
        let term = load::parse(code, |parser| parser.term());
        offered::check(&term.ok_or_else(|| NotOffered::name("import"))?)?;
        let compiled = Compiler::default().with_funs(funs).compile(modules);
        compiled.map(Self).map_err(|errors| undefined(&errors))
    }

    /// What it makes of `document`: every value on a line of its own, texts as they are, nulls left out. `None` where that
    /// is nothing.
    pub(super) fn run(&self, document: &[u8], until: Instant) -> Result<Option<Body>, Failure> {
        let document = read::parse_single(document).map_err(|_| Failure::Failed)?;
        let ctx = Ctx::<Data>::new(&self.0.lut, Vars::new([]));
        let mut lines = Lines::default();
        for value in self.0.id.run((ctx, document)).map(unwrap_valr) {
            if Instant::now() > until {
                return Err(Failure::TooLate);
            }
            // What went wrong quotes the document: nobody is told.
            let value = value.map_err(|_| Failure::Failed)?;
            lines.add(&value).map_err(|_| Failure::TooLong)?;
        }
        Ok(lines.into_body())
    }
}

/// Of several errors the first says enough.
fn unread(errors: &load::Errors<&str, ()>) -> Wrong {
    let syntax = |expected: &str, found: &str| Wrong::Syntax {
        expected: expected.to_owned(),
        found: if found.is_empty() { "its end".to_owned() } else { format!("{found:?}") },
    };
    match errors.first() {
        Some((_, load::Error::Lex(all))) => match all.first() {
            Some((expected, found)) => syntax(expected.as_str(), found),
            None => syntax("token", ""),
        },
        Some((_, load::Error::Parse(all))) => match all.first() {
            Some((expected, found)) => syntax(expected.as_str(), found),
            None => syntax("term", ""),
        },
        // It would have read a file.
        Some((_, load::Error::Io(_))) => NotOffered::name("import").into(),
        None => syntax("filter", ""),
    }
}

fn undefined(errors: &compile::Errors<&str, ()>) -> Wrong {
    let first = errors.iter().flat_map(|(_, all)| all).next();
    match first {
        Some((name, what)) => Wrong::Undefined { kind: what.as_str(), name: (*name).to_owned() },
        None => Wrong::Undefined { kind: "filter", name: String::new() },
    }
}

/// The values so far.
#[derive(Default)]
struct Lines {
    text: Capped,
    count: usize,
    /// Whether one of them is a text.
    texts: bool,
}

impl Lines {
    fn add(&mut self, value: &Val) -> fmt::Result {
        if let Val::Null = value {
            return Ok(());
        }
        if self.count > 0 {
            self.text.add(b"\n")?;
        }
        self.count += 1;
        if let Val::TStr(text) | Val::BStr(text) = value {
            self.texts = true;
            return self.text.add(text);
        }
        write!(self.text, "{value}")
    }

    /// One value that is no text is JSON; several, or a text, are not.
    fn into_body(self) -> Option<Body> {
        let kind = if self.count == 1 && !self.texts { Kind::Json } else { Kind::Text };
        let Capped(text) = self.text;
        (!text.is_empty()).then(|| Body { bytes: text.into(), kind })
    }
}

/// A text of [`LONGEST`] at most.
#[derive(Default)]
struct Capped(Vec<u8>);

impl Capped {
    fn add(&mut self, bytes: &[u8]) -> fmt::Result {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

impl fmt::Write for Capped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes())
    }
}
