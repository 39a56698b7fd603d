//! Sessions as the kernel shows them in `/sys/class/iscsi_session` and `/sys/class/iscsi_connection`.

use std::{net::SocketAddr, path::Path};

use super::SessionKey;
use crate::{Result, sysfs};

/// A session of the kernel's initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IscsiSession {
    /// N of `sessionN`.
    pub id: u32,
    /// Names and portal.
    pub key: SessionKey,
    /// Name of open-iscsi's interface record.
    pub interface: String,
    /// `LOGGED_IN`, or `FAILED` while the connection is broken.
    pub state: String,
}

impl IscsiSession {
    /// True if the session has a connection.
    pub fn is_logged_in(&self) -> bool {
        self.state == "LOGGED_IN"
    }
}

/// Returns all sessions by number.
pub(super) fn list(sys: &Path) -> Result<Vec<IscsiSession>> {
    let names = sysfs::entries(&sys.join("class/iscsi_session"))?;
    let mut sessions = Vec::new();
    for id in names.iter().filter_map(|name| name.strip_prefix("session")?.parse().ok()) {
        sessions.extend(read(sys, id)?);
    }
    sessions.sort_unstable_by_key(|session| session.id);
    Ok(sessions)
}

/// Returns the session with these names and portal.
pub(super) fn find(sys: &Path, key: &SessionKey) -> Result<Option<IscsiSession>> {
    Ok(list(sys)?.into_iter().find(|session| &session.key == key))
}

/// Returns one session, or `None` while it is being made or ended.
fn read(sys: &Path, id: u32) -> Result<Option<IscsiSession>> {
    let directory = sys.join(format!("class/iscsi_session/session{id}"));
    let attribute = |name: &str| sysfs::attribute(&directory.join(name));
    let connection = sys.join(format!("class/iscsi_connection/connection{id}:0"));
    // The portal that was asked for; the target may have sent the initiator on to another one.
    let address = sysfs::attribute(&connection.join("persistent_address"))?;
    let port = sysfs::attribute(&connection.join("persistent_port"))?;
    let (Some(target), Some(initiator)) = (attribute("targetname")?, attribute("initiatorname")?)
    else {
        return Ok(None);
    };
    let Some(portal) = address.zip(port).and_then(|(address, port)| portal(&address, &port)) else {
        return Ok(None);
    };
    Ok(Some(IscsiSession {
        id,
        key: SessionKey { initiator, target, portal },
        interface: attribute("ifacename")?.unwrap_or_default(),
        state: attribute("state")?.unwrap_or_default(),
    }))
}

fn portal(address: &str, port: &str) -> Option<SocketAddr> {
    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
}
