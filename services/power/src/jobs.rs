//! The jobs in the store, and the queue of each machine.
//!
//! A job and its place in the queue are written in one commit, so they always agree. Only the first job of a queue is
//! carried out, so a BMC does one job at a time, and only by the process whose claim the queue holds. A job that is held back is in no
//! queue: nothing is done for it before its creator has recorded it and releases it.

use std::time::Duration;

use prost_types::Timestamp;
use runtime::Clock;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Listing, Records};
use tinwright::power::v1 as pb;
use tinwright::power::v1::power_job::State;
use tinwright::{HardwareId, PowerJobId, TenantName};

use crate::bmcs::Bmcs;
use crate::conflicts::{MAX_REPETITIONS, retry};
use crate::state::{self, Event, HELD_BACK, QUEUED};
use crate::stored::{Claim, Job, Progress, Queue};
use crate::tenant_machines::{TenantMachines, check_operations, of_occupant};
use crate::{Error, check};

/// The most jobs in the queue of a machine.
const MAX_QUEUED_JOBS: usize = 64;
/// The time after which an ended job is deleted.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The time after which a job that is still held back is cancelled.
const MAX_HOLD: Duration = Duration::from_secs(10 * 60);
/// The jobs of one reading during a cleanup.
const PAGE_SIZE: usize = 500;

/// The first job of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The job, which has not ended.
    pub job: pb::PowerJob,
    /// Its queue.
    pub queue: Queue,
}

/// The jobs of a list. The default is all.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// The machine; none for all.
    pub hardware: Option<HardwareId>,
    /// The state; unspecified for all.
    pub state: State,
}

/// The jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// The underlying records.
    pub records: Records<Job>,
    /// The queues of machines.
    pub(crate) queues: Records<Queue>,
    /// The BMCs that carry out the jobs.
    pub bmcs: Bmcs,
    /// The name of this process in claims.
    pub process: String,
    machines: Option<TenantMachines>,
}

impl Jobs {
    /// The jobs for `bmcs`, in the same store. `process` is the name of this process. No other running process on this store
    /// may have the name; a later one may.
    pub fn new(bmcs: Bmcs, process: String) -> Self {
        let store = bmcs.records.store().clone();
        let (records, queues) = (Records::new(store.clone()), Records::new(store));
        Self { records, queues, bmcs, process, machines: None }
    }

    /// Finds the tenants of jobs, and accepts jobs of tenants for their machines, by `machines`.
    #[must_use]
    pub fn with_machines(self, machines: TenantMachines) -> Self {
        Self { machines: Some(machines), ..self }
    }

    /// The clock of all records.
    pub(crate) fn clock(&self) -> &Clock {
        &self.bmcs.clock
    }

