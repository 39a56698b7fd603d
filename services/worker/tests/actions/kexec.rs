//! kexec up to loading the kernel: the kernel of these tests does not support kexec_file_load(2).

use std::fs;

use worker::Builtin;

use crate::disk::{LoopDisk, sh};
use crate::{context, environment, reason, run};

const CONFIG: &str = "set default=1\nmenuentry a {\nlinux /boot/a\n}\n\
    menuentry b {\nlinux /boot/vmlinuz root=/dev/sda1 ro\ninitrd /boot/one /boot/two\n}\n";

/// Creates a disk with a dummy kernel and a configuration of GRUB.
fn disk() -> LoopDisk {
    let disk = LoopDisk::ext4();
    let root = disk.mounted();
    sh(&format!(
        "cd {} && mkdir -p boot/grub && echo kernel > boot/vmlinuz-1 && ln -s vmlinuz-1 boot/vmlinuz && echo 1 > boot/one && echo 2 > boot/two",
        root.path().display()
    ));
    fs::write(root.path().join("boot/grub/grub.cfg"), CONFIG).unwrap();
    drop(root);
    disk
}

/// Runs the action. Returns its output, which contains the kernel's path, and the reason of its failure.
async fn load(disk: &LoopDisk, more: &[(&str, &str)]) -> (String, String) {
    let (context, recorder) = context();
    let mut variables = vec![("BLOCK_DEVICE", disk.path.as_str()), ("FS_TYPE", "ext4")];
    variables.extend(more);
    let outcome = worker::run(Builtin::Kexec, &environment(&variables), &context).await;
    let output = String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap();
    (output, reason(outcome))
}

#[tokio::test]
async fn the_default_entry_of_grub_is_loaded_after_unmounting() {
    let disk = disk();
    let (output, reason) = load(&disk, &[]).await;
    let arguments = "arguments root=/dev/sda1 ro";
    assert_eq!(output, format!("kernel /boot/vmlinuz, initrd /boot/one /boot/two, {arguments}\n"));
    assert!(reason.starts_with("kexec: cannot load /boot/vmlinuz: "), "{reason}");
    sh(&format!("mkfs.ext4 -q -F {}", disk.path)); // Fails if the disk is in use.
}

#[tokio::test]
async fn variables_of_the_template_override_grubs_entry() {
    let disk = disk();
    let (output, _) = load(&disk, &[("CMD_LINE", "console=ttyS0")]).await;
    assert!(output.ends_with("initrd /boot/one /boot/two, arguments of CMD_LINE\n"), "{output}");
    let own = [
        ("KERNEL_PATH", "boot/vmlinuz-1"),
        ("INITRD_PATH", "boot/two"),
        ("CMD_LINE", "password=a"),
    ];
    let (output, _) = load(&disk, &own).await;
    assert_eq!(output, "kernel boot/vmlinuz-1, initrd boot/two, arguments of CMD_LINE\n");
}

#[tokio::test]
async fn missing_files_are_named() {
    let disk = disk();
    let absent = "No such file or directory (os error 2)";
    for (variable, sentence) in [
        (("KERNEL_PATH", "/boot/none"), format!("cannot copy /boot/none: {absent}")),
        (("GRUBCFG_PATH", "grub2/grub.cfg"), format!("cannot read grub2/grub.cfg: {absent}")),
        (
            ("GRUBCFG_PATH", "boot/one"),
            "boot/one: its default entry does not boot Linux".to_owned(),
        ),
    ] {
        assert_eq!(load(&disk, &[variable]).await.1, format!("kexec: {sentence}"));
    }
    assert_eq!(reason(run(Builtin::Kexec, &[]).await), "kexec: BLOCK_DEVICE is missing");
}
