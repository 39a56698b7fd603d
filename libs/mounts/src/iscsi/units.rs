//! Logical units of a session: SCSI devices `H:C:T:L` below the session's directory, and their block devices.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use super::IscsiSession;
use crate::{Deadline, Error, Result, bounded::bounded, deadline::poll, sysfs};

/// Time in which a unit is listed after the scan for it. The kernel scans before it answers.
const SCAN_LIMIT: Duration = Duration::from_secs(2);

/// Returns the name of the block device of unit `lun`, after scanning for it if need be.
///
/// # Errors
/// [`Error::Invalid`] if the target has no such unit, or it is no block device; [`Error::Failed`] if the scan does not end.
pub(super) fn find(
    sys: &Path,
    session: &IscsiSession,
    lun: u64,
    deadline: Deadline,
) -> Result<String> {
    let step = format!("find unit {lun} of {}", session.key.target);
    if directory(sys, session, lun)?.is_none() {
        scan(sys, session, lun, deadline)?;
    }
    let soon = deadline.min(Deadline::after(SCAN_LIMIT));
    let found = poll(soon, &step, || directory(sys, session, lun)).map_err(|error| {
        let none = format!("target {} has no logical unit {lun}", session.key.target);
        if error == Error::expired(&step) { Error::Invalid(none) } else { error }
    })?;
    // Linux adds the block device in the background, to disks, optical and zoned ones (include/scsi/scsi_proto.h) only.
    match sysfs::attribute(&found.join("type"))?.as_deref() {
        Some("0" | "5" | "7" | "14" | "20") => poll(deadline, &step, || block_name(&found)),
        _ => block_name(&found)?.ok_or_else(|| {
            Error::Invalid(format!("logical unit {lun} of {} is not a disk", session.key.target))
        }),
    }
}

/// Returns the name of the block device of unit `lun` if there is one now.
pub(super) fn existing(sys: &Path, session: &IscsiSession, lun: u64) -> Result<Option<String>> {
    match directory(sys, session, lun)? {
        Some(directory) => block_name(&directory),
        None => Ok(None),
    }
}

/// Returns the names of all block devices of a session.
pub(super) fn all(sys: &Path, session: &IscsiSession) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (_, directory) in directories(sys, session)? {
        names.extend(block_name(&directory)?);
    }
    Ok(names)
}

fn directory(sys: &Path, session: &IscsiSession, lun: u64) -> Result<Option<PathBuf>> {
    let found = directories(sys, session)?.into_iter().find(|(number, _)| *number == lun);
    Ok(found.map(|(_, directory)| directory))
}

/// Returns the number and directory of each unit.
fn directories(sys: &Path, session: &IscsiSession) -> Result<Vec<(u64, PathBuf)>> {
    let device = device(sys, session);
    let mut found = Vec::new();
    for target in sysfs::entries(&device)?.into_iter().filter(|name| name.starts_with("target")) {
        let target = device.join(target);
        for name in sysfs::entries(&target)? {
            found.extend(unit_number(&name).map(|lun| (lun, target.join(name))));
        }
    }
    Ok(found)
}

fn device(sys: &Path, session: &IscsiSession) -> PathBuf {
    sys.join(format!("class/iscsi_session/session{}/device", session.id))
}

/// Returns L of `H:C:T:L`. It is compared as a number: as text, 10 would come before 2.
fn unit_number(name: &str) -> Option<u64> {
    let parts: Vec<u64> = name.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [_, _, _, lun] = parts[..] else { return None };
    Some(lun)
}

fn block_name(directory: &Path) -> Result<Option<String>> {
    Ok(sysfs::entries(&directory.join("block"))?.into_iter().next())
}

/// Lets the kernel look for one unit. It answers when it is done.
fn scan(sys: &Path, session: &IscsiSession, lun: u64, deadline: Deadline) -> Result<()> {
    let step = format!("scan for unit {lun} of {}", session.key.target);
    let failed = |error: std::io::Error| Error::failed(&step, error);
    // The session's directory is in that of its host, `hostH/sessionS`.
    let device = device(sys, session).canonicalize().map_err(failed)?;
    let host = device.parent().and_then(Path::file_name).unwrap_or_default();
    let file = sys.join("class/scsi_host").join(host).join("scan");
    let work = {
        let step = step.clone();
        move || {
            let opened = OpenOptions::new().write(true).open(&file);
            opened
                .and_then(|mut file| file.write_all(format!("- - {lun}").as_bytes()))
                .map_err(|e| Error::failed(step, e))
        }
    };
    bounded(&step, deadline, work, drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_number_is_the_last_of_four_numbers() {
        assert_eq!(unit_number("3:0:0:10"), Some(10));
        assert_eq!(unit_number("3:0:0:18446744073709551615"), Some(u64::MAX));
        for name in ["3:0:0", "3:0:0:1:2", "power", "3:0:0:x", ""] {
            assert_eq!(unit_number(name), None, "{name}");
        }
    }
}
