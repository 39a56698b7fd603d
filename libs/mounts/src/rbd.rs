//! Images of a Ceph cluster as block devices of the kernel (module `rbd`), through `/sys/bus/rbd`
//! (Documentation/ABI/testing/sysfs-bus-rbd).

mod devices;
mod options;

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::io::Errno;

pub use devices::RbdDevice;
pub use options::{RbdImage, RbdOptions, Secret};

use crate::{
    Deadline, Error, Result, block_device,
    bounded::bounded,
    deadline::{lock, poll},
};

/// The kernel's RBD client. One value for the whole process: the result of mapping is found by comparing lists, under its lock.
#[derive(Debug, Clone)]
pub struct Rbd {
    bus: PathBuf,
    dev: PathBuf,
    mapping: Arc<Mutex<()>>,
}

impl Default for Rbd {
    fn default() -> Self {
        Self::with_roots(Path::new("/sys"), Path::new("/dev"))
    }
}

impl Rbd {
    /// Returns a client whose files are below `sys` and whose devices are in `dev`.
    pub fn with_roots(sys: &Path, dev: &Path) -> Self {
        Self { bus: sys.join("bus/rbd"), dev: dev.to_owned(), mapping: Arc::default() }
    }

    /// Returns the mapped images by number; none if the module is not loaded.
    ///
    /// # Errors
    /// [`Error::Failed`] if they cannot be read.
    pub fn list(&self) -> Result<Vec<RbdDevice>> {
        devices::list(&self.bus)
    }

    /// Returns the path of a mapped image's device.
    pub fn device_file(&self, device: &RbdDevice) -> PathBuf {
        self.dev.join(format!("rbd{}", device.id))
    }

    /// Maps an image, and returns when its device file exists.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an image or option that cannot be one, [`Error::Busy`] if the same image and snapshot is mapped
    /// already, [`Error::Missing`] without the module or if no device appears, [`Error::Failed`] if the kernel or the cluster
    /// refuses or does not answer. A device that appears after the deadline, or without a file, is unmapped again.
    pub fn map(&self, image: &RbdImage, deadline: Deadline) -> Result<RbdDevice> {
        let line = options::add_line(image)?;
        let control = self.control("add")?;
        let wanted = RbdDevice::of(image);
        let step = format!("map {}", wanted.name());
        let (client, undoing, guard_step) = (self.clone(), self.clone(), step.clone());
        let work = move || {
            let _guard = lock(&client.mapping, &guard_step, deadline)?;
            client.add(&control, &line, &wanted)
        };
        let undo = move |device: RbdDevice| undoing.undo(&device);
        let device = bounded(&step, deadline, work, undo)?;
        let appeared = block_device::wait_for_file(&self.device_file(&device), deadline);
        if appeared.is_err() {
            self.undo(&device);
        }
        appeared.map(|()| device)
    }

    /// Writes the line, and returns the device that was not there before.
    fn add(&self, control: &Path, line: &Secret, wanted: &RbdDevice) -> Result<RbdDevice> {
        let before = self.list()?;
        if before.iter().any(|device| device.is_same_image(wanted)) {
            return Err(Error::Busy(format!("{} is mapped already", wanted.name())));
        }
        let step = format!("map {}", wanted.name());
        write(control, line.expose()).map_err(|errno| refused(&step, errno))?;
        let new = |device: &RbdDevice| {
            device.is_same_image(wanted) && before.iter().all(|old| old.id != device.id)
        };
        poll(Deadline::after(APPEAR_LIMIT), &step, || Ok(self.list()?.into_iter().find(new)))
            .map_err(|error| {
                let missing = Error::Missing(format!("no device for {} appeared", wanted.name()));
                if error == Error::expired(&step) { missing } else { error }
            })
    }

    /// Unmaps a device, and returns when it is gone; it already is if its number has another image now.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is open and `force` is false, [`Error::Missing`] without the module's files, [`Error::Failed`] otherwise.
    pub fn unmap(&self, device: &RbdDevice, force: bool, deadline: Deadline) -> Result<()> {
        let step = format!("unmap rbd{}", device.id);
        let (client, device) = (self.clone(), device.clone());
        bounded(&step, deadline, move || client.remove(&device, force, deadline), drop)
    }

    fn remove(&self, device: &RbdDevice, force: bool, deadline: Deadline) -> Result<()> {
        let step = format!("unmap rbd{}", device.id);
        let is_mapped = || Ok::<_, Error>(self.list()?.iter().any(|mapped| mapped == device));
        if !is_mapped()? {
            return Ok(());
        }
        let line = format!("{}{}", device.id, if force { " force" } else { "" });
        match write(&self.control("remove")?, &line) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(refused(&step, errno)),
        }
        poll(deadline, &step, || Ok((!is_mapped()?).then_some(())))
    }

    /// Unmaps a device that nobody has learned of.
    fn undo(&self, device: &RbdDevice) {
        let limit = Deadline::after(UNDO_LIMIT);
        if let Err(error) = self.remove(device, false, limit) {
            tracing::error!(device.id, %error, "rbd device of a failed attachment not unmapped");
        }
    }

    /// Returns the control file for `verb`: that for devices with one common major number if the module has it.
    fn control(&self, verb: &str) -> Result<PathBuf> {
        let single = self.bus.join(format!("{verb}_single_major"));
        let plain = self.bus.join(verb);
        [single, plain].into_iter().find(|path| path.exists()).ok_or_else(|| {
            Error::Missing(format!("no {}/{verb}: is the module rbd loaded?", self.bus.display()))
        })
    }
}

/// Time for unmapping what a failed attachment has left, beyond its deadline.
const UNDO_LIMIT: Duration = Duration::from_secs(5);

/// Time in which a mapped image is in the list. The kernel lists it before it answers.
const APPEAR_LIMIT: Duration = Duration::from_secs(2);

fn refused(step: &str, errno: Errno) -> Error {
    if errno == Errno::BUSY {
        Error::Busy(format!("{step}: in use"))
    } else {
        Error::failed(step, errno)
    }
}

/// Writes a line in one call, as sysfs takes it.
fn write(path: &Path, line: &str) -> std::result::Result<(), Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut file = OpenOptions::new().write(true).open(path).map_err(errno)?;
    file.write_all(line.as_bytes()).map_err(errno)
}

#[cfg(test)]
mod tests;
