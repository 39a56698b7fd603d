//! Calls of `iscsiadm` (iscsiadm(8) of open-iscsi 2.1).

use std::{net::SocketAddr, path::Path};

use super::{IscsiSession, IscsiUnit, SessionKey};
use crate::{
    Deadline, Error, Result,
    process::{self, ProgramOutput},
};

/// Begins the name of each interface record that is made here.
const INTERFACE_PREFIX: &str = "tinwright-";
/// RFC 3720 §3.2.6.1.
const MAX_NAME_BYTES: usize = 223;

/// Exit statuses of iscsiadm(8) with a meaning of their own here.
const SESSION_EXISTS: i32 = 15;
const NO_RECORDS: i32 = 21;
const SESSION_NOT_FOUND: i32 = 2;
const BUSY: i32 = 28;
/// Kernel transport not found, iscsid does not answer, iscsid cannot be reached.
const NO_INTERFACE: [i32; 3] = [12, 18, 20];

/// Refuses what cannot be a name of iSCSI, a number of commands or a scheduler, before it is an argument of a program.
pub(super) fn check(unit: &IscsiUnit) -> Result<()> {
    for (what, name) in [("initiator", &unit.initiator), ("target", &unit.target)] {
        // RFC 3722 §6.2: letters, digits, `-`, `.` and `:`.
        let allowed = |letter: char| letter.is_alphanumeric() || "-.:".contains(letter);
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
        if !fits || name.starts_with('-') || !name.chars().all(allowed) {
            return Err(Error::Invalid(format!("{name:?} is not the name of an iSCSI {what}")));
        }
    }
    if unit.max_commands == 0 || unit.queue_depth == 0 {
        return Err(Error::Invalid("iSCSI: the number of outstanding commands is zero".into()));
    }
    let in_scheduler = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if unit.scheduler.is_empty() || !unit.scheduler.chars().all(in_scheduler) {
        return Err(Error::Invalid(format!("{:?} is not a block scheduler", unit.scheduler)));
    }
    Ok(())
}

/// True if the session was made by [`log_in`], of this or an earlier process.
pub(super) fn is_ours(session: &IscsiSession) -> bool {
    session.interface == interface(&session.key)
}

/// Returns the name of the interface record, which carries the initiator name. Each session has its own, so that records can be
/// removed with it.
fn interface(key: &SessionKey) -> String {
    let SessionKey { initiator, target, portal } = key;
    format!("{INTERFACE_PREFIX}{:016x}", fnv1a(&format!("{initiator} {target} {portal}")))
}

/// FNV-1a: the same in each build, unlike the standard library's hashes.
fn fnv1a(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Makes the records of a session and logs in. A session that exists by now is fine.
pub(super) fn log_in(
    iscsiadm: &Path,
    key: &SessionKey,
    unit: &IscsiUnit,
    deadline: Deadline,
) -> Result<()> {
    let run = |step: &str, args: &[&str]| call(iscsiadm, step, args, deadline);
    let interface = interface(key);
    let record = ["-m", "iface", "-I", &interface];
    // The record may be left from before; then the update below is what counts.
    let made = run("make interface record", &[&record[..], &["-o", "new"]].concat())?;
    tracing::debug!(interface, status = made.code, "interface record");
    let name = ["-o", "update", "-n", "iface.initiatorname", "-v", &unit.initiator];
    succeeded("set initiator name", run("set initiator name", &[&record[..], &name].concat())?)?;
    let portal = portal_text(&key.portal);
    let node = ["-m", "node", "-T", &key.target, "-p", &portal, "-I", &interface];
    succeeded("make node record", run("make node record", &[&node[..], &["-o", "new"]].concat())?)?;
    let (max_commands, queue_depth) = (unit.max_commands.to_string(), unit.queue_depth.to_string());
    let settings: [(&str, &str); 5] = [
        ("node.startup", "manual"),
        ("node.session.scan", "manual"),
        ("node.session.cmds_max", &max_commands),
        ("node.session.queue_depth", &queue_depth),
        ("node.session.auth.authmethod", "None"),
    ];
    for (setting, value) in settings {
        let step = format!("set {setting}");
        let update = ["-o", "update", "-n", setting, "-v", value];
        succeeded(&step, run(&step, &[&node[..], &update].concat())?)?;
    }
    let step = format!("log in to {} at {portal}", key.target);
    let outcome = run(&step, &[&node[..], &["--login"]].concat())?;
    if outcome.code == Some(SESSION_EXISTS) { Ok(()) } else { succeeded(&step, outcome) }
}

/// Logs out of a session, by its number: its record may be gone. A session that is gone by now is fine.
pub(super) fn log_out(iscsiadm: &Path, session: &IscsiSession, deadline: Deadline) -> Result<()> {
    let step = format!("log out of {}", session.key.target);
    let id = session.id.to_string();
    let outcome = call(iscsiadm, &step, &["-m", "session", "-r", &id, "--logout"], deadline)?;
    match outcome.code {
        Some(SESSION_NOT_FOUND | NO_RECORDS) => Ok(()),
        Some(_) | None => succeeded(&step, outcome),
    }
}

/// Removes the records of a session. What is left of them does no harm, so that failures are only logged.
pub(super) fn forget(iscsiadm: &Path, key: &SessionKey, deadline: Deadline) {
    let (interface, portal) = (interface(key), portal_text(&key.portal));
    let node = ["-m", "node", "-T", &key.target, "-p", &portal, "-I", &interface, "-o", "delete"];
    let record = ["-m", "iface", "-I", &interface, "-o", "delete"];
    for args in [&node[..], &record[..]] {
        match call(iscsiadm, "remove record", args, deadline) {
            Ok(outcome) if matches!(outcome.code, Some(0 | NO_RECORDS)) => {}
            Ok(outcome) => tracing::warn!(interface, ?outcome, "iSCSI record not removed"),
            Err(error) => tracing::warn!(interface, %error, "iSCSI record not removed"),
        }
    }
}

/// Returns the portal as iscsiadm takes it: an IPv6 address in brackets.
fn portal_text(portal: &SocketAddr) -> String {
    portal.to_string()
}

fn call(iscsiadm: &Path, step: &str, args: &[&str], deadline: Deadline) -> Result<ProgramOutput> {
    process::run(iscsiadm, args, deadline).map_err(|error| match error {
        Error::Failed { cause, errno, .. } => Error::Failed { step: step.to_owned(), cause, errno },
        other @ (Error::Invalid(_) | Error::Busy(_) | Error::Missing(_)) => other,
    })
}

fn succeeded(step: &str, outcome: ProgramOutput) -> Result<()> {
    let ProgramOutput { code, text } = outcome;
    let status = code.map_or_else(|| "signal".to_owned(), |code| format!("status {code}"));
    match code {
        Some(0) => Ok(()),
        Some(code) if NO_INTERFACE.contains(&code) => {
            Err(Error::Missing(format!("{step}: is iscsid running? ({text})")))
        }
        Some(BUSY) => Err(Error::Busy(format!("{step}: {text}"))),
        Some(_) | None => {
            Err(Error::failed_because(step, format!("iscsiadm ended with {status}: {text}")))
        }
    }
}
