//! The part of jq that filters may use: everything that ends by itself and whose result grows no faster than the document.
//!
//! Not allowed are loops (`range`, `recurse`, `while`, `until`, `repeat`, `limit`, definitions, `reduce`, `foreach`), values of
//! any length (`*` on texts, assignment), and other input than the document (`env`, `input`, `now`, `import`).

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::Part;

/// The functions that filters may call.
pub(super) const FUNCTIONS: &[&str] = &[
    "@json",
    "@text",
    "add",
    "all",
    "any",
    "arrays",
    "ascii_downcase",
    "ascii_upcase",
    "booleans",
    "contains",
    "empty",
    "endswith",
    "false",
    "first",
    "from_entries",
    "fromjson",
    "group_by",
    "has",
    "in",
    "index",
    "inside",
    "isempty",
    "iterables",
    "join",
    "keys",
    "keys_unsorted",
    "last",
    "length",
    "ltrimstr",
    "map",
    "map_values",
    "max",
    "max_by",
    "min",
    "min_by",
    "not",
    "null",
    "nulls",
    "numbers",
    "objects",
    "reverse",
    "rindex",
    "rtrimstr",
    "scalars",
    "select",
    "sort",
    "sort_by",
    "split",
    "startswith",
    "strings",
    "to_entries",
    "tojson",
    "tonumber",
    "tostring",
    "trim",
    "true",
    "type",
    "unique",
    "unique_by",
    "values",
    "with_entries",
];

/// Functions that the definitions of some [`FUNCTIONS`] call.
const INTERNAL: &[&str] =
    &["error", "isarray", "isboolean", "isnumber", "isobject", "isstring", "totype"];

/// True if a definition of jq's library is loaded. The others would need regular expressions, clocks and the like.
pub(super) fn is_defined(name: &str, arguments: usize) -> bool {
    let is_regex = name == "split" && arguments == 2;
    !is_regex && (FUNCTIONS.contains(&name) || INTERNAL.contains(&name))
}

/// A part of jq that filters may not use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not allowed")]
pub(crate) struct NotAllowed(String);

impl NotAllowed {
    pub(super) fn name(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// Checks that all of `term` is allowed.
pub(super) fn check(term: &Term<&str>) -> Result<(), NotAllowed> {
    match term {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Var(_) => Ok(()),
        Term::Str(format, parts) => {
            format.iter().try_for_each(|name| function(name))?;
            parts.iter().try_for_each(|part| match part {
                StrPart::Term(term) => check(term),
                StrPart::Str(_) | StrPart::Char(_) => Ok(()),
            })
        }
        Term::Arr(inner) => inner.iter().try_for_each(|term| check(term)),
        Term::Obj(pairs) => pairs.iter().try_for_each(|(key, value)| {
            check(key)?;
            value.iter().try_for_each(check)
        }),
        Term::Neg(term) => check(term),
        Term::BinOp(left, operator, right) => {
            self::operator(operator)?;
            check(left)?;
            check(right)
        }
        Term::TryCatch(term, catch) => {
            check(term)?;
            catch.iter().try_for_each(|term| check(term))
        }
        Term::IfThenElse(branches, otherwise) => {
            branches.iter().try_for_each(|(condition, then)| {
                check(condition)?;
                check(then)
            })?;
            otherwise.iter().try_for_each(|term| check(term))
        }
        Term::Call(name, arguments) => {
            function(name)?;
            arguments.iter().try_for_each(check)
        }
        Term::Path(term, path) => {
            check(term)?;
            path.0.iter().try_for_each(|(part, _)| self::part(part))
        }
        Term::Def(..) => Err(NotAllowed::name("def")),
        Term::Fold(name, ..) => Err(NotAllowed::name(name)),
        Term::Label(..) | Term::Break(_) => Err(NotAllowed::name("label")),
    }
}

fn function(name: &str) -> Result<(), NotAllowed> {
    if FUNCTIONS.contains(&name) { Ok(()) } else { Err(NotAllowed::name(name)) }
}

fn operator(operator: &BinaryOp<&str>) -> Result<(), NotAllowed> {
    match operator {
        BinaryOp::Pipe(bound) => bound.iter().try_for_each(pattern),
        BinaryOp::Comma
        | BinaryOp::Alt
        | BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Cmp(_)
        | BinaryOp::Math(Math::Add | Math::Sub | Math::Div | Math::Rem) => Ok(()),
        BinaryOp::Math(Math::Mul) => Err(NotAllowed::name("*")),
        BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
            Err(NotAllowed::name("assignment"))
        }
    }
}

fn pattern(pattern: &Pattern<&str>) -> Result<(), NotAllowed> {
    match pattern {
        Pattern::Var(_) => Ok(()),
        Pattern::Arr(inner) => inner.iter().try_for_each(self::pattern),
        Pattern::Obj(pairs) => pairs.iter().try_for_each(|(key, inner)| {
            check(key)?;
            self::pattern(inner)
        }),
    }
}

fn part(part: &Part<Term<&str>>) -> Result<(), NotAllowed> {
    match part {
        Part::Index(term) => check(term),
        Part::Range(from, to) => from.iter().chain(to).try_for_each(check),
    }
}
