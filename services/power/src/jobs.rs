//! The jobs in the store, and the queue of each machine.
//!
//! A job and its place in the queue are written in one commit, so they always agree. Only the first job of a queue is
//! carried out, so a BMC does one job at a time, and only by the process whose claim the queue holds.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Listing, Records};
use tinwright::power::v1 as pb;
use tinwright::power::v1::power_job::State;
use tinwright::{HardwareId, PowerJobId};

use crate::bmcs::{Bmcs, By};
use crate::state::{self, Event};
use crate::stored::{Claim, Job, Progress, Queue, QueueKind};
use crate::{Error, check};

/// The most jobs in the queue of a machine.
const MAX_QUEUED_JOBS: usize = 64;
/// The repetitions of a commit while other writers come first.
pub(crate) const MAX_REPETITIONS: usize = 16;
/// The time after which an ended job is deleted.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Jobs read at a time.
const PAGE_SIZE: usize = 500;

/// The first job of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The job, which has not ended.
    pub job: pb::PowerJob,
    /// Its queue.
    pub queue: Queue,
}

/// The jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    records: Records<Job>,
    queues: Records<QueueKind>,
    bmcs: Bmcs,
    process: String,
}

impl Jobs {
    /// The jobs for `bmcs`, in the same store. `process` is the name of this process. No other running process on this store
    /// may have the name; a later one may.
    pub fn new(bmcs: Bmcs, process: String) -> Self {
        let store = bmcs.records().store().clone();
        let (records, queues) = (Records::new(store.clone()), Records::new(store));
        Self { records, queues, bmcs, process }
    }

