//! writefile and cexec inside file systems on real block devices.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, sh};
use crate::{context, environment, reason, run};

fn file<'a>(disk: &'a LoopDisk, path: &'a str, contents: &'a str) -> Vec<(&'a str, &'a str)> {
    let owner = [("UID", "1000"), ("GID", "1001"), ("MODE", "0666"), ("DIRMODE", "0777")];
    let mut variables =
        vec![("DEST_DISK", disk.path.as_str()), ("DEST_PATH", path), ("CONTENTS", contents)];
    variables.extend(owner);
    variables
}

/// Creates a disk with a minimal system: busybox.
pub(crate) fn system() -> LoopDisk {
    let disk = LoopDisk::ext4();
    let root = disk.mounted();
    for directory in ["bin", "etc", "dev", "proc", "sys", "run"] {
        fs::create_dir(root.path().join(directory)).unwrap();
    }
    fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
    for tool in ["sh", "cat", "echo", "sleep", "seq", "false", "test", "ls", "setsid"] {
        symlink("busybox", root.path().join("bin").join(tool)).unwrap();
    }
    drop(root);
    disk
}

fn command<'a>(disk: &'a LoopDisk, line: &'a str) -> Vec<(&'a str, &'a str)> {
    let place = [("BLOCK_DEVICE", disk.path.as_str()), ("FS_TYPE", "ext4"), ("CHROOT", "y")];
    place.into_iter().chain([("CMD_LINE", line), ("DEFAULT_INTERPRETER", "/bin/sh -c")]).collect()
}

#[tokio::test]
async fn a_file_has_the_configured_contents_owner_and_mode() {
    let disk = LoopDisk::ext4();
    assert_eq!(
        run(Builtin::WriteFile, &file(&disk, "/etc/a/b", "hello\n")).await,
        ActionOutcome::Success
    );
    let root = disk.mounted();
    let (written, made) = (root.path().join("etc/a/b"), root.path().join("etc/a"));
    assert_eq!(fs::read_to_string(&written).unwrap(), "hello\n");
    let (file, directory) = (written.metadata().unwrap(), made.metadata().unwrap());
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (1000, 1001, 0o666));
    assert_eq!((directory.uid(), directory.gid(), directory.mode() & 0o7777), (1000, 1001, 0o777));
    assert_eq!(fs::read_dir(made).unwrap().count(), 1, "a temporary file was left behind");
}

#[tokio::test]
async fn an_existing_file_is_replaced_and_gets_the_configured_mode() {
    let disk = LoopDisk::ext4();
    let root = disk.mounted();
    fs::write(root.path().join("a"), "a longer old text").unwrap();
    fs::set_permissions(root.path().join("a"), fs::Permissions::from_mode(0o400)).unwrap();
    drop(root);
    assert_eq!(run(Builtin::WriteFile, &file(&disk, "/a", "new")).await, ActionOutcome::Success);
    let root = disk.mounted();
    let written = root.path().join("a");
    assert_eq!(fs::read_to_string(&written).unwrap(), "new");
    assert_eq!(written.metadata().unwrap().mode() & 0o7777, 0o666);
}

#[tokio::test]
async fn links_do_not_lead_out_of_the_file_system() {
    let outside = tempfile::tempdir().unwrap();
    let disk = LoopDisk::ext4();
    let root = disk.mounted();
    symlink(outside.path(), root.path().join("link")).unwrap();
    symlink("../../../../../../..", root.path().join("up")).unwrap();
    drop(root);
    let climbing = format!("/up{}/f", outside.path().display());
    for path in ["/link/f", &climbing] {
        let _either = run(Builtin::WriteFile, &file(&disk, path, "x")).await;
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{path}");
    }
}

#[tokio::test]
async fn a_disk_without_a_file_system_is_named() {
    let disk = LoopDisk::new(1 << 20);
    let mut variables = file(&disk, "/a", "x");
    let sentence = format!("writefile: {}: no file system that this kernel supports", disk.path);
    assert_eq!(reason(run(Builtin::WriteFile, &variables).await), sentence);
    variables.push(("FS_TYPE", "ext4"));
    let sentence = format!(
        "writefile: {}: cannot mount it as ext4: Invalid argument (os error 22)",
        disk.path
    );
    assert_eq!(reason(run(Builtin::WriteFile, &variables).await), sentence);
}

#[tokio::test]
async fn a_file_in_place_of_a_directory_is_named() {
    let disk = LoopDisk::ext4();
    assert_eq!(run(Builtin::WriteFile, &file(&disk, "/a", "x")).await, ActionOutcome::Success);
    let sentence = format!(
        "writefile: {}: cannot create the directory /a: File exists (os error 17)",
        disk.path
    );
    assert_eq!(reason(run(Builtin::WriteFile, &file(&disk, "/a/b/c", "x")).await), sentence);
}

#[tokio::test]
async fn a_command_runs_in_the_installed_system() {
    let disk = system();
    let (context, recorder) = context();
    let variables = environment(&command(
        &disk,
        "echo $GREETING; echo done > /etc/done; test -e /proc/self && ls /dev/null",
    ));
    assert_eq!(worker::run(Builtin::Cexec, &variables, &context).await, ActionOutcome::Success);
    assert_eq!(recorder.output.lock().unwrap().as_slice(), b"\n/dev/null\n");
    assert_eq!(fs::read_to_string(disk.mounted().path().join("etc/done")).unwrap(), "done\n");
}

