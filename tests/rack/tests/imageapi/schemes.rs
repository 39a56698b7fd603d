//! Bodies of `POST /container` for the ways to get a root file system.

use rack::SERVER;
use serde_json::{Value, json};

use crate::ceph;
use crate::images::{PLAIN_START, SYSTEMD_START};
use crate::servers::{IMAGES, NODE, SHARED, SQUASH, SQUASHFS_NAME, SQUASHFS_ON_UNIT, WRITABLE};

/// A container with its mounts and attachments.
pub(crate) struct Scheme {
    /// The container's name.
    pub(crate) name: &'static str,
    /// The request.
    pub(crate) body: Value,
    /// The text that its init writes to `/report` after its start.
    pub(crate) start: &'static str,
}

fn scheme(name: &'static str, has_systemd: bool, mount: Value) -> Scheme {
    let command = if has_systemd { "/usr/lib/systemd/systemd" } else { "/init" };
    let start = if has_systemd { SYSTEMD_START } else { PLAIN_START };
    let body = json!({
        "name": name, "command": command, "systemd": has_systemd, "state": "running", "mount": mount,
    });
    Scheme { name, body, start }
}

fn overlay(lower: Value) -> Value {
    json!({ "kind": "overlay", "overlay": { "lower": [lower] } })
}

fn nfs(export: &str, read_only: bool) -> Value {
    let (host, path) = (SERVER.to_string(), format!("/{export}"));
    json!({ "kind": "nfs", "nfs": { "host": host, "path": path, "ro": read_only, "version": "4.2" } })
}

fn device(attach: Value, file_system: &str, options: &[&str]) -> Value {
    json!({
        "kind": "attach",
        "attach": { "fs_type": file_system, "mount_options": options, "attach": attach },
    })
}

fn iscsi(target: &str) -> Value {
    json!({ "kind": "iscsi", "iscsi": {
        "initiator": "iqn.2024-05.example.cluster:node1", "target": target,
        "host": SERVER.to_string(), "port": 3260, "lun": 1,
        "max_comands": 128, "queue_depth": 32, "scheduler": "none",
    }})
}

fn rbd(image: &str, secret: &str, read_only: bool) -> Value {
    json!({ "kind": "rbd", "rbd": {
        "monitors": [SERVER.to_string()], "pool": ceph::POOL, "image": image,
        "options": { "name": ceph::USER, "secret": secret, "ro": read_only },
    }})
}

/// A writable directory of an NFS server.
pub(crate) fn writable_nfs() -> Scheme {
    let mut mount = nfs(NODE, false);
    mount["nfs"]["options"] = json!(["hard", "nconnect=4"]);
    scheme("build-host", false, mount)
}

/// An overlay on a directory of an NFS server that is only read.
pub(crate) fn overlay_on_nfs() -> Scheme {
    scheme("compute.nfs", false, overlay(nfs(IMAGES, true)))
}

/// An overlay on a squashfs in a file of an NFS server.
pub(crate) fn loopback_squashfs() -> Scheme {
    let file = json!({ "kind": "loopback", "loopback": {
        "base": "mount", "path": format!("/{SQUASHFS_NAME}"), "mount": nfs(SQUASH, true),
    }});
    scheme("compute.sqsh", true, overlay(device(file, "squashfs", &["ro"])))
}

/// A writable unit of an iSCSI target.
pub(crate) fn writable_iscsi() -> Scheme {
    scheme("login-a", false, device(iscsi(WRITABLE), "ext4", &["rw", "noatime"]))
}

/// An overlay on a unit of an iSCSI target that is only read.
pub(crate) fn overlay_on_iscsi() -> Scheme {
    scheme("compute.iscsi", false, overlay(device(iscsi(SHARED), "ext4", &["ro"])))
}

/// An overlay on a folder of a squashfs, which is a file on a unit of an iSCSI target.
pub(crate) fn deep_chain() -> Scheme {
    let unit = device(iscsi(SHARED), "ext4", &["ro"]);
    let file = json!({ "kind": "loopback", "loopback": {
        "base": "mount", "path": format!("/{SQUASHFS_ON_UNIT}"), "mount": unit,
    }});
    let bind = json!({ "kind": "bind", "bind": {
        "base": "mount", "path": format!("/{IMAGES}"), "ro": true,
        "mount": device(file, "squashfs", &["ro"]),
    }});
    scheme("deep", false, overlay(bind))
}

/// A writable image of Ceph.
pub(crate) fn writable_rbd(secret: &str) -> Scheme {
    let image = rbd(ceph::WRITABLE, secret, false);
    scheme("login-b", false, device(image, "ext4", &["rw"]))
}

/// An overlay on a squashfs in a snapshot of an image of Ceph.
pub(crate) fn overlay_on_rbd(secret: &str) -> Scheme {
    let mut image = rbd(ceph::SHARED, secret, true);
    image["rbd"]["snapshot"] = json!(ceph::SNAPSHOT);
    scheme("compute.rbd", true, overlay(device(image, "squashfs", &["ro"])))
}
