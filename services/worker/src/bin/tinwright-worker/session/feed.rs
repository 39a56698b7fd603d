//! What a running action tells: its last report, for whoever sends it on, and lines for its log.

use std::mem;

use tinwright::workflow::v1::{Progress as Told, progress::Phase as ToldPhase};
use tokio::sync::watch;
use worker::Progress;
use worker::progress::{Phase, Report};

use super::log::Log;

/// Hears an action, and never makes it wait.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    last: watch::Sender<Option<Report>>,
    /// All that it wrote.
    pub(crate) log: Log,
}

impl Feed {
    /// Follows the reports.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<Report>> {
        self.last.subscribe()
    }
}

impl Progress for Feed {
    fn report(&self, report: Report) {
        let before = self.last.borrow().as_ref().map(|last| mem::discriminant(&last.phase));
        // The log has a line for each turn of events, not for each megabyte.
        if let Phase::Waiting(why) = &report.phase {
            self.log.write(format!("waiting at byte {}: {why}\n", report.done).as_bytes());
        } else if before != Some(mem::discriminant(&report.phase)) {
            self.log.write(format!("{}\n", name(&report.phase)).as_bytes());
        }
        self.last.send_replace(Some(report));
    }

    fn output(&self, bytes: &[u8]) {
        self.log.write(bytes);
    }
}

fn name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Writing => "writing",
        Phase::Verifying => "verifying",
        Phase::Wiping => "wiping",
        Phase::Waiting(_) => "waiting",
    }
}

/// `report` in the words of the contract.
pub(crate) fn told(report: &Report) -> Told {
    let total_bytes = report.total.unwrap_or_default();
    let phase = match report.phase {
        Phase::Writing => ToldPhase::Writing,
        Phase::Verifying => ToldPhase::Verifying,
        Phase::Wiping => ToldPhase::Wiping,
        Phase::Waiting(_) => ToldPhase::Waiting,
    };
    Told { phase: phase.into(), bytes: report.done, total_bytes, time: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(feed: &Feed, phase: Phase, done: u64) {
        feed.report(Report { phase, done, total: Some(100) });
    }

    #[test]
    fn the_log_has_a_line_for_each_turn_of_events() {
        let feed = Feed::default();
        report(&feed, Phase::Writing, 10);
        report(&feed, Phase::Writing, 20);
        report(&feed, Phase::Waiting("connection refused".into()), 20);
        report(&feed, Phase::Writing, 30);
        report(&feed, Phase::Verifying, 0);
        let lines = "writing\nwaiting at byte 20: connection refused\nwriting\nverifying\n";
        assert_eq!(feed.log.tail(), lines);
    }

    #[test]
    fn who_follows_sees_the_last_report() {
        let feed = Feed::default();
        let last = feed.follow();
        report(&feed, Phase::Writing, 10);
        report(&feed, Phase::Writing, 20);
        let told = last.borrow().as_ref().map(told).unwrap();
        assert_eq!((told.phase(), told.bytes, told.total_bytes), (ToldPhase::Writing, 20, 100));
    }
}
