//! The hierarchies of control groups on this host.

use std::fs;
use std::path::{Path, PathBuf};

/// The mount points of all hierarchies in the text of `/proc/self/mountinfo` (proc(5)). A hierarchy that is mounted several
/// times, or both a controller's and a joint hierarchy, is counted once.
pub(super) fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let mut devices = Vec::new();
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = mount.split(' ').collect();
        let [_, _, device, root, mount_point, ..] = fields[..] else { continue };
        let kind = file_system.split(' ').next();
        // A subtree bound elsewhere is not the hierarchy; the root of a cgroup namespace reads "/".
        let is_root = matches!(kind, Some("cgroup" | "cgroup2")) && root == "/";
        if is_root && !devices.contains(&device) {
            devices.push(device);
            found.push(PathBuf::from(unescape(mount_point)));
        }
    }
    found
}

/// `text` with the octal escapes of `/proc/self/mountinfo` replaced.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

/// Lets the groups in `parent` use the controllers for processes and memory, from the hierarchy's root downwards. Only
/// version 2 has this; it is refused while a group that is not the root has processes of its own.
pub(super) fn enable_controllers(parent: &Path) {
    let ancestors: Vec<&Path> = parent.ancestors().collect();
    for directory in ancestors.into_iter().rev() {
        let file = directory.join("cgroup.subtree_control");
        if file.exists() {
            for controller in ["+pids", "+memory"] {
                // The limit's file is missing afterwards, which is reported if the limit is asked for.
                let _enabled = fs::write(&file, controller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hierarchy_is_found_once_at_its_root() {
        let mountinfo = "\
            22 1 0:21 / /sys/fs/cgroup rw shared:1 - tmpfs tmpfs rw\n\
            23 22 0:22 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            24 22 0:23 / /sys/fs/cgroup/un\\040ified rw shared:2 - cgroup2 cgroup2 rw\n\
            25 1 0:22 / /mnt rw - cgroup cgroup rw,pids\n\
            26 1 0:24 /inner /other rw - cgroup cgroup rw,memory\n\
            malformed\n";
        let expected = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/un ified"].map(PathBuf::from);
        assert_eq!(mount_points(mountinfo), expected);
    }
}
