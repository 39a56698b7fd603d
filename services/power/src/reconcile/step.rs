//! One step for one machine: check the claim, read the BMC, decide, store the request, send it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use store::records;

use crate::Error;
use crate::bmcs::By;
use crate::claim::{ClaimOwner, ClaimView};
use crate::jobs::{Head, Jobs, MAX_REPETITIONS};
use crate::plan::{self, Ask, Next, Timing};
use crate::redfish::{self, Redfish, System};
use crate::state::Event;
use crate::stored::{Progress, Queue};

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The queue is empty.
    Idle,
    /// Another step is due after this pause.
    Again(Duration),
}

const AT_ONCE: Outcome = Outcome::Again(Duration::ZERO);
/// The attempts after which an internal error of a BMC counts as a refusal of the request.
const MAX_INTERNAL_ERRORS: i32 = 3;

/// Carries out the jobs of one machine.
#[derive(Debug)]
pub struct Worker {
    jobs: Jobs,
    hardware: String,
    pace: Timing,
    /// The client of the BMC, and the revision of the BMC's record that it was made from.
    bmc: Option<(i64, Redfish)>,
    sight: ClaimView,
    /// The time of the latest renewal of the claim; none while this process does not hold it.
    renewed: Option<Instant>,
}

impl Worker {
    /// A worker for the machine `hardware`.
    pub fn new(jobs: Jobs, hardware: String, pace: Timing) -> Self {
        Self { jobs, hardware, pace, bmc: None, sight: ClaimView::default(), renewed: None }
    }

    /// ClaimOwner jobs it carries out.
    pub fn hardware(&self) -> &str {
        &self.hardware
    }

