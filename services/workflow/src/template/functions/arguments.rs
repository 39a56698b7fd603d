//! A call's arguments, counted and typed, with errors that name the function and the place but not the value.

use std::{borrow::Cow, collections::HashMap};

use gtmpl_ng::{FuncError, Value};

/// The arguments of one call.
pub(super) struct Arguments<'a> {
    function: &'static str,
    values: &'a [Value],
}

impl<'a> Arguments<'a> {
    /// Checks that there are exactly `count` arguments.
    pub(super) fn exactly(
        function: &'static str,
        values: &'a [Value],
        count: usize,
    ) -> Result<Self, FuncError> {
        let arguments = Self { function, values };
        if values.len() == count {
            return Ok(arguments);
        }
        Err(arguments.error(&format!("wants {count} arguments, got {}", values.len())))
    }

    /// Accepts any number of arguments.
    pub(super) fn any(function: &'static str, values: &'a [Value]) -> Self {
        Self { function, values }
    }

    /// An error of the function.
    pub(super) fn error(&self, reason: &str) -> FuncError {
        FuncError::Generic(format!("{}: {reason}", self.function))
    }

    /// Returns the argument at `place`, from 0.
    pub(super) fn value(&self, place: usize) -> Result<&'a Value, FuncError> {
        self.values.get(place).ok_or_else(|| self.wants(place, "a value"))
    }

    /// Returns an argument as text; numbers and booleans are converted, as in sprig.
    pub(super) fn text(&self, place: usize) -> Result<Cow<'a, str>, FuncError> {
        as_text(self.value(place)?).ok_or_else(|| self.wants(place, "text"))
    }

    /// Returns an argument as a non-negative integer; texts are converted.
    pub(super) fn number(&self, place: usize) -> Result<u64, FuncError> {
        let number = as_text(self.value(place)?).and_then(|text| text.parse().ok());
        number.ok_or_else(|| self.wants(place, "a whole number"))
    }

    /// Returns the entries of a map.
    pub(super) fn map(&self, place: usize) -> Result<&'a HashMap<String, Value>, FuncError> {
        let (Value::Object(entries) | Value::Map(entries)) = self.value(place)? else {
            return Err(self.wants(place, "a map"));
        };
        Ok(entries)
    }

    /// Returns the items of a list.
    pub(super) fn list(&self, place: usize) -> Result<&'a [Value], FuncError> {
        let Value::Array(items) = self.value(place)? else {
            return Err(self.wants(place, "a list"));
        };
        Ok(items)
    }

    fn wants(&self, place: usize, what: &str) -> FuncError {
        self.error(&format!("wants {what} as argument {}", place + 1))
    }
}

/// Returns the text of a scalar.
pub(super) fn as_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(value.to_string())),
        Value::NoValue
        | Value::Nil
        | Value::Array(_)
        | Value::Object(_)
        | Value::Map(_)
        | Value::Function(_) => None,
    }
}

/// True if `if` takes the value as true: it is not false, not 0 and not empty.
pub(super) fn is_true(value: &Value) -> bool {
    matches!(gtmpl_ng::funcs::not(std::slice::from_ref(value)), Ok(Value::Bool(false)))
}
