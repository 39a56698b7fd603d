//! Deletes unknown machines that got a record, or made no request for a week.

use std::time::{Duration, SystemTime};

use store::mirror::Mirror;
use store::records;
use tinwright::hardware::v1 as pb;
use tinwright::watch::WatchEvent;
use tokio_util::sync::CancellationToken;

use super::{MAX_AGE, UnknownMachineKind, UnknownMachines};
use crate::records::HardwareKind;

/// The interval at which all are looked at.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes those in `mirror` until `stop`: at once when a record in `machines` is new or changed, and
/// every hour.
pub(crate) async fn sweep(
    unknown: UnknownMachines,
    mirror: Mirror<UnknownMachineKind>,
    machines: Mirror<HardwareKind>,
    stop: CancellationToken,
) {
    let mut hourly = tokio::time::interval(INTERVAL);
    let (mut watcher, mut is_synced) = (machines.watch(), false);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            event = watcher.next() => match event {
                // The machines of the beginning are looked at by the hour: they may be many.
                Ok(WatchEvent::Put(machine)) if is_synced => {
                    report(unknown.forget_known(&mirror, &machine).await);
                }
                Ok(WatchEvent::Synced) => is_synced = true,
                Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_)) => {}
                Err(_) => (watcher, is_synced) = (machines.watch(), false),
            },
            _ = hourly.tick() => report(unknown.forget_old().await),
        }
    }
}

fn report(result: Result<(), records::Error>) {
    if let Err(error) = result {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "unknown machines not deleted; trying again in an hour");
    }
}

impl UnknownMachines {
    /// Deletes the unknown machines in `mirror` that are interfaces of `machine`.
    pub(super) async fn forget_known(
        &self,
        mirror: &Mirror<UnknownMachineKind>,
        machine: &pb::Hardware,
    ) -> Result<(), records::Error> {
        for interface in &machine.interfaces {
            // A report may be stored meanwhile, but not after the record.
            while let Some(old) = mirror.current(&interface.mac).await? {
                match self.records.commit(self.records.to_delete(&old)).await {
                    Err(records::Error::Changed { .. }) => {}
                    result => drop(result?),
                }
            }
        }
        Ok(())
    }

    /// Deletes those that have a record, and those whose last request is too old.
    pub(super) async fn forget_old(&self) -> Result<(), records::Error> {
        let now = self.clock.wall();
        for machine in self.all().await? {
            let is_over = is_too_old(&machine, now)
                || self.machines.find("mac", &machine.mac).await?.is_some();
            if !is_over {
                continue;
            }
            match self.records.commit(self.records.to_delete(&machine)).await {
                // It asked again, or another process was faster.
                Err(records::Error::Changed { .. }) => {}
                result => drop(result?),
            }
        }
        Ok(())
    }
}

fn is_too_old(machine: &pb::UnknownMachine, now: SystemTime) -> bool {
    let last = machine.last_seen_time.and_then(|last| SystemTime::try_from(last).ok());
    last.is_none_or(|last| now.duration_since(last).is_ok_and(|age| age > MAX_AGE))
}
