//! What of jq a filter may use: all that ends by itself and grows no faster than its document.
//!
//! Left out are loops (`range`, `recurse`, `while`, `until`, `repeat`, `limit`, definitions, `reduce`, `foreach`), what makes a
//! value of any length (`*` on texts, assignment), and what looks out of the document (`env`, `input`, `now`, `import`).

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::Part;

/// The functions.
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

/// What some of them are made of.
const PARTS: &[&str] =
    &["error", "isarray", "isboolean", "isnumber", "isobject", "isstring", "totype"];

/// Whether a definition of jq's is wanted: the others would need regular expressions, clocks and the like to be here.
pub(super) fn is_defined(name: &str, arguments: usize) -> bool {
    let by_expression = name == "split" && arguments == 2;
    !by_expression && (FUNCTIONS.contains(&name) || PARTS.contains(&name))
}

/// Something of jq's that no filter here may use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not offered")]
pub(crate) struct NotOffered(String);

impl NotOffered {
    pub(super) fn name(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// Whether all of `term` is offered.
pub(super) fn check(term: &Term<&str>) -> Result<(), NotOffered> {
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
        Term::Def(..) => Err(NotOffered::name("def")),
        Term::Fold(name, ..) => Err(NotOffered::name(name)),
        Term::Label(..) | Term::Break(_) => Err(NotOffered::name("label")),
    }
}

fn function(name: &str) -> Result<(), NotOffered> {
    if FUNCTIONS.contains(&name) { Ok(()) } else { Err(NotOffered::name(name)) }
}

fn operator(operator: &BinaryOp<&str>) -> Result<(), NotOffered> {
    match operator {
        BinaryOp::Pipe(bound) => bound.iter().try_for_each(pattern),
        BinaryOp::Comma
        | BinaryOp::Alt
        | BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Cmp(_)
        | BinaryOp::Math(Math::Add | Math::Sub | Math::Div | Math::Rem) => Ok(()),
        BinaryOp::Math(Math::Mul) => Err(NotOffered::name("*")),
        BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
            Err(NotOffered::name("assignment"))
        }
    }
}

fn pattern(pattern: &Pattern<&str>) -> Result<(), NotOffered> {
    match pattern {
        Pattern::Var(_) => Ok(()),
        Pattern::Arr(inner) => inner.iter().try_for_each(self::pattern),
        Pattern::Obj(pairs) => pairs.iter().try_for_each(|(key, inner)| {
            check(key)?;
            self::pattern(inner)
        }),
    }
}

fn part(part: &Part<Term<&str>>) -> Result<(), NotOffered> {
    match part {
        Part::Index(term) => check(term),
        Part::Range(from, to) => from.iter().chain(to).try_for_each(check),
    }
}
