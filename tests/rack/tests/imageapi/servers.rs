//! The servers of images, in the lab.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rack::SERVER;
use rack::lab::{Lab, wait};

use crate::ceph::Ceph;
use crate::images;

/// The export with a root file system for one node, which it may write.
pub(crate) const NODE: &str = "node1";
/// The export with a root file system for all nodes.
pub(crate) const IMAGES: &str = "images";
/// The export with a squashfs.
pub(crate) const SQUASH: &str = "squash";
/// The name of the squashfs.
pub(crate) const SQUASHFS_NAME: &str = "systemd.sqsh";
/// The iSCSI target whose unit is written.
pub(crate) const WRITABLE: &str = "iqn.2024-05.example.cluster:store.login-a";
/// The iSCSI target whose unit is only read.
pub(crate) const SHARED: &str = "iqn.2024-05.example.cluster:store.images";
/// A squashfs on that unit, with a root file system in its folder [`IMAGES`].
pub(crate) const SQUASHFS_ON_UNIT: &str = "img/a.sqsh";

/// Time until a server listens.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The running servers. The lab ends them.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The folder with exports, and the files of logical units.
    folder: PathBuf,
    ceph: Option<Ceph>,
}

impl Servers {
    /// Starts the servers, Ceph only `with_ceph`.
    pub(crate) fn start(lab: &mut Lab, with_ceph: bool) -> Self {
        let folder = lab.path("images");
        let mut servers = Self { folder, ceph: None };
        servers.write_images();
        servers.start_tgt(lab, "tgt");
        servers.ceph = with_ceph.then(|| Ceph::start(lab, &servers.folder.join(IMAGES)));
        start_ganesha(lab, &servers.folder, &[NODE, IMAGES, SQUASH]);
        servers
    }

    /// Starts tgt as the process `name` of the lab, and waits until it has its targets.
    fn start_tgt(&self, lab: &mut Lab, name: &str) {
        let mut tgt = in_private_mounts(lab, "tgt.sh");
        tgt.arg(SERVER.to_string()).arg(self.folder.join("tgtd.pid"));
        for target in [WRITABLE, SHARED] {
            tgt.arg(target).arg(self.unit(target));
        }
        lab.start(name, &mut tgt).unwrap();
        wait("tgt", START_TIMEOUT, || lab.log(name).contains("targets: 2").then_some(())).unwrap();
    }

    /// Kills tgt, which breaks all connections, and starts another one.
    pub(crate) fn replace_tgt(&self, lab: &mut Lab) {
        let pid: u32 = self.read("tgtd.pid").unwrap().trim().parse().unwrap();
        setup::run(Command::new("kill").arg("-KILL").arg(pid.to_string())).unwrap();
        wait("the end of tgt", START_TIMEOUT, || lab.has_ended("tgt").unwrap().then_some(()))
            .unwrap();
        self.start_tgt(lab, "tgt-2");
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(path)).ok()
    }

    fn write_images(&self) {
        for export in [NODE, IMAGES] {
            images::write_plain(&self.folder.join(export));
        }
        images::write_plain_ext4(&self.folder.join(IMAGES), &self.unit(WRITABLE));
        let shared = self.folder.join("shared");
        images::write_plain(&shared);
        let squashfs = shared.join(SQUASHFS_ON_UNIT);
        std::fs::create_dir_all(squashfs.parent().unwrap()).unwrap();
        images::write_plain_squashfs(&self.folder.join(IMAGES), &squashfs);
        images::write_plain_ext4(&shared, &self.unit(SHARED));
        let squash = self.folder.join(SQUASH);
        std::fs::create_dir(&squash).unwrap();
        std::fs::copy(images::systemd(), squash.join(SQUASHFS_NAME)).unwrap();
    }

    /// Returns the path of the file of the unit of `target`.
    fn unit(&self, target: &str) -> PathBuf {
        self.folder.join(format!("{target}.ext4"))
    }

    /// Returns the content of a file of `export`, if there is one.
    pub(crate) fn file(&self, export: &str, name: &str) -> Option<String> {
        self.read(&format!("{export}/{name}"))
    }

    /// Returns the content of a file on the unit of `target`.
    pub(crate) fn file_of_unit(&self, target: &str, path: &str) -> String {
        images::read_ext4(&self.unit(target), path)
    }

    /// Returns Ceph, which was started.
    pub(crate) fn ceph(&self) -> &Ceph {
        self.ceph.as_ref().unwrap()
    }
}

/// Starts Ganesha, which exports these folders in `folder` under their names, and waits until it listens.
pub(crate) fn start_ganesha(lab: &mut Lab, folder: &Path, exports: &[&str]) {
    let mut ganesha = in_private_mounts(lab, "ganesha.sh");
    ganesha.arg(SERVER.to_string()).arg(folder).args(exports);
    lab.start("ganesha", &mut ganesha).unwrap();
    wait("Ganesha", START_TIMEOUT, || is_open(lab, 2049)).unwrap();
}

/// Returns a command that runs a script of this test's assets in the lab, with mounts of its own.
pub(crate) fn in_private_mounts(lab: &Lab, script: &str) -> Command {
    let mut command = lab.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh"]).arg(images::asset(script));
    command
}

/// Returns a value if a server listens on `port`.
fn is_open(lab: &Lab, port: u16) -> Option<()> {
    let mut connect = lab.command("bash");
    connect.args(["-c", &format!("exec 3<>/dev/tcp/{SERVER}/{port}")]);
    connect.output().ok()?.status.success().then_some(())
}
