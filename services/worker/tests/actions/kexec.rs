//! kexec up to the point where the machine would leave: the kernel that these tests run on takes no other.

use std::fs;

use worker::Builtin;

use crate::disk::{LoopDisk, sh};
use crate::{context, environment, reason, run};

const CONFIG: &str = "set default=1\nmenuentry a {\nlinux /boot/a\n}\n\
    menuentry b {\nlinux /boot/vmlinuz root=/dev/sda1 ro\ninitrd /boot/one /boot/two\n}\n";

/// A disk with something in the place of a kernel, and a configuration of GRUB.
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

/// What it says it will boot, and why it did not.
async fn told(disk: &LoopDisk, more: &[(&str, &str)]) -> (String, String) {
    let (context, heard) = context();
    let mut variables = vec![("BLOCK_DEVICE", disk.path.as_str()), ("FS_TYPE", "ext4")];
    variables.extend(more);
    let outcome = worker::run(Builtin::Kexec, &environment(&variables), &context).await;
    let output = String::from_utf8(heard.output.lock().unwrap().clone()).unwrap();
    (output, reason(outcome))
}

#[tokio::test]
async fn what_grub_would_boot_is_loaded_from_a_file_system_that_is_not_mounted_any_more() {
    let disk = disk();
    let (said, reason) = told(&disk, &[]).await;
    let arguments = "arguments root=/dev/sda1 ro";
    assert_eq!(said, format!("kernel /boot/vmlinuz, initrd /boot/one /boot/two, {arguments}\n"));
    assert!(reason.starts_with("kexec: cannot load /boot/vmlinuz: "), "{reason}");
    sh(&format!("mkfs.ext4 -q -F {}", disk.path)); // Refuses a disk that somebody holds.
}

#[tokio::test]
async fn what_the_template_says_goes_before_what_grub_says() {
    let disk = disk();
    let (said, _) = told(&disk, &[("CMD_LINE", "console=ttyS0")]).await;
    assert!(said.ends_with("initrd /boot/one /boot/two, arguments of CMD_LINE\n"), "{said}");
    let own = [
        ("KERNEL_PATH", "boot/vmlinuz-1"),
        ("INITRD_PATH", "boot/two"),
        ("CMD_LINE", "password=a"),
    ];
    let (said, _) = told(&disk, &own).await;
    assert_eq!(said, "kernel boot/vmlinuz-1, initrd boot/two, arguments of CMD_LINE\n");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let disk = disk();
    let absent = "No such file or directory (os error 2)";
    for (variable, sentence) in [
        (("KERNEL_PATH", "/boot/none"), format!("cannot copy /boot/none: {absent}")),
        (("GRUBCFG_PATH", "grub2/grub.cfg"), format!("cannot read grub2/grub.cfg: {absent}")),
        (("GRUBCFG_PATH", "boot/one"), "boot/one: its default entry boots no Linux".to_owned()),
    ] {
        assert_eq!(told(&disk, &[variable]).await.1, format!("kexec: {sentence}"));
    }
    assert_eq!(reason(run(Builtin::Kexec, &[]).await), "kexec: BLOCK_DEVICE is missing");
}
