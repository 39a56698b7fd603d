//! One turn of one machine's jobs: see whose they are, read, decide, store the intent, ask.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use store::records;

use crate::Error;
use crate::bmcs::By;
use crate::claim::{Sight, Whose};
use crate::jobs::{Head, Jobs, TRIES};
use crate::plan::{self, Ask, Next, Pace};
use crate::redfish::{self, Redfish, System};
use crate::state::Event;
use crate::stored::{Progress, Queue};

/// What comes after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The queue is empty.
    Idle,
    /// Another turn, after this pause.
    Again(Duration),
}

const AT_ONCE: Outcome = Outcome::Again(Duration::ZERO);
/// After how many tries a BMC that fails by itself is believed to know no other answer to what it was asked.
const CONVINCED: i32 = 3;

/// Carries out the jobs of one machine.
#[derive(Debug)]
pub struct Worker {
    jobs: Jobs,
    hardware: String,
    pace: Pace,
    /// The BMC that is logged in to, and the revision of the record that says how.
    bmc: Option<(i64, Redfish)>,
    sight: Sight,
    /// When the claim was last written; nothing where there is none of ours.
    renewed: Option<Instant>,
}

impl Worker {
    /// For the machine `hardware`.
    pub fn new(jobs: Jobs, hardware: String, pace: Pace) -> Self {
        Self { jobs, hardware, pace, bmc: None, sight: Sight::default(), renewed: None }
    }

    /// Whose jobs it carries out.
    pub fn hardware(&self) -> &str {
        &self.hardware
    }

    /// Logs out of the BMC, and lets others go on.
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

    /// Takes the first job of the queue one step further. An error changes nothing: the next turn begins from what is stored.
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
        // A machine that got there while nobody looked is done, however late it is.
        let system = match self.read(&head).await? {
            Ok(system) => system,
            Err(trouble) => return self.retry(&head, progress, trouble, now).await,
        };
        let seen = plan::observed(&progress, &system);
        self.step(head, seen, &system, now).await
    }

    /// `queue`, claimed for this process; nothing while it is another's.
    async fn claimed(&mut self, queue: Queue) -> Result<Option<Queue>, Error> {
        let (now, us) = (Instant::now(), self.jobs.process());
        match self.sight.look(queue.claim.as_ref(), us, self.pace.claim, now) {
            Whose::Anothers => {
                self.renewed = None;
                return Ok(None);
            }
            Whose::Ours if self.renewed.is_some_and(|at| now < at + self.pace.claim / 3) => {
                return Ok(Some(queue));
            }
            Whose::Ours => {
                let queue = self.jobs.renew(&self.hardware).await?;
                self.renewed = Some(now);
                return Ok(Some(queue));
            }
            Whose::Nobodys => {}
        }
        if let Some(silent) = &queue.claim {
            tracing::warn!(silent = silent.holder, "goes on with what another process had begun");
        }
        let queue = self.jobs.take(&queue).await?;
        self.renewed = Some(now);
        Ok(Some(queue))
    }

    /// Stores what happened, which renews the claim. Only its holder writes how far a job is, so what others do to the queue
    /// meanwhile (they add a job, or call off one behind) is no reason to decide again.
    async fn record(
        &mut self,
        head: &Head,
        event: Event,
        progress: Option<Progress>,
    ) -> Result<Head, Error> {
        let now = Instant::now();
        let (mut head, mut tries) = (head.clone(), TRIES);
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

    /// Does what the machine as it reads calls for.
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

    /// Stores what is about to be asked, and asks it.
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
            Err(error) if error.is_refusal() || error.is_internal() && tries >= CONVINCED => {
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

    /// Asks, and waits for the answer, keeping the claim meanwhile. The first look is at the clock: a process that was held up
    /// since it stored its intent may have lost the machine.
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

    /// Tries again later after a failed reading, or not at all.
    async fn retry(
        &mut self,
        head: &Head,
        progress: Progress,
        trouble: Trouble,
        now: SystemTime,
    ) -> Result<Outcome, Error> {
        let Trouble { text, again } = trouble;
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

    /// What the machine's BMC says now, or why it says nothing. Fails where the store does.
    async fn read(&mut self, head: &Head) -> Result<Result<System, Trouble>, Error> {
        let hardware = head.job.hardware_id.parse();
        let Ok(hardware) = hardware else {
            return Ok(Err(Trouble::of("the job names no machine".into())));
        };
        let record = match self.jobs.bmcs().get(By::Hardware(hardware)).await {
            Err(Error::Records(records::Error::Missing { .. })) => {
                return Ok(Err(Trouble::of("the machine has no BMC any more".into())));
            }
            record => record?,
        };
        if self.bmc.as_ref().is_none_or(|(revision, _)| *revision != record.revision) {
            let target = match self.jobs.bmcs().target(&record).await {
                Err(Error::Broken(broken)) => return Ok(Err(Trouble::of(broken.to_string()))),
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
        let Some((_, bmc)) = &mut self.bmc else { return Ok(Err(Trouble::of("no client".into()))) };
        Ok(bmc.system().await.map_err(Trouble::from))
    }

    fn fresh(&self, now: SystemTime) -> Progress {
        let limit = i64::try_from(self.pace.deadline.as_millis()).unwrap_or(i64::MAX);
        Progress { deadline: millis(now).saturating_add(limit), ..Progress::default() }
    }
}

/// Why a BMC could not be read.
#[derive(Debug)]
struct Trouble {
    text: String,
    /// After which pause it may be tried again, if it may.
    again: Option<Duration>,
}

impl Trouble {
    fn of(text: String) -> Self {
        Self { text, again: None }
    }
}

impl From<redfish::Error> for Trouble {
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
