//! Enrolments in the store: a machine without a record gets one.
//!
//! ```text
//! hardware/enrolment/site      the last refusal; its revision orders the enrolments
//! ```
//!
//! Each enrolment reads all records, and commits only if no other enrolment was committed meanwhile: two machines never get
//! records with the same UUID, and the limit holds. A MAC is unique by the index of MACs. An index of UUIDs instead would refuse the
//! inventories of machines of careless vendors, which share one.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use runtime::rate_limit::{Rate, RateLimiter};
use store::records::{self, Kind, Records};
use tinwright::Stored;
use tinwright::hardware::v1 as pb;
use tinwright::secret::Sealable;

use crate::acceptance::is_untouched;
use crate::check;
use crate::enrolment::{Outcome, Report, Survey};
use crate::error::Error;
use crate::inventory;
use crate::place::to_expect_location;
use crate::records::{HardwareRecords, MAX_REPETITIONS, changed};

/// Machines that are enrolled per second. Each reads all records.
const RATE: Rate = Rate::per_second(5);
/// Alarms of refused enrolments: a stranger's machine must not fill the events.
const ALARM_RATE: Rate = Rate::new(Duration::from_secs(10), 6);
/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;
/// The id of the only record.
const SITE: &str = "site";
/// Machines that policies accept at their enrolment in an hour. Further ones wait for an operator, and are counted as such.
const MAX_ACCEPTED: u64 = 256;
/// In seconds.
const HOUR_SECONDS: i64 = 60 * 60;

/// The state of the site's enrolments.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EnrolmentLog {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The store's revision.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Machines that were enrolled.
    #[prost(uint64, tag = "3")]
    pub count: u64,
    /// The reason of the last refusal; a new one is an alarm.
    #[prost(string, tag = "4")]
    pub refusal: String,
    /// The begin of the present hour of acceptances by policy, in seconds since 1970.
    #[prost(int64, tag = "5")]
    pub hour: i64,
    /// Machines that a policy accepted at their enrolment in that hour.
    #[prost(uint64, tag = "6")]
    pub accepted: u64,
}

impl Sealable for EnrolmentLog {}

/// The kind of this record.
#[derive(Debug)]
pub enum EnrolmentLogKind {}

impl Stored for EnrolmentLog {
    const SINGULAR: &'static str = "enrolment";
    const HAS_EVENTS: bool = true;

    fn id(&self) -> &str {
        &self.id
    }

    fn revision_mut(&mut self) -> &mut i64 {
        &mut self.revision
    }
}

impl Kind for EnrolmentLogKind {
    type Record = EnrolmentLog;
    type Id = String;
    const KIND: &'static str = "enrolment";

    fn warning(log: &EnrolmentLog) -> &str {
        &log.refusal
    }
}

/// Enrols machines.
#[derive(Clone, Debug)]
pub struct Enrolments {
    machines: HardwareRecords,
    /// The record of enrolments.
    pub log: Records<EnrolmentLogKind>,
    limits: Arc<Limits>,
}

#[derive(Debug)]
struct Limits {
    enrolments: RateLimiter<()>,
    alarms: RateLimiter<()>,
}

impl Enrolments {
    /// Enrols into `machines`.
    pub fn new(machines: HardwareRecords) -> Self {
        let log = Records::new(machines.records.store().clone());
        let [enrolments, alarms] = [RATE, ALARM_RATE].map(RateLimiter::new);
        Self { machines, log, limits: Arc::new(Limits { enrolments, alarms }) }
    }

    /// Returns the record of the machine that made `report`. It is created or completed, unless this was done already.
    pub async fn enrol(&self, report: &Report) -> Result<pb::Hardware, Error> {
        let now = self.machines.clock.monotonic();
        self.limits.enrolments.take((), now).map_err(|_| Error::TooManyEnrolments)?;
        for _ in 0..MAX_REPETITIONS {
            let log = self.log.get(SITE).await?;
            let survey = self.survey(report).await?;
            let outcome = match report.evaluate(survey) {
                Ok(outcome) => outcome,
                Err(refused) => {
                    self.record_refusal(log, refused.to_string(), now).await?;
                    return Err(refused);
                }
            };
            match self.carry_out(log, outcome).await {
                // Another machine was enrolled, or a record with its MAC or its name was created, meanwhile.
                Err(Error::Records(
                    records::Error::Changed { .. }
                    | records::Error::Exists { .. }
                    | records::Error::Taken { .. },
                )) => {}
                result => return result,
            }
        }
        Err(changed(&report.id.to_string()))
    }

