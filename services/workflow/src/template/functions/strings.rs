//! Functions from text to text.

use gtmpl_ng::{FuncError, Value};

use super::arguments::{Arguments, as_text};
use crate::template::engine::LIMIT;

/// More than any file's nesting needs.
const INDENT: u64 = 256;

type Answer = Result<Value, FuncError>;

pub(super) fn lower(values: &[Value]) -> Answer {
    Ok(Arguments::exactly("lower", values, 1)?.text(0)?.to_lowercase().into())
}

pub(super) fn upper(values: &[Value]) -> Answer {
    Ok(Arguments::exactly("upper", values, 1)?.text(0)?.to_uppercase().into())
}

pub(super) fn trim(values: &[Value]) -> Answer {
    Ok(Arguments::exactly("trim", values, 1)?.text(0)?.trim().into())
}

/// `contains "part" whole`.
pub(super) fn contains(values: &[Value]) -> Answer {
    let given = Arguments::exactly("contains", values, 2)?;
    Ok(given.text(1)?.contains(&*given.text(0)?).into())
}

/// `hasPrefix "start" whole`.
pub(super) fn has_prefix(values: &[Value]) -> Answer {
    let given = Arguments::exactly("hasPrefix", values, 2)?;
    Ok(given.text(1)?.starts_with(&*given.text(0)?).into())
}

/// `replace "old" "new" text`.
pub(super) fn replace(values: &[Value]) -> Answer {
    let given = Arguments::exactly("replace", values, 3)?;
    let (old, new, text) = (given.text(0)?, given.text(1)?, given.text(2)?);
    // Counted first: a long replacement for a short text multiplies.
    if text.matches(&*old).count().saturating_mul(new.len()) > LIMIT {
        return Err(given.error("the result would be too large"));
    }
    Ok(text.replace(&*old, &new).into())
}

/// Each argument in double quotes, escaped as in Go; nothing for nil.
pub(super) fn quote(values: &[Value]) -> Answer {
    let mut quoted = Vec::new();
    for value in values.iter().filter(|value| !matches!(value, Value::Nil | Value::NoValue)) {
        let text = as_text(value).map_or_else(|| value.to_string(), |text| text.into_owned());
        quoted.push(gtmpl_ng::funcs::printf(&["%q".into(), text.into()])?.to_string());
    }
    Ok(quoted.join(" ").into())
}

/// Every line moved to the right by the first argument.
pub(super) fn indent(values: &[Value]) -> Answer {
    indented(&Arguments::exactly("indent", values, 2)?).map(Value::from)
}

/// As [`indent`], beginning on a line of its own.
pub(super) fn nindent(values: &[Value]) -> Answer {
    let text = indented(&Arguments::exactly("nindent", values, 2)?)?;
    Ok(format!("\n{text}").into())
}

fn indented(given: &Arguments<'_>) -> Result<String, FuncError> {
    let (width, text) = (given.number(0)?, given.text(1)?);
    if width > INDENT {
        return Err(given.error("indents by 256 at most"));
    }
    let pad = " ".repeat(usize::try_from(width).unwrap_or_default());
    Ok(format!("{pad}{}", text.replace('\n', &format!("\n{pad}"))))
}