    /// The name of this process.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<Job> {
        &self.records
    }

    /// The BMCs that carry out the jobs.
    pub fn bmcs(&self) -> &Bmcs {
        &self.bmcs
    }

    /// Adds a job to the end of a machine's queue. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        hardware: HardwareId,
        operations: Vec<pb::Operation>,
        labels: BTreeMap<String, String>,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::PowerJob, Error> {
        check::job(&operations, &labels)?;
        if let Some(made) = self.records.previous_result(request.as_ref()).await? {
            return Ok(made);
        }
        let job = newborn(hardware, operations, labels);
        let mut tries = MAX_REPETITIONS;
        loop {
            let bmc = self.bmcs.get(By::Hardware(hardware)).await?;
            let there = self.bmcs.records().unchanged(&bmc).and(self.enqueued(&job).await?);
            match self.records.create(&job, there, request.as_ref()).await {
                Err(records::Error::Changed { .. } | records::Error::Exists { .. })
                    if tries > 0 =>
                {
                    tries -= 1;
                }
                made => return Ok(made?),
            }
        }
    }

    /// Returns the job with this id.
    pub async fn get(&self, id: PowerJobId) -> Result<pb::PowerJob, Error> {
        Ok(self.records.require(&id.to_string()).await?)
    }

    /// Lists at most `limit` jobs after the id `after` that have all of `labels`, of one machine or of all.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        hardware: Option<HardwareId>,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::PowerJob>, Error> {
        let hardware = hardware.map(|id| id.to_string());
        let wanted = |job: &pb::PowerJob| {
            hardware.as_ref().is_none_or(|id| *id == job.hardware_id)
                && labels.iter().all(|(key, value)| job.labels.get(key) == Some(value))
        };
        Ok(self.records.list(after, limit, wanted).await?)
    }

    /// Cancels a job before its next step. An ended job is not changed.
    pub async fn cancel(&self, id: PowerJobId) -> Result<pb::PowerJob, Error> {
        let mut tries = MAX_REPETITIONS;
        loop {
            let job = self.records.require(&id.to_string()).await?;
            if job.is_terminal() {
                return Ok(job);
            }
            let queue = self.queues.require(&job.hardware_id).await?;
            match self.record(&Head { job, queue }, Event::Cancel, None).await {
                Err(Error::Records(records::Error::Changed { .. })) if tries > 0 => tries -= 1,
                done => return Ok(done?.job),
            }
        }
    }

    /// Returns the first job of a machine's queue.
    pub async fn head(&self, hardware: &str) -> Result<Option<Head>, Error> {
        match self.queue(hardware).await? {
            Some(queue) => self.first(queue).await,
            None => Ok(None),
        }
    }

    /// Returns the queue of a machine, if it has one.
    pub async fn queue(&self, hardware: &str) -> Result<Option<Queue>, Error> {
        Ok(self.queues.get(hardware).await?)
    }

    /// Returns the first job of `queue`.
    pub async fn first(&self, queue: Queue) -> Result<Option<Head>, Error> {
        let Some(id) = queue.job_ids.first() else { return Ok(None) };
        let job = self.records.require(id).await?;
        Ok(Some(Head { job, queue }))
    }

    /// Returns `head` with its present queue, if this process still holds the claim and the job is unchanged.
    pub async fn still(&self, head: &Head) -> Result<Head, Error> {
        let found = self.head(&head.job.hardware_id).await?;
        let still = found.filter(|found| found.job == head.job && self.has(&found.queue));
        Ok(still.ok_or_else(|| changed("power job", &head.job.id))?)
    }

    /// Claims `queue` for this process. Fails as changed if the stored queue differs.
    pub async fn take(&self, queue: &Queue) -> Result<Queue, Error> {
        let claim = Some(Claim::of(&self.process, queue));
        Ok(self.queues.replace(queue, Queue { claim, ..queue.clone() }).await?)
    }

    /// Renews this process' claim on a machine. Fails as changed if another process holds it.
    pub async fn renew(&self, hardware: &str) -> Result<Queue, Error> {
        let mut tries = MAX_REPETITIONS;
        loop {
            let old = self.queues.require(hardware).await?;
            if !self.has(&old) {
                return Err(changed("claim on hardware", hardware).into());
            }
            match self.take(&old).await {
                Err(Error::Records(records::Error::Changed { .. })) if tries > 0 => tries -= 1,
                done => return done,
            }
        }
    }

    /// Releases this process' claim on a machine, if it holds it. An empty queue is deleted.
    pub async fn leave(&self, hardware: &str) -> Result<(), Error> {
        let Some(old) = self.queues.get(hardware).await? else { return Ok(()) };
        if !self.has(&old) {
            return Ok(());
        }
        let change = match old.job_ids.is_empty() {
            true => self.queues.to_delete(&old),
            false => self.queues.to_replace(&old, &Queue { claim: None, ..old.clone() }),
        };
        self.queues.commit(change).await?;
        Ok(())
    }

    /// True if this process holds the claim on `queue`.
    fn has(&self, queue: &Queue) -> bool {
        queue.claim.as_ref().is_some_and(|claim| claim.holder == self.process)
    }

    /// Stores an event of a job together with its progress. An ended job leaves the queue. Fails as changed if the job or the
    /// queue has changed meanwhile: read and decide again.
    pub async fn record(
        &self,
        head: &Head,
        event: Event,
        progress: Option<Progress>,
    ) -> Result<Head, Error> {
        // A cancelling caller does not know which request the claim's holder is sending: the queue stays until it is released.
        let kept = event == Event::Cancel && head.queue.claim.is_some();
        let mut job = state::after(&head.job, event, SystemTime::now())
            .map_err(|_| changed("power job", &head.job.id))?;
        let mut queue = head.queue.clone();
        if self.has(&queue) {
            queue.claim = Some(Claim::of(&self.process, &head.queue));
        }
        if job.is_terminal() {
            let first = queue.job_ids.first() == Some(&job.id);
            queue.progress = queue.progress.filter(|_| !first);
            queue.job_ids.retain(|id| *id != job.id);
        } else {
            queue.progress = progress;
        }
        let moved = match queue.job_ids.is_empty() && !kept {
            true => self.queues.to_delete(&head.queue),
            false => self.queues.to_replace(&head.queue, &queue),
        };
        let revision =
            self.records.commit(self.records.to_replace(&head.job, &job).and(moved)).await?;
        (job.revision, queue.revision) = (revision.0.cast_signed(), revision.0.cast_signed());
        Ok(Head { job, queue })
    }

    /// Deletes the jobs that ended more than [`RETENTION`] before `now`, and returns their number.
    pub async fn sweep(&self, now: SystemTime) -> Result<usize, Error> {
        let (mut after, mut gone) = (String::new(), 0);
        loop {
            let (jobs, more) = self.records.page("", &after, PAGE_SIZE).await?;
            for job in jobs.iter().filter(|job| is_old(job, now)) {
                match self.records.commit(self.records.to_delete(job)).await {
                    Ok(_) => gone += 1,
                    // Another process has deleted it.
                    Err(records::Error::Changed { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            match jobs.last() {
                Some(last) if more => after.clone_from(&last.id),
                _ => return Ok(gone),
            }
        }
    }

    /// Returns the change that adds `job` to the end of its machine's queue.
    async fn enqueued(&self, job: &pb::PowerJob) -> Result<Change, Error> {
        let Some(old) = self.queues.get(&job.hardware_id).await? else {
            let hardware_id = job.hardware_id.clone();
            let job_ids = vec![job.id.clone()];
            return Ok(self.queues.to_create(&Queue { hardware_id, job_ids, ..Queue::default() }));
        };
        let mut new = old.clone();
        new.job_ids.push(job.id.clone());
        if new.job_ids.len() > MAX_QUEUED_JOBS {
            return Err(Error::Full(job.hardware_id.clone()));
        }
        Ok(self.queues.to_replace(&old, &new))
    }
}

/// Returns a record as it is first stored.
fn newborn(
    hardware: HardwareId,
    operations: Vec<pb::Operation>,
    labels: BTreeMap<String, String>,
) -> pb::PowerJob {
    let now = Some(Timestamp::from(SystemTime::now()));
    pb::PowerJob {
        id: PowerJobId::new().to_string(),
        create_time: now,
        update_time: now,
        hardware_id: hardware.to_string(),
        labels,
        operations,
        state: State::Pending.into(),
        state_reason: "waits for its turn".into(),
        ..pb::PowerJob::default()
    }
}

fn changed(noun: &'static str, id: &str) -> records::Error {
    records::Error::Changed { noun, id: id.to_owned() }
}

fn is_old(job: &pb::PowerJob, now: SystemTime) -> bool {
    let end = job.end_time.and_then(|end| SystemTime::try_from(end).ok());
    end.and_then(|end| end.checked_add(RETENTION)).is_some_and(|forget| forget < now)
}

#[cfg(test)]
mod tests;
