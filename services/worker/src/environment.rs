//! Variables of an action, parsed by the rules of the original action images.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// A variable that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A required variable is absent or empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The value is not valid.
    #[error("{name} is `{value}`, not {expected}")]
    Invalid {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// A description of valid values.
        expected: &'static str,
    },
}

impl Error {
    /// Returns the error for a variable with an invalid value.
    pub(crate) fn invalid(name: &'static str, value: &str, expected: &'static str) -> Self {
        Self::Invalid { name, value: value.into(), expected }
    }
}

/// The variables of one action.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns all variables in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of `name`. An empty value counts as absent: templates render missing values as empty text.
    pub fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of `name`, which must not be empty.
    pub fn required(&self, name: &'static str) -> Result<&str, Error> {
        self.optional(name).ok_or(Error::Missing(name))
    }

    /// True if Go's `ParseBool` returns true for the value of `name`. Any other text means false, and is no error.
    pub fn flag(&self, name: &str) -> bool {
        parse_bool(self.optional(name)) == Some(true)
    }

    /// Like [`Environment::flag`], but `None` if the variable is absent or not a boolean.
    pub fn choice(&self, name: &str) -> Option<bool> {
        parse_bool(self.optional(name))
    }

    /// Like [`Environment::choice`], but a value that is not a boolean is an error.
    pub fn boolean(&self, name: &'static str) -> Result<Option<bool>, Error> {
        let Some(value) = self.optional(name) else { return Ok(None) };
        let invalid = || Error::invalid(name, value, "`true` or `false`");
        parse_bool(Some(value)).map(Some).ok_or_else(invalid)
    }

    /// Parses `name`, if it has a value. `expected` describes valid values in the error.
    pub fn parsed<T: FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.optional(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| Error::invalid(name, value, expected))
    }

    /// Parses `name` as a whole number of minutes, if it has a value.
    pub(crate) fn minutes(&self, name: &'static str) -> Result<Option<Duration>, Error> {
        let minutes: Option<u64> = self.parsed(name, "a number of minutes")?;
        Ok(minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60))))
    }

    /// Returns the interval between progress reports; one second by default.
    pub(crate) fn progress_interval(&self) -> Result<Duration, Error> {
        let seconds = self.parsed("PROGRESS_INTERVAL_SECONDS", "a number of seconds")?;
        Ok(Duration::from_secs(seconds.unwrap_or(1)))
    }

    /// Parses `name` as a required decimal number.
    pub fn number(&self, name: &'static str) -> Result<u32, Error> {
        self.parsed(name, "a decimal number")?.ok_or(Error::Missing(name))
    }

    /// Parses `name` as required permission bits in octal.
    pub fn mode(&self, name: &'static str) -> Result<u32, Error> {
        let value = self.required(name)?;
        let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
        mode.ok_or_else(|| Error::invalid(name, value, "an octal file mode"))
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

fn parse_bool(value: Option<&str>) -> Option<bool> {
    match value? {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Environment {
        [(name.to_owned(), value.to_owned())].into_iter().collect()
    }

    #[test]
    fn booleans_are_those_of_go_and_other_texts_are_false() {
        for yes in ["1", "t", "T", "TRUE", "true", "True"] {
            assert!(with("COMPRESSED", yes).flag("COMPRESSED"), "{yes}");
        }
        for no in ["0", "False", "tRUE", "yes", "on", " true", ""] {
            assert!(!with("COMPRESSED", no).flag("COMPRESSED"), "{no}");
        }
    }

    #[test]
    fn an_empty_variable_is_missing() {
        assert_eq!(with("IMG_URL", "").required("IMG_URL"), Err(Error::Missing("IMG_URL")));
        assert_eq!(Error::Missing("IMG_URL").to_string(), "IMG_URL is missing");
    }

    #[test]
    fn a_mode_is_octal_and_has_twelve_bits() {
        assert_eq!(with("MODE", "0644").mode("MODE"), Ok(0o644));
        for wrong in ["0999", "10000", "u+x", "-1"] {
            let error = with("MODE", wrong).mode("MODE").unwrap_err();
            assert_eq!(error.to_string(), format!("MODE is `{wrong}`, not an octal file mode"));
        }
    }
}
