//! RBD images of the contract as those of the crate `mounts`.

use mounts::rbd::{RbdDevice, RbdImage, RbdOptions, Secret};
use tinwright::node::v1::attachment;

/// In place of a snapshot's name: the image itself.
const NO_SNAPSHOT: &str = "-";

/// Returns the image, and true if its device is to be unmapped although it is open.
pub(super) fn image(rbd: &attachment::Rbd) -> (RbdImage, bool) {
    let options = rbd.options.clone().unwrap_or_default();
    let force = options.force;
    let image = RbdImage {
        monitors: rbd.monitors.clone(),
        pool: rbd.pool.clone(),
        image: rbd.image.clone(),
        snapshot: rbd.snapshot.clone(),
        options: client_options(options),
    };
    (image, force)
}

fn client_options(options: attachment::RbdOptions) -> RbdOptions {
    RbdOptions {
        fsid: options.fsid,
        ip: options.ip,
        name: options.name,
        secret: Secret::from(options.secret),
        namespace: options.namespace,
        share: options.share,
        noshare: options.noshare,
        crc: options.crc,
        nocrc: options.nocrc,
        ceph_requires_signatures: options.ceph_requires_signatures,
        noceph_requires_signatures: options.noceph_requires_signatures,
        tcp_nodelay: options.tcp_nodelay,
        notcp_nodelay: options.notcp_nodelay,
        cephx_sign_messages: options.cephx_sign_messages,
        nocephx_sign_messages: options.nocephx_sign_messages,
        rw: options.rw,
        ro: options.ro,
        lock_on_read: options.lock_on_read,
        exclusive: options.exclusive,
        notrim: options.notrim,
        abort_on_full: options.abort_on_full,
        mount_timeout: options.mount_timeout,
        osdkeepalive: options.osdkeepalive,
        osd_idle_ttl: options.osd_idle_ttl,
        queue_depth: options.queue_depth,
        lock_timeout: options.lock_timeout,
        alloc_size: options.alloc_size,
    }
}

/// True if `device` is what mapping `rbd` leads to.
pub(super) fn is_device_of(device: &RbdDevice, rbd: &attachment::Rbd) -> bool {
    let snapshot = if rbd.snapshot.is_empty() { NO_SNAPSHOT } else { &rbd.snapshot };
    let namespace = rbd.options.as_ref().map_or("", |options| &options.namespace);
    device.pool == rbd.pool
        && device.image == rbd.image
        && device.namespace == namespace
        && device.snapshot == snapshot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_and_its_image_are_different_devices() {
        let device = |snapshot: &str| RbdDevice {
            id: 3,
            pool: "nodes".into(),
            namespace: "prod".into(),
            image: "login".into(),
            snapshot: snapshot.into(),
        };
        let options = attachment::RbdOptions {
            namespace: "prod".into(),
            ..attachment::RbdOptions::default()
        };
        let rbd = attachment::Rbd {
            pool: "nodes".into(),
            image: "login".into(),
            options: Some(options),
            ..attachment::Rbd::default()
        };
        assert!(is_device_of(&device("-"), &rbd) && !is_device_of(&device("gold"), &rbd));
        let snapshot = attachment::Rbd { snapshot: "gold".into(), ..rbd };
        assert!(!is_device_of(&device("-"), &snapshot) && is_device_of(&device("gold"), &snapshot));
    }
}
