//! Progress and log of a running action.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tinwright::workflow::v1::{Progress as ProgressMessage, progress::Phase as PhaseMessage};
use tokio::sync::watch;
use worker::Progress;
use worker::progress::{Phase, Report};

use super::log::{Log, LogPosition};

/// Records reports and output of an action without blocking it.
#[derive(Debug, Default)]
pub(crate) struct ProgressRecorder {
    last_report: watch::Sender<Option<Report>>,
    /// All output.
    pub(crate) log: Log,
    position: Mutex<LogPosition>,
}

impl ProgressRecorder {
    /// Subscribes to the latest report.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Report>> {
        self.last_report.subscribe()
    }

    /// The position up to which the log is sent.
    pub(crate) fn position(&self) -> MutexGuard<'_, LogPosition> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for ProgressRecorder {
    fn report(&self, report: Report) {
        let before = self.last_report.borrow().as_ref().map(|last| mem::discriminant(&last.phase));
        // The log has one line per change of phase, not per report.
        if let Phase::Waiting(reason) = &report.phase {
            self.log.write(format!("waiting at byte {}: {reason}\n", report.done).as_bytes());
        } else if before != Some(mem::discriminant(&report.phase)) {
            let name = phase(&report.phase).as_str_name().trim_start_matches("PHASE_");
            self.log.write(format!("{}\n", name.to_lowercase()).as_bytes());
        }
        self.last_report.send_replace(Some(report));
    }

    fn output(&self, bytes: &[u8]) {
        self.log.write(bytes);
    }
}

/// Converts `phase` into the enum value of the API.
fn phase(phase: &Phase) -> PhaseMessage {
    match phase {
        Phase::Writing => PhaseMessage::Writing,
        Phase::Verifying => PhaseMessage::Verifying,
        Phase::Wiping => PhaseMessage::Wiping,
        Phase::Waiting(_) => PhaseMessage::Waiting,
    }
}

/// Converts `report` into the message of the API.
pub(crate) fn to_proto(report: &Report) -> ProgressMessage {
    let total_bytes = report.total.unwrap_or_default();
    ProgressMessage {
        phase: phase(&report.phase).into(),
        bytes: report.done,
        total_bytes,
        time: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(recorder: &ProgressRecorder, phase: Phase, done: u64) {
        recorder.report(Report { phase, done, total: Some(100) });
    }

    #[test]
    fn the_log_has_one_line_per_change_of_phase() {
        let recorder = ProgressRecorder::default();
        report(&recorder, Phase::Writing, 10);
        report(&recorder, Phase::Writing, 20);
        report(&recorder, Phase::Waiting("connection refused".into()), 20);
        report(&recorder, Phase::Writing, 30);
        report(&recorder, Phase::Verifying, 0);
        let lines = "writing\nwaiting at byte 20: connection refused\nwriting\nverifying\n";
        assert_eq!(recorder.log.tail(), lines);
    }

    #[test]
    fn subscribers_see_the_latest_report() {
        let recorder = ProgressRecorder::default();
        let last = recorder.subscribe();
        report(&recorder, Phase::Writing, 10);
        report(&recorder, Phase::Writing, 20);
        let message = last.borrow().as_ref().map(to_proto).unwrap();
        assert_eq!(
            (message.phase(), message.bytes, message.total_bytes),
            (PhaseMessage::Writing, 20, 100)
        );
    }
}
