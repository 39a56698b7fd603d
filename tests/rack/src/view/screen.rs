//! The lines of the view, for a terminal of any size.

use console::{measure_text_width, truncate_str};

use super::state::{ActionProgress, MachineState, RackState};

/// The style of a part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The terminal's own.
    Plain,
    /// A name or a title.
    Bold,
    /// Less important.
    Dim,
    /// In progress.
    Active,
    /// A success.
    Good,
    /// A failure.
    Bad,
}

/// A part of a line in one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its style.
    pub style: Style,
    /// Its text, without control characters.
    pub text: String,
}

/// A line of the view.
pub type Line = Vec<Span>;

/// Lines of the log that are always visible.
const MIN_LOG_LINES: usize = 4;
/// The highest number of a console's lines.
const MAX_CONSOLE_LINES: usize = 8;
/// Columns of the progress bar.
const BAR_COLUMNS: u64 = 24;

/// Returns the lines of `state`: exactly `height`, each at most `width` columns wide.
pub fn lines(state: &RackState, width: usize, height: usize) -> Vec<Line> {
    let mut lines = vec![title(state, width), Vec::new()];
    let consoles = console_lines(state.machines.len(), height);
    for machine in &state.machines {
        lines.extend(machine_lines(machine, width, consoles));
        lines.push(Vec::new());
    }
    let left = height.saturating_sub(lines.len());
    let first = state.log.len().saturating_sub(left);
    let log = state.log.iter().skip(first);
    lines.extend(log.map(|line| vec![span(Style::Plain, line.to_string())]));
    lines.resize(height, Vec::new());
    lines.into_iter().map(|line| truncate(line, width)).collect()
}

/// Returns the number of lines for each console if `machines` share `height` lines.
fn console_lines(machines: usize, height: usize) -> usize {
    // The title and a blank line; of each machine its name, boot, action, and a blank line.
    let others = 2 + machines * 4 + MIN_LOG_LINES;
    let each = height.saturating_sub(others).checked_div(machines).unwrap_or_default();
    each.clamp(1, MAX_CONSOLE_LINES)
}

fn span(style: Style, text: impl Into<String>) -> Span {
    Span { style, text: text.into() }
}

/// Returns the line with the elapsed time at its end.
fn title(state: &RackState, width: usize) -> Line {
    let seconds = state.elapsed.as_secs();
    let elapsed = format!("{}:{:02}", seconds / 60, seconds % 60);
    let title = vec![
        span(Style::Bold, "Tinwright"),
        span(Style::Dim, "  installs machines over the network"),
    ];
    align_right(title, span(Style::Bold, elapsed), width)
}

/// Returns `line` with `end` at the right edge, or after one space if there is no room.
fn align_right(mut line: Line, end: Span, width: usize) -> Line {
    let used: usize = line.iter().chain([&end]).map(|part| measure_text_width(&part.text)).sum();
    line.push(span(Style::Plain, " ".repeat(width.saturating_sub(used).max(1))));
    line.push(end);
    line
}

/// Returns the lines of a machine: name and state, boot, action, and `consoles` lines of its console.
fn machine_lines(machine: &MachineState, width: usize, consoles: usize) -> Vec<Line> {
    let name = vec![
        span(Style::Bold, format!("{:<4}", machine.name)),
        span(Style::Dim, machine.description.clone()),
    ];
    let mut lines = vec![align_right(name, instance_state(machine), width)];
    lines.push(vec![span(Style::Dim, "  boot    "), boot(machine)]);
    let mut action = vec![span(Style::Dim, "  action  ")];
    match &machine.action {
        Some(running) => action.extend(action_spans(running)),
        None => action.push(span(Style::Dim, "none yet")),
    }
    lines.push(action);
    let first = machine.console.len().saturating_sub(consoles);
    let mut console: Vec<Line> = machine.console.iter().skip(first).map(console_line).collect();
    console.resize(consoles, console_line(""));
    lines.extend(console);
    lines
}

/// Returns the state of the instance, with its reason if there is one.
fn instance_state(machine: &MachineState) -> Span {
    let style = match machine.state.as_str() {
        "active" => Style::Good,
        "failed" | "deprovision_failed" => Style::Bad,
        _ => Style::Active,
    };
    match machine.reason.as_str() {
        "" => span(style, machine.state.clone()),
        reason => span(style, format!("{}: {reason}", machine.state)),
    }
}

/// Returns the steps of the last boot.
fn boot(machine: &MachineState) -> Span {
    let steps = machine.boot_steps.join(" › ");
    match machine.boots {
        0 => span(Style::Dim, "none yet"),
        1 => span(Style::Plain, steps),
        number => span(Style::Plain, format!("{number}: {steps}")),
    }
}

/// Returns name and phase of an action, and its progress if the size is known.
fn action_spans(action: &ActionProgress) -> Line {
    let mut line = vec![span(Style::Plain, format!("{} {}", action.name, action.phase))];
    if let Some(percent) = action.percent() {
        let done = percent * BAR_COLUMNS / 100;
        let bar = |columns: u64, sign: &str| {
            std::iter::repeat_n(sign, columns.try_into().unwrap_or_default()).collect::<String>()
        };
        line.push(span(Style::Active, format!("  {}", bar(done, "━"))));
        line.push(span(Style::Dim, bar(BAR_COLUMNS - done, "─")));
        let [bytes, total] = [action.bytes, action.total_bytes].map(|bytes| bytes >> 20);
        line.push(span(Style::Plain, format!(" {percent:>3} %  {bytes} of {total} MiB")));
    }
    line
}

fn console_line(text: impl Into<String>) -> Line {
    vec![span(Style::Dim, "  │ "), span(Style::Dim, text)]
}

/// Cuts `line` at `width` columns. Parts that are not visible are removed.
fn truncate(line: Line, width: usize) -> Line {
    let mut left = width;
    let mut cut = Vec::new();
    for Span { style, text } in line {
        if left == 0 {
            break;
        }
        let text = truncate_str(&text, left, "…").into_owned();
        left -= measure_text_width(&text).min(left);
        if !text.is_empty() {
            cut.push(Span { style, text });
        }
    }
    cut
}
