//! Shows the progress of a workflow on standard error: a bar for each action that reports bytes, and a line for each change of
//! state. Without a terminal there are only lines.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use runtime::Channel;
use tinwright::workflow::v1 as pb;

use super::table;
use crate::{follow, output};

/// Shows the workflow with `id` until it ends. Any outcome but success is an error.
pub(super) async fn show(channel: &Channel, id: &str) -> anyhow::Result<()> {
    let mut lines = ShownLines::default();
    let mut bars = Bars::new();
    let result = |workflow: Option<pb::Workflow>| {
        let Some(workflow) = workflow else {
            return Some(Err(format!("workflow {id} was deleted")));
        };
        let plain = bars.is_none();
        lines.new_lines(&workflow, plain).iter().for_each(|line| print(bars.as_ref(), line));
        if let Some(bars) = &mut bars {
            bars.update(&workflow);
        }
        workflow.state().is_terminal().then(|| outcome(&workflow))
    };
    follow::until(channel, id, result).await
}

fn print(bars: Option<&Bars>, line: &str) {
    let printed = bars.map(|bars| bars.all.println(line));
    if !matches!(printed, Some(Ok(()))) {
        eprintln!("{line}");
    }
}

fn outcome(workflow: &pb::Workflow) -> Result<(), String> {
    if workflow.state() == pb::WorkflowState::Success {
        return Ok(());
    }
    let end = format!("workflow {} ended in {}", workflow.id, output::state(workflow));
    Err(line(&end, &workflow.state_reason))
}

/// The lines that were shown already: each is shown once.
#[derive(Debug, Default)]
struct ShownLines {
    lines: BTreeMap<String, String>,
}

impl ShownLines {
    /// Returns new lines: the workflow's state, then its actions'. If `plain`, they include progress, by tenths.
    fn new_lines(&mut self, workflow: &pb::Workflow, plain: bool) -> Vec<String> {
        let state = format!("workflow: {}", output::state(workflow));
        let state = line(&state, &workflow.state_reason);
        let mut new: Vec<_> = self.add("", state).into_iter().collect();
        for action in &workflow.actions {
            let waits = action.state() == pb::ActionState::Pending;
            if waits && !self.lines.contains_key(&action.id) {
                continue; // pending actions are in the table
            }
            let (name, state) = (table::name(action), action.state().word().replace('_', "-"));
            new.extend(self.add(&action.id, line(&format!("{name}: {state}"), &action.reason)));
            if plain && let Some(step) = step(action) {
                let added = self.add(&format!("{} progress", action.id), step);
                new.extend(added.map(|_| format!("{name}: {}", table::progress(action))));
            }
        }
        new
    }

    fn add(&mut self, of: &str, line: String) -> Option<String> {
        let before = self.lines.insert(of.to_owned(), line.clone());
        (before.as_ref() != Some(&line)).then_some(line)
    }
}

/// Joins a text and its reason, if there is one.
fn line(text: &str, reason: &str) -> String {
    if reason.is_empty() { text.to_owned() } else { format!("{text}: {reason}") }
}

/// Returns the phase of an action, and the tenth of it that is done.
fn step(action: &pb::Action) -> Option<String> {
    let progress = action.progress.as_ref().filter(|_| table::is_running(action))?;
    let tenths = u128::from(progress.bytes) * 10;
    let tenth = tenths.checked_div(progress.total_bytes.into()).unwrap_or(0);
    Some(format!("{} {tenth}", table::phase(progress)))
}

/// A bar for each action that reports bytes.
#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    each: BTreeMap<String, ProgressBar>,
}

