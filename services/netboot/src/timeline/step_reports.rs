//! Reports of boot steps to the workflow service, which awaits the workers of machines and prepares those again that stand still.
//!
//! ```text
//! recorder ─steps of machines that a workflow wants─▶ channel ─the latest of each machine, every 30 s─▶ NoteBoot
//! ```
//!
//! A report that cannot be delivered is dropped: the next step is reported again, and without any the workflow service only waits
//! longer. A refused boot is an alarm: it is reported beside the steps, and until the report is delivered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use runtime::clock::sleep_until;
use runtime::retry::is_final;
use runtime::{Channel, Clock};
use tinwright::HardwareId;
use tinwright::netboot::v1::BootEventKind as Kind;
use tinwright::workflow::v1::NoteBootRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio::sync::mpsc;

use super::{BootOwner, BootStep, Event};
use crate::machine_view::Index;

/// The shortest time between two reports on a machine.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
/// The steps that may wait for the reporter.
const MAX_WAITING: usize = 1024;
/// Timeout of one report.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A step of a machine's boot, to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    machine: HardwareId,
    text: String,
    at: SystemTime,
    /// True if the boot was refused because it was not seen from its firmware on.
    is_refused: bool,
}

/// Selects the steps to report.
#[derive(Debug)]
pub struct StepObserver {
    index: Arc<Index>,
    reports: mpsc::Sender<StepReport>,
}

impl StepObserver {
    /// An observer of the machines in `index`, and the receiver of its reports.
    pub fn new(index: Arc<Index>) -> (Self, mpsc::Receiver<StepReport>) {
        let (reports, receiver) = mpsc::channel(MAX_WAITING);
        (Self { index, reports }, receiver)
    }

    /// Passes on `event`, if it brings a machine nearer to the worker that a workflow awaits.
    pub(super) fn observe(&self, event: &Event) {
        let BootOwner::Machine(machine) = event.owner else { return };
        let is_refused = event.step.is_unseen;
        let Some(text) = description(&event.step).or(is_refused.then(String::new)) else { return };
        if self.index.read().by_id(machine).is_some_and(|machine| machine.worker_wanted()) {
            let report = StepReport { machine, text, at: event.at, is_refused };
            let _full = self.reports.try_send(report);
        }
    }
}

/// Describes a step that a machine takes on its way to the worker; none for other events.
fn description(step: &BootStep) -> Option<String> {
    const NAMES: [(Kind, &str); 6] = [
        (Kind::DhcpAck, "DHCP"),
        (Kind::BinaryServed, "loader"),
        (Kind::ScriptServed, "script"),
        (Kind::KernelServed, "kernel"),
        (Kind::InitrdServed, "initramfs"),
        (Kind::Started, "started"),
    ];
    let (_, name) = NAMES.iter().find(|(kind, _)| *kind == step.kind)?;
    Some(if step.detail.is_empty() {
        (*name).to_owned()
    } else {
        format!("{name}: {}", step.detail)
    })
}

/// Delivers `reports` to the workflow service, until their sender is dropped.
pub(crate) async fn run(workflow: Channel, mut reports: mpsc::Receiver<StepReport>, clock: Clock) {
    let mut client = WorkflowServiceClient::new(workflow);
    let mut latest = LatestSteps::default();
    loop {
        tokio::select! {
            report = reports.recv() => match report {
                Some(report) => latest.add(report, clock.monotonic()),
                None => return,
            },
            () = sleep_until(latest.next_due()) => {}
        }
        while let Some(report) = latest.take_due(clock.monotonic()) {
            if !deliver(&mut client, &report).await && report.is_refused {
                latest.add(report, clock.monotonic());
            }
        }
    }
}

/// Sends `report`. False if it may be delivered later.
async fn deliver(client: &mut WorkflowServiceClient<Channel>, report: &StepReport) -> bool {
    let request = NoteBootRequest {
        hardware_id: report.machine.to_string(),
        step: report.text.clone(),
        time: Some(report.at.into()),
        refused: report.is_refused,
    };
    match tokio::time::timeout(CALL_TIMEOUT, client.note_boot(request)).await {
        Ok(Ok(_)) => true,
        Ok(Err(status)) => {
            let (code, reason) = (status.code(), status.message());
            tracing::debug!(?code, reason, "boot step not reported");
            is_final(code)
        }
        Err(_) => {
            tracing::debug!("boot step not reported: no answer in time");
            false
        }
    }
}

/// A machine, and true for its refused boots.
type Key = (HardwareId, bool);

/// The latest step and the latest refused boot of each machine that were not reported yet. No clock.
#[derive(Debug, Default)]
struct LatestSteps {
    /// None: reported a moment ago, and nothing is new since.
    machines: HashMap<Key, Option<StepReport>>,
    /// The time at which each machine's next report may be sent.
    due: BTreeSet<(Instant, Key)>,
}

impl LatestSteps {
    /// Adds a step, in place of an earlier one.
    fn add(&mut self, report: StepReport, now: Instant) {
        let key = (report.machine, report.is_refused);
        if self.machines.insert(key, Some(report)).is_none() {
            self.due.insert((now, key));
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes and returns a step to report.
    fn take_due(&mut self, now: Instant) -> Option<StepReport> {
        while self.next_due().is_some_and(|at| at <= now) {
            let (_, key) = self.due.pop_first()?;
            if let Some(report) = self.machines.remove(&key).flatten() {
                self.machines.insert(key, None);
                self.due.insert((now + REPORT_INTERVAL, key));
                return Some(report);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