    /// Adds `job`, which the site or a service of it orders, to the end of its machine's queue. It belongs to the instance on the machine; one
    /// that names an instance has to name that one. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        job: pb::PowerJob,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::PowerJob, Error> {
        check::job(&job.operations, &job.labels)?;
        if let Some(job) = self.records.previous_result(request.as_ref()).await? {
            return Ok(job);
        }
        let occupant = match &self.machines {
            Some(machines) => machines.occupant(&job.hardware_id).await?,
            None => None,
        };
        self.enqueue(of_occupant(job, occupant)?, request).await
    }

    /// Does the same for a caller. One that is limited to `tenant` has to be allowed to switch the
    /// machine now.
    pub async fn create_for(
        &self,
        tenant: Option<&TenantName>,
        job: pb::PowerJob,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::PowerJob, Error> {
        let Some(tenant) = tenant else { return self.create(job, request).await };
        check::job(&job.operations, &job.labels)?;
        check_operations(&job.operations)?;
        if let Some(job) = self.records.previous_result(request.as_ref()).await? {
            return Ok(job);
        }
        let instance = self.machines()?.check(&job.hardware_id, tenant).await?;
        let job = pb::PowerJob { creator_tenant: tenant.to_string(), ..job };
        self.enqueue(of_occupant(job, Some(instance))?, request).await
    }

    /// Adds the new `job` to the end of its machine's queue, unless it is held back.
    async fn enqueue(
        &self,
        job: pb::PowerJob,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::PowerJob, Error> {
        let now = Some(Timestamp::from(self.clock().wall()));
        let job = pb::PowerJob {
            id: PowerJobId::new().to_string(),
            create_time: now,
            update_time: now,
            state: State::Pending.into(),
            state_reason: if job.held { HELD_BACK } else { QUEUED }.into(),
            ..job
        };
        retry(|| async {
            let queued = self.to_enqueue(&job).await?;
            Ok(self.records.create(&job, queued, request.as_ref()).await?)
        })
        .await
    }

    /// Adds a job that was held back to the end of its machine's queue. Any other job is not changed.
    pub async fn release_held(&self, id: PowerJobId) -> Result<pb::PowerJob, Error> {
        retry(|| async {
            let job = self.get(id).await?;
            if !job.held || job.is_terminal() {
                return Ok(job);
            }
            let released = self.after(&job, Event::Release)?;
            let queued = self.to_enqueue(&released).await?;
            Ok(self.records.replace_with(&job, released, queued).await?)
        })
        .await
    }

    /// Returns `job` after `event`.
    fn after(&self, job: &pb::PowerJob, event: Event) -> Result<pb::PowerJob, Error> {
        let next = state::after(job, event, self.clock().wall());
        Ok(next.map_err(|_| changed("power job", &job.id))?)
    }

    /// Returns the job with this id.
    pub async fn get(&self, id: PowerJobId) -> Result<pb::PowerJob, Error> {
        Ok(self.records.require(&id.to_string()).await?)
    }

    /// Passes if `job` may begin; one that a tenant ordered needs the tenant's instance.
    pub async fn check_begin(&self, job: &pb::PowerJob) -> Result<(), Error> {
        match job.creator_tenant.is_empty() {
            true => Ok(()),
            false => Ok(self.machines()?.check_begin(job).await?),
        }
    }

    fn machines(&self) -> Result<&TenantMachines, Error> {
        self.machines.as_ref().ok_or(Error::NoTenants)
    }

    /// Lists at most `limit` jobs after the id `after` that `filter` selects.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        filter: &JobFilter,
    ) -> Result<Listing<pb::PowerJob>, Error> {
        let hardware = filter.hardware.map(|id| id.to_string());
        let matches = |job: &pb::PowerJob| {
            hardware.as_ref().is_none_or(|id| *id == job.hardware_id)
                && (filter.state == State::Unspecified || job.state() == filter.state)
        };
        Ok(self.records.list(after, limit, matches).await?)
    }

    /// Cancels a job before its next step. An ended job is not changed.
    pub async fn cancel(&self, id: PowerJobId) -> Result<pb::PowerJob, Error> {
        retry(|| async {
            let job = self.get(id).await?;
            if job.is_terminal() {
                return Ok(job);
            }
            if job.held {
                let cancelled = self.after(&job, Event::Cancel)?;
                return Ok(self.records.replace(&job, cancelled).await?);
            }
            // The job may have ended since it was read, and its queue with it.
            let queue = self.queues.get(&job.hardware_id).await?;
            let queue = queue.ok_or_else(|| changed("queue of hardware", &job.hardware_id))?;
            Ok(self.record(&Head { job, queue }, Event::Cancel, None).await?.job)
        })
        .await
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

    /// Claims `queue` for this process. Fails as changed if the stored queue differs.
    pub async fn claim(&self, queue: &Queue) -> Result<Queue, Error> {
        let claim = Some(Claim::new(&self.process, queue));
        Ok(self.queues.replace(queue, Queue { claim, ..queue.clone() }).await?)
    }

    /// Renews this process' claim on a machine. Fails as changed if this process does not hold it.
    pub async fn renew(&self, hardware: &str) -> Result<Queue, Error> {
        let mut repetitions = 0;
        loop {
            let queue = self.queues.get(hardware).await?.filter(|queue| self.holds(queue));
            let queue = queue.ok_or_else(|| changed("claim on hardware", hardware))?;
            match self.claim(&queue).await {
                Err(Error::Records(records::Error::Changed { .. }))
                    if repetitions < MAX_REPETITIONS =>
                {
                    repetitions += 1;
                }
                result => return result,
            }
        }
    }

    /// Releases this process' claim on a machine, if it holds it. An empty queue is deleted.
    pub async fn release(&self, hardware: &str) -> Result<(), Error> {
        let Some(old) = self.queues.get(hardware).await? else { return Ok(()) };
        if !self.holds(&old) {
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
    fn holds(&self, queue: &Queue) -> bool {
        queue.claim.as_ref().is_some_and(|claim| claim.holder == self.process)
    }

    /// Stores an event of the first job as the holder of the claim, and renews the claim. Only the holder writes progress, so
    /// other changes to the queue (a job is added, or a later one cancelled) do not require a new decision.
    pub async fn record_as_holder(
        &self,
        head: &Head,
        event: &Event,
        progress: Option<&Progress>,
    ) -> Result<Head, Error> {
        let (mut head, mut repetitions) = (head.clone(), 0);
        loop {
            match self.record(&head, event.clone(), progress.cloned()).await {
                Err(Error::Records(records::Error::Changed { .. }))
                    if repetitions < MAX_REPETITIONS =>
                {
                    repetitions += 1;
                    let current = match self.queues.get(&head.job.hardware_id).await? {
                        Some(queue) => self.first(queue).await?,
                        None => None,
                    };
                    head = current
                        .filter(|current| current.job == head.job && self.holds(&current.queue))
                        .ok_or_else(|| changed("power job", &head.job.id))?;
                }
                result => return result,
            }
        }
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
        let stays = event == Event::Cancel && head.queue.claim.is_some();
        let mut job = self.after(&head.job, event)?;
        let mut queue = head.queue.clone();
        if self.holds(&queue) {
            queue.claim = Some(Claim::new(&self.process, &head.queue));
        }
        if job.is_terminal() {
            let first = queue.job_ids.first() == Some(&job.id);
            queue.progress = queue.progress.filter(|_| !first);
            queue.job_ids.retain(|id| *id != job.id);
        } else {
            queue.progress = progress;
        }
        let queue_change = match queue.job_ids.is_empty() && !stays {
            true => self.queues.to_delete(&head.queue),
            false => self.queues.to_replace(&head.queue, &queue),
        };
        let change = self.records.to_replace(&head.job, &job).and(queue_change);
        let revision = self.records.commit(change).await?.0.cast_signed();
        (job.revision, queue.revision) = (revision, revision);
        Ok(Head { job, queue })
    }

    /// Deletes the jobs that ended more than [`RETENTION`] ago, and cancels those that were not released within [`MAX_HOLD`]. Returns their
    /// number.
    pub async fn delete_expired(&self) -> Result<usize, Error> {
        let (mut after, mut changed) = (String::new(), 0);
        let now = self.clock().wall();
        let is_over = |time: Option<Timestamp>, limit: Duration| {
            let oldest = now.checked_sub(limit).map(Timestamp::from);
            time.zip(oldest).is_some_and(|(time, oldest)| {
                (time.seconds, time.nanos) < (oldest.seconds, oldest.nanos)
            })
        };
        loop {
            let (jobs, more) = self.records.page("", &after, PAGE_SIZE).await?;
            for job in &jobs {
                let is_abandoned = job.held && !job.is_terminal();
                let change = if is_over(job.end_time, RETENTION) {
                    self.records.to_delete(job)
                } else if is_abandoned && is_over(job.create_time, MAX_HOLD) {
                    self.records.to_replace(job, &self.after(job, Event::Abandon)?)
                } else {
                    continue;
                };
                match self.records.commit(change).await {
                    Ok(_) => changed += 1,
                    // Another process did it, or the job was released.
                    Err(records::Error::Changed { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            match jobs.last() {
                Some(last) if more => after.clone_from(&last.id),
                _ => return Ok(changed),
            }
        }
    }

    /// Returns the change that adds `job` to the end of its machine's queue, unless it is held back. Fails if the machine has no BMC.
    async fn to_enqueue(&self, job: &pb::PowerJob) -> Result<Change, Error> {
        let bmc = self.bmcs.get_by_hardware(&job.hardware_id).await?;
        let unchanged = self.bmcs.records.unchanged(&bmc);
        if job.held {
            return Ok(unchanged);
        }
        let Some(old) = self.queues.get(&job.hardware_id).await? else {
            let hardware_id = job.hardware_id.clone();
            let job_ids = vec![job.id.clone()];
            let queue = Queue { hardware_id, job_ids, ..Queue::default() };
            return Ok(unchanged.and(self.queues.to_create(&queue)));
        };
        let mut new = old.clone();
        new.job_ids.push(job.id.clone());
        if new.job_ids.len() > MAX_QUEUED_JOBS {
            return Err(Error::Full(job.hardware_id.clone()));
        }
        Ok(unchanged.and(self.queues.to_replace(&old, &new)))
    }
}

fn changed(noun: &'static str, id: &str) -> records::Error {
    records::Error::Changed { noun, id: id.to_owned() }
}

#[cfg(test)]
mod tests;
