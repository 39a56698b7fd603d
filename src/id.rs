//! Ids of objects: UUIDs, each with the type of its object.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::str::FromStr;

use uuid::Uuid;

/// The type of object that an [`Id`] names.
pub trait Noun: fmt::Debug + Copy + Ord + Hash + 'static {
    /// The name in messages to people.
    const NOUN: &'static str;
}

/// The id of an `N`. Formatted as a lower-case hyphenated UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<N>(Uuid, PhantomData<fn() -> N>);

/// Defines the nouns, types without a value, and their id types.
macro_rules! nouns {
    ($($noun:ident, $id:ident, $text:literal;)*) => {
        $(
            #[doc = concat!("The noun of [`", stringify!($id), "`](types::", stringify!($id), ").")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub enum $noun {}

            impl Noun for $noun {
                const NOUN: &'static str = $text;
            }
        )*

        /// The id type of each noun.
        pub mod types {
            $(
                #[doc = concat!("The id of a ", $text, ".")]
                pub type $id = super::Id<super::$noun>;
            )*
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/nouns.rs"));

/// A text that is not an id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    /// It is not a UUID.
    #[error("{text:?} is not a valid {noun} id: a UUID is expected")]
    Form {
        /// The beginning of the text.
        text: String,
        /// The noun of the id.
        noun: &'static str,
    },
    /// It is the nil UUID (RFC 9562 section 5.9), which stands for a missing one.
    #[error("is the nil UUID, which is not a valid {0} id")]
    Nil(&'static str),
}

impl<N> Id<N> {
    /// Returns a new id. Later ids sort later, so a list in id order is a list by age.
    pub fn new() -> Self {
        Self(Uuid::now_v7(), PhantomData)
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes), PhantomData)
    }

    /// Returns its bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl<N> Default for Id<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Noun> FromStr for Id<N> {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.is_nil() => Err(ParseIdError::Nil(N::NOUN)),
            Ok(uuid) => Ok(Self(uuid, PhantomData)),
            Err(_) => {
                Err(ParseIdError::Form { text: text.chars().take(64).collect(), noun: N::NOUN })
            }
        }
    }
}

impl<N> fmt::Display for Id<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<N> fmt::Debug for Id<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }
    )*};
}

text_ids! {
    /// Names one boot of a machine's kernel (`/proc/sys/kernel/random/boot_id`).
    BootId;
    /// Names one lease of an action. Reports carry it as a fence: those of an earlier attempt are refused.
    LeaseId;
    /// Names one process of a worker, random for each.
    ProcessId;
}

#[cfg(test)]
mod tests {
    use super::types::HardwareId;

    #[test]
    fn an_id_is_parsed_in_any_case_and_formatted_in_lower_case() {
        let id: HardwareId = "5D1C2A4E-8F3B-4C77-9A61-0B2F6E7D1A10".parse().unwrap();
        assert_eq!(id.to_string(), "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10");
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn a_text_that_is_not_a_uuid_is_refused_with_the_noun() {
        for text in ["", "r2d2"] {
            let error = text.parse::<HardwareId>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not a valid hardware id: a UUID is expected"));
        }
        let nil = "00000000-0000-0000-0000-000000000000".parse::<HardwareId>().unwrap_err();
        assert_eq!(nil.to_string(), "is the nil UUID, which is not a valid hardware id");
    }
}
