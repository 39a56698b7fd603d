//! The next request to a BMC, chosen from its state and from earlier requests. Pure: no clock, no network.
//!
//! An operation is done when its effect reads back. An accepted request is not enough, except for a forced restart, which
//! may leave no other sign. An effect that is there already needs no request.

pub(crate) mod boot;
mod media;
mod power;

use std::time::Duration;

use runtime::retry::Backoff;
use runtime::secret::Secret;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::What;

use crate::forms::{AcceptedForms, EjectMedia, InsertForm};
use crate::redfish::{Power, System};
use crate::stored::Progress;

/// Maximum number of failures of a request in the BMC, after which it counts as refused.
const MAX_INTERNAL_ERRORS: usize = 3;

/// Intervals and limits of the reconciler.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The interval between two readings of a BMC that is working.
    pub poll: Duration,
    /// The time for the effect of a request, before another one is sent.
    pub effect_timeout: Duration,
    /// The time for a graceful shutdown whose operation names none.
    pub shutdown_timeout: Duration,
    /// The time for one operation.
    pub operation_timeout: Duration,
    /// The delay between attempts.
    pub backoff: Backoff,
    /// The most attempts at an operation.
    pub max_attempts: i32,
    /// The time without renewal after which another process takes over a claim.
    pub claim: Duration,
}

impl Default for Timing {
    /// The limits in `docs/reference/power-jobs.md`.
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(2),
            effect_timeout: Duration::from_secs(45),
            shutdown_timeout: Duration::from_secs(120),
            operation_timeout: Duration::from_secs(600),
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
            max_attempts: 10,
            claim: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// Returns the delay after attempt number `attempt`, which failed. It is not shorter than the BMC's `retry_after`, which
    /// counts up to [`effect_timeout`](Self::effect_timeout).
    pub fn retry_delay(&self, attempt: i32, retry_after: Duration) -> Duration {
        let failures = u32::try_from(attempt.max(1)).unwrap_or_default();
        self.backoff.delay_after(failures).max(retry_after.min(self.effect_timeout))
    }
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The operation is done, with these deviations.
    Done(Vec<String>),
    /// Send this request.
    Send(Request),
    /// Wait for the BMC.
    Wait,
    /// The operation cannot be done, for this reason.
    Impossible(String),
}

/// A request to a BMC.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The unique name in progress records and messages.
    pub name: String,
    /// The call.
    pub call: Call,
    /// True if its effect is less than what is wanted: it is sent once all others are refused, or
    /// have no effect.
    pub is_last_resort: bool,
    /// True if the latest request was for the same effect, and the BMC accepted it without that
    /// effect.
    pub follows_ineffective: bool,
    /// The forms that the BMC accepts, if the request has its effect.
    pub forms: AcceptedForms,
}

/// A request that changes something.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `ComputerSystem.Reset` with this `ResetType`.
    Reset(&'static str),
    /// A change of the boot override.
    Boot {
        /// The wanted override.
        request: BootRequest,
        /// True for the system's settings resource, false for the system itself.
        in_settings: bool,
    },
    /// A change of the virtual drive that was read.
    Media(MediaCall),
}

/// A kind of virtual drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// CD or DVD.
    Cd,
    /// USB stick or floppy disk.
    Usb,
}

/// A change of a virtual drive. The URL of an image may have a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaCall {
    /// Insert an image.
    Insert {
        /// Its URL.
        image: Secret<String>,
        /// The parameters.
        form: InsertForm,
        /// The kind of the drive.
        kind: DriveKind,
    },
    /// Eject the image.
    Eject(EjectMedia),
}

/// Returns the virtual drive that has to be read for `operation`.
pub fn drive_of(operation: &pb::Operation) -> Option<DriveKind> {
    match &operation.what {
        Some(What::InsertMedia(media)) => Some(DriveKind::of(media.drive)),
        Some(What::EjectMedia(drive)) => Some(DriveKind::of(*drive)),
        Some(What::Power(_) | What::Boot(_)) | None => None,
    }
}

/// Returns `text`, which quotes a BMC, without the URL of the image of `operation`.
pub fn without_image(operation: Option<&pb::Operation>, text: String) -> String {
    match operation.and_then(|operation| operation.what.as_ref()) {
        Some(What::InsertMedia(media)) if !media.image_url.is_empty() => {
            text.replace(&media.image_url, "(URL of the image)")
        }
        Some(What::InsertMedia(_) | What::EjectMedia(_) | What::Power(_) | What::Boot(_))
        | None => text,
    }
}

/// The override that is requested, with Redfish's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootRequest {
    /// `Disabled`, `Once` or `Continuous`.
    pub enabled: &'static str,
    /// The boot device. None: unchanged.
    pub target: Option<&'static str>,
    /// `UEFI` or `Legacy`. None: unchanged.
    pub mode: Option<&'static str>,
    /// The file of a UEFI HTTP boot. Empty: unchanged.
    pub http_url: String,
}

