//! The progress of `cargo rack`: a live view at a terminal, a line per event elsewhere.

use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use rack::machines::{Firmware, Machine};
use rack::view::recording::Recording;
use rack::view::state::{ActionProgress, LogLine, MachineState, RackState};
use rack::view::terminal::Terminal;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1::{Boot, BootEvent, BootEventKind};
use tinwright::workflow::v1::{ActionState, Workflow};

/// Percents of an action between two lines where there is no view.
const PERCENT_STEP: u64 = 25;

/// Collects what happens, and shows it.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: RackState,
    terminal: Option<Terminal>,
    recording: Option<Recording>,
}

impl Progress {
    /// Shows the time since this call. Records the view if `is_recorded`.
    pub(crate) fn new(is_recorded: bool) -> Self {
        let recording = is_recorded.then(Recording::default);
        let shared = Shared { recording, ..Default::default() };
        Self { start: Instant::now(), shared: Mutex::new(shared) }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Values are replaced as wholes: those of a panicked thread are usable.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `text` to the log, with the elapsed time.
    pub(crate) fn line(&self, text: impl Display) {
        let line = LogLine { at: self.start.elapsed(), text: text.to_string() };
        let mut shared = self.shared();
        if shared.terminal.is_none() {
            eprintln!("{line}");
        }
        shared.state.log.push(line);
    }

    /// Begins the view, if standard error is a terminal.
    pub(crate) fn begin_view(&self) {
        self.shared().terminal = Terminal::open();
    }

    /// Ends the view, and prints the log that it showed.
    pub(crate) fn end_view(&self) {
        let mut shared = self.shared();
        if shared.terminal.take().is_some() {
            shared.state.log.iter().for_each(|line| eprintln!("{line}"));
        }
    }

    /// Draws and records the current state.
    pub(crate) fn refresh(&self) {
        let mut shared = self.shared();
        let Shared { state, terminal, recording } = &mut *shared;
        state.elapsed = self.start.elapsed();
        if let Some(terminal) = terminal {
            terminal.draw(state);
        }
        if let Some(recording) = recording {
            recording.add(state);
        }
    }

    /// Writes the recording to `path`.
    pub(crate) fn write_recording(&self, path: &Path) -> anyhow::Result<()> {
        let svg = self.shared().recording.as_ref().context("nothing was recorded")?.svg();
        std::fs::write(path, svg).with_context(|| format!("writing {}", path.display()))
    }

    /// Adds a machine to the view.
    pub(crate) fn add_machine(&self, machine: &Machine) {
        let firmware = match machine.firmware {
            Firmware::Bios => "BIOS",
            Firmware::Uefi => "UEFI",
        };
        let description = format!("{firmware}  {}  {}", machine.mac, machine.address);
        let name = machine.name.clone();
        let machine = MachineState { name, description, ..Default::default() };
        self.shared().state.machines.push(machine);
    }

    /// Changes the state of the machine `name` with `change`, and adds the line that it returns to the log.
    fn update(&self, name: &str, change: impl FnOnce(&mut MachineState) -> Option<String>) {
        let mut shared = self.shared();
        let machine = shared.state.machines.iter_mut().find(|machine| machine.name == name);
        let text = machine.and_then(change);
        drop(shared);
        if let Some(text) = text {
            self.line(format_args!("{name}: {text}"));
        }
    }

    /// Shows the state of the instance on the machine `name`.
    pub(crate) fn set_instance(&self, name: &str, instance: &Instance) {
        let (state, reason) = (instance.state().word(), instance.state_reason.clone());
        self.update(name, |machine| {
            // The end of a reason is no event.
            let is_new_state = machine.state != state;
            let is_new_reason = !reason.is_empty() && machine.reason != reason;
            let text = match reason.as_str() {
                "" => state.clone(),
                reason => format!("{state}: {reason}"),
            };
            let text = (is_new_state || is_new_reason).then_some(text);
            (machine.state, machine.reason) = (state, reason);
            text
        });
    }

    /// Shows the running action of `work` on the machine `name`.
    pub(crate) fn set_work(&self, name: &str, work: &Workflow) {
        let running = work.actions.iter().find(|action| action.state() == ActionState::Running);
        let Some(action) = running else { return };
        let progress = action.progress.unwrap_or_default();
        let phase = progress.phase().as_str_name().trim_start_matches("PHASE_").to_lowercase();
        let action = ActionProgress {
            name: action.name.clone(),
            phase: phase.trim_start_matches("unspecified").to_owned(),
            bytes: progress.bytes,
            total_bytes: progress.total_bytes,
        };
        let has_view = self.shared().terminal.is_some();
        self.update(name, |machine| {
            let before = machine.action.replace(action.clone());
            action_line(&before.unwrap_or_default(), &action, has_view)
        });
    }

    /// Shows the steps of the last one of `boots` of the machine `name`.
    pub(crate) fn set_boots(&self, name: &str, boots: &[Boot]) {
        let Some(last) = boots.last() else { return };
        let steps: Vec<_> = last.events.iter().map(boot_step).collect();
        self.update(name, |machine| {
            let is_same_boot = machine.boots == boots.len();
            let old = if is_same_boot { machine.boot_steps.len() } else { 0 };
            let new = steps.get(old..).unwrap_or_default().join(", ");
            (machine.boots, machine.boot_steps) = (boots.len(), steps);
            (!new.is_empty()).then(|| format!("boot {}: {new}", boots.len()))
        });
    }

    /// Shows the last lines of the console of the machine `name`.
    pub(crate) fn set_console(&self, name: &str, lines: Vec<String>) {
        self.update(name, |machine| {
            machine.console = lines;
            None
        });
    }
}

/// Returns the line of the log for the progress from `before` to `now`, if it has one: for each new action and phase, and where no view shows the
/// progress, for each quarter.
fn action_line(before: &ActionProgress, now: &ActionProgress, has_view: bool) -> Option<String> {
    let text = format!("{} {}", now.name, now.phase).trim_end().to_owned();
    if (&before.name, &before.phase) != (&now.name, &now.phase) {
        return Some(text);
    }
    let [old, new] = [before, now].map(|it| it.percent().map(|percent| percent / PERCENT_STEP));
    let is_next_quarter = new > old && new.is_some_and(|quarter| quarter > 0);
    (is_next_quarter && !has_view)
        .then(|| format!("{text}: {} of {} MiB", now.bytes >> 20, now.total_bytes >> 20))
}

/// Returns the name of a step.
fn boot_step(event: &BootEvent) -> String {
    let name = match event.kind() {
        BootEventKind::Unspecified => "another step",
        BootEventKind::DhcpDiscover => "DHCP",
        BootEventKind::DhcpAck => "address",
        BootEventKind::BinaryServed => "loader",
        BootEventKind::ScriptServed => "script",
        BootEventKind::KernelServed => "kernel",
        BootEventKind::InitrdServed => "initrd",
        BootEventKind::Started => "started",
        BootEventKind::Failed => "failed",
        BootEventKind::GateRefused => "refused",
        BootEventKind::PhoneHome => "phoned home",
        BootEventKind::Declined => "address declined",
        BootEventKind::UnknownMachine => "unknown machine",
    };
    name.to_owned()
}
