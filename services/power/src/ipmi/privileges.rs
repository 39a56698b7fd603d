//! The privilege level of sessions: the lowest one that suffices. Many accounts are limited to
//! OPERATOR, and a BMC opens no session for a higher level than that of the account.

use std::sync::{Mutex, PoisonError};

use crate::forms::{AcceptedForms, Privilege};

/// The privilege levels of one account.
#[derive(Debug)]
pub(super) struct Privileges(Mutex<Levels>);

#[derive(Debug)]
struct Levels {
    /// The level that sufficed, if one did.
    accepted: Option<Privilege>,
    /// All levels, the accepted one first, without the refused ones.
    usable: Vec<Privilege>,
}

impl Privileges {
    /// The levels of an account whose BMC accepted these forms.
    pub(super) fn new(accepted: &AcceptedForms) -> Self {
        let levels = Levels { accepted: accepted.get(), usable: accepted.in_order() };
        Self(Mutex::new(levels))
    }

    /// Returns the levels to try, in order.
    pub(super) fn in_order(&self) -> Vec<Privilege> {
        self.lock().usable.clone()
    }

    /// Notes that the BMC opens no session at this level.
    pub(super) fn refuse(&self, level: Privilege) {
        self.lock().usable.retain(|usable| *usable != level);
    }

    /// Notes that this level sufficed.
    pub(super) fn accept(&self, level: Privilege) {
        let mut levels = self.lock();
        levels.accepted = Some(level);
        levels.usable.sort_by_key(|usable| *usable != level);
    }

    /// Returns the level that sufficed, if one did.
    pub(super) fn accepted(&self) -> Option<Privilege> {
        self.lock().accepted
    }

    // The levels are consistent between any two statements, so a panic elsewhere does not damage
    // them.
    fn lock(&self) -> std::sync::MutexGuard<'_, Levels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