impl Bars {
    /// Returns none if standard error is not a terminal.
    fn new() -> Option<Self> {
        std::io::stderr().is_terminal().then(|| Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            each: BTreeMap::new(),
        })
    }

    fn update(&mut self, workflow: &pb::Workflow) {
        for action in &workflow.actions {
            match action.progress.as_ref().filter(|_| table::is_running(action)) {
                Some(progress) => show_progress(self.bar(action), progress),
                None => self.each.remove(&action.id).iter().for_each(ProgressBar::finish_and_clear),
            }
        }
    }

    fn bar(&mut self, action: &pb::Action) -> &ProgressBar {
        let all = &self.all;
        self.each
            .entry(action.id.clone())
            .or_insert_with(|| all.add(ProgressBar::no_length().with_prefix(table::name(action))))
    }
}

/// Shows `progress` on `bar`. Rate and remaining time are reset with each phase.
fn show_progress(bar: &ProgressBar, progress: &pb::Progress) {
    let phase = table::phase(progress);
    if bar.message() != phase {
        bar.reset();
        bar.set_message(phase);
        bar.set_style(style(progress.total_bytes > 0));
    }
    match progress.total_bytes {
        0 => bar.unset_length(),
        total => bar.set_length(total),
    }
    bar.set_position(progress.bytes);
}

fn style(bounded: bool) -> ProgressStyle {
    let form = match bounded {
        true => "{prefix} {msg} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
        false => "{prefix} {msg} {bytes}, {bytes_per_sec}",
    };
    ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pb::{ActionState, WorkflowState, progress::Phase};

    fn workflow(state: WorkflowState, action: ActionState, bytes: u64) -> pb::Workflow {
        let progress =
            pb::Progress { phase: Phase::Writing.into(), bytes, total_bytes: 100, time: None };
        let action = pb::Action {
            id: "a1".into(),
            task_name: "os".into(),
            name: "stream".into(),
            state: action.into(),
            progress: Some(progress),
            ..pb::Action::default()
        };
        pb::Workflow {
            id: "w1".into(),
            state: state.into(),
            actions: vec![action],
            ..pb::Workflow::default()
        }
    }

    #[test]
    fn without_a_terminal_each_change_and_each_tenth_is_a_line() {
        let mut shown = ShownLines::default();
        let mut lines =
            shown.new_lines(&workflow(WorkflowState::Pending, ActionState::Pending, 0), true);
        for bytes in [0, 5, 10, 19, 35] {
            let now = workflow(WorkflowState::Running, ActionState::Running, bytes);
            lines.extend(shown.new_lines(&now, true));
        }
        lines.extend(
            shown.new_lines(&workflow(WorkflowState::Success, ActionState::Success, 100), true),
        );
        let wanted = [
            "workflow: pending",
            "workflow: running",
            "os/stream: running",
            "os/stream: writing 0 B of 100 B",
            "os/stream: writing 10 B of 100 B",
            "os/stream: writing 35 B of 100 B",
            "workflow: success",
            "os/stream: success",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn on_a_terminal_only_bars_show_bytes() {
        let running = workflow(WorkflowState::Running, ActionState::Running, 50);
        let lines = ShownLines::default().new_lines(&running, false);
        assert_eq!(lines, ["workflow: running", "os/stream: running"]);
    }

    #[test]
    fn a_bar_follows_its_action_through_its_phases() {
        let bar = ProgressBar::hidden();
        let mut progress =
            pb::Progress { phase: Phase::Writing.into(), bytes: 70, total_bytes: 100, time: None };
        show_progress(&bar, &progress);
        assert_eq!((bar.position(), bar.length()), (70, Some(100)));
        (progress.phase, progress.bytes, progress.total_bytes) = (Phase::Verifying.into(), 5, 0);
        show_progress(&bar, &progress);
        assert_eq!((bar.position(), bar.length(), bar.message().as_str()), (5, None, "verifying"));
    }

    #[test]
    fn any_outcome_but_success_is_an_error() {
        let mut ended = workflow(WorkflowState::Success, ActionState::Success, 0);
        assert_eq!(outcome(&ended), Ok(()));
        ended.set_state(WorkflowState::Timeout);
        ended.state_reason = "os/stream took longer than 10m".into();
        let error = "workflow w1 ended in timeout: os/stream took longer than 10m";
        assert_eq!(outcome(&ended), Err(error.into()));
    }
}
