//! Overdue records in tests: records are followed while a test moves its clock.

use std::time::{Duration, SystemTime};

use tinwright::Bounded;
use tinwright::event::v1::{EventFilter, EventKind};
use tokio_util::sync::CancellationToken;

use super::run;
use crate::events::EventLog;
use crate::mirror::Mirror;
use crate::records::Kind;
use crate::records::{Error, Records};

/// The page that shows the limits to users.
const PAGE: &str = include_str!("../../../../docs/reference/events.md");
/// Timeout of waiting for a record to become overdue.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Carries out `test` while `records` are followed by the clock of `now` and `sleep_until`.
pub async fn while_following<K: Kind<Record: Bounded>, S: Future<Output = ()>>(
    records: &Records<K>,
    now: impl Fn() -> SystemTime,
    sleep_until: impl Fn(SystemTime) -> S,
    test: impl Future<Output = ()>,
) {
    let (mirror, stop) = (Mirror::new(records.clone()), CancellationToken::new());
    let followed = mirror.run(stop.clone());
    let marked = run(mirror.clone(), now, sleep_until, |_| {}, stop.clone());
    let test = async {
        test.await;
        stop.cancel();
    };
    tokio::join!(followed, marked, test);
}

/// True if the page for users has this limit of a state.
pub fn is_on_page(noun: &str, state: &str, limit: &str) -> bool {
    PAGE.contains(&format!("| {noun} | {state} | {limit} |"))
}

/// Waits until the record `id` is overdue. Returns none if that takes too long.
pub async fn overdue<K: Kind<Record: Bounded>>(
    records: &Records<K>,
    id: &str,
) -> Result<Option<K::Record>, Error> {
    let is_overdue = async {
        loop {
            let record = records.require(id).await?;
            if K::is_overdue(&record) {
                return Ok(record);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, is_overdue).await.ok().transpose()
}

/// Returns the texts of the alarms of the record `id`.
pub async fn alarms<K: Kind<Record: Bounded>>(
    records: &Records<K>,
    id: &str,
) -> Result<Vec<String>, Error> {
    let kind = EventKind::Alarm.into();
    let filter = EventFilter { kind, object_id: id.into(), ..EventFilter::default() };
    let events = EventLog::new(records.store().clone(), "").list(&filter, "", 100).await?.records;
    Ok(events.into_iter().map(|event| event.text).collect())
}
