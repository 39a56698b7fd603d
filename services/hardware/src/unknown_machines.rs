//! Machines without a record that asked for a boot, in the store.
//!
//! ```text
//! hardware/unknown/<mac>      the machine
//! ```
//!
//! Anybody on a boot network can invent MACs. So the number of records is bounded, a call writes one commit, the calls per second are
//! limited, and so are the events.

mod sweep;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nouns::Served;
use prost_types::Timestamp;
use runtime::Clock;
use runtime::rate_limit::{Rate, RateLimiter};
use store::records::{self, Change, Kind, Records};
use store::{Commit, Expect, ScopedStore};
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::unknown_machine::Reason;
use tinwright::status::Violations;
use tinwright::{Mac, check};

use crate::check::enum_value;
use crate::error::Error;
use crate::records::{HardwareKind, MAX_REPETITIONS, changed};

pub(crate) use self::sweep::sweep;

/// The most machines that are stored.
const MAX_MACHINES: usize = 4096;
/// The most machines in a call: a commit has room for so many events.
const MAX_BATCH: usize = store::events::RESERVED_WRITES;
/// The time without a request after which a machine is deleted.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Calls that store machines.
const CALL_RATE: Rate = Rate::per_second(2).with_burst(8);
/// Events of machines that were not stored before.
const EVENT_RATE: Rate = Rate::new(Duration::from_secs(60), 256);
/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;
/// The longest text.
const MAX_TEXT_BYTES: usize = 1024;

/// The most architectures of a machine.
const MAX_ARCHITECTURES: usize = 16;
/// The longest circuit id.
const MAX_CIRCUIT_OCTETS: usize = 255;

/// The kind of these records.
#[derive(Debug)]
pub enum UnknownMachineKind {}

impl Kind for UnknownMachineKind {
    type Record = pb::UnknownMachine;
    type Id = Mac;
    const KIND: &'static str = "unknown";

    /// Returns a state for machines whose first sight is an event.
    fn state(machine: &pb::UnknownMachine) -> String {
        if machine.has_event { "unknown".into() } else { String::new() }
    }

    fn state_reason(machine: &pb::UnknownMachine) -> &str {
        describe(machine.reason())
    }

    /// Returns true: a deletion is an event only if a caller asked for it.
    fn has_ended(_: &pb::UnknownMachine) -> bool {
        true
    }
}

impl Served for UnknownMachineKind {}

/// Returns a reason for people.
fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Unspecified => "",
        Reason::NoSubnet => "it asked in no subnet of the site",
        Reason::Policy => "its subnet does not enrol machines",
        Reason::PoolExhausted => "every address of its subnet's pool is taken",
        Reason::TooMany => "too many machines without a record asked at once",
        Reason::NoReport => "it has not reported itself yet",
        Reason::Infiniband => "it asked over InfiniBand, which is not supported",
    }
}

/// The machines without a record.
#[derive(Clone, Debug)]
pub struct UnknownMachines {
    /// The underlying records.
    pub records: Records<UnknownMachineKind>,
    machines: Records<HardwareKind>,
    clock: Clock,
    limits: Arc<Limits>,
}

#[derive(Debug)]
struct Limits {
    calls: RateLimiter<()>,
    events: RateLimiter<()>,
}

