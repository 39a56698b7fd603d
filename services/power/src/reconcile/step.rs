//! One step for one machine: check the claim, read the BMC, decide, store the request, send it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use runtime::retry::Backoff;
use store::records;
use tinwright::power::v1::{Operation, PowerJob};

use crate::Error;
use crate::bmc_client::{self, BmcClient};
use crate::claim::{ClaimOwner, ClaimView};
use crate::forms::AcceptedForms;
use crate::jobs::{Head, Jobs};
use crate::plan::{self, DriveKind, Next, Request, Timing};
use crate::redfish::System;
use crate::state::{Event, of_operation};
use crate::stored::{BestRefusal, Progress, Queue};

/// The delays after errors of the store.
pub(super) const STORE_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
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
                Box::pin(self.advance(head, progress, &system)).await
            }
            Err(Error::Bmc(error)) => self.retry_reading(&head, progress, &error).await,
            Err(
                error @ (Error::NoBmc { .. }
                | Error::OtherMachine(_)
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
                if let Some((_, bmc)) = self.bmc.take() {
                    bmc.close().await;
                }
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
        let accepted = self.accepted_forms();
        match plan::next(operation, system, &progress, &accepted, &self.timing, now) {
            Next::Done(downgrades) => {
                if progress.accepted {
                    self.note_forms(progress.forms.clone()).await?;
                }
                let verified = Event::Verified(downgrades);
                let refused = plan::lasting_refusals(progress.refused);
                let progress = Progress { refused, ..self.new_progress(job, number + 1) };
                let head = self.record(&head, verified, Some(progress)).await?;
                let done = head.job.completed_operations;
                tracing::info!(job.id = head.job.id, done, "power operation verified");
                Ok(at_once(head))
            }
            Next::Impossible(reason) => {
                let best = best_reason(&progress, &job.state_reason);
                self.fail(&head, format!("{reason}; {best}")).await
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
            Next::Send(_) if attempts(job, &progress) >= self.timing.max_attempts => {
                let reason = unverified(&progress, &job.state_reason);
                let reason = format!("failed {} times; {reason}", attempts(job, &progress));
                self.fail(&head, reason).await
            }
            Next::Send(request) => self.send(head, progress, system, request).await,
        }
    }

    /// Stores the next request, sends it, and stores the response.
    async fn send(
        &mut self,
        head: Head,
        progress: Progress,
        system: &System,
        request: Request,
    ) -> Result<Option<Duration>, Error> {
        let now = millis(self.jobs.clock().wall());
        let mut progress = plan::record_request(progress, &request, now);
        let Request { name, call, .. } = request;
        let intent = Event::Try(format!("sending {name}"));
        let head = self.record(&head, intent, Some(progress.clone())).await?;
        let attempts = attempts(&head.job, &progress);
        let limit = remaining(&progress, self.jobs.clock().wall());
        let (head, response) = self.call(head, system, &call, limit).await?;
        let Err(error) = response else {
            progress.accepted = true;
            let note = Event::Note(format!("waiting for the effect of {name}"));
            return self.record(&head, note, Some(progress)).await.map(at_once);
        };
        // The BMC may quote the URL of an image, which is secret.
        let reason = plan::without_image(present_operation(&head.job), error.in_full());
        let is_refused = error.is_refusal();
        if !is_refused && !error.is_transient() {
            return self.fail(&head, reason).await;
        }
        let text = format!("{name}: {reason}");
        let note = Event::Note(text.clone());
        let delay = self.timing.retry_delay(attempts, error.retry_after());
        note_refusal(&mut progress, name, text, &error);
        self.record(&head, note, Some(progress)).await?;
        Ok(Some(if is_refused { Duration::ZERO } else { delay }))
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
        let attempts = attempts(&head.job, &progress);
        if !error.is_transient() || attempts >= self.timing.max_attempts || !in_time {
            return self.fail(head, error.in_full()).await;
        }
        self.record(head, Event::Try(error.in_full()), Some(progress)).await?;
        Ok(Some(self.timing.retry_delay(attempts.saturating_add(1), error.retry_after())))
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
        let record = bmcs.check_login(record, &system.uuid, async || bmc.macs().await).await?;
        *revision = bmcs.pin(record, &bmc.learnt()).await?.revision;
        Ok(system)
    }

    /// Returns the forms of requests that the BMC accepted.
    fn accepted_forms(&self) -> AcceptedForms {
        let accepted = self.bmc.as_ref().map(|(_, bmc)| bmc.accepted());
        accepted.unwrap_or_default()
    }

    /// Stores the forms of a request whose effect was verified.
    async fn note_forms(&mut self, forms: BTreeMap<String, String>) -> Result<(), Error> {
        let Some((revision, bmc)) = &mut self.bmc else { return Ok(()) };
        bmc.accept(forms.into());
        let record = self.jobs.bmcs.get_by_hardware(&self.hardware).await?;
        if record.revision == *revision {
            *revision = self.jobs.bmcs.pin(record, &bmc.learnt()).await?.revision;
        }
        Ok(())
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

/// Returns the attempts at the present operation of `job`. Refusals are none.
fn attempts(job: &PowerJob, progress: &Progress) -> i32 {
    job.attempt.saturating_sub(progress.refusals)
}

/// Notes in `progress` that the request `name` was refused, or failed in the BMC, with the answer in `text`.
fn note_refusal(progress: &mut Progress, name: String, text: String, error: &bmc_client::Error) {
    if error.is_refusal() {
        progress.refused.push(name);
        progress.refusals += 1;
    } else if error.is_internal() {
        progress.faltered.push(name);
    } else {
        return;
    }
    if let Some(messages) = error.messages() {
        progress.missing.extend_from_slice(&messages.missing);
        progress.unwanted.extend_from_slice(&messages.unwanted);
    }
    // Of answers that tell as much, the first one: that to the preferred request.
    let rank = error.relevance() as i32;
    if progress.refusal.as_ref().is_none_or(|best| best.rank < rank) {
        progress.refusal = Some(BestRefusal { text, rank });
    }
}

/// Returns the most useful refusal, else `last`.
fn best_reason<'a>(progress: &'a Progress, last: &'a str) -> &'a str {
    progress.refusal.as_ref().map_or(last, |best| &best.text)
}

/// Returns the reason for which an operation is not done: the most useful refusal or `last`, after
/// an accepted request without effect if that was the latest.
fn unverified(progress: &Progress, last: &str) -> String {
    if !progress.accepted {
        return best_reason(progress, last).to_owned();
    }
    let ignored = format!("the BMC accepted {}, which had no effect", progress.request);
    match &progress.refusal {
        Some(best) => format!("{ignored}; {}", best.text),
        None => ignored,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_operation_without_effect_quotes_an_earlier_refusal_too() {
        let accepted = Progress { request: "boot".into(), accepted: true, ..Progress::default() };
        let ignored = "the BMC accepted boot, which had no effect";
        assert_eq!(unverified(&accepted, "x"), ignored);
        let text = "clear: BootSourceOverrideTarget is missing".to_owned();
        let refusal = Some(BestRefusal { text: text.clone(), rank: 1 });
        let refused = Progress { refusal, ..accepted };
        assert_eq!(unverified(&refused, "x"), format!("{ignored}; {text}"));
        assert_eq!(unverified(&Progress { accepted: false, ..refused }, "x"), text);
        assert_eq!(unverified(&Progress::default(), "x"), "x");
    }
}
