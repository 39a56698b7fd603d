//! What is said of looking into network boot.

use netboot::site::Syslog;

use super::Flags;

/// What shows how machines boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observe {
    /// How machines' syslog is received; not at all without.
    pub syslog: Option<Syslog>,
}

impl Observe {
    /// What was said.
    pub(super) fn load(flags: &Flags, file: &Flags) -> Self {
        let said =
            |flag: Option<bool>, file: Option<bool>, otherwise| flag.or(file).unwrap_or(otherwise);
        let syslog = said(flags.syslog, file.syslog, true);
        let debug = said(flags.syslog_debug, file.syslog_debug, false);
        Self { syslog: syslog.then_some(Syslog { debug }) }
    }
}
