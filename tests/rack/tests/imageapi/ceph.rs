//! A Ceph cluster of one monitor and one object store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rack::SERVER;
use rack::lab::{Lab, wait};

use crate::images;

/// The pool.
pub(crate) const POOL: &str = "nodes";
/// The user of nodes.
pub(crate) const USER: &str = "nodes-rw";
/// An image with an ext4 that is written.
pub(crate) const WRITABLE: &str = "login-b";
/// An image with a squashfs.
pub(crate) const SHARED: &str = "compute-2024-10";
/// The snapshot of the squashfs.
pub(crate) const SNAPSHOT: &str = "gold";

/// Time until the cluster has its images.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The cluster. The lab ends it.
#[derive(Debug)]
pub(crate) struct Ceph {
    folder: PathBuf,
}

impl Ceph {
    /// Starts a cluster with an ext4 with the content of `plain`, and the squashfs with systemd.
    pub(crate) fn start(lab: &mut Lab, plain: &Path) -> Self {
        let folder = lab.path("ceph");
        std::fs::create_dir(&folder).unwrap();
        images::write_plain_ext4(plain, &folder.join("plain.ext4"));
        let mut ceph = lab.command("sh");
        ceph.arg(images::asset("ceph.sh")).arg(SERVER.to_string()).arg(&folder).args([POOL, USER]);
        ceph.arg(WRITABLE).arg(folder.join("plain.ext4"));
        ceph.arg(SHARED).arg(images::systemd()).arg(SNAPSHOT);
        lab.start("ceph", &mut ceph).unwrap();
        let ready = wait("Ceph", START_TIMEOUT, || {
            if lab.has_ended("ceph").ok()? {
                return Some(false);
            }
            lab.log("ceph").contains("Ceph is ready").then_some(true)
        });
        assert!(ready.unwrap(), "the cluster ended: {}", lab.log("ceph"));
        Self { folder }
    }

    /// Returns the secret of the user of nodes.
    pub(crate) fn secret(&self) -> String {
        std::fs::read_to_string(self.folder.join("secret")).unwrap().trim().to_owned()
    }

    /// Returns the content of a file in the image that is written.
    pub(crate) fn file(&self, lab: &Lab, path: &str) -> String {
        let copy = self.folder.join("copy.ext4");
        let mut export = lab.command("rbd");
        export.env("CEPH_CONF", self.folder.join("ceph.conf"));
        export.args(["export", "--no-progress", &format!("{POOL}/{WRITABLE}")]).arg(&copy);
        setup::run(&mut export).unwrap();
        images::read_ext4(&copy, path)
    }
}
