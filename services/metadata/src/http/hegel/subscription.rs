//! A stream of documents, and the limits on the number of streams.
//!
//! A document is rendered when the caller can take it, so a slow reader gets the latest one and delays nobody. Between two
//! documents only the hash of the last one is stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use tinwright::HardwareId;
use tokio_util::sync::CancellationToken;

use super::{Caller, Refusal, Service};
use crate::index::{Changes, Lookup};
use crate::machine::Machine;
use crate::metrics::Metrics;

const MAX_SUBSCRIPTIONS: usize = 4096;
const MAX_SUBSCRIPTIONS_PER_MACHINE: usize = 8;

/// The documents of one machine for one caller, until the caller's address is not the machine's any more.
pub(super) struct Subscription {
    service: Arc<Service>,
    caller: Caller,
    machine: HardwareId,
    changes: Changes,
    /// The record that the last document was rendered from.
    rendered: Option<Arc<Machine>>,
    /// The hash of the last document that was sent.
    sent: Option<Vec<u8>>,
    /// The next document.
    pending: Option<String>,
    stop: CancellationToken,
    _slot: Slot,
}

impl Subscription {
    pub(super) fn new(
        service: Arc<Service>,
        caller: Caller,
        machine: HardwareId,
        slot: Slot,
        stop: CancellationToken,
    ) -> Self {
        let changes = service.index.views.changes();
        let (rendered, sent, pending, _slot) = (None, None, None, slot);
        Self { service, caller, machine, changes, rendered, sent, pending, stop, _slot }
    }

    /// Returns the document once it differs from the last one; `None` at the stop.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Refusal> {
        loop {
            self.refresh().await?;
            if let Some(document) = self.pending.take() {
                self.sent = Some(hash(&document));
                return Ok(Some(document));
            }
            let client = self.caller.client(&self.service)?;
            let lease = self.service.index.lease(client.address, client.now);
            let lease_end = async {
                match lease {
                    // The end of a lease is no change of the index.
                    Some(lease) => tokio::time::sleep_until(lease.until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return Ok(None),
                () = self.changes.next() => {}
                () = lease_end => {}
            }
        }
    }

    /// Renders the document if the machine's record has changed, or refuses it.
    pub(super) async fn refresh(&mut self) -> Result<(), Refusal> {
        let client = self.caller.client(&self.service)?;
        let machine = match self.service.index.lookup(client.address, client.now) {
            Lookup::Found { machine, .. } if machine.id == self.machine => machine,
            Lookup::Found { .. } | Lookup::Unknown => return Err(Refusal::NotFound),
            Lookup::NotReady => return Err(Refusal::NotReady),
        };
        if self.rendered.as_ref().is_some_and(|rendered| Arc::ptr_eq(rendered, &machine)) {
            return Ok(());
        }
        let document = self.service.export(&machine, &client).await?;
        self.rendered = Some(machine);
        self.pending = (self.sent.as_deref() != Some(&hash(&document))).then_some(document);
        Ok(())
    }
}

fn hash(document: &str) -> Vec<u8> {
    digest(&SHA256, document.as_bytes()).as_ref().to_vec()
}

/// The open subscriptions.
#[derive(Debug)]
pub(super) struct Subscriptions {
    /// For each machine a reference that its slots share.
    open: Mutex<HashMap<HardwareId, Arc<()>>>,
    metrics: Metrics,
}

/// One open subscription, which is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _machine: Arc<()>,
    metrics: Metrics,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.metrics.subscriptions.dec();
    }
}

impl Subscriptions {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { open: Mutex::default(), metrics }
    }

    /// Returns a slot for one more subscription of the machine.
    pub(super) fn open(&self, machine: HardwareId) -> Result<Slot, Refusal> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, slots| Arc::strong_count(slots) > 1);
        let total = open.values().map(|slots| Arc::strong_count(slots) - 1).sum::<usize>();
        let slots = open.entry(machine).or_default();
        if total >= MAX_SUBSCRIPTIONS || Arc::strong_count(slots) > MAX_SUBSCRIPTIONS_PER_MACHINE {
            return Err(Refusal::TooMany);
        }
        self.metrics.subscriptions.inc();
        Ok(Slot { _machine: slots.clone(), metrics: self.metrics.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_eight_slots_which_are_free_again_after_use() {
        let all = Subscriptions::new(Metrics::default());
        let (one, other) = (HardwareId::new(), HardwareId::new());
        let mut slots: Vec<_> =
            (0..MAX_SUBSCRIPTIONS_PER_MACHINE).map(|_| all.open(one).unwrap()).collect();
        assert_eq!(all.open(one).err(), Some(Refusal::TooMany));
        let others = all.open(other).unwrap();
        slots.pop();
        let again = all.open(one).unwrap();
        assert_eq!(all.metrics.subscriptions.get(), 9);
        drop((slots, others, again));
        assert_eq!(all.metrics.subscriptions.get(), 0);
        all.open(other).unwrap();
        assert_eq!(all.open.lock().unwrap().len(), 1);
    }

    #[test]
    fn all_machines_together_have_a_limited_number_of_slots() {
        let all = Subscriptions::new(Metrics::default());
        let _slots: Vec<_> =
            (0..MAX_SUBSCRIPTIONS).map(|_| all.open(HardwareId::new()).unwrap()).collect();
        assert_eq!(all.open(HardwareId::new()).err(), Some(Refusal::TooMany));
    }
}
