//! Records that stay in a state for longer than is normal for it: each is marked, with an alarm event and a reason, and counted
//! until its state changes (`docs/reference/events.md`).
//!
//! A record says how long its state may last ([`Bounded`]). [`run`] follows its records; several processes may do so, and
//! the commits of all but one fail. The mark is part of the record, so that there is one alarm for each stay, also after a
//! restart. The service removes it when it changes the state.

mod tracker;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tinwright::Bounded;
use tokio_util::sync::CancellationToken;

use self::tracker::Tracker;
use crate::mirror::Mirror;
use crate::records::{Error, Kind};

/// The delay before a mark that could not be stored is stored again.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Returns the time at which the stay of `record` in its state is too long.
fn due(record: &impl Bounded) -> Option<SystemTime> {
    record.state_time()?.checked_add(record.max_stay()?)
}

/// Marks the records of `mirror` that become overdue, until `stop`. The number of overdue records in each state is reported to
/// `report` whenever it changes. The time is `now()`, and `sleep_until` waits for it.
pub async fn run<K: Kind<Record: Bounded>, S: Future<Output = ()>>(
    mirror: Mirror<K>,
    now: impl Fn() -> SystemTime,
    sleep_until: impl Fn(SystemTime) -> S,
    report: impl Fn(&BTreeMap<String, usize>),
    stop: CancellationToken,
) {
    let mut tracker = Tracker::<K>::default();
    let mut watcher = mirror.watch();
    let mut reported = BTreeMap::new();
    loop {
        let wait = async {
            match tracker.next_due() {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let may_differ = tokio::select! {
            () = stop.cancelled() => return,
            event = watcher.next() => match event {
                Ok(event) => tracker.apply(event, now()),
                Err(_) => {
                    (tracker, watcher) = (Tracker::default(), mirror.watch());
                    continue;
                }
            },
            () = wait => {
                mark_due(&mirror, &mut tracker, now()).await;
                true
            }
        };
        if may_differ {
            let counts = tracker.overdue(now());
            if counts != reported {
                report(&counts);
                reported = counts;
            }
        }
    }
}

/// Marks the records that are due at `now`.
async fn mark_due<K: Kind<Record: Bounded>>(
    mirror: &Mirror<K>,
    tracker: &mut Tracker<K>,
    now: SystemTime,
) {
    while let Some(id) = tracker.take_due(now) {
        match mark(mirror, &id, now).await {
            Ok(()) => {}
            // Changed or deleted: the watch reports it.
            Err(Error::Changed { .. } | Error::Missing { .. }) => {}
            Err(error) => {
                let retry = now.checked_add(RETRY_DELAY).filter(|_| is_retryable(&error));
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    noun = K::NOUN,
                    id,
                    "overdue record not marked"
                );
                if let Some(retry) = retry {
                    tracker.retry(&id, retry);
                }
            }
        }
    }
}

fn is_retryable(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.is_retryable())
}

/// Marks the record `id`, if its present stay is too long at `now` and is not marked.
async fn mark<K: Kind<Record: Bounded>>(
    mirror: &Mirror<K>,
    id: &str,
    now: SystemTime,
) -> Result<(), Error> {
    let old = mirror.records().require(id).await?;
    let is_due = due(&old).is_some_and(|due| due <= now);
    if !is_due || K::is_overdue(&old) {
        return Ok(());
    }
    let state = K::state(&old);
    let allowed = old.max_stay().unwrap_or_default();
    let reason = match K::state_reason(&old) {
        "" => format!("{state} for more than {}", describe(allowed)),
        before => format!("{state} for more than {}: {before}", describe(allowed)),
    };
    let mut new = old.clone();
    new.set_overdue(reason.clone());
    mirror.records().replace(&old, new).await?;
    tracing::error!(noun = K::NOUN, id, state, reason, "overdue: somebody has to look at it");
    Ok(())
}

/// Renders a limit: `30 min`, `2 h`.
pub fn describe(limit: Duration) -> String {
    match limit.as_secs() / 60 {
        minutes if minutes >= 60 && minutes.is_multiple_of(60) => format!("{} h", minutes / 60),
        minutes => format!("{minutes} min"),
    }
}

/// For the tests of the owners of records.
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
