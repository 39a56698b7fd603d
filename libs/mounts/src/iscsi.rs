//! Logical units of iSCSI targets, with the kernel's initiator (module `iscsi_tcp`) and open-iscsi's programs.
//!
//! `iscsiadm` makes a record of the target without discovery, and asks `iscsid` to log in and out. `iscsid` must run all the time:
//! it also brings a session back after a broken connection. Starting and supervising it is the caller's, as is a line for root in
//! `/etc/passwd`, by which it authenticates `iscsiadm`. `iscsistart`, which needs neither, cannot log out or recover.
//!
//! One session serves all logical units that are used of one target, portal and initiator name. It ends with the last of them. The
//! target's other units are not made devices, since `node.session.scan` is `manual`. Sessions of others are used if there are any,
//! and never ended: ours are known by the name of their interface record.

mod program;
mod queue;
mod session;
mod units;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use session::IscsiSession;

use crate::{
    Deadline, Error, Result, block_device,
    bounded::bounded,
    deadline::{lock, poll},
    host_name,
};

/// IANA's port for iSCSI targets.
pub const DEFAULT_PORT: u16 = 3260;
/// Outstanding commands of a session, if nothing else is asked for.
pub const DEFAULT_MAX_COMMANDS: u16 = 128;

/// Time for logging out of what a failed attachment has left, beyond its deadline.
const UNDO_LIMIT: Duration = Duration::from_secs(5);

/// A logical unit to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IscsiUnit {
    /// Name of the initiator (IQN).
    pub initiator: String,
    /// Name of the target (IQN).
    pub target: String,
    /// Name or address of the portal.
    pub host: String,
    /// TCP port of the portal.
    pub port: u16,
    /// Logical unit number.
    pub lun: u64,
    /// Outstanding commands of the session.
    pub max_commands: u16,
    /// Outstanding commands of the device.
    pub queue_depth: u16,
    /// Block scheduler of the device.
    pub scheduler: String,
}

/// What makes two attachments share a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// Name of the initiator.
    pub initiator: String,
    /// Name of the target.
    pub target: String,
    /// Address of the portal.
    pub portal: SocketAddr,
}

/// An attached logical unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IscsiDevice {
    /// Its session.
    pub key: SessionKey,
    /// Logical unit number.
    pub lun: u64,
    /// Path of the device. It is another one after a new login.
    pub device_file: PathBuf,
}

/// Number of attachments by logical unit.
type Users = BTreeMap<u64, usize>;

/// The initiator. One value for the whole process: it counts the users of each session.
#[derive(Debug, Clone)]
pub struct Iscsi {
    iscsiadm: PathBuf,
    sys: PathBuf,
    dev: PathBuf,
    sessions: Arc<Mutex<BTreeMap<SessionKey, Arc<Mutex<Users>>>>>,
}

impl Iscsi {
    /// Returns an initiator with the program `iscsiadm`, a name on the search path or a path.
    pub fn new(iscsiadm: &Path) -> Self {
        Self::with_roots(iscsiadm, Path::new("/sys"), Path::new("/dev"))
    }

    /// Returns an initiator whose sysfs is at `sys` and whose devices are in `dev`.
    pub fn with_roots(iscsiadm: &Path, sys: &Path, dev: &Path) -> Self {
        let (iscsiadm, sys, dev) = (iscsiadm.to_owned(), sys.to_owned(), dev.to_owned());
        Self { iscsiadm, sys, dev, sessions: Arc::default() }
    }

    /// Returns the sessions of the host, those of others too, by number; none if the module is not loaded.
    ///
    /// # Errors
    /// [`Error::Failed`] if they cannot be read.
    pub fn list(&self) -> Result<Vec<IscsiSession>> {
        session::list(&self.sys)
    }

    /// Returns the names and the portal that a session for `unit` has.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a host without an address, [`Error::Failed`] if the name service does not answer.
    pub fn session_key(&self, unit: &IscsiUnit, deadline: Deadline) -> Result<SessionKey> {
        let portal = host_name::resolve(&unit.host, unit.port, deadline)?;
        let (initiator, target) = (unit.initiator.clone(), unit.target.clone());
        Ok(SessionKey { initiator, target, portal })
    }

    /// Finds an attached unit, without counting it as used; `None` if its session or device does not exist.
    ///
    /// # Errors
    /// [`Error::Failed`] if the sessions cannot be read.
    pub fn find(&self, key: &SessionKey, lun: u64) -> Result<Option<IscsiDevice>> {
        let Some(session) = session::find(&self.sys, key)? else { return Ok(None) };
        let name = units::existing(&self.sys, &session, lun)?;
        let device = |name| IscsiDevice { key: key.clone(), lun, device_file: self.dev.join(name) };
        Ok(name.map(device))
    }

