//! One step for one machine: check the claim, read the BMC, decide, store the request, send it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use runtime::retry::Backoff;
use store::records;
use tinwright::power::v1::{Operation, PowerJob};

use crate::Error;
use crate::bmc_client::{self, BmcClient};
use crate::claim::{ClaimOwner, ClaimView};
use crate::jobs::{Head, Jobs};
use crate::plan::{self, DriveKind, Next, Request, Timing};
use crate::redfish::System;
use crate::state::{Event, of_operation};
use crate::stored::{Progress, Queue};

/// The delays after errors of the store.
pub(super) const STORE_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// The attempts after which an internal error of a BMC counts as a refusal of the request.
const MAX_INTERNAL_ERRORS: i32 = 3;

/// The least time for a request to a BMC.
const MIN_REQUEST_TIME: Duration = Duration::from_secs(10);

/// Carries out the jobs of one machine.
#[derive(Debug)]
pub struct Worker {
    jobs: Jobs,
    hardware: String,
    timing: Timing,
    /// The client of the BMC, and the revision of the BMC's record that it was made from.
    bmc: Option<(i64, BmcClient)>,
    claim: ClaimView,
    /// The time of the latest renewal of the claim; none while this process does not hold it.
    renewed: Option<Instant>,
}

impl Worker {
    /// A worker for the machine `hardware`.
    pub fn new(jobs: Jobs, hardware: String, timing: Timing) -> Self {
        Self { jobs, hardware, timing, bmc: None, claim: ClaimView::default(), renewed: None }
    }

