//! One stream of documents, and how many there are.
//!
//! A document is made when the caller has room for it, so who reads slowly gets the latest and holds up nobody. What is
//! kept of it in between is its hash.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};
use tinwright::HardwareId;
use tokio_util::sync::CancellationToken;

use super::{Asker, Refusal, Service};
use fleet::BoundLease;

use crate::index::{Changes, Lookup};
use crate::machine::Machine;
use crate::metrics::Metrics;

/// How many subscriptions there may be at once.
const ALL: usize = 4096;
/// How many of one machine.
const OF_ONE: usize = 8;

/// Tells one caller of its machine until that is not its machine any more.
pub(super) struct Subscription {
    service: Arc<Service>,
    asker: Asker,
    machine: HardwareId,
    changes: Changes,
    /// What was looked at last.
    seen: Option<Arc<Machine>>,
    /// The hash of what was told last.
    told: Option<Vec<u8>>,
    /// What is to be told next.
    news: Option<String>,
    stop: CancellationToken,
    _place: Place,
}

impl Subscription {
    /// Nothing is told yet.
    pub(super) fn new(
        service: Arc<Service>,
        asker: Asker,
        machine: HardwareId,
        place: Place,
        stop: CancellationToken,
    ) -> Self {
        let changes = service.index.changes();
        let (seen, told, news, _place) = (None, None, None, place);
        Self { service, asker, machine, changes, seen, told, news, stop, _place }
    }

    /// The document, once it is another than was told last; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Refusal> {
        loop {
            self.look().await?;
            if let Some(news) = self.news.take() {
                self.told = Some(hash(&news));
                return Ok(Some(news));
            }
            let ends = self.service.index.lease(self.asker.caller.address, Instant::now());
            tokio::select! {
                () = self.stop.cancelled() => return Ok(None),
                () = self.changes.next() => {}
                () = ended(ends) => {}
            }
        }
    }

    /// Looks whether there are news, or why there never will be.
    pub(super) async fn look(&mut self) -> Result<(), Refusal> {
        let machine = self.current()?;
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &machine)) {
            return Ok(());
        }
        let document = self.service.export(&self.asker, &machine).await?;
        self.seen = Some(machine);
        self.news = (self.told.as_deref() != Some(&hash(&document))).then_some(document);
        Ok(())
    }

    /// The machine, if the caller's address is still its.
    fn current(&self) -> Result<Arc<Machine>, Refusal> {
        match self.service.index.lookup(self.asker.caller.address, Instant::now()) {
            Lookup::Found { machine, .. } if machine.id == self.machine => Ok(machine),
            Lookup::Found { .. } | Lookup::Unknown => Err(Refusal::NotFound),
            Lookup::NotReady => Err(Refusal::NotReady),
        }
    }
}

/// Resolves when `lease` has ended, of which nobody tells.
async fn ended(lease: Option<BoundLease>) {
    match lease {
        Some(lease) => tokio::time::sleep_until(lease.until.into()).await,
        None => pending().await,
    }
}

fn hash(document: &str) -> Vec<u8> {
    digest(&SHA256, document.as_bytes()).as_ref().to_vec()
}

/// How many there are.
#[derive(Debug)]
pub(super) struct Subscriptions {
    open: Mutex<HashMap<HardwareId, usize>>,
    metrics: Metrics,
}

/// One subscription's place among them. It is given back when this is dropped.
pub(super) struct Place {
    all: Arc<Subscriptions>,
    machine: HardwareId,
}

impl Subscriptions {
    /// None yet, to be counted in `metrics`.
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { open: Mutex::default(), metrics }
    }

    /// A place for one more of `machine`'s.
    pub(super) fn place(self: &Arc<Self>, machine: HardwareId) -> Result<Place, Refusal> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, of_one) = (open.values().sum::<usize>(), open.get(&machine).copied());
        if all >= ALL || of_one.is_some_and(|of_one| of_one >= OF_ONE) {
            return Err(Refusal::TooMany);
        }
        *open.entry(machine).or_default() += 1;
        self.metrics.subscribed(all + 1);
        Ok(Place { all: self.clone(), machine })
    }

    fn give_back(&self, machine: HardwareId) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_one) = open.get_mut(&machine) {
            *of_one -= 1;
            if *of_one == 0 {
                open.remove(&machine);
            }
        }
        self.metrics.subscribed(open.values().sum());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.give_back(self.machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_as_many_places_as_it_may_and_gets_them_back() {
        let all = Arc::new(Subscriptions::new(Metrics::default()));
        let (one, other) = (HardwareId::new(), HardwareId::new());
        let mut places: Vec<_> = (0..OF_ONE).map(|_| all.place(one).ok()).collect();
        assert!(places.iter().all(Option::is_some));
        assert_eq!(all.place(one).err(), Some(Refusal::TooMany));
        let others = all.place(other);
        assert!(others.is_ok());
        places.pop();
        assert!(all.place(one).is_ok());
        drop((places, others));
        assert!(all.open.lock().unwrap().is_empty());
    }

    #[test]
    fn all_machines_together_have_no_more_places_than_there_are() {
        let all = Arc::new(Subscriptions::new(Metrics::default()));
        let places: Vec<_> = (0..ALL).map(|_| all.place(HardwareId::new()).ok()).collect();
        assert!(places.iter().all(Option::is_some));
        assert_eq!(all.place(HardwareId::new()).err(), Some(Refusal::TooMany));
    }
}
