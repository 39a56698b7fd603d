//! Ids and capabilities.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
};

use crate::job::User;

/// The only user id and group id inside the sandbox.
const INSIDE_ID: u32 = 65534;

/// True if this process is root and can become `user`. In a user namespace without that id, root
/// is treated as an ordinary user.
pub(crate) fn can_become(user: User) -> bool {
    let covers = |file: &str, id: u32| {
        fs::read_to_string(file).is_ok_and(|map| map.lines().any(|line| maps(line, id)))
    };
    geteuid().is_root()
        && covers("/proc/self/uid_map", user.uid)
        && covers("/proc/self/gid_map", user.gid)
}

/// True if the line of a map (user_namespaces(7)) covers the inner `id`.
fn maps(line: &str, id: u32) -> bool {
    let numbers: Vec<u64> =
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [first, _, count] = numbers[..] else { return false };
    (first..first.saturating_add(count)).contains(&u64::from(id))
}

/// Becomes `user` without any other group.
pub(crate) fn become_user(user: User) -> io::Result<()> {
    let uid = Uid::from_raw(user.uid);
    let gid = Gid::from_raw(user.gid);
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// Becomes `user`, but keeps the capabilities for the next step, [`enter_user_namespace`].
///
/// Hosts that deny user namespaces to ordinary users allow them to a process with `CAP_SYS_ADMIN`.
pub(crate) fn become_user_with_capabilities(user: User) -> io::Result<()> {
    set_keep_capabilities(true)?;
    become_user(user)?;
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets })?;
    // The files in /proc/self belong to root otherwise, and the id maps could not be written.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    Ok(())
}

/// Opens `/proc/self`, to find the id maps once `/proc` is out of reach.
pub(crate) fn open_own_process() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/self", flags, Mode::empty())?)
}

/// Enters a new user namespace. The ids of this process are the only ones in it.
pub(crate) fn enter_user_namespace(own_process: impl AsFd) -> io::Result<()> {
    let uid = geteuid().as_raw();
    let gid = getegid().as_raw();
    unshare(CloneFlags::CLONE_NEWUSER)?;
    // user_namespaces(7): the group map of an unprivileged process needs this first.
    write_at(&own_process, "setgroups", "deny")?;
    write_at(&own_process, "uid_map", &format!("{INSIDE_ID} {uid} 1"))?;
    write_at(&own_process, "gid_map", &format!("{INSIDE_ID} {gid} 1"))
}

fn write_at(directory: impl AsFd, name: &str, text: &str) -> io::Result<()> {
    let file = openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    fs::File::from(file).write_all(text.as_bytes())
}

/// Removes each capability from the bounding set: no executable can give them back.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has no capability with this number.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Drops all capabilities of this process.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_map_covers_its_range_only() {
        assert!(maps("         0          0 4294967295", 65534));
        assert!(maps("65534 1000 1", 65534));
        assert!(!maps("0 1000 1", 65534) && !maps("65535 0 10", 65534) && !maps("", 65534));
    }
}
