//! The content of the view.

use std::time::Duration;

/// The state of the rack.
#[derive(Clone, Debug, Default)]
pub struct RackState {
    /// The time since the program's start.
    pub elapsed: Duration,
    /// The machines, in the order in which they were added.
    pub machines: Vec<MachineState>,
    /// The events, oldest first.
    pub log: Vec<LogLine>,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The time since the program's start.
    pub at: Duration,
    /// The event.
    pub text: String,
}

impl std::fmt::Display for LogLine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:>5} s  {}", self.at.as_secs(), self.text)
    }
}

/// The state of a machine.
#[derive(Clone, Debug, Default)]
pub struct MachineState {
    /// Its name.
    pub name: String,
    /// Firmware, MAC and address.
    pub description: String,
    /// The state of its instance. Empty: it has none yet.
    pub state: String,
    /// The reason of the state. Empty: none.
    pub reason: String,
    /// The number of its boots.
    pub boots: usize,
    /// The steps of its last boot, oldest first.
    pub boot_steps: Vec<String>,
    /// The action that runs or ran last.
    pub action: Option<ActionProgress>,
    /// The last lines of its serial console.
    pub console: Vec<String>,
}

/// The progress of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionProgress {
    /// Its name in the template.
    pub name: String,
    /// The phase that it is in, such as `writing`. Empty: none.
    pub phase: String,
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes in all. 0: unknown.
    pub total_bytes: u64,
}

impl ActionProgress {
    /// Returns the percentage that is done. `None` if the size is not known.
    pub fn percent(&self) -> Option<u64> {
        let done = self.bytes.min(self.total_bytes);
        (u128::from(done) * 100).checked_div(self.total_bytes.into())?.try_into().ok()
    }
}
