//! The fields that the objects of all services share: id, name, revision, labels and times.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;

use crate::common::v1::TenantRule;
use crate::field_mask;
use crate::id::{self, Id, Noun};
use crate::requests::Attributes;
pub use crate::requests::Labels;
use crate::status::Violations;
use crate::tenant::TenantName;

/// A message that a store keeps as a record: what is the same for records of all kinds.
///
/// For nouns it follows from the option `noun` and from the fields.
pub trait Stored {
    /// The name of one record in texts for people.
    const SINGULAR: &'static str;
    /// True if changes that callers ask for, and changes of the state, are recorded as events.
    const HAS_EVENTS: bool = false;
    /// Which callers with a tenant see it.
    const TENANT_RULE: TenantRule = TenantRule::Site;
    /// The maximum of each tenant. None: there is no maximum.
    const QUOTA: Option<Quota> = None;

    /// Returns its id.
    fn id(&self) -> &str;

    /// Returns the field with its revision.
    fn revision_mut(&mut self) -> &mut i64;

    /// Returns the name that people gave it; empty if it has none.
    fn given_name(&self) -> &str {
        ""
    }

    /// Returns the tenant whose callers may see it; empty for the site.
    fn owning_tenant(&self) -> &str {
        ""
    }

    /// True if a caller may see it that is limited to the objects of `tenant`, or of no tenant and so not limited. For
    /// [`TenantRule::Used`], the owner decides.
    fn is_visible_to(&self, tenant: Option<&TenantName>) -> bool {
        let Some(tenant) = tenant else { return true };
        let owner = self.owning_tenant();
        match Self::TENANT_RULE {
            TenantRule::Own => tenant.as_str() == owner,
            TenantRule::OwnOrSite => owner.is_empty() || tenant.as_str() == owner,
            TenantRule::All => true,
            TenantRule::Site | TenantRule::Used | TenantRule::Unspecified => false,
        }
    }

    /// Returns its size in bytes for the quota of its tenant; 0 if sizes are not limited.
    fn counted_bytes(&self) -> u64 {
        0
    }

    /// Returns the word for its state; empty if it has no lifecycle.
    fn state_word(&self) -> String {
        String::new()
    }

    /// Returns the reason of its state; empty if it has none.
    fn reason_of_state(&self) -> &str {
        ""
    }

    /// True if no transition leaves its state.
    fn is_final(&self) -> bool {
        false
    }

    /// True if it is marked as too long in its state.
    fn is_marked_overdue(&self) -> bool {
        false
    }

    /// Returns the names of the fields that a caller changed from `old` to `new`; none if callers do not change fields.
    fn fields_changed(_old: &Self, _new: &Self) -> Vec<String> {
        Vec::new()
    }
}

/// Implements [`Stored`] for a record that the contract does not have: `$singular` is its name in texts for
/// people, `$id` the field with its id.
#[macro_export]
macro_rules! stored_record {
    ($record:ty, $singular:literal, $id:ident) => {
        impl $crate::Stored for $record {
            const SINGULAR: &'static str = $singular;

            fn id(&self) -> &str {
                &self.$id
            }

            fn revision_mut(&mut self) -> &mut i64 {
                &mut self.revision
            }
        }
    };
}

/// The maximum that one tenant may have of a noun, by the option `quota`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The index of the objects by tenant.
    pub index: &'static str,
    /// The plural of the noun in texts for people.
    pub plural: &'static str,
    /// Maximum number of objects; 0 for any.
    pub max_objects: u64,
    /// Maximum sum of their sizes in bytes; 0 for any.
    pub max_bytes: u64,
}

/// A record whose stay in a state has a limit.
pub trait Bounded: Stored {
    /// Returns the longest normal stay in its state; none if it may last.
    fn max_stay(&self) -> Option<Duration>;

    /// Returns the time since which it has its state.
    fn state_time(&self) -> Option<SystemTime>;

    /// Marks it as overdue, with `reason` as its state's.
    fn set_overdue(&mut self, reason: String);
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

/// Implements [`Stored`] for the objects of nouns, by their fields.
macro_rules! stored {
    ($(
        $message:ty, $singular:literal, $has_events:literal, $tenant_rule:ident, $id:ident, [$($name:ident)?],
        [$($tenant:ident)?], [$($state:ident)?], [$($reason:ident)?], [$($final:ident)?],
        [$($overdue:ident $since:ident)?], [$($update:ident)?],
        [$($index:literal $plural:literal $max_objects:literal $max_bytes:literal [$($size:ident)?])?];
    )*) => {$(
        impl Stored for $message {
            const SINGULAR: &'static str = $singular;
            const HAS_EVENTS: bool = $has_events;
            const TENANT_RULE: TenantRule = TenantRule::$tenant_rule;
            $(const QUOTA: Option<Quota> = Some(Quota {
                index: $index,
                plural: $plural,
                max_objects: $max_objects,
                max_bytes: $max_bytes,
            });

            $(fn counted_bytes(&self) -> u64 {
                u64::try_from(self.$size).unwrap_or_default()
            })?)?

            fn id(&self) -> &str {
                &self.$id
            }

            fn revision_mut(&mut self) -> &mut i64 {
                &mut self.revision
            }

            $(fn given_name(&self) -> &str {
                &self.$name
            })?

            $(fn owning_tenant(&self) -> &str {
                &self.$tenant
            })?

            $(fn state_word(&self) -> String {
                self.$state().word()
            })?

            $(fn reason_of_state(&self) -> &str {
                &self.$reason
            })?

            $(fn is_final(&self) -> bool {
                self.$final()
            })?

            $(fn is_marked_overdue(&self) -> bool {
                self.$overdue
            })?

            $(fn fields_changed(old: &Self, new: &Self) -> Vec<String> {
                field_mask::$update(old, new)
            })?
        }

        $(impl Bounded for $message {
            fn max_stay(&self) -> Option<Duration> {
                self.state().max_stay()
            }

            fn state_time(&self) -> Option<SystemTime> {
                self.$since.or(self.create_time)?.try_into().ok()
            }

            fn set_overdue(&mut self, reason: String) {
                (self.$overdue, self.state_reason) = (true, reason);
            }
        })?
    )*};
}

include!(concat!(env!("OUT_DIR"), "/stored.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::v1::{Location, UnknownMachine};
    use crate::instance::v1::Instance;
    use crate::workflow::v1::Template;

    #[test]
    fn callers_with_a_tenant_see_what_the_rule_of_the_noun_says_and_others_all() {
        let acme = "acme".parse().unwrap();
        for (owner, own, own_or_site) in
            [("acme", true, true), ("other", false, false), ("", false, true)]
        {
            let tenant = owner.to_owned();
            let instance = Instance { tenant: tenant.clone(), ..Instance::default() };
            let template = Template { tenant, ..Template::default() };
            assert_eq!(instance.is_visible_to(Some(&acme)), own, "{owner}");
            assert_eq!(template.is_visible_to(Some(&acme)), own_or_site, "{owner}");
            assert!(instance.is_visible_to(None) && template.is_visible_to(None));
        }
        assert!(Location::default().is_visible_to(Some(&acme)));
        assert!(!UnknownMachine::default().is_visible_to(Some(&acme)));
    }
}
