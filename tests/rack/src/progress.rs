//! Prints the progress of `cargo rack`: a line per event, and below them a progress bar per machine.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tinwright::workflow::v1::{ActionState, Workflow};

/// Prints lines and bars. Without a terminal there are only lines.
#[derive(Clone, Debug)]
pub(crate) struct ProgressPrinter {
    start: Instant,
    bars: MultiProgress,
}

/// Prints the progress of one machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineProgress {
    printer: ProgressPrinter,
    machine: Arc<str>,
    bar: ProgressBar,
}

impl ProgressPrinter {
    /// Lines show the time since this call.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), bars: MultiProgress::new() }
    }

    /// Prints `text` with the elapsed time.
    pub(crate) fn line(&self, text: impl Display) {
        let time = self.start.elapsed().as_secs_f64();
        self.bars.suspend(|| eprintln!("{time:>5.0} s  {text}"));
    }

    /// Adds a progress bar for `machine`.
    pub(crate) fn for_machine(&self, machine: &str) -> MachineProgress {
        let bar = self.bars.add(ProgressBar::new(0).with_prefix(machine.to_owned()));
        let template = "         {prefix} {bar:30} {percent:>3} %  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        MachineProgress { printer: self.clone(), machine: machine.into(), bar }
    }
}

impl MachineProgress {
    /// Prints the new state of the machine's instance, with the reason if there is one.
    pub(crate) fn print_state(&self, state: &str, reason: &str) {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        self.printer.line(format_args!("{} is {state}{reason}", self.machine));
    }

    /// Updates the bar with the progress of `work`; prints a line when another action or phase begins.
    pub(crate) fn print_work(&self, work: &Workflow) {
        let running = work.actions.iter().find(|action| action.state() == ActionState::Running);
        let Some(action) = running else { return };
        let progress = action.progress.unwrap_or_default();
        let phase = progress.phase().as_str_name().trim_start_matches("PHASE_").to_lowercase();
        let activity = format!("{} {phase}", action.name);
        if self.bar.message() != activity {
            self.printer.line(format_args!("{}: {activity}", self.machine));
            self.bar.set_message(activity);
        }
        self.bar.set_length(progress.total_bytes);
        self.bar.set_position(progress.bytes);
    }
}
