//! The tokens of nodes. With each begins a boot epoch of the machine, in the commit that spends the token: so each boot ends the
//! identities of the one before.
//!
//! The same boot gets no second identity, whatever token it has: a container on the node is in the same boot as its agent.

use std::time::SystemTime;

use store::records;
use tinwright::BootId;

use super::{Error, MachineToken, SpentToken, WorkerEnrollment, check_same_use};

/// The most attempts to begin an epoch while other writers come first.
const MAX_ATTEMPTS: usize = 8;

impl WorkerEnrollment {
    /// Begins the boot epoch of `boot` of the node of `token`, which is used with the key of this hash, and returns its number; of a token
    /// that the same boot has used with the same key, the number that began then.
    pub(super) async fn begin_node_boot(
        &self,
        token: &MachineToken,
        key: Vec<u8>,
        boot: &BootId,
        now: SystemTime,
    ) -> Result<u64, Error> {
        if boot.0.is_empty() {
            return Err(Error::UnnamedBoot);
        }
        let spent = token.spent_with(key, boot);
        let mut attempts = 0;
        loop {
            if let Some(first) = self.records.get(&spent.nonce).await? {
                check_same_use(&first, &spent)?;
                return self.check_is_present(first).await;
            }
            let epoch = self.check_epoch(token).await?;
            if epoch.boot_id == boot.0 {
                let machine = epoch.hardware_id;
                tracing::error!(hardware.id = machine, boot = boot.0, "second token of one boot");
                return Err(Error::SecondToken);
            }
            let begun = SpentToken { boot_epoch: epoch.next(), ..spent.clone() };
            let begin = self.epochs.to_begin_node_boot(&epoch, boot, now);
            attempts += 1;
            match self.records.commit(self.records.to_create(&begun).and(begin)).await {
                Ok(_) => return Ok(begun.boot_epoch),
                Err(records::Error::Changed { .. } | records::Error::Exists { .. })
                    if attempts < MAX_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the boot epoch that began with `first`, if it is the present one of its machine.
    async fn check_is_present(&self, first: SpentToken) -> Result<u64, Error> {
        let present = self.epochs.present(&first.hardware_id).await?;
        match present.number == first.boot_epoch {
            true => Ok(present.number),
            false => Err(Error::OtherEpoch),
        }
    }
}
