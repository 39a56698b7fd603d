//! How far a workflow is, on standard error: a bar for each action that says how many bytes it has done, and a line for each
//! change of state. Without a terminal there are only lines.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tinwright::workflow::v1 as pb;
use tonic::transport::Channel;

use super::{has_ended, table};
use crate::follow;

/// Shows the workflow with `id` until it ends. Any end but success is a failure.
pub(super) async fn show(channel: &Channel, id: &str) -> anyhow::Result<()> {
    let mut told = Told::default();
    let mut bars = Bars::new();
    let judge = |seen: Option<pb::Workflow>| {
        let Some(workflow) = seen else { return Some(Err(format!("workflow {id} is gone"))) };
        let plain = bars.is_none();
        told.news(&workflow, plain).iter().for_each(|line| print(bars.as_ref(), line));
        if let Some(bars) = &mut bars {
            bars.update(&workflow);
        }
        has_ended(workflow.state()).then(|| verdict(&workflow))
    };
    follow::until(channel, id, judge).await?.map_err(anyhow::Error::msg)
}

fn print(bars: Option<&Bars>, line: &str) {
    let printed = bars.map(|bars| bars.all.println(line));
    if !matches!(printed, Some(Ok(()))) {
        eprintln!("{line}");
    }
}

fn verdict(workflow: &pb::Workflow) -> Result<(), String> {
    if workflow.state() == pb::WorkflowState::Success {
        return Ok(());
    }
    let end = format!("workflow {} ended in {}", workflow.id, table::state(workflow.state()));
    Err(line(&end, &workflow.state_reason))
}

/// What was told already: each line is told once.
#[derive(Debug, Default)]
struct Told {
    lines: BTreeMap<String, String>,
}

impl Told {
    /// What is new: the workflow's state, then its actions'. How many bytes are done is among it if `plain`, by tenths.
    fn news(&mut self, workflow: &pb::Workflow, plain: bool) -> Vec<String> {
        let state = format!("workflow: {}", table::state(workflow.state()));
        let state = line(&state, &workflow.state_reason);
        let mut news: Vec<_> = self.told("", state).into_iter().collect();
        for action in &workflow.actions {
            let waits = action.state() == pb::ActionState::Pending;
            if waits && !self.lines.contains_key(&action.id) {
                continue; // to list what is yet to come is the table's task
            }
            let (name, state) = (table::name(action), table::action_state(action.state()));
            news.extend(self.told(&action.id, line(&format!("{name}: {state}"), &action.reason)));
            if plain && let Some(step) = step(action) {
                let told = self.told(&format!("{} progress", action.id), step);
                news.extend(told.map(|_| format!("{name}: {}", table::progress(action))));
            }
        }
        news
    }

    fn told(&mut self, of: &str, line: String) -> Option<String> {
        let before = self.lines.insert(of.to_owned(), line.clone());
        (before.as_ref() != Some(&line)).then_some(line)
    }
}

/// `what` and its reason, if there is one.
fn line(what: &str, reason: &str) -> String {
    if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
}

/// The phase and the tenth an action is in.
fn step(action: &pb::Action) -> Option<String> {
    let progress = action.progress.as_ref().filter(|_| table::is_running(action))?;
    let tenths = u128::from(progress.bytes) * 10;
    let tenth = tenths.checked_div(progress.total_bytes.into()).unwrap_or(0);
    Some(format!("{} {tenth}", progress.phase))
}

/// A bar for each action that says how many bytes it has done.
#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    each: BTreeMap<String, ProgressBar>,
}

impl Bars {
    /// Nothing where standard error is no terminal.
    fn new() -> Option<Self> {
        std::io::stderr().is_terminal().then(|| Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            each: BTreeMap::new(),
        })
    }

    fn update(&mut self, workflow: &pb::Workflow) {
        for action in &workflow.actions {
            match action.progress.as_ref().filter(|_| table::is_running(action)) {
                Some(progress) => self.bar(action).to(progress),
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

/// A bar that goes where an action is.
trait Bar {
    /// Shows `progress`; rate and remaining time begin anew with each phase.
    fn to(&self, progress: &pb::Progress);
}

impl Bar for ProgressBar {
    fn to(&self, progress: &pb::Progress) {
        if self.message() != progress.phase {
            self.reset();
            self.set_message(progress.phase.clone());
            self.set_style(style(progress.total_bytes > 0));
        }
        match progress.total_bytes {
            0 => self.unset_length(),
            total => self.set_length(total),
        }
        self.set_position(progress.bytes);
    }
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
    use pb::{ActionState, WorkflowState};

    fn workflow(state: WorkflowState, action: ActionState, bytes: u64) -> pb::Workflow {
        let progress =
            pb::Progress { phase: "writing".into(), bytes, total_bytes: 100, time: None };
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
        let mut told = Told::default();
        let mut lines = told.news(&workflow(WorkflowState::Pending, ActionState::Pending, 0), true);
        for bytes in [0, 5, 10, 19, 35] {
            let now = workflow(WorkflowState::Running, ActionState::Running, bytes);
            lines.extend(told.news(&now, true));
        }
        lines.extend(told.news(&workflow(WorkflowState::Success, ActionState::Success, 100), true));
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
    fn on_a_terminal_bytes_are_the_bars_to_show() {
        let running = workflow(WorkflowState::Running, ActionState::Running, 50);
        let lines = Told::default().news(&running, false);
        assert_eq!(lines, ["workflow: running", "os/stream: running"]);
    }

    #[test]
    fn a_bar_follows_its_action_through_its_phases() {
        let bar = ProgressBar::hidden();
        let mut progress =
            pb::Progress { phase: "writing".into(), bytes: 70, total_bytes: 100, time: None };
        bar.to(&progress);
        assert_eq!((bar.position(), bar.length()), (70, Some(100)));
        (progress.phase, progress.bytes, progress.total_bytes) = ("verifying".into(), 5, 0);
        bar.to(&progress);
        assert_eq!((bar.position(), bar.length(), bar.message().as_str()), (5, None, "verifying"));
    }

    #[test]
    fn any_end_but_success_is_a_failure() {
        let mut ended = workflow(WorkflowState::Success, ActionState::Success, 0);
        assert_eq!(verdict(&ended), Ok(()));
        ended.set_state(WorkflowState::Timeout);
        ended.state_reason = "os/stream took longer than 10m".into();
        let told = "workflow w1 ended in timeout: os/stream took longer than 10m";
        assert_eq!(verdict(&ended), Err(told.into()));
    }
}