/// Returns the next action for `operation`; `now` is in milliseconds since 1970.
pub fn next(
    operation: &pb::Operation,
    system: &System,
    progress: &Progress,
    accepted: &AcceptedForms,
    timing: &Timing,
    now: i64,
) -> Next {
    let choice = Choice { progress, accepted, timing, now };
    match &operation.what {
        Some(What::Boot(wanted)) => boot::next(wanted, system, choice),
        Some(What::Power(wanted)) => {
            let limit = soft_off_limit(operation, timing);
            power::next((*wanted).try_into().unwrap_or_default(), system, choice, limit)
        }
        Some(What::InsertMedia(wanted)) => media::insert(wanted, system, choice),
        Some(What::EjectMedia(drive)) => media::eject(*drive, system, choice),
        None => Next::Impossible("the operation is empty".into()),
    }
}

/// Returns the time that a graceful shutdown has.
fn soft_off_limit(operation: &pb::Operation, timing: &Timing) -> Duration {
    let limit = operation.soft_off_limit.and_then(|limit| Duration::try_from(limit).ok());
    limit.unwrap_or(timing.shutdown_timeout)
}

/// Returns the time that `operation` has, with that of a graceful shutdown.
pub fn operation_timeout(operation: &pb::Operation, timing: &Timing) -> Duration {
    let limit = operation.soft_off_limit.map(|_| soft_off_limit(operation, timing));
    timing.operation_timeout + limit.unwrap_or_default()
}

/// The earlier requests, and the limits for the next one.
#[derive(Clone, Copy)]
struct Choice<'a> {
    progress: &'a Progress,
    accepted: &'a AcceptedForms,
    timing: &'a Timing,
    now: i64,
}

impl Choice<'_> {
    /// True if `name` was the latest request and the BMC accepted it.
    fn is_accepted(self, name: &str) -> bool {
        self.progress.accepted && self.progress.request == name
    }

    /// True if the latest request may still take effect within `limit`.
    fn is_pending(self, limit: Duration) -> bool {
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let waited = self.now.saturating_sub(self.progress.request_time);
        // If the clock was set back, there is no wait.
        self.progress.accepted && (0..limit).contains(&waited)
    }

    /// The number of times that a request failed in the BMC.
    fn failures(self, name: &str) -> usize {
        self.progress.faltered.iter().filter(|faltered| *faltered == name).count()
    }

    /// True unless the request was refused, or failed too often.
    fn is_usable(self, name: &str) -> bool {
        let is_refused = self.progress.refused.iter().any(|refused| refused == name);
        !is_refused && self.failures(name) < MAX_INTERNAL_ERRORS
    }

    /// True if the BMC accepted the request, and it had no effect. The time for the effect of the
    /// latest one has to be over.
    fn is_ineffective(self, name: &str) -> bool {
        self.is_accepted(name) || self.progress.ineffective.iter().any(|other| other == name)
    }

    /// Chooses the first usable one of `requests`. One that failed in the BMC comes after those
    /// that did not, a last resort after those, and an accepted one without effect after all
    /// others.
    fn send_first(self, requests: Vec<Request>) -> Next {
        let last = requests.iter().position(|request| request.name == self.progress.request);
        if last.is_some() && self.is_pending(self.timing.effect_timeout) {
            return Next::Wait;
        }
        // Not accepted: the request may or may not have arrived, so it is repeated.
        let begin = last.map_or(0, |at| at + usize::from(self.progress.accepted));
        let in_turn = requests.iter().cycle().skip(begin).take(requests.len());
        let usable = in_turn.filter(|request| self.is_usable(&request.name));
        let rank = |request: &&Request| {
            let Request { name, is_last_resort, .. } = request;
            (self.is_ineffective(name), *is_last_resort, self.failures(name))
        };
        let follows_ineffective = last.is_some() && self.progress.accepted;
        match usable.min_by_key(rank) {
            Some(request) => Next::Send(Request { follows_ineffective, ..request.clone() }),
            None if requests.is_empty() => {
                Next::Impossible("the BMC supports no way to do it".into())
            }
            None => {
                let names: Vec<_> = requests.iter().map(|request| request.name.as_str()).collect();
                Next::Impossible(format!("the BMC refused {}", names.join(", ")))
            }
        }
    }
}

/// Returns those of the refusals of one operation that hold for the next ones of the job.
pub fn lasting_refusals(refused: Vec<String>) -> Vec<String> {
    refused.into_iter().filter(|name| power::LASTING.contains(&name.as_str())).collect()
}

/// Returns `progress` when `request` is sent at the time `now`, in milliseconds since 1970.
pub fn record_request(mut progress: Progress, request: &Request, now: i64) -> Progress {
    let former = std::mem::replace(&mut progress.request, request.name.clone());
    if request.follows_ineffective && !progress.ineffective.contains(&former) {
        progress.ineffective.push(former);
    }
    progress.request_time = now;
    progress.accepted = false;
    progress.forms = request.forms.clone().into();
    progress
}

/// Returns `progress` after a reading of the machine.
pub fn observe(mut progress: Progress, system: &System) -> Progress {
    progress.was_off |= system.power == Power::Off;
    if progress.request.is_empty() {
        progress.reset_time.clone_from(&system.reset_time);
        progress.boot_mode.clone_from(&system.boot.mode);
    }
    progress
}

#[cfg(test)]
mod tests;
