//! Bodies of requests.

use serde_json::{Value, json};

pub(crate) fn bind(path: &str) -> Value {
    json!({"kind": "bind", "bind": {"base": "root", "path": path}})
}

pub(crate) fn bind_ro(path: &str) -> Value {
    json!({"kind": "bind", "bind": {"base": "root", "path": path, "ro": true}})
}

pub(crate) fn bind_in(mount: Value, path: &str) -> Value {
    json!({"kind": "bind", "bind": {"base": "mount", "mount": mount, "path": path}})
}

pub(crate) fn overlay(lower: Vec<Value>) -> Value {
    json!({"kind": "overlay", "overlay": {"lower": lower}})
}

pub(crate) fn loopback(path: &str) -> Value {
    json!({"kind": "loopback", "loopback": {"base": "root", "path": path}})
}

pub(crate) fn loopback_in(mount: Value, path: &str) -> Value {
    json!({"kind": "loopback", "loopback": {"base": "mount", "mount": mount, "path": path}})
}

pub(crate) fn device_mount(fs_type: &str, options: &[&str], attach: Value) -> Value {
    json!({"kind": "attach", "attach": {"fs_type": fs_type, "mount_options": options, "attach": attach}})
}

pub(crate) fn container(name: &str, command: &str, mount: Value) -> Value {
    json!({"name": name, "command": command, "mount": mount})
}

pub(crate) fn running(name: &str, command: &str, mount: Value) -> Value {
    json!({"name": name, "command": command, "mount": mount, "state": "running"})
}

/// The chain of the contract's scheme "loopback file on NFS", with a bind in place of NFS: `file` is a squashfs in `directory`.
pub(crate) fn squashfs_stack(directory: &str, file: &str) -> Value {
    let base = bind_ro(directory);
    overlay(vec![device_mount("squashfs", &["ro"], loopback_in(base, file))])
}
