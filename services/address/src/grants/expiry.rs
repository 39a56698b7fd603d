//! Frees grants whose state has ended: pending ones that nobody confirmed or attached, and released ones after their hold time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use store::Store as _;
use tinwright::address::v1 as pb;

use super::{DUE_INDEX, Grants};
use crate::Error;

/// Interval at which grants are looked for.
const INTERVAL: Duration = Duration::from_secs(5);
/// Index entries that are read at a time.
const PAGE_ENTRIES: usize = 500;
/// Index entries that are read to tell when a block is free.
const MAX_SEARCHED: usize = 100;

impl Grants {
    /// Frees the grants whose state has ended. Returns their number. Several processes may do so at the same time.
    pub async fn end_due(&self) -> Result<usize, Error> {
        let now = self.clock.wall().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
        let prefix = format!("{DUE_INDEX}/");
        let (mut after, mut ended) = (String::new(), 0);
        loop {
            let page = self.records.store().list(&prefix, &after, PAGE_ENTRIES).await?;
            for (key, _) in page.pairs {
                let entry = key.strip_prefix(&prefix).unwrap_or_default();
                let (due, id) = entry.split_once('/').unwrap_or_default();
                // The entries are in the order of their times.
                if due.parse::<u64>().is_ok_and(|due| due > now) {
                    return Ok(ended);
                }
                ended += usize::from(self.end(id, now).await?);
                after = key;
            }
            if !page.more {
                return Ok(ended);
            }
        }
    }

    /// Returns the time until a block of this range is free, because it was released or because its grant is pending; with an empty
    /// `range`, of any range of the subnet. None if there is none among the grants whose state ends next.
    pub(super) async fn time_until_free(
        &self,
        subnet: &str,
        range: &str,
    ) -> Result<Option<Duration>, Error> {
        let now = self.clock.wall();
        let page = self.records.store().list(&format!("{DUE_INDEX}/"), "", MAX_SEARCHED).await?;
        for (key, _) in page.pairs {
            let id = key.rsplit('/').next().unwrap_or_default();
            let Some(grant) = self.records.get(id).await? else { continue };
            let is_here = grant.subnet_id == subnet && !grant.range_id.is_empty();
            let Some(due) = grant.due_time.filter(|_| is_here) else { continue };
            if range.is_empty() || grant.range_id == range {
                let due = SystemTime::try_from(due).unwrap_or(now);
                // It is freed by the next look, at the latest.
                return Ok(Some(due.duration_since(now).unwrap_or_default() + INTERVAL));
            }
        }
        Ok(None)
    }

    /// Frees the grant `id`, if its state has ended. False if another process did, or its state has changed.
    async fn end(&self, id: &str, now: u64) -> Result<bool, Error> {
        let is_due =
            |due: prost_types::Timestamp| u64::try_from(due.seconds).is_ok_and(|it| it <= now);
        let end = || async {
            let found = self.records.get(id).await?;
            match found.filter(|it| it.due_time.is_some_and(is_due)) {
                Some(grant) => self.try_end(&grant).await.map(|()| true),
                None => Ok(false),
            }
        };
        self.turns.repeat(end).await
    }

    /// Frees the grant `id` as if it had never been, and returns it if it is not pending.
    pub async fn take_back(&self, id: String) -> Result<Option<pb::Grant>, Error> {
        let end = || async {
            match self.records.get(&id).await? {
                Some(grant) if grant.state() == pb::GrantState::Pending => {
                    self.try_end(&grant).await.map(|()| None)
                }
                other => Ok(other),
            }
        };
        self.turns.repeat(end).await
    }

    /// Frees grants whenever their state has ended, for ever.
    pub(crate) async fn keep_ending_due(&self) {
        loop {
            if let Err(error) = self.end_due().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "grants were not freed; trying again in seconds"
                );
            }
            self.clock.sleep_until(self.clock.wall() + INTERVAL).await;
        }
    }
}
