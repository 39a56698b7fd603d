//! A call's arguments, counted and typed, with errors that name the function and the place but not the value.

use std::{borrow::Cow, collections::HashMap};

use gtmpl_ng::{FuncError, Value};

/// What one function was given.
pub(super) struct Arguments<'a> {
    function: &'static str,
    values: &'a [Value],
}

impl<'a> Arguments<'a> {
    /// Exactly `count` of them.
    pub(super) fn exactly(
        function: &'static str,
        values: &'a [Value],
        count: usize,
    ) -> Result<Self, FuncError> {
        let these = Self { function, values };
        if values.len() == count {
            return Ok(these);
        }
        Err(these.error(&format!("wants {count} arguments, got {}", values.len())))
    }

    /// However many.
    pub(super) fn any(function: &'static str, values: &'a [Value]) -> Self {
        Self { function, values }
    }

    /// The function's refusal.
    pub(super) fn error(&self, reason: &str) -> FuncError {
        FuncError::Generic(format!("{}: {reason}", self.function))
    }

    /// The value at `place`, counted from 0.
    pub(super) fn value(&self, place: usize) -> Result<&'a Value, FuncError> {
        self.values.get(place).ok_or_else(|| self.wants(place, "a value"))
    }

    /// Text, or what reads as text: numbers and truth values do, as in sprig.
    pub(super) fn text(&self, place: usize) -> Result<Cow<'a, str>, FuncError> {
        as_text(self.value(place)?).ok_or_else(|| self.wants(place, "text"))
    }

    /// A whole number that is not negative, or a text that reads as one.
    pub(super) fn number(&self, place: usize) -> Result<u64, FuncError> {
        let number = as_text(self.value(place)?).and_then(|text| text.parse().ok());
        number.ok_or_else(|| self.wants(place, "a whole number"))
    }

    /// The entries of a map.
    pub(super) fn map(&self, place: usize) -> Result<&'a HashMap<String, Value>, FuncError> {
        let (Value::Object(entries) | Value::Map(entries)) = self.value(place)? else {
            return Err(self.wants(place, "a map"));
        };
        Ok(entries)
    }

    /// The items of a list.
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

/// The text of a scalar.
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

/// As `if` sees it: not false, not 0, not empty.
pub(super) fn is_true(value: &Value) -> bool {
    matches!(gtmpl_ng::funcs::not(std::slice::from_ref(value)), Ok(Value::Bool(false)))
}
