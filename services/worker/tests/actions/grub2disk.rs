//! grub2disk, with fake GRUB programs that record their arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::installed::system;
use crate::{context, environment, reason, run};

/// Creates a system with `programs`, which append their arguments to `/etc/called`.
fn system_with(programs: &[&str], ending: &str) -> LoopDisk {
    let disk = system();
    let root = disk.mounted();
    fs::create_dir_all(root.path().join("usr/sbin")).unwrap();
    for program in programs {
        let path = root.path().join("usr/sbin").join(program);
        let script = format!(
            "#!/bin/sh\necho ${{0##*/}} $* >> /etc/called\ntest -e /proc/self && test -e /dev/null || exit 9\n{ending}"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    drop(root);
    disk
}

fn variables(disk: &LoopDisk) -> [(&str, &str); 3] {
    [("GRUB_DISK", &disk.path), ("FS_TYPE", "ext4"), ("GRUB_INSTALL_PATH", "/dev/sdx")]
}

#[tokio::test]
async fn the_systems_own_grub_is_installed_and_configured() {
    for (programs, called) in [
        (
            ["grub-install", "grub-mkconfig"],
            "grub-install /dev/sdx\ngrub-mkconfig -o /boot/grub/grub.cfg\n",
        ),
        (
            ["grub2-install", "grub2-mkconfig"],
            "grub2-install /dev/sdx\ngrub2-mkconfig -o /boot/grub2/grub.cfg\n",
        ),
    ] {
        let disk = system_with(&programs, "exit 0");
        assert_eq!(run(Builtin::Grub2Disk, &variables(&disk)).await, ActionOutcome::Success);
        assert_eq!(fs::read_to_string(disk.mounted().path().join("etc/called")).unwrap(), called);
    }
}

#[tokio::test]
async fn a_failed_grub_install_reports_its_output_and_ends_the_action() {
    let disk =
        system_with(&["grub-install", "grub-mkconfig"], "echo no room for core.img >&2; exit 1");
    let (context, recorder) = context();
    let variables = environment(&variables(&disk));
    let failed = reason(worker::run(Builtin::Grub2Disk, &variables, &context).await);
    assert_eq!(failed, "grub2disk: `grub-install /dev/sdx` ended with exit code 1");
    assert_eq!(recorder.output.lock().unwrap().as_slice(), b"no room for core.img\n");
    let called = fs::read_to_string(disk.mounted().path().join("etc/called")).unwrap();
    assert_eq!(called, "grub-install /dev/sdx\n");
}

#[tokio::test]
async fn a_system_without_grub_is_an_error() {
    let disk = system();
    let sentence = format!("grub2disk: {}: the installed system has no grub-install", disk.path);
    assert_eq!(reason(run(Builtin::Grub2Disk, &variables(&disk)).await), sentence);
    let missing = reason(run(Builtin::Grub2Disk, &variables(&disk)[..2]).await);
    assert_eq!(missing, "grub2disk: GRUB_INSTALL_PATH is missing");
}