impl UnknownMachines {
    /// The machines in `store`, whose keys are the hardware service's. `clock` decides which are too old.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let [calls, events] = [CALL_RATE, EVENT_RATE].map(RateLimiter::new);
        let limits = Arc::new(Limits { calls, events });
        Self { records: Records::new(store.clone()), machines: Records::new(store), clock, limits }
    }

    /// Stores machines that were seen, except those that have a record.
    pub async fn record(&self, seen: Vec<pb::UnknownMachine>) -> Result<(), Error> {
        let seen = checked(seen, self.clock.wall())?;
        let now = self.clock.monotonic();
        self.limits.calls.take((), now).map_err(|_| Error::TooManyReports)?;
        for _ in 0..MAX_REPETITIONS {
            let change = self.to_record(&seen).await?;
            match self.records.commit(change).await {
                // One of the machines was changed, or got a record, meanwhile.
                Err(
                    records::Error::Changed { .. }
                    | records::Error::Exists { .. }
                    | records::Error::Taken { .. },
                ) => {}
                result => return Ok(result.map(drop)?),
            }
        }
        Err(changed("unknown machines"))
    }

    /// Returns the change that stores machines that were `seen`, and deletes others if there are too many.
    async fn to_record(&self, seen: &[pb::UnknownMachine]) -> Result<Change, records::Error> {
        let (mut change, mut added) = (Change::default(), 0);
        for seen in seen {
            if self.machines.find("mac", &seen.mac).await?.is_some() {
                continue;
            }
            change = change.and(match self.records.get(&seen.mac).await? {
                Some(old) => self.records.to_replace(&old, &merged(&old, seen.clone())),
                None => {
                    added += 1;
                    let now = self.clock.monotonic();
                    let has_event = self.limits.events.take((), now).is_ok();
                    let new = pb::UnknownMachine { has_event, ..seen.clone() };
                    self.records.to_create(&new).and(expect_no_record(&seen.mac))
                }
            });
        }
        if added > 0 {
            for oldest in self.oldest(added, seen).await? {
                change = change.and(self.records.to_delete(&oldest));
            }
        }
        Ok(change)
    }

    /// Returns the machines that are deleted when `added` ones are stored: those with the oldest last request, and none of `seen`.
    async fn oldest(
        &self,
        added: usize,
        seen: &[pb::UnknownMachine],
    ) -> Result<Vec<pb::UnknownMachine>, records::Error> {
        let mut all = self.all().await?;
        let surplus = (all.len() + added).saturating_sub(MAX_MACHINES).min(MAX_BATCH);
        let seen: BTreeSet<_> = seen.iter().map(|it| &it.mac).collect();
        all.retain(|machine| !seen.contains(&machine.mac));
        all.sort_by_key(last_seen);
        all.truncate(surplus);
        Ok(all)
    }

    /// Reads all machines.
    async fn all(&self) -> Result<Vec<pb::UnknownMachine>, records::Error> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or(after, |last| last.mac.clone());
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Stores why the report of the machine at `mac` was refused, if the machine is stored.
    pub async fn record_refusal(&self, mac: Mac, refusal: String) -> Result<(), records::Error> {
        let Some(old) = self.records.get(&mac.to_string()).await? else { return Ok(()) };
        let refusal = refusal[..refusal.floor_char_boundary(MAX_TEXT_BYTES)].to_owned();
        let new = pb::UnknownMachine { refusal, ..old.clone() };
        match self.records.replace(&old, new).await {
            // It asks again, and is refused again.
            Err(records::Error::Changed { .. }) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Deletes a machine.
    pub async fn delete(&self, mac: Mac, revision: i64) -> Result<(), records::Error> {
        let old = self.records.at(&mac.to_string(), revision).await?;
        self.records.commit(self.records.to_delete(&old)).await.map(drop)
    }
}

/// Returns the change that fails if a machine with this MAC has a record.
fn expect_no_record(mac: &str) -> Change {
    let expect = vec![Expect::Absent(format!("mac/{mac}"))];
    Change::from(Commit { expect, writes: Vec::new() })
}

/// Returns the time of a machine's last request, for comparison.
fn last_seen(machine: &pb::UnknownMachine) -> (i64, i32) {
    let Timestamp { seconds, nanos } = machine.last_seen_time.unwrap_or_default();
    (seconds, nanos)
}

/// Returns what is stored after the machine `old` was `seen` again. Several servers may report it, each late.
fn merged(old: &pb::UnknownMachine, seen: pb::UnknownMachine) -> pb::UnknownMachine {
    let is_newer = last_seen(&seen) > last_seen(old);
    let latest = if is_newer { seen.clone() } else { old.clone() };
    pb::UnknownMachine {
        revision: old.revision,
        uuid: if latest.uuid.is_empty() { old.uuid.clone() } else { latest.uuid.clone() },
        first_seen_time: old.first_seen_time,
        requests: old.requests.saturating_add(seen.requests),
        refusal: old.refusal.clone(),
        has_event: old.has_event,
        ..latest
    }
}

/// Returns the reported machines as they are stored. A time that lies ahead is `now`.
fn checked(
    mut seen: Vec<pb::UnknownMachine>,
    now: SystemTime,
) -> Result<Vec<pb::UnknownMachine>, Violations> {
    let mut wrong = Violations::default();
    let (mut macs, now) = (BTreeSet::new(), Timestamp::from(now));
    wrong.each("unknown_machines", &mut seen, MAX_BATCH, |machine, wrong| {
        check_machine(machine, wrong);
        if !macs.insert(machine.mac.clone()) {
            wrong.add("mac", format!("{} is listed twice", machine.mac));
        }
        let is_ahead = |time: &Timestamp| (time.seconds, time.nanos) > (now.seconds, now.nanos);
        let past = |time: Option<Timestamp>| Some(time.filter(|it| !is_ahead(it)).unwrap_or(now));
        machine.first_seen_time = past(machine.first_seen_time);
        machine.last_seen_time = past(machine.last_seen_time);
        machine.requests = machine.requests.max(1);
        (machine.revision, machine.has_event) = (0, false);
        machine.refusal.clear();
    });
    wrong.into_result(seen)
}

fn check_machine(machine: &mut pb::UnknownMachine, wrong: &mut Violations) {
    wrong.normalize("mac", &mut machine.mac, str::parse::<Mac>);
    wrong.normalize_optional("uuid", &mut machine.uuid, str::parse::<tinwright::HardwareId>);
    wrong.take("reason", enum_value::<Reason>(machine.reason));
    wrong.take("architectures", check::count(machine.architectures.len(), MAX_ARCHITECTURES));
    wrong.take("circuit_id", check::count(machine.circuit_id.len(), MAX_CIRCUIT_OCTETS));
    for (field, text) in [
        ("vendor_class", &machine.vendor_class),
        ("subnet", &machine.subnet),
        ("relay", &machine.relay),
        ("server_address", &machine.server_address),
    ] {
        wrong.take(field, check::length(text, MAX_TEXT_BYTES));
    }
}

#[cfg(test)]
mod tests;
