//! Functions on text.

use gtmpl_ng::{FuncError, Value};

use super::arguments::{Arguments, as_text};
use crate::template::engine::MAX_TEMPLATE_BYTES;

/// More than the nesting of any file requires.
const MAX_INDENT_COLUMNS: u64 = 256;

type FunctionResult = Result<Value, FuncError>;

pub(super) fn lower(values: &[Value]) -> FunctionResult {
    Ok(Arguments::exactly("lower", values, 1)?.text(0)?.to_lowercase().into())
}

pub(super) fn upper(values: &[Value]) -> FunctionResult {
    Ok(Arguments::exactly("upper", values, 1)?.text(0)?.to_uppercase().into())
}

pub(super) fn trim(values: &[Value]) -> FunctionResult {
    Ok(Arguments::exactly("trim", values, 1)?.text(0)?.trim().into())
}

/// `contains "part" text` is true if the text contains the part.
pub(super) fn contains(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("contains", values, 2)?;
    Ok(arguments.text(1)?.contains(&*arguments.text(0)?).into())
}

/// `hasPrefix "start" text` is true if the text begins so.
pub(super) fn has_prefix(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("hasPrefix", values, 2)?;
    Ok(arguments.text(1)?.starts_with(&*arguments.text(0)?).into())
}

/// `replace "old" "new" text` replaces every occurrence.
pub(super) fn replace(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("replace", values, 3)?;
    let (old, new, text) = (arguments.text(0)?, arguments.text(1)?, arguments.text(2)?);
    // Counted first: a long replacement for a short text multiplies.
    if text.matches(&*old).count().saturating_mul(new.len()) > MAX_TEMPLATE_BYTES {
        return Err(arguments.error("the result would be too large"));
    }
    Ok(text.replace(&*old, &new).into())
}

/// Returns each argument in double quotes, escaped as in Go; leaves out nil.
pub(super) fn quote(values: &[Value]) -> FunctionResult {
    let mut quoted = Vec::new();
    for value in values.iter().filter(|value| !matches!(value, Value::Nil | Value::NoValue)) {
        let text = as_text(value).map_or_else(|| value.to_string(), |text| text.into_owned());
        quoted.push(gtmpl_ng::funcs::printf(&["%q".into(), text.into()])?.to_string());
    }
    Ok(quoted.join(" ").into())
}

/// Indents every line by the first argument.
pub(super) fn indent(values: &[Value]) -> FunctionResult {
    indented(&Arguments::exactly("indent", values, 2)?).map(Value::from)
}

/// Like [`indent`], after a line break.
pub(super) fn nindent(values: &[Value]) -> FunctionResult {
    let text = indented(&Arguments::exactly("nindent", values, 2)?)?;
    Ok(format!("\n{text}").into())
}

fn indented(arguments: &Arguments<'_>) -> Result<String, FuncError> {
    let (width, text) = (arguments.number(0)?, arguments.text(1)?);
    if width > MAX_INDENT_COLUMNS {
        return Err(arguments.error("indents by 256 columns at most"));
    }
    let pad = " ".repeat(usize::try_from(width).unwrap_or_default());
    Ok(format!("{pad}{}", text.replace('\n', &format!("\n{pad}"))))
}
