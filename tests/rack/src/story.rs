//! What a newcomer is told: a line for each turn of events, and below them a bar for each machine's work.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tinwright::workflow::v1::{ActionState, Workflow};

/// All of it. Without a terminal there are only lines.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    began: Instant,
    bars: MultiProgress,
}

/// One machine's part.
#[derive(Clone, Debug)]
pub(crate) struct Chapter {
    story: Story,
    machine: Arc<str>,
    bar: ProgressBar,
}

impl Story {
    /// Time runs from now on.
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), bars: MultiProgress::new() }
    }

    /// Says `what`, with the time since the beginning.
    pub(crate) fn say(&self, what: impl Display) {
        let time = self.began.elapsed().as_secs_f64();
        self.bars.suspend(|| eprintln!("{time:>5.0} s  {what}"));
    }

    /// The part of `machine`.
    pub(crate) fn of(&self, machine: &str) -> Chapter {
        let bar = self.bars.add(ProgressBar::new(0).with_prefix(machine.to_owned()));
        let looks = "         {prefix} {bar:30} {percent:>3} %  {msg}";
        if let Ok(style) = ProgressStyle::with_template(looks) {
            bar.set_style(style);
        }
        Chapter { story: self.clone(), machine: machine.into(), bar }
    }
}

impl Chapter {
    /// The machine's instance is in another state, for a reason or without one.
    pub(crate) fn say(&self, state: &str, reason: &str) {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        self.story.say(format_args!("{} is {state}{reason}", self.machine));
    }

    /// How far `work` on the machine is; a line where something else begins.
    pub(crate) fn show(&self, work: &Workflow) {
        let running = work.actions.iter().find(|action| action.state() == ActionState::Running);
        let Some(action) = running else { return };
        let progress = action.progress.unwrap_or_default();
        let phase = progress.phase().as_str_name().trim_start_matches("PHASE_").to_lowercase();
        let busy = format!("{} {phase}", action.name);
        if self.bar.message() != busy {
            self.story.say(format_args!("{}: {busy}", self.machine));
            self.bar.set_message(busy);
        }
        self.bar.set_length(progress.total_bytes);
        self.bar.set_position(progress.bytes);
    }
}
