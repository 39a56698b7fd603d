//! The first accesses of each installation of an instance: logged and counted once, and the beginning of the time for which its
//! user data is served.
//!
//! Before an instance is installed its installer reads the documents, which begins no time. An instance that is installed
//! again begins anew.
//!
//! All this is in memory. A process that starts again logs them again, and serves user data anew, unless the instance has
//! phoned home: that is in its record.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use tinwright::HardwareId;

use super::Service;
use super::request::Client;
use crate::machine::{Machine, Nic, UserData};

/// The first accesses, by machine.
#[derive(Debug, Default)]
pub(super) struct FirstAccesses(Mutex<HashMap<HardwareId, Installation>>);

#[derive(Debug, Default)]
struct Installation {
    instance_id: String,
    /// When the instance was installed; `None` while its installer runs.
    installed: Option<SystemTime>,
    /// When each kind of [`AccessEvent`] happened first.
    first: [Option<Instant>; 3],
}

/// An access that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessEvent {
    /// Metadata was read.
    Crawled,
    /// User data was read.
    UserDataRead,
    /// The instance phoned home.
    PhonedHome,
}

impl AccessEvent {
    /// Returns the name in logs and metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Crawled => "metadata_crawled",
            Self::UserDataRead => "metadata_user_data_read",
            Self::PhonedHome => "phone_home",
        }
    }
}

impl FirstAccesses {
    /// Records `event`. True if it is the first of its kind.
    fn record(&self, machine: &Machine, event: AccessEvent, now: Instant) -> bool {
        self.with(machine, |installation| {
            let first = &mut installation.first[event as usize];
            first.is_none() && first.replace(now).is_none()
        })
    }

    /// True if the time for which the machine's user data is served is over.
    pub(super) fn is_window_over(&self, machine: &Machine, now: Instant) -> bool {
        let (Some(window), Some(_)) = (machine.guard.user_data_window, machine.guard.installed)
        else {
            return false;
        };
        machine.guard.called_home
            || self.with(machine, |installation| {
                let [_, read, phoned_home] = installation.first;
                let since = read.map(|read| now.saturating_duration_since(read));
                phoned_home.is_some() || since.is_some_and(|since| since > window)
            })
    }

    /// Calls `access` with the entry of the machine's present installation, which is empty for a new one.
    fn with<T>(&self, machine: &Machine, access: impl FnOnce(&mut Installation) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(machine.id).or_default();
        let (instance_id, installed) = (machine.instance_id(), machine.guard.installed);
        if entry.instance_id != instance_id || entry.installed != installed {
            let instance_id = instance_id.into_owned();
            *entry = Installation { instance_id, installed, ..Installation::default() };
        }
        access(entry)
    }
}

impl Service {
    /// Records `event`, and logs and counts it if it is the first of its kind.
    pub(super) fn record_access(&self, machine: &Machine, event: AccessEvent, client: &Client<'_>) {
        if !self.first_accesses.record(machine, event, client.now) {
            return;
        }
        self.metrics.first_access(event.name());
        let (instance, event) = (machine.instance_id(), event.name());
        client.log(machine.id, || {
            tracing::info!(machine.id = %machine.id, %instance, event, "first access of this instance");
        });
    }

    /// Returns the machine as its documents show it to `client`: with the leased address that the client has, and without user
    /// data once the time for that is over.
    pub(super) fn visible<'m>(
        &self,
        machine: &'m Machine,
        client: &Client<'_>,
    ) -> Cow<'m, Machine> {
        let mut visible = self.with_lease(machine, client);
        if !self.first_accesses.is_window_over(machine, client.now) {
            return visible;
        }
        self.metrics.denied("user_data_window");
        let machine = visible.to_mut();
        if let Some(instance) = &mut machine.instance {
            instance.user_data = UserData::default();
        }
        // Old records have it there.
        if let Some(extra) = machine.extra.as_object_mut() {
            extra.remove("userdata");
        }
        visible
    }

    fn with_lease<'m>(&self, machine: &'m Machine, client: &Client<'_>) -> Cow<'m, Machine> {
        let mut visible = Cow::Borrowed(machine);
        let is_reserved = machine.addresses().any(|own| own == client.address);
        let lease = self.index.lease(client.address, client.now).filter(|_| !is_reserved);
        let has_lease = |nic: &Nic| lease.is_some_and(|lease| lease.mac == nic.mac);
        if let Some(position) = machine.nics.iter().position(has_lease)
            && let Some(nic) = visible.to_mut().nics.get_mut(position)
        {
            nic.leased = Some(client.address);
        }
        visible
    }
}

/// Returns the event of reading `path`, if reading it is recorded.
pub(super) fn event_of_reading(path: &[&str]) -> Option<AccessEvent> {
    match path {
        [_, "user-data"]
        | ["userdata" | "metadata"]
        | ["nocloud", .., "user-data"]
        | ["openstack", _, "user_data"] => Some(AccessEvent::UserDataRead),
        [_, "meta-data", ..] | ["nocloud", ..] | ["openstack", ..] => Some(AccessEvent::Crawled),
        _ => None,
    }
}
