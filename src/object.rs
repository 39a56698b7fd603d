//! The fields that the objects of all services share: id, name, revision, labels and times.

use std::time::SystemTime;

use prost_types::Timestamp;

use crate::id::{self, Id, Noun};
use crate::requests::Attributes;
pub use crate::requests::Labels;
use crate::status::Violations;

/// A message that a store keeps as a record.
pub trait Stored {
    /// Returns its id.
    fn id(&self) -> &str;

    /// Returns the field with its revision.
    fn revision_mut(&mut self) -> &mut i64;

    /// Returns the name that people gave it; empty if it has none.
    fn given_name(&self) -> &str {
        ""
    }
}

/// A message that a service stores as an object of its own.
pub trait Object: Stored + Attributes + prost::Name {
    /// The noun of its id.
    type Noun: Noun;

    /// The field of requests that has an object, such as `location_binding`.
    const FIELD: &'static str;

    /// Sets the fields that a service fills in: the revision, and the times of creation and of the last update.
    fn set_created(&mut self, time: Option<Timestamp>);

    /// Returns the field with its id.
    fn id_mut(&mut self) -> &mut String;

    /// Sets the time of the last update.
    fn set_updated(&mut self, time: Timestamp);

    /// Sets the fields of a new object: its id, unless the caller chose one, and its times. An error names the id `field`.
    fn initialize(&mut self, field: &str, now: SystemTime) -> Result<(), Violations> {
        let id = match self.id_mut().as_str() {
            "" => Id::new(),
            chosen => Violations::parse::<Id<Self::Noun>>(field, chosen)?,
        };
        *self.id_mut() = id.to_string();
        self.set_created(Some(now.into()));
        Ok(())
    }
}

/// Implements [`Object`]: the messages have the same fields, but no common type.
macro_rules! objects {
    ($($message:ty, $noun:ident, $field:literal;)*) => {$(
        impl Object for $message {
            type Noun = id::$noun;
            const FIELD: &'static str = $field;

            fn set_created(&mut self, time: Option<Timestamp>) {
                self.revision = 0;
                self.create_time = time;
                self.update_time = time;
            }

            fn set_updated(&mut self, time: Timestamp) {
                self.update_time = Some(time);
            }

            fn id_mut(&mut self) -> &mut String {
                &mut self.id
            }
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// Implements [`Stored`] for the objects of nouns, by the fields with id and name.
macro_rules! stored {
    ($($message:ty, $id:ident, [$($name:ident)?];)*) => {$(
        impl Stored for $message {
            fn id(&self) -> &str {
                &self.$id
            }

            fn revision_mut(&mut self) -> &mut i64 {
                &mut self.revision
            }

            $(fn given_name(&self) -> &str {
                &self.$name
            })?
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/stored.rs"));