    async fn carry_out(
        &self,
        log: Option<EnrolmentLog>,
        outcome: Outcome,
    ) -> Result<pb::Hardware, Error> {
        let now = self.machines.clock.wall();
        let accepted = accepted_in_this_hour(log.as_ref(), now);
        let may_accept = accepted.1 < MAX_ACCEPTED;
        let with_time = |mut machine: pb::Hardware| {
            let time = Some(now.into());
            machine.enrolment.iter_mut().for_each(|it| it.time = time);
            machine.inventory.iter_mut().for_each(|it| it.report_time = time);
            machine
        };
        let records = &self.machines.records;
        match outcome {
            Outcome::Done(machine) => Ok(*machine),
            Outcome::Create(machine) => {
                let machine = with_time(check::normalize(*machine)?);
                let (mut machine, policy) = match may_accept {
                    true => self.machines.accept(machine).await?,
                    false => (machine, records::Change::default()),
                };
                let counted = self.to_count(log, accepted, &machine);
                (machine.create_time, machine.update_time) = (Some(now.into()), Some(now.into()));
                machine.state_time = machine.create_time;
                let made = records.create(&machine, counted.and(policy), None).await?;
                tracing::info!(
                    hardware.id = made.id,
                    hardware.name = made.name,
                    "machine enrolled"
                );
                Ok(made)
            }
            Outcome::Complete(old, new) => {
                let mut new = with_time(check::normalize(*new)?);
                new.inventory_warning = inventory::warning(&new);
                let (new, policy) = match may_accept && is_untouched(&old) {
                    true => self.machines.accept(new).await?,
                    false => (new, records::Change::default()),
                };
                let counted = self.to_count(log, accepted, &new);
                let new = self.machines.updated(&old, new);
                let location = to_expect_location(&self.machines.locations, &new).await?;
                let made =
                    records.replace_with(&old, new, counted.and(location).and(policy)).await?;
                tracing::info!(hardware.id = made.id, "enrolled machine completed");
                Ok(made)
            }
        }
    }

    /// Returns the change that counts the enrolment of `machine`, after the acceptances of this hour. It fails if another enrolment was
    /// committed since `log` was read.
    fn to_count(
        &self,
        log: Option<EnrolmentLog>,
        (hour, accepted): (i64, u64),
        machine: &pb::Hardware,
    ) -> records::Change {
        let accepted = accepted + u64::from(machine.state() == pb::State::Provisionable);
        let old = log.clone().unwrap_or_default();
        let count = old.count.saturating_add(1);
        let new = EnrolmentLog { id: SITE.to_owned(), count, hour, accepted, ..old };
        match log {
            None => self.log.to_create(&new),
            Some(old) => self.log.to_replace(&old, &new),
        }
    }

    /// Records an alarm, unless it is that of the last refusal, or there were too many.
    async fn record_refusal(
        &self,
        log: Option<EnrolmentLog>,
        refusal: String,
        now: Instant,
    ) -> Result<(), Error> {
        tracing::warn!(reason = refusal, "enrolment refused");
        if self.limits.alarms.take((), now).is_err() {
            return Ok(());
        }
        let recorded = match log {
            None => {
                let log = EnrolmentLog { id: SITE.into(), refusal, ..EnrolmentLog::default() };
                self.log.commit(self.log.to_create(&log)).await.map(drop)
            }
            Some(old) => {
                let new = EnrolmentLog { refusal, ..old.clone() };
                self.log.replace(&old, new).await.map(drop)
            }
        };
        match recorded {
            // Another refusal was recorded meanwhile. The machine asks again at its next boot.
            Err(records::Error::Changed { .. } | records::Error::Exists { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Reads all records.
    async fn survey(&self, report: &Report) -> Result<Survey, Error> {
        let (mut survey, mut after) = (Survey::default(), String::new());
        loop {
            let (page, more) = self.machines.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or(after, |last| last.id.clone());
            page.into_iter().for_each(|machine| survey.add(report, machine));
            if !more {
                return Ok(survey);
            }
        }
    }
}

/// Returns the begin of the present hour, and the number of machines that a policy accepted in it.
fn accepted_in_this_hour(log: Option<&EnrolmentLog>, now: SystemTime) -> (i64, u64) {
    let now = prost_types::Timestamp::from(now).seconds;
    log.filter(|log| (log.hour..log.hour.saturating_add(HOUR_SECONDS)).contains(&now))
        .map_or((now, 0), |log| (log.hour, log.accepted))
}

#[cfg(test)]
mod tests;