    /// Logs out of the BMC and releases the claim.
    pub async fn close(self) {
        if let Some((_, bmc)) = self.bmc {
            bmc.close().await;
        }
        if self.renewed.is_some()
            && let Err(error) = self.jobs.leave(&self.hardware).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(
                error,
                hardware.id = self.hardware,
                "others wait for the claim to lapse"
            );
        }
    }

    /// Makes the next step of the first job. After an error the next step begins from the stored state.
    pub async fn turn(&mut self, now: SystemTime) -> Result<Outcome, Error> {
        let Some(queue) = self.jobs.queue(&self.hardware).await? else { return Ok(Outcome::Idle) };
        let Some(queue) = self.claimed(queue).await? else {
            return Ok(Outcome::Again(self.pace.poll));
        };
        let Some(head) = self.jobs.first(queue).await? else {
            self.jobs.leave(&self.hardware).await?;
            return Ok(Outcome::Idle);
        };
        let Some(progress) = head.queue.progress.clone() else {
            let fresh = self.fresh(now);
            self.record(&head, Event::Begin, Some(fresh)).await?;
            return Ok(AT_ONCE);
        };
        // The machine is read before deadlines are checked: an operation that is done counts, however late.
        let system = match self.read(&head).await? {
            Ok(system) => system,
            Err(trouble) => return self.retry(&head, progress, trouble, now).await,
        };
        let seen = plan::observed(&progress, &system);
        self.step(head, seen, &system, now).await
    }

    /// Claims `queue` for this process or renews its claim. Returns nothing while another process holds it.
    async fn claimed(&mut self, queue: Queue) -> Result<Option<Queue>, Error> {
        let (now, us) = (Instant::now(), self.jobs.process());
        match self.sight.look(queue.claim.as_ref(), us, self.pace.claim, now) {
            ClaimOwner::OtherProcess => {
                self.renewed = None;
                return Ok(None);
            }
            ClaimOwner::ThisProcess
                if self.renewed.is_some_and(|at| now < at + self.pace.claim / 3) =>
            {
                return Ok(Some(queue));
            }
            ClaimOwner::ThisProcess => {
                let queue = self.jobs.renew(&self.hardware).await?;
                self.renewed = Some(now);
                return Ok(Some(queue));
            }
            ClaimOwner::Nobody => {}
        }
        if let Some(silent) = &queue.claim {
            tracing::warn!(silent = silent.holder, "goes on with what another process had begun");
        }
        let queue = self.jobs.take(&queue).await?;
        self.renewed = Some(now);
        Ok(Some(queue))
    }

    /// Stores an event, which renews the claim. Only the holder of the claim writes progress, so other changes to the queue
    /// (a job is added, or a later one cancelled) do not require a new decision.
    async fn record(
        &mut self,
        head: &Head,
        event: Event,
        progress: Option<Progress>,
    ) -> Result<Head, Error> {
        let now = Instant::now();
        let (mut head, mut tries) = (head.clone(), MAX_REPETITIONS);
        loop {
            match self.jobs.record(&head, event.clone(), progress.clone()).await {
                Err(Error::Records(records::Error::Changed { .. })) if tries > 0 => {
                    tries -= 1;
                    head = self.jobs.still(&head).await?;
                }
                done => {
                    let head = done?;
                    self.renewed = Some(now);
                    return Ok(head);
                }
            }
        }
    }

    /// Does what the state of the machine requires.
    async fn step(
        &mut self,
        head: Head,
        seen: Progress,
        system: &System,
        now: SystemTime,
    ) -> Result<Outcome, Error> {
        let Some(operation) = operation(&head) else {
            return self.fail(&head, "the job has no further operation".into()).await;
        };
        match plan::next(operation, system, &seen, &self.pace, millis(now)) {
            Next::Done(downgrades) => {
                let fresh = self.fresh(now);
                let head = self.record(&head, Event::Verified(downgrades), Some(fresh)).await?;
                tracing::info!(
                    job.id = head.job.id,
                    done = head.job.completed_operations,
                    "verified"
                );
                Ok(AT_ONCE)
            }
            Next::Never(reason) => {
                let reason = [reason, head.job.state_reason.clone()].join("; ");
                self.fail(&head, reason).await
            }
            Next::Wait | Next::Ask(_) if millis(now) >= seen.deadline => {
                let (limit, last) = (self.pace.deadline.as_secs(), &head.job.state_reason);
                self.fail(&head, format!("not done in {limit} seconds; {last}")).await
            }
            Next::Wait => {
                if head.queue.progress.as_ref() != Some(&seen) {
                    let waits = Event::Note(head.job.state_reason.clone());
                    self.record(&head, waits, Some(seen)).await?;
                }
                Ok(Outcome::Again(self.pace.poll))
            }
            Next::Ask(_) if head.job.attempt >= self.pace.tries => {
                let (tries, last) = (head.job.attempt, head.job.state_reason.clone());
                self.fail(&head, format!("tried {tries} times; {last}")).await
            }
            Next::Ask(ask) => self.ask(head, seen, system, &ask, now).await,
        }
    }

    /// Stores the next request and sends it.
    async fn ask(
        &mut self,
        head: Head,
        mut progress: Progress,
        system: &System,
        ask: &Ask,
        now: SystemTime,
    ) -> Result<Outcome, Error> {
        progress.asked.clone_from(&ask.name);
        progress.asked_at = millis(now);
        progress.accepted = false;
        let intent = Event::Try(format!("asked: {}", ask.name));
        let head = self.record(&head, intent, Some(progress.clone())).await?;
        let tries = head.job.attempt;
        let (head, answer) = self.answered(head, system, ask).await?;
        match answer {
            Ok(()) => {
                progress.accepted = true;
                let waits = Event::Note(format!("waits for the effect of {}", ask.name));
                self.record(&head, waits, Some(progress)).await?;
                Ok(AT_ONCE)
            }
            Err(error)
                if error.is_refusal() || error.is_internal() && tries >= MAX_INTERNAL_ERRORS =>
            {
                progress.refused.push(ask.name.clone());
                let note = Event::Note(format!("{}: {}", ask.name, error.in_full()));
                self.record(&head, note, Some(progress)).await?;
                Ok(AT_ONCE)
            }
            Err(error) if error.is_transient() => {
                let note = Event::Note(format!("{}: {}", ask.name, error.in_full()));
                let head = self.record(&head, note, Some(progress)).await?;
                Ok(Outcome::Again(self.pace.pause(head.job.attempt, error.after())))
            }
            Err(error) => self.fail(&head, error.in_full()).await,
        }
    }

    /// Sends the request and renews the claim until the response arrives. The clock is read first: a process that was
    /// suspended since it stored the request may have lost its claim.
    async fn answered(
        &mut self,
        mut head: Head,
        system: &System,
        ask: &Ask,
    ) -> Result<(Head, Result<(), redfish::Error>), Error> {
        let Self { jobs, hardware, pace, bmc, renewed, .. } = self;
        let Some((_, bmc)) = bmc else {
            return Ok((head, Err(redfish::Error::Odd("nobody is logged in to it".into()))));
        };
        let mut asking = std::pin::pin!(bmc.ask(system, &ask.how));
        loop {
            let at = renewed.unwrap_or_else(Instant::now) + pace.claim / 3;
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at.into()) => {
                    let now = Instant::now();
                    head.queue = jobs.renew(hardware).await?;
                    *renewed = Some(now);
                }
                answer = &mut asking => return Ok((head, answer)),
            }
        }
    }

    /// Handles a failed reading: begins another attempt, or fails the job.
    async fn retry(
        &mut self,
        head: &Head,
        progress: Progress,
        trouble: ReadFailure,
        now: SystemTime,
    ) -> Result<Outcome, Error> {
        let ReadFailure { text, again } = trouble;
        let more = head.job.attempt < self.pace.tries && millis(now) < progress.deadline;
        let Some(after) = again.filter(|_| more) else {
            return self.fail(head, text).await;
        };
        let head = self.record(head, Event::Try(text), Some(progress)).await?;
        Ok(Outcome::Again(self.pace.pause(head.job.attempt, after)))
    }

    async fn fail(&mut self, head: &Head, reason: String) -> Result<Outcome, Error> {
        let reason = format!("operation {}: {reason}", head.job.completed_operations);
        tracing::warn!(job.id = head.job.id, reason, "a power job failed");
        self.record(head, Event::Fail(reason), None).await?;
        Ok(AT_ONCE)
    }

    /// Reads the system from the machine's BMC. The outer error is one of the store.
    async fn read(&mut self, head: &Head) -> Result<Result<System, ReadFailure>, Error> {
        let hardware = head.job.hardware_id.parse();
        let Ok(hardware) = hardware else {
            return Ok(Err(ReadFailure::of("the job names no machine".into())));
        };
        let record = match self.jobs.bmcs().get(By::Hardware(hardware)).await {
            Err(Error::Records(records::Error::Missing { .. })) => {
                return Ok(Err(ReadFailure::of("the machine has no BMC any more".into())));
            }
            record => record?,
        };
        if self.bmc.as_ref().is_none_or(|(revision, _)| *revision != record.revision) {
            let target = match self.jobs.bmcs().target(&record).await {
                Err(Error::Broken(broken)) => return Ok(Err(ReadFailure::of(broken.to_string()))),
                target => target?,
            };
            if let Some((_, old)) = self.bmc.take() {
                old.close().await;
            }
            match Redfish::new(target) {
                Ok(bmc) => self.bmc = Some((record.revision, bmc)),
                Err(error) => return Ok(Err(error.into())),
            }
        }
        let Some((_, bmc)) = &mut self.bmc else {
            return Ok(Err(ReadFailure::of("no client".into())));
        };
        Ok(bmc.system().await.map_err(ReadFailure::from))
    }

    fn fresh(&self, now: SystemTime) -> Progress {
        let limit = i64::try_from(self.pace.deadline.as_millis()).unwrap_or(i64::MAX);
        Progress { deadline: millis(now).saturating_add(limit), ..Progress::default() }
    }
}

/// A failed reading of a BMC.
#[derive(Debug)]
struct ReadFailure {
    text: String,
    /// The least pause before another attempt; none if it would be useless.
    again: Option<Duration>,
}

impl ReadFailure {
    fn of(text: String) -> Self {
        Self { text, again: None }
    }
}

impl From<redfish::Error> for ReadFailure {
    fn from(error: redfish::Error) -> Self {
        Self { text: error.in_full(), again: error.is_transient().then(|| error.after()) }
    }
}

fn operation(head: &Head) -> Option<&tinwright::power::v1::Operation> {
    head.job.operations.get(usize::try_from(head.job.completed_operations).ok()?)
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(since).unwrap_or(i64::MAX)
}
