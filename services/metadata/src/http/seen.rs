//! What instances were seen doing: told once each, and the time for which user data stays open.
//!
//! Until an instance is installed its installer asks, whose reading starts no time. What was seen is of one installation: an
//! instance that is installed anew starts afresh.
//!
//! Kept in memory: a process that starts anew tells it again, and opens user data anew unless the instance has called home,
//! which is in its record.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use tinwright::HardwareId;

use super::Service;
use crate::machine::{Machine, Nic, UserData};

/// What the instances on machines did, as far as it is worth a word.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<HashMap<HardwareId, Sight>>);

#[derive(Debug, Default)]
struct Sight {
    instance_id: String,
    /// When the instance was installed that did it; none for its installer.
    installed: Option<SystemTime>,
    crawled: bool,
    called_home: bool,
    /// When its user data was first read.
    read: Option<Instant>,
}

/// What an instance may do for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It reads its metadata.
    Crawled,
    /// It reads its user data.
    UserDataRead,
    /// It calls home.
    CalledHome,
}

impl Event {
    /// Its name in logs and metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Crawled => "metadata_crawled",
            Self::UserDataRead => "metadata_user_data_read",
            Self::CalledHome => "phone_home",
        }
    }
}

impl Seen {
    /// Whether `machine`'s instance does this for the first time since it was installed, or else its installer does.
    pub(super) fn first(&self, machine: &Machine, event: Event, now: Instant) -> bool {
        self.of(machine, |sight| match event {
            Event::Crawled => !std::mem::replace(&mut sight.crawled, true),
            Event::CalledHome => !std::mem::replace(&mut sight.called_home, true),
            Event::UserDataRead => {
                let first = sight.read.is_none();
                sight.read.get_or_insert(now);
                first
            }
        })
    }

    /// Whether `machine` is not to be told its user data any more.
    pub(super) fn is_over(&self, machine: &Machine, now: Instant) -> bool {
        let (Some(window), Some(_)) = (machine.guard.user_data_window, machine.guard.installed)
        else {
            return false;
        };
        machine.guard.called_home
            || self.of(machine, |sight| {
                let read = sight.read.map(|read| now.saturating_duration_since(read));
                sight.called_home || read.is_some_and(|since| since > window)
            })
    }

    /// What is known of the instance that is on `machine` now; nothing is of a new one, or one that was installed anew.
    fn of<T>(&self, machine: &Machine, ask: impl FnOnce(&mut Sight) -> T) -> T {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sight = seen.entry(machine.id).or_default();
        let (instance_id, installed) = (machine.instance_id(), machine.guard.installed);
        if sight.instance_id != instance_id || sight.installed != installed {
            let instance_id = instance_id.into_owned();
            *sight = Sight { instance_id, installed, ..Sight::default() };
        }
        ask(sight)
    }
}

impl Service {
    /// Tells of `event` if it is the first of its kind.
    pub(super) fn note(&self, machine: &Machine, event: Event) {
        if self.seen.first(machine, event, Instant::now()) {
            self.tell(machine, event);
        }
    }

    /// Tells of `event`, the first of its kind.
    pub(super) fn tell(&self, machine: &Machine, event: Event) {
        let instance = &*machine.instance_id();
        tracing::info!(machine.id = %machine.id, instance, event = event.name(), "first of this instance");
        self.metrics.first(event.name());
    }

    /// `machine` as it is told now that it asks from `address`: with that, where it is lent, and without user data once
    /// its time is over.
    pub(super) fn told<'m>(
        &self,
        machine: &'m Machine,
        address: IpAddr,
        now: Instant,
    ) -> Cow<'m, Machine> {
        let told = self.with_lease(machine, address, now);
        if !self.seen.is_over(machine, now) {
            return told;
        }
        self.metrics.denied("user_data_window");
        let mut machine = told.into_owned();
        if let Some(instance) = &mut machine.instance {
            instance.user_data = UserData::default();
        }
        // Old records have it there.
        if let Some(extra) = machine.extra.as_object_mut() {
            extra.remove("userdata");
        }
        Cow::Owned(machine)
    }

    fn with_lease<'m>(
        &self,
        machine: &'m Machine,
        address: IpAddr,
        now: Instant,
    ) -> Cow<'m, Machine> {
        let address = address.to_canonical();
        let reserved = machine.addresses().any(|own| own == address);
        let lease = self.index.lease(address, now).filter(|_| !reserved);
        let own = |nic: &Nic| lease.is_some_and(|lease| lease.mac == nic.mac);
        let Some(position) = machine.nics.iter().position(own) else {
            return Cow::Borrowed(machine);
        };
        let mut machine = machine.clone();
        machine.nics.iter_mut().skip(position).take(1).for_each(|nic| nic.leased = Some(address));
        Cow::Owned(machine)
    }
}

/// What reading `path` is, if it is worth a word.
pub(super) fn event(path: &[&str]) -> Option<Event> {
    match path {
        [_, "user-data"]
        | ["userdata" | "metadata"]
        | ["nocloud", .., "user-data"]
        | ["openstack", _, "user_data"] => Some(Event::UserDataRead),
        [_, "meta-data", ..] | ["nocloud", ..] | ["openstack", ..] => Some(Event::Crawled),
        _ => None,
    }
}
