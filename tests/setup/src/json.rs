//! What cargo writes in JSON.

use std::borrow::Cow;

use anyhow::Context as _;
use hifijson::SliceLexer;
use hifijson::token::Lex as _;
use hifijson::value::{Value, parse_bounded};

/// Maximum nesting of a value. The sections of a unit of a build are at depth 5.
const MAX_DEPTH: usize = 16;

/// A value in JSON.
pub(crate) type Json<'a> = Value<&'a str, Cow<'a, str>>;

/// Parses the value at the begin of `text`.
pub(crate) fn parse(text: &str) -> anyhow::Result<Json<'_>> {
    let mut lexer = SliceLexer::new(text.as_bytes());
    let first = lexer.ws_peek().context("no JSON value")?;
    parse_bounded(MAX_DEPTH, first, &mut lexer).map_err(anyhow::Error::msg)
}

/// Returns the field `key` of an object.
pub(crate) fn field<'a>(value: &'a Json<'_>, key: &str) -> Option<&'a Json<'a>> {
    let Value::Object(fields) = value else { return None };
    fields.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// Returns the field `key` of an object if it is a string.
pub(crate) fn text<'a>(value: &'a Json<'_>, key: &str) -> Option<&'a str> {
    let Value::String(text) = field(value, key)? else { return None };
    Some(text)
}

/// Returns the items of an array; none of anything else.
pub(crate) fn items<'a>(value: &'a Json<'_>) -> &'a [Json<'a>] {
    let Value::Array(items) = value else { return &[] };
    items
}