#[tokio::test]
async fn nothing_stays_mounted() {
    let disk = system();
    assert_eq!(run(Builtin::Cexec, &command(&disk, "echo")).await, ActionOutcome::Success);
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&disk.path));
    sh(&format!("fsck.ext4 -n -f {} && mkfs.ext4 -q -F {0}", disk.path)); // Fails if the disk is in use.
}

#[tokio::test]
async fn a_failed_command_reports_its_exit_code_and_output() {
    let disk = system();
    let (context, recorder) = context();
    let variables = environment(&command(&disk, "echo out; echo no space left >&2; exit 7"));
    let failed = reason(worker::run(Builtin::Cexec, &variables, &context).await);
    let line = "/bin/sh -c echo out; echo no space left >&2; exit 7";
    assert_eq!(failed, format!("cexec: `{line}` ended with exit code 7"));
    let output = String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap();
    assert!(output.contains("no space left\n") && output.contains("out\n"));
}

#[tokio::test]
async fn without_an_interpreter_commands_run_in_turn_until_one_fails() {
    let disk = system();
    let mut variables = command(&disk, "ls /etc; false; ls /missing");
    variables.retain(|(name, _)| *name != "DEFAULT_INTERPRETER");
    assert_eq!(
        reason(run(Builtin::Cexec, &variables).await),
        "cexec: `false` ended with exit code 1"
    );
}

#[tokio::test]
async fn a_missing_command_is_named() {
    let disk = system();
    let mut variables = command(&disk, "grub-install /dev/sda");
    variables.retain(|(name, _)| *name != "DEFAULT_INTERPRETER");
    let sentence =
        "cexec: cannot start `grub-install /dev/sda`: No such file or directory (os error 2)";
    assert_eq!(reason(run(Builtin::Cexec, &variables).await), sentence);
}

#[tokio::test]
async fn missing_and_unreadable_variables_are_named() {
    let place = [("BLOCK_DEVICE", "/dev/sda1"), ("FS_TYPE", "ext4")];
    assert_eq!(reason(run(Builtin::Cexec, &place).await), "cexec: CMD_LINE is missing");
    let nonsense = run(Builtin::Cexec, &[place[0], place[1], ("CMD_LINE", "; ;")]).await;
    assert_eq!(reason(nonsense), "cexec: CMD_LINE is `; ;`, not a command");
}

#[tokio::test]
async fn cancelling_kills_all_processes_of_the_command() {
    let disk = system();
    let (context, recorder) = context();
    let line = "sleep 3600 & echo $! ; sleep 3600";
    let variables = environment(&command(&disk, line));
    let stop = context.stop.clone();
    let running =
        tokio::spawn(async move { worker::run(Builtin::Cexec, &variables, &context).await });
    let printed = async {
        while recorder.output.lock().unwrap().is_empty() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(30), printed).await.unwrap();
    stop.cancel();
    assert_eq!(running.await.unwrap(), ActionOutcome::Cancelled);
    let child = String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap();
    let status = Path::new("/proc").join(child.trim()).join("stat");
    let running = || fs::read_to_string(&status).is_ok_and(|status| !status.contains(") Z "));
    let gone = async {
        while running() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect(&child);
}

#[tokio::test]
async fn the_machines_resolv_conf_is_visible_and_the_systems_own_is_unchanged() {
    let ours = fs::read_to_string("/etc/resolv.conf").unwrap();
    for prepare in [
        "echo theirs > etc/resolv.conf",
        "ln -s ../run/systemd/resolve/stub-resolv.conf etc/resolv.conf",
        ":",
    ] {
        let disk = system();
        let root = disk.mounted();
        sh(&format!("cd {} && {prepare}", root.path().display()));
        let before = sh(&format!(
            "cd {} && ls -l etc; cat etc/resolv.conf || true; find run",
            root.path().display()
        ));
        drop(root);
        let (context, recorder) = context();
        let mut variables = command(&disk, "cat /etc/resolv.conf");
        variables.push(("UPDATE_RESOLV_CONF", "true"));
        assert_eq!(
            worker::run(Builtin::Cexec, &environment(&variables), &context).await,
            ActionOutcome::Success
        );
        assert_eq!(
            String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap(),
            ours,
            "{prepare}"
        );
        let root = disk.mounted();
        let after = sh(&format!(
            "cd {} && ls -l etc; cat etc/resolv.conf || true; find run",
            root.path().display()
        ));
        assert_eq!(after, before, "{prepare}");
    }
}

#[tokio::test]
async fn without_a_chroot_the_system_is_mounted_aside() {
    let disk = system();
    let mut variables = command(&disk, "echo beside > /mountAction/etc/done");
    variables.retain(|(name, _)| *name != "CHROOT");
    let outcome = run(Builtin::Cexec, &variables).await;
    // The mount point is created outside the namespace too, but the mount is not visible here.
    fs::remove_dir("/mountAction").unwrap();
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(fs::read_to_string(disk.mounted().path().join("etc/done")).unwrap(), "beside\n");
}
