//! The boot epochs of machines.
//!
//! ```text
//! workflow/epoch/<hardware id>     the number of the present epoch, and when it began
//! ```
//!
//! An epoch begins when the BMC of a machine reports it as off while it is prepared for a workflow, in the commit that records this in
//! the workflow. Another one begins with each boot of a node, in the commit that spends the boot's token. Boot tokens and certificates name the epoch they were made in, and are refused in every other one. So nothing
//! that the machine's tenant has got hold of is good for anything after the machine was taken back.
//!
//! A machine without a record here is in epoch 0. A record outlives its machine: a machine with the same id continues to count.

use std::time::SystemTime;

use prost_types::Timestamp;
use store::ScopedStore;
use store::records::{self, Change, Records};
use tinwright::{BootId, HardwareId};

/// The present epoch of a machine.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BootEpoch {
    /// The machine.
    #[prost(string, tag = "1")]
    pub hardware_id: String,
    /// The store's revision.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Number of the epoch.
    #[prost(uint64, tag = "3")]
    pub number: u64,
    /// Its begin.
    #[prost(message, optional, tag = "4")]
    pub begin_time: Option<Timestamp>,
    /// The boot of a node with which it began; empty if it began otherwise.
    #[prost(string, tag = "5")]
    pub boot_id: String,
}

impl tinwright::secret::Sealable for BootEpoch {}

tinwright::stored_record!(BootEpoch, "boot epoch", hardware_id);

store::kind!(
    /// The kind of these records.
    pub BootEpochKind: BootEpoch, HardwareId, "epoch"
);

/// The boot epochs in the store.
#[derive(Clone, Debug)]
pub struct BootEpochs {
    /// The underlying records.
    pub records: Records<BootEpochKind>,
}

impl BootEpochs {
    /// The epochs in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// Returns the present epoch of a machine.
    pub async fn present(&self, machine: &str) -> Result<BootEpoch, records::Error> {
        let found = self.records.get(machine).await?;
        Ok(found.unwrap_or_else(|| BootEpoch {
            hardware_id: machine.to_owned(),
            ..BootEpoch::default()
        }))
    }

    /// Returns the change by which the epoch after `present` begins.
    pub(crate) fn to_begin_next(&self, present: &BootEpoch, now: SystemTime) -> Change {
        self.to_begin(present, &"".into(), now)
    }

    /// Returns the change by which the epoch after `present` begins, with the boot `boot` of a node.
    pub(crate) fn to_begin_node_boot(
        &self,
        present: &BootEpoch,
        boot: &BootId,
        now: SystemTime,
    ) -> Change {
        self.to_begin(present, boot, now)
    }

    fn to_begin(&self, present: &BootEpoch, boot: &BootId, now: SystemTime) -> Change {
        let (begin_time, boot_id) = (Some(Timestamp::from(now)), boot.0.clone());
        let next = BootEpoch { number: present.next(), begin_time, boot_id, ..present.clone() };
        match present.revision {
            0 => self.records.to_create(&next),
            _ => self.records.to_replace(present, &next),
        }
    }
}

impl BootEpoch {
    /// The number of the next epoch.
    pub fn next(&self) -> u64 {
        self.number.saturating_add(1)
    }

    /// True if a boot token is of this epoch: one that was made at `made_at`, in seconds since 1970, by a boot server to which the
    /// machine was in `epoch`. A boot server knows the epoch of machines that are prepared only, and writes 0 for the others.
    pub fn has_token(&self, epoch: u64, made_at: u64) -> bool {
        let begun = self.begin_time.map_or(0, |begun| begun.seconds);
        let is_later = i64::try_from(made_at).is_ok_and(|made_at| made_at > begun);
        epoch == self.number || (epoch == 0 && is_later)
    }
}