    /// Logs out of the BMC and releases the claim.
    pub async fn close(self) {
        if let Some((_, bmc)) = self.bmc {
            bmc.close().await;
        }
        if self.renewed.is_some()
            && let Err(error) = self.jobs.release(&self.hardware).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, hardware.id = self.hardware, "claim not released");
        }
    }

    /// Makes steps until the queue is empty. After an error of the store it waits, and keeps the session with the BMC and the
    /// time since which another process' claim is unchanged.
    pub async fn run(&mut self) {
        let mut backoff = STORE_BACKOFF;
        loop {
            match self.step().await {
                Ok(Some(pause)) => {
                    backoff.reset();
                    tokio::time::sleep(pause).await;
                }
                Ok(None) => return,
                Err(Error::Records(records::Error::Changed { .. })) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        hardware.id = self.hardware,
                        "power jobs interrupted"
                    );
                    backoff.wait().await;
                }
            }
        }
    }

    /// Makes the next step of the first job. Returns the pause before the following one; none if the queue is empty. After an
    /// error the next step begins from the stored state.
    #[tracing::instrument(skip_all, fields(hardware.id = self.hardware))]
    pub async fn step(&mut self) -> Result<Option<Duration>, Error> {
        let Some(queue) = self.jobs.queue(&self.hardware).await? else { return Ok(None) };
        let Some(queue) = self.claim(queue).await? else { return Ok(Some(self.timing.poll)) };
        let Some(head) = self.jobs.first(queue).await? else {
            self.jobs.release(&self.hardware).await?;
            return Ok(None);
        };
        let Some(progress) = head.queue.progress.clone() else {
            if let Err(refused) = self.jobs.check_begin(&head.job).await {
                return self.fail(&head, refused.to_string()).await;
            }
            let progress = self.new_progress(&head.job, 0);
            return self.record(&head, Event::Begin, Some(progress)).await.map(at_once);
        };
        // The machine is read before deadlines are checked: an operation that is done counts, however late.
        let drive = present_operation(&head.job).and_then(plan::drive_of);
        match self.read(remaining(&progress, self.jobs.clock().wall()), drive).await {
            Ok(system) => {
                let progress = plan::observe(progress, &system);
                self.advance(head, progress, &system).await
            }
            Err(Error::Bmc(error)) => self.retry_reading(&head, progress, &error).await,
            Err(
                error @ (Error::NoBmc { .. }
                | Error::Records(records::Error::Missing { .. })
                | Error::Broken(_)),
            ) => self.fail(&head, error.to_string()).await,
            Err(error) => Err(error),
        }
    }

    /// Claims `queue` for this process or renews its claim. Returns none while another process holds it.
    async fn claim(&mut self, queue: Queue) -> Result<Option<Queue>, Error> {
        let (now, term) = (self.jobs.clock().monotonic(), self.timing.claim);
        let queue = match self.claim.owner(queue.claim.as_ref(), &self.jobs.process, term, now) {
            ClaimOwner::OtherProcess => {
                self.renewed = None;
                return Ok(None);
            }
            ClaimOwner::ThisProcess if self.renewed.is_some_and(|at| now < at + term / 3) => {
                return Ok(Some(queue));
            }
            ClaimOwner::ThisProcess => self.jobs.renew(&self.hardware).await?,
            ClaimOwner::Nobody => {
                if let Some(lapsed) = &queue.claim {
                    tracing::warn!(holder = lapsed.holder, "takes over a lapsed claim");
                }
                self.jobs.claim(&queue).await?
            }
        };
        self.renewed = Some(now);
        Ok(Some(queue))
    }

    /// Stores an event, which renews the claim.
    async fn record(
        &mut self,
        head: &Head,
        event: Event,
        progress: Option<Progress>,
    ) -> Result<Head, Error> {
        let now = self.jobs.clock().monotonic();
        let head = self.jobs.record_as_holder(head, &event, progress.as_ref()).await?;
        self.renewed = Some(now);
        Ok(head)
    }

    /// Does what the reading of the machine requires.
    async fn advance(
        &mut self,
        head: Head,
        progress: Progress,
        system: &System,
    ) -> Result<Option<Duration>, Error> {
        let (job, now) = (&head.job, millis(self.jobs.clock().wall()));
        let number = usize::try_from(job.completed_operations).unwrap_or_default();
        let Some(operation) = present_operation(job) else {
            return self.fail(&head, "the job has no further operation".into()).await;
        };
        match plan::next(operation, system, &progress, &self.timing, now) {
            Next::Done(downgrades) => {
                let verified = Event::Verified(downgrades);
                let progress = self.new_progress(job, number + 1);
                let head = self.record(&head, verified, Some(progress)).await?;
                let done = head.job.completed_operations;
                tracing::info!(job.id = head.job.id, done, "power operation verified");
                Ok(at_once(head))
            }
            Next::Impossible(reason) => {
                self.fail(&head, format!("{reason}; {}", job.state_reason)).await
            }
            Next::Wait | Next::Send(_) if now >= progress.deadline => {
                let limit = plan::operation_timeout(operation, &self.timing).as_secs();
                let reason = unverified(&progress, &job.state_reason);
                self.fail(&head, format!("not done in {limit} seconds; {reason}")).await
            }
            Next::Wait => {
                if head.queue.progress.as_ref() != Some(&progress) {
                    let note = Event::Note(job.state_reason.clone());
                    self.record(&head, note, Some(progress)).await?;
                }
                Ok(Some(self.timing.poll))
            }
            Next::Send(_) if job.attempt >= self.timing.max_attempts => {
                let reason = unverified(&progress, &job.state_reason);
                let reason = format!("failed {} times; {reason}", job.attempt);
                self.fail(&head, reason).await
            }
            Next::Send(request) => self.send(head, progress, system, request).await,
        }
    }

    /// Stores the next request, sends it, and stores the response.
    async fn send(
        &mut self,
        head: Head,
        mut progress: Progress,
        system: &System,
        Request { name, call }: Request,
    ) -> Result<Option<Duration>, Error> {
        progress.request.clone_from(&name);
        progress.request_time = millis(self.jobs.clock().wall());
        progress.accepted = false;
        let intent = Event::Try(format!("sending {name}"));
        let head = self.record(&head, intent, Some(progress.clone())).await?;
        let attempt = head.job.attempt;
        let limit = remaining(&progress, self.jobs.clock().wall());
        let (head, response) = self.call(head, system, &call, limit).await?;
        let Err(error) = response else {
            progress.accepted = true;
            let note = Event::Note(format!("waiting for the effect of {name}"));
            return self.record(&head, note, Some(progress)).await.map(at_once);
        };
        let refused = error.is_refusal() || error.is_internal() && attempt >= MAX_INTERNAL_ERRORS;
        // The BMC may quote the URL of an image, which is secret.
        let reason = plan::without_image(present_operation(&head.job), error.in_full());
        if !refused && !error.is_transient() {
            return self.fail(&head, reason).await;
        }
        let note = Event::Note(format!("{name}: {reason}"));
        let delay = self.timing.retry_delay(attempt, error.retry_after());
        if refused {
            progress.refused.push(name);
        }
        self.record(&head, note, Some(progress)).await?;
        Ok(Some(if refused { Duration::ZERO } else { delay }))
    }

    /// Sends the request and renews the claim until the response arrives. The clock is read first: a process that was
    /// suspended since it stored the request may have lost its claim.
    async fn call(
        &mut self,
        mut head: Head,
        system: &System,
        call: &plan::Call,
        limit: Duration,
    ) -> Result<(Head, Result<(), bmc_client::Error>), Error> {
        let Self { jobs, hardware, timing, bmc, renewed, .. } = self;
        let Some((_, bmc)) = bmc else {
            return Ok((head, Err(bmc_client::Error::NoSession)));
        };
        let mut response = std::pin::pin!(bmc.call_within(system, call, limit));
        loop {
            let renewal = renewed.unwrap_or_else(|| jobs.clock().monotonic()) + timing.claim / 3;
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(renewal.into()) => {
                    let now = jobs.clock().monotonic();
                    head.queue = jobs.renew(hardware).await?;
                    *renewed = Some(now);
                }
                response = &mut response => return Ok((head, response)),
            }
        }
    }

    /// Begins another attempt after a failed reading, or fails the job.
    async fn retry_reading(
        &mut self,
        head: &Head,
        progress: Progress,
        error: &bmc_client::Error,
    ) -> Result<Option<Duration>, Error> {
        let in_time = millis(self.jobs.clock().wall()) < progress.deadline;
        if !error.is_transient() || head.job.attempt >= self.timing.max_attempts || !in_time {
            return self.fail(head, error.in_full()).await;
        }
        let head = self.record(head, Event::Try(error.in_full()), Some(progress)).await?;
        Ok(Some(self.timing.retry_delay(head.job.attempt, error.retry_after())))
    }

    async fn fail(&mut self, head: &Head, reason: String) -> Result<Option<Duration>, Error> {
        let reason = of_operation(&head.job, &reason);
        tracing::warn!(job.id = head.job.id, reason, "power job failed");
        self.record(head, Event::Fail(reason), None).await.map(at_once)
    }

    /// Reads the system from the machine's BMC.
    async fn read(&mut self, limit: Duration, drive: Option<DriveKind>) -> Result<System, Error> {
        let bmcs = &self.jobs.bmcs;
        let record = bmcs.get_by_hardware(&self.hardware).await?;
        if let Some((_, old)) = self.bmc.take_if(|(revision, _)| *revision != record.revision) {
            old.close().await;
        }
        let (revision, bmc) = match &mut self.bmc {
            Some(current) => current,
            none => none.insert((record.revision, BmcClient::new(bmcs.target(&record).await?)?)),
        };
        let system = bmc.system_within(limit, drive).await?;
        *revision = bmcs.pin(record, bmc.certificate()).await?.revision;
        Ok(system)
    }

    /// Returns the progress of a job's operation of this number at its start.
    fn new_progress(&self, job: &PowerJob, number: usize) -> Progress {
        let operation = job.operations.get(number).cloned().unwrap_or_default();
        let timeout = plan::operation_timeout(&operation, &self.timing);
        let deadline = self.jobs.clock().wall() + timeout;
        Progress { deadline: millis(deadline), ..Progress::default() }
    }
}

/// Returns the operation that `job` is at; none if all are done.
fn present_operation(job: &PowerJob) -> Option<&Operation> {
    job.operations.get(usize::try_from(job.completed_operations).ok()?)
}

/// Returns the reason for which an operation is not done: `last`, or that an accepted request had no effect.
fn unverified(progress: &Progress, last: &str) -> String {
    match progress.accepted {
        true => format!("the BMC accepted {}, which had no effect", progress.request),
        false => last.to_owned(),
    }
}

/// Returns the time until an operation's deadline. An operation that is late still gets a short one: its effect may be there.
fn remaining(progress: &Progress, now: SystemTime) -> Duration {
    let left = progress.deadline.saturating_sub(millis(now));
    Duration::from_millis(u64::try_from(left).unwrap_or_default()).max(MIN_REQUEST_TIME)
}

/// No pause before the next step.
fn at_once(_: Head) -> Option<Duration> {
    Some(Duration::ZERO)
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(since).unwrap_or(i64::MAX)
}
