//! System images: a small one with a plain init, as a folder or as an ext4 in a file, and one with systemd, as a squashfs.

use std::fs::{File, create_dir_all};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The report that the plain init has written after it was stopped.
pub(crate) const PLAIN_REPORT: &str = "process 1 is init\nstopped\n";
/// The report that it has written after its start.
pub(crate) const PLAIN_START: &str = "process 1 is init\n";
/// The report that the image with systemd has written once its target is reached.
pub(crate) const SYSTEMD_START: &str = "process 1 is systemd\n";

/// Returns the path of `name` in this test's assets.
pub(crate) fn asset(name: &str) -> PathBuf {
    setup::root().join("tests/rack/assets/imageapi").join(name)
}

/// Writes the small image to `folder`.
pub(crate) fn write_plain(folder: &Path) {
    write_with_init(folder, &asset("plain-init.sh"));
}

/// Writes an image to `folder`, with busybox and a script as its init.
pub(crate) fn write_with_init(folder: &Path, script: &Path) {
    create_dir_all(folder.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", folder.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "sleep"] {
        symlink("busybox", folder.join("bin").join(name)).unwrap();
    }
    let init = folder.join("init");
    std::fs::copy(script, &init).unwrap();
    std::fs::set_permissions(init, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Writes the small image to `file`, as an ext4.
pub(crate) fn write_plain_ext4(folder: &Path, file: &Path) {
    File::create(file).unwrap().set_len(64 << 20).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    setup::run(mkfs.args(["-q", "-F", "-d"]).arg(folder).arg(file)).unwrap();
}

/// Writes a squashfs with `folder`, under its name, to `file`.
pub(crate) fn write_plain_squashfs(folder: &Path, file: &Path) {
    let mut mksquashfs = Command::new("mksquashfs");
    mksquashfs.arg(folder).arg(file).args(["-quiet", "-no-progress", "-keep-as-directory"]);
    setup::run(&mut mksquashfs).unwrap();
}

/// Returns the content of the file at `path` in the ext4 at `file`.
pub(crate) fn read_ext4(file: &Path, path: &str) -> String {
    let mut debugfs = Command::new("debugfs");
    let output = debugfs.args(["-R", &format!("cat {path}")]).arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the squashfs of the image with systemd; builds it if it is missing.
pub(crate) fn systemd() -> PathBuf {
    let folder = rack::provision::images().unwrap();
    setup::run(Command::new("sh").arg(asset("systemd.sh")).arg(&folder)).unwrap();
    folder.join("systemd.sqsh")
}