    /// Attaches a logical unit: finds or makes the session, finds the device and sets its queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] for names that cannot be those of iSCSI, a host without an address, a unit that the target has not, or an
    /// unknown scheduler; [`Error::Missing`] without the kernel module, the program, or `iscsid`; [`Error::Failed`] if the target
    /// refuses or does not answer. A session that was made for it is ended again, for which up to 5 s beyond the deadline are used.
    pub fn attach(&self, unit: &IscsiUnit, deadline: Deadline) -> Result<IscsiDevice> {
        program::check(unit)?;
        if !self.sys.join("class/iscsi_transport/tcp").exists() {
            let missing = "no iSCSI transport tcp: is the module iscsi_tcp loaded?";
            return Err(Error::Missing(missing.into()));
        }
        let key = self.session_key(unit, deadline)?;
        let users = self.users(&key);
        let mut users =
            lock(&users, &format!("wait for the session with {}", key.target), deadline)?;
        let attached = self.log_in(&key, unit, deadline).and_then(|session| {
            let name = units::find(&self.sys, &session, unit.lun, deadline)?;
            queue::set(&self.sys, &name, unit, deadline)?;
            let device_file = self.dev.join(name);
            block_device::wait_for_file(&device_file, deadline)?;
            Ok(IscsiDevice { key: key.clone(), lun: unit.lun, device_file })
        });
        match &attached {
            Ok(_) => *users.entry(unit.lun).or_default() += 1,
            Err(_) if users.is_empty() => self.undo(&key),
            Err(_) => {}
        }
        attached
    }

    fn log_in(
        &self,
        key: &SessionKey,
        unit: &IscsiUnit,
        deadline: Deadline,
    ) -> Result<IscsiSession> {
        if session::find(&self.sys, key)?.is_none() {
            program::log_in(&self.iscsiadm, key, unit, deadline)?;
        }
        let step = format!("log in to {}", key.target);
        let logged_in = || Ok(session::find(&self.sys, key)?.filter(IscsiSession::is_logged_in));
        poll(deadline, &step, logged_in)
    }

    /// Ends a session that has no user.
    fn undo(&self, key: &SessionKey) {
        let limit = Deadline::after(UNDO_LIMIT);
        if let Err(error) = self.log_out(key, limit) {
            tracing::error!(target = key.target, %error, "iSCSI session of a failed attachment not ended");
        }
    }

    /// Finds an attached unit again and counts it as used, after a restart; `None` if its session or device is gone.
    ///
    /// # Errors
    /// [`Error::Failed`] if the sessions cannot be read.
    pub fn adopt(&self, device: &IscsiDevice, deadline: Deadline) -> Result<Option<IscsiDevice>> {
        let users = self.users(&device.key);
        let mut users = lock(&users, "wait for an iSCSI session", deadline)?;
        let found = self.find(&device.key, device.lun)?;
        if found.is_some() {
            *users.entry(device.lun).or_default() += 1;
        }
        Ok(found)
    }

    /// Detaches a logical unit, and ends the session with its last user. Nothing is left to do if the session is gone.
    ///
    /// # Errors
    /// [`Error::Busy`] if a file system or another device uses it, [`Error::Missing`] or [`Error::Failed`] if the session cannot be
    /// ended. It stays attached then.
    pub fn detach(&self, device: &IscsiDevice, deadline: Deadline) -> Result<()> {
        let users = self.users(&device.key);
        let mut users = lock(&users, "wait for an iSCSI session", deadline)?;
        let shared = users.get(&device.lun).is_some_and(|count| *count > 1);
        if !shared && let Some(session) = session::find(&self.sys, &device.key)? {
            let own = units::existing(&self.sys, &session, device.lun)?;
            let last = users.keys().all(|lun| *lun == device.lun);
            let checked =
                if last { units::all(&self.sys, &session)? } else { own.into_iter().collect() };
            let claims = self.claim(&checked, session.is_logged_in(), deadline)?;
            if last {
                self.log_out(&device.key, deadline)?;
            }
            drop(claims);
        }
        match users.get_mut(&device.lun) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(users.remove(&device.lun)),
        }
        Ok(())
    }

    /// Checks that nobody uses the devices, and writes what the kernel still has in memory for them.
    fn claim(&self, names: &[String], connected: bool, deadline: Deadline) -> Result<Vec<OwnedFd>> {
        let mut claims = Vec::new();
        for name in names {
            block_device::check_holders(&self.sys, name)?;
            let path = self.dev.join(name);
            let work = move || {
                let claim = block_device::claim(&path)?;
                if connected {
                    rustix::fs::fsync(&claim)
                        .map_err(|e| Error::failed(format!("flush {}", path.display()), e))?;
                }
                Ok(claim)
            };
            claims.push(bounded(&format!("claim {name}"), deadline, work, drop)?);
        }
        Ok(claims)
    }

    /// Ends the session if it is ours, and returns when it is gone.
    fn log_out(&self, key: &SessionKey, deadline: Deadline) -> Result<()> {
        if let Some(session) = session::find(&self.sys, key)?.filter(program::is_ours) {
            program::log_out(&self.iscsiadm, &session, deadline)?;
            let step = format!("log out of {}", key.target);
            let gone = || Ok(session::find(&self.sys, key)?.is_none().then_some(()));
            poll(deadline, &step, gone)?;
        }
        program::forget(&self.iscsiadm, key, deadline);
        Ok(())
    }

    fn users(&self, key: &SessionKey) -> Arc<Mutex<Users>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.entry(key.clone()).or_default().clone()
    }
}

#[cfg(test)]
mod tests;
