//! Limits on concurrent uploads: in total, and of one tenant.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of concurrent uploads.
const MAX_UPLOADS: usize = 64;
/// Maximum number of concurrent uploads of one tenant, or of the site.
const MAX_TENANT_UPLOADS: usize = 8;

/// The uploads in progress, by tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadSlots(Arc<Mutex<BTreeMap<String, usize>>>);

impl UploadSlots {
    /// Takes a slot of `tenant`, which is empty for the site; none if there are too many uploads.
    pub(super) fn take(&self, tenant: &str) -> Option<UploadSlot> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = used.get(tenant).copied().unwrap_or_default();
        if own >= MAX_TENANT_UPLOADS || used.values().sum::<usize>() >= MAX_UPLOADS {
            return None;
        }
        used.insert(tenant.to_owned(), own + 1);
        Some(UploadSlot { slots: self.clone(), tenant: tenant.to_owned() })
    }
}

/// The slot of an upload, until it is dropped.
#[derive(Debug)]
pub(super) struct UploadSlot {
    slots: UploadSlots,
    tenant: String,
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        let mut used = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = used.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                used.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_a_share_of_the_slots() {
        let slots = UploadSlots::default();
        let mut taken: Vec<_> = (0..MAX_TENANT_UPLOADS).filter_map(|_| slots.take("a")).collect();
        assert_eq!(taken.len(), MAX_TENANT_UPLOADS);
        assert!(slots.take("a").is_none());
        assert!(slots.take("").is_some());
        taken.pop();
        assert!(slots.take("a").is_some());
        let of_others: Vec<_> =
            (0..MAX_UPLOADS).filter_map(|n| slots.take(&format!("t{n}"))).collect();
        assert_eq!(of_others.len(), MAX_UPLOADS - taken.len());
    }
}
