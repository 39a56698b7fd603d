//! An action's variables, read with the rules templates were written for.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Why a variable cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// It is needed, and absent or empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// It does not say what it should.
    #[error("{name} is `{value}`, not {wanted}")]
    Invalid {
        /// Which variable.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it should say.
        wanted: &'static str,
    },
}

/// The variables of one action.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// All of them, in name order, as a command inherits them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of `name`; empty is absent, as templates render what they do not have as nothing.
    pub fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of `name`, which must have one.
    pub fn required(&self, name: &'static str) -> Result<&str, Error> {
        self.optional(name).ok_or(Error::Missing(name))
    }

    /// Whether `name` is true in the eyes of Go's `ParseBool`; any other text is false, not an error.
    pub fn flag(&self, name: &str) -> bool {
        truth(self.optional(name)) == Some(true)
    }

    /// Like [`Environment::flag`], but absent and unreadable stay apart from a plain no.
    pub fn choice(&self, name: &str) -> Option<bool> {
        truth(self.optional(name))
    }

    /// Like [`Environment::choice`], but what is unreadable is an error.
    pub fn boolean(&self, name: &'static str) -> Result<Option<bool>, Error> {
        let Some(value) = self.optional(name) else { return Ok(None) };
        let (wanted, value) = ("`true` or `false`", value.to_owned());
        match truth(Some(&value)) {
            None => Err(Error::Invalid { name, value, wanted }),
            known => Ok(known),
        }
    }

    /// `name` as a `T`, if it has a value; `wanted` says what that is, for the failure.
    pub fn parsed<T: FromStr>(
        &self,
        name: &'static str,
        wanted: &'static str,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.optional(name) else { return Ok(None) };
        let invalid = |_| Error::Invalid { name, value: value.into(), wanted };
        value.parse().map(Some).map_err(invalid)
    }

    /// `name` as a decimal number, which must be there.
    pub fn number(&self, name: &'static str) -> Result<u32, Error> {
        self.parsed(name, "a decimal number")?.ok_or(Error::Missing(name))
    }

    /// `name` as permission bits in octal, which must be there.
    pub fn mode(&self, name: &'static str) -> Result<u32, Error> {
        let value = self.required(name)?;
        let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
        mode.ok_or_else(|| Error::Invalid {
            name,
            value: value.into(),
            wanted: "an octal file mode",
        })
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

fn truth(value: Option<&str>) -> Option<bool> {
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
    fn truth_is_spelled_as_go_spells_it_and_anything_else_is_false() {
        for yes in ["1", "t", "T", "TRUE", "true", "True"] {
            assert!(with("COMPRESSED", yes).flag("COMPRESSED"), "{yes}");
        }
        for no in ["0", "False", "tRUE", "yes", "on", " true", ""] {
            assert!(!with("COMPRESSED", no).flag("COMPRESSED"), "{no}");
        }
    }

    #[test]
    fn an_empty_variable_is_a_missing_one() {
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
