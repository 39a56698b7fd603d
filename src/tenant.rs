//! Names of tenants.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 63;

/// The name of a tenant: lower-case letters, digits and inner hyphens, at most 63.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantName(Arc<str>);

/// A text that is no name of a tenant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name of a tenant: lower-case letters, digits and inner hyphens, at most {MAX_NAME_BYTES}"
)]
pub struct ParseTenantNameError(String);

impl TenantName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantName {
    type Err = ParseTenantNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_valid = (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with('-')
            && !text.ends_with('-');
        match is_valid {
            true => Ok(Self(text.into())),
            false => Err(ParseTenantNameError(text.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_in_lower_case() {
        for name in ["a", "7", "acme", "a-1", &"a".repeat(63)] {
            assert_eq!(name.parse::<TenantName>().map(|it| it.to_string()), Ok(name.to_owned()));
        }
        for wrong in ["", "-", "-a", "a-", "Acme", "a.b", "a b", "ä", &"a".repeat(64)] {
            assert!(wrong.parse::<TenantName>().is_err(), "{wrong}");
        }
    }
}
