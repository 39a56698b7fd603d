//! The request queue of an attached disk.

use std::{fs::OpenOptions, io::Write, path::Path};

use rustix::io::Errno;

use super::IscsiUnit;
use crate::deadline::{Deadline, poll};
use crate::{Error, Result};

/// Sets scheduler, number of requests, and that the disk does not rotate.
///
/// # Errors
/// [`Error::Invalid`] if the kernel does not know the scheduler, [`Error::Failed`] otherwise.
pub(super) fn set(sys: &Path, name: &str, unit: &IscsiUnit, deadline: Deadline) -> Result<()> {
    let queue = sys.join("block").join(name).join("queue");
    let scheduler = queue.join("scheduler");
    // The kernel makes it a moment after the disk.
    poll(deadline, &format!("wait for the queue of {name}"), || {
        Ok(scheduler.exists().then_some(()))
    })?;
    // The scheduler first: a new one brings its own number of requests.
    write(&scheduler, &unit.scheduler).map_err(|error| {
        if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
            return Error::Invalid(format!("block scheduler {} is not known", unit.scheduler));
        }
        Error::failed(format!("set scheduler of {name}"), error)
    })?;
    write(&queue.join("nr_requests"), &unit.queue_depth.to_string())
        .map_err(|e| Error::failed(format!("set nr_requests of {name}"), e))?;
    write(&queue.join("rotational"), "0")
        .map_err(|e| Error::failed(format!("set rotational of {name}"), e))
}

fn write(path: &Path, value: &str) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}
