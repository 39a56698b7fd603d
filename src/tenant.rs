//! Names of tenants, and the objects that have one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 63;

/// The name of a tenant: lower-case letters, digits and inner hyphens, at most 63.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantName(Arc<str>);

/// A message with the tenant to which it belongs.
pub trait OfTenant {
    /// True if callers with a tenant see the site's objects, too.
    const SITE_IS_VISIBLE: bool;

    /// Returns the name of the tenant; empty for an object of the site.
    fn tenant(&self) -> &str;

    /// True if a caller may see the object that is limited to the objects of `tenant`, or of no
    /// tenant and so not limited.
    fn is_visible_to(&self, tenant: Option<&TenantName>) -> bool {
        let is_shared = Self::SITE_IS_VISIBLE && self.tenant().is_empty();
        tenant.is_none_or(|tenant| is_shared || tenant.as_str() == self.tenant())
    }
}

/// Implements [`OfTenant`] for messages with the field `tenant`.
macro_rules! of_tenant {
    ($($message:ty, $site_is_visible:literal;)*) => {$(
        impl OfTenant for $message {
            const SITE_IS_VISIBLE: bool = $site_is_visible;

            fn tenant(&self) -> &str {
                &self.tenant
            }
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/of_tenant.rs"));

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
    fn callers_with_a_tenant_see_its_objects_and_others_all() {
        use crate::instance::v1::Instance;
        let acme = "acme".parse().unwrap();
        for (tenant, is_visible) in [("acme", true), ("other", false), ("", false)] {
            let instance = Instance { tenant: tenant.into(), ..Instance::default() };
            assert_eq!(instance.is_visible_to(Some(&acme)), is_visible, "{tenant}");
            assert!(instance.is_visible_to(None));
        }
    }

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
