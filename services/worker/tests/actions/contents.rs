//! Images are refused before the first write if no machine boots from them, and written otherwise.

use std::fs;
use std::process::Command;

use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::file_server::FileServer;
use crate::image2disk::{disk_image, packed};
use crate::{reason, run};

/// Returns the outcome of writing `file` to `path`.
async fn written(file: Vec<u8>, path: &str, more: &[(&str, &str)]) -> ActionOutcome {
    let server = FileServer::serve("disk.img", file, []).await;
    let place = [("IMG_URL", server.url.as_str()), ("DEST_DISK", path)];
    run(Builtin::Image2Disk, &[&place[..], more].concat()).await
}

/// Returns the reason why `file` is not written to a disk, which stays as it is.
async fn refused(file: Vec<u8>, more: &[(&str, &str)]) -> String {
    let disk = LoopDisk::new(1 << 20);
    let reason = reason(written(file, &disk.path, more).await);
    assert!(disk.is_untouched(), "{reason}");
    reason
}

/// Runs the shell command `line` with `$1` as the name of a new file. Returns the content of the
/// file.
pub(crate) fn made(line: &str) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let command = Command::new("sh").args(["-ec", line, "sh"]).arg(&path).output().unwrap();
    assert!(command.status.success(), "{line}: {}", String::from_utf8_lossy(&command.stderr));
    fs::read(path).unwrap()
}

pub(crate) fn qcow2() -> Vec<u8> {
    let mut image = b"QFI\xfb\0\0\0\x03".to_vec();
    image.resize(64 << 10, 0);
    image
}

pub(crate) fn zip() -> Vec<u8> {
    made("cd ${1%/*}; head -c 9999 /dev/zero > disk.raw; python3 -m zipfile -c $1 disk.raw")
}

pub(crate) fn tar() -> Vec<u8> {
    made("cd ${1%/*}; head -c 9999 /dev/zero > disk.raw; tar -cf $1 disk.raw")
}

pub(crate) fn lzma() -> Vec<u8> {
    made("head -c 9999 /dev/zero | xz --format=lzma > $1")
}

#[tokio::test(flavor = "multi_thread")]
async fn virtual_disks_and_archives_are_refused_with_what_to_do() {
    for (file, text) in [
        (qcow2(), "qcow2 image: convert it to raw: `qemu-img convert -O raw IN OUT`"),
        (zip(), "zip archive: extract the disk image from it"),
        (
            packed("gzip", &tar()),
            "tar archive: extract the disk image from it; the action archive2disk",
        ),
        (lzma(), "lzma data: decompress it, or compress it with zstd, xz, gzip or bzip2"),
        (packed("gzip", &packed("xz", &disk_image(5000))), "xz data: compress the image once"),
        (packed("zstd", &qcow2()), "qcow2 image: convert it to raw"),
        (b"<!doctype html><title>Not Found</title>".to_vec(), "HTML page: look at what the URL"),
    ] {
        let reason = refused(file, &[]).await;
        assert!(reason.contains(&format!("/disk.img: not a disk image: {text}")), "{reason}");
        assert!(reason.ends_with("; IMG_ANY_CONTENT=true writes it as it is"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_force_nor_compressed_false_writes_any_content() {
    for more in [("IMG_FORCE", "true"), ("COMPRESSED", "false"), ("IMG_ANY_CONTENT", "false")] {
        let reason = refused(qcow2(), &[more]).await;
        assert!(reason.contains("not a disk image: qcow2 image: "), "{more:?}: {reason}");
    }
    let reason = refused(packed("gzip", &disk_image(5000)), &[("COMPRESSED", "false")]).await;
    assert!(reason.contains("not a disk image: gzip data: compress the image once, and leave out"));
    let reason = refused(qcow2(), &[("IMG_ANY_CONTENT", "yes")]).await;
    assert_eq!(reason, "image2disk: IMG_ANY_CONTENT is `yes`, not `true` or `false`");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_content_is_written_on_request() {
    let (file, disk) = (qcow2(), LoopDisk::new(1 << 20));
    let outcome = written(file.clone(), &disk.path, &[("IMG_ANY_CONTENT", "true")]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(disk.content()[..file.len()] == file);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_file_without_content_is_refused() {
    for (tool, format) in [("gzip", "gzip"), ("xz", "xz"), ("zstd", "zstd"), ("bzip2", "bzip2")] {
        for more in [&[][..], &[("IMG_ANY_CONTENT", "true")]] {
            let reason = refused(packed(tool, b""), more).await;
            assert!(reason.ends_with(&format!("the image in this {format} is empty")), "{reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_is_written_to_a_partition_and_not_to_a_disk() {
    let disk = LoopDisk::with_partitions(16 << 20);
    let ext4 = made("mkfs.ext4 -q $1 4M");
    let reason = reason(written(ext4.clone(), &disk.path, &[]).await);
    assert!(
        reason
            .contains("not a disk image: ext2, ext3 or ext4 file system: write it to a partition"),
        "{reason}"
    );
    let partition = disk.add_partition();
    assert_eq!(written(ext4.clone(), &partition, &[]).await, ActionOutcome::Success);
    assert!(disk.content()[1 << 20..][..ext4.len()] == ext4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_image_is_not_written_to_a_partition() {
    let disk = LoopDisk::with_partitions(16 << 20);
    let mut image = disk_image(1 << 20);
    image[446..462].copy_from_slice(&[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]);
    let before = disk.content();
    let reason = reason(written(image, &disk.add_partition(), &[]).await);
    assert!(
        reason.contains("disk image with a partition table: write it to a whole disk"),
        "{reason}"
    );
    assert!(disk.content() == before);
}

#[tokio::test(flavor = "multi_thread")]
async fn hybrid_images_of_cds_and_file_systems_with_a_boot_sector_are_written() {
    let hybrid = made(&format!(
        "xorriso -outdev $1 -map {} / -boot_image any partition_table=on",
        env!("CARGO_MANIFEST_DIR")
    ));
    let fat = made("mkfs.vfat -C $1 1440");
    for image in [hybrid, fat] {
        let disk = LoopDisk::new(4 << 20);
        assert_eq!(written(image.clone(), &disk.path, &[]).await, ActionOutcome::Success);
        assert!(disk.content()[..image.len()] == image);
    }
}
