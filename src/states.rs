//! Lifecycle states as text.

use crate::instance::v1 as instance;

impl instance::State {
    /// Returns the state's name as documents and logs spell it, such as `deprovision_failed`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("STATE_").to_ascii_lowercase()
    }
}
