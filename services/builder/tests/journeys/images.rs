//! Images for tests, made by the programs of others.

use std::path::Path;
use std::process::Command;

/// Returns a raw disk of 9 MiB: noise, then zeros, then noise.
pub(crate) fn disk() -> Vec<u8> {
    let mut disk = vec![0; 9 << 20];
    noise(&mut disk[..1 << 20]);
    noise(&mut disk[8 << 20..]);
    // Code in a boot sector: a raw disk is recognized by it.
    disk[..2].copy_from_slice(&[0xeb, 0x63]);
    disk[446..510].fill(0);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

fn noise(bytes: &mut [u8]) {
    let mut state = 1_u64;
    for byte in bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = state.to_be_bytes()[0];
    }
}

/// Returns a disk that is an EFI system partition, with a boot loader for 64-bit ARM.
pub(crate) fn efi_disk() -> Vec<u8> {
    let mut program = vec![0; 0x200];
    program[..2].copy_from_slice(b"MZ");
    program[0x3c] = 0x80;
    program[0x80..0x86].copy_from_slice(b"PE\0\0\x64\xaa");
    in_place(|place| {
        std::fs::write(place.join("program"), program).unwrap();
        std::fs::write(place.join("image"), vec![0; 4 << 20]).unwrap();
        run(place, "/usr/sbin/mkfs.vfat", &["image"]);
        run(place, "mmd", &["-i", "image", "::/EFI", "::/EFI/BOOT"]);
        run(place, "mcopy", &["-i", "image", "program", "::/EFI/BOOT/BOOTAA64.EFI"]);
        std::fs::read(place.join("image")).unwrap()
    })
}

/// Returns `raw` in a format of qemu-img.
pub(crate) fn convert(raw: &[u8], format: &str) -> Vec<u8> {
    in_place(|place| {
        std::fs::write(place.join("raw"), raw).unwrap();
        run(place, "qemu-img", &["convert", "-f", "raw", "-O", format, "raw", "image"]);
        std::fs::read(place.join("image")).unwrap()
    })
}

/// Returns a qcow2 with the host's file `backing` as its backing file.
pub(crate) fn with_backing_file(backing: &str) -> Vec<u8> {
    in_place(|place| {
        let options = ["create", "-u", "-f", "qcow2", "-F", "raw", "-b", backing, "image", "1M"];
        run(place, "qemu-img", &options);
        std::fs::read(place.join("image")).unwrap()
    })
}

/// Returns a tar with a file.
pub(crate) fn tar() -> Vec<u8> {
    in_place(|place| {
        std::fs::write(place.join("hostname"), "machine\n").unwrap();
        run(place, "tar", &["--create", "--file", "image", "hostname"]);
        std::fs::read(place.join("image")).unwrap()
    })
}

/// Returns `content` as xz has it.
pub(crate) fn xz(content: &[u8]) -> Vec<u8> {
    in_place(|place| {
        std::fs::write(place.join("content"), content).unwrap();
        run(place, "xz", &["-1", "content"]);
        std::fs::read(place.join("content.xz")).unwrap()
    })
}

/// Returns 32 GiB of zeros in streams of xz. It takes minutes to unpack them.
pub(crate) fn endless() -> Vec<u8> {
    const STREAM_BYTES: usize = 64 << 20;
    xz(&vec![0; STREAM_BYTES]).repeat((32 << 30) / STREAM_BYTES)
}

fn in_place(make: impl FnOnce(&Path) -> Vec<u8>) -> Vec<u8> {
    make(tempfile::tempdir().unwrap().path())
}

fn run(place: &Path, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(place).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
