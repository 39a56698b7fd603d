//! Error messages of image2disk: one line with the file or disk, and the cause.

use std::process::Command;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::file_server::{FileServer, Reply};
use crate::image2disk::{disk_image, hex};
use crate::{reason, run};

async fn refused(
    name: &str,
    file: Vec<u8>,
    reply: Reply,
    more: &[(&str, &str)],
) -> (String, LoopDisk, String) {
    let server = FileServer::serve(name, file, [reply]).await;
    let disk = LoopDisk::new(1 << 20);
    let mut variables = vec![("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
    variables.extend(more);
    let outcome = run(Builtin::Image2Disk, &variables).await;
    (reason(outcome), disk, server.url.clone())
}

#[tokio::test]
async fn missing_files_are_refused_immediately() {
    let (reason, disk, url) =
        refused("os.img.zst", Vec::new(), Reply::refuse("404 Not Found"), &[]).await;
    assert_eq!(reason, format!("image2disk: GET {url}: 404 Not Found"));
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn an_empty_file_is_refused() {
    let (reason, _, url) = refused("os.img", Vec::new(), Reply::default(), &[]).await;
    assert_eq!(reason, format!("image2disk: GET {url}: the file is empty"));
}

#[tokio::test]
async fn a_checksum_mismatch_reports_both_checksums() {
    let (zero, image) = ("0".repeat(64), disk_image(5000));
    let sum = hex(Sha256::digest(&image));
    let (reason, _, url) =
        refused("os.img", image, Reply::default(), &[("IMG_SHA256", &zero)]).await;
    assert_eq!(
        reason,
        format!(
            "image2disk: GET {url}: checksum mismatch: the bytes downloaded have sha256:{sum}, expected sha256:{zero}"
        )
    );
}

#[tokio::test]
async fn a_truncated_compressed_file_is_a_failure() {
    let file = [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x19, 0x00, 0x00].to_vec(); // A zstd frame without its block's end.
    let (reason, _, url) = refused("os.img.zst", file, Reply::default(), &[]).await;
    assert!(
        reason.starts_with(&format!(
            "image2disk: GET {url}: the file is damaged or incomplete (zstd): "
        )),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_above_the_limit_is_refused_before_the_first_byte() {
    for (tool, format) in
        [("cat $0 | zstd --long=28 -c", "zstd"), ("xz --lzma2=preset=0,dict=256MiB -c $0", "xz")]
    {
        let file = piped(tool, &disk_image(5000));
        let (reason, disk, url) = refused("os.img", file, Reply::default(), &[]).await;
        let sentence = format!(
            "image2disk: GET {url}: unpacking this {format} needs a window of 256 MiB; the limit is"
        );
        assert!(reason.starts_with(&sentence) && reason.ends_with(" MiB"), "{reason}");
        assert!(disk.is_untouched());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_larger_window_in_a_later_stream_is_refused() {
    for (tool, format) in [
        ("zstd -c $0; cat $0 | zstd --long=28 -c", "zstd"),
        ("xz -c $0; xz --lzma2=preset=0,dict=256MiB -c $0", "xz"),
    ] {
        let (reason, _, url) =
            refused("os.img", piped(tool, &disk_image(5000)), Reply::default(), &[]).await;
        let needs = format!(
            "unpacking this {format} needs a larger window in a later stream; the limit is"
        );
        assert!(reason.starts_with(&format!("image2disk: GET {url}: {needs}")), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_default_windows_of_compressors_are_supported() {
    for tool in ["xz -9 -c $0", "cat $0 | zstd --long -19 -c"] {
        let server = FileServer::serve("os.img", piped(tool, &disk_image(5000)), []).await;
        let disk = LoopDisk::new(1 << 20);
        let variables = [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
        assert_eq!(run(Builtin::Image2Disk, &variables).await, ActionOutcome::Success, "{tool}");
        assert!(disk.content()[..5000] == disk_image(5000));
    }
}

/// Runs the shell command `line` with a file of `content` as `$0`, and returns its output.
fn piped(line: &str, content: &[u8]) -> Vec<u8> {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, content).unwrap();
    let output = Command::new("sh").args(["-ec", line]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{line}");
    output.stdout
}

#[tokio::test]
async fn a_file_that_must_be_compressed_and_is_not_is_refused() {
    let (reason, disk, url) =
        refused("os.xz", disk_image(5000), Reply::default(), &[("COMPRESSED", "true")]).await;
    assert_eq!(
        reason,
        format!("image2disk: GET {url}: the file is not xz, although COMPRESSED is true")
    );
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn an_image_with_an_unknown_end_is_refused() {
    let endless = Reply { length: false, ..Reply::default() };
    let (reason, _, url) = refused("os.img", disk_image(5000), endless, &[]).await;
    let why =
        "the server sends no length, so a truncated file would look complete; set IMG_CHECKSUM";
    assert_eq!(reason, format!("image2disk: GET {url}: {why}"));
}

#[tokio::test]
async fn an_image_larger_than_the_disk_is_refused_before_the_first_byte() {
    let (reason, disk, _) = refused("os.img", disk_image(2 << 20), Reply::default(), &[]).await;
    assert_eq!(
        reason,
        format!(
            "image2disk: {}: too small: holds 1048576 bytes, the image needs 2097152",
            disk.path
        )
    );
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn a_missing_disk_is_named_with_the_existing_ones() {
    let disk = "/dev/disk/by-id/wwn-0x5000c500deadbeef";
    let file =
        [("DEST_PATH", "/a"), ("UID", "0"), ("GID", "0"), ("MODE", "0644"), ("DIRMODE", "0755")];
    let image = [("IMG_URL", "http://127.0.0.1:9/os.img")];
    for (action, name, variables) in
        [(Builtin::Image2Disk, "image2disk", &image[..]), (Builtin::WriteFile, "writefile", &file)]
    {
        let variables = [variables, &[("DEST_DISK", disk)]].concat();
        let reason = reason(run(action, &variables).await);
        let expected = format!("{name}: {disk}: no such disk; this machine has /dev/");
        assert!(reason.starts_with(&expected) && reason.lines().count() == 1, "{reason}");
    }
}

#[tokio::test]
async fn other_devices_than_disks_are_refused() {
    let variables = [("IMG_URL", "http://127.0.0.1:9/os.img"), ("DEST_DISK", "/dev/null")];
    assert_eq!(
        reason(run(Builtin::Image2Disk, &variables).await),
        "image2disk: /dev/null: not a disk"
    );
}

#[tokio::test]
async fn a_mounted_disk_is_refused_and_its_mount_point_named() {
    let disk = LoopDisk::ext4();
    let mounted = disk.mounted();
    let variables = [("IMG_URL", "http://127.0.0.1:9/os.img"), ("DEST_DISK", &disk.path)];
    let place = mounted.path().display();
    let sentence = format!("image2disk: {}: in use: mounted on {place}", disk.path);
    assert_eq!(reason(run(Builtin::Image2Disk, &variables).await), sentence);
}

#[tokio::test]
async fn a_refused_connection_has_the_systems_error() {
    let disk = NamedTempFile::new().unwrap();
    let path = disk.path().to_str().unwrap();
    let variables = [
        ("IMG_URL", "http://user:secret@127.0.0.1:9/os.img?sig=secret"),
        ("DEST_DISK", path),
        ("RETRY_ENABLED", "0"),
    ];
    let sentence = "image2disk: GET http://127.0.0.1:9/os.img?…: Connection refused (os error 111)";
    assert_eq!(reason(run(Builtin::Image2Disk, &variables).await), sentence);
}

#[tokio::test]
async fn missing_and_invalid_variables_are_named() {
    for (variables, sentence) in [
        (&[("DEST_DISK", "/dev/sda")][..], "image2disk: IMG_URL is missing"),
        (
            &[("IMG_URL", "ftp://a/b"), ("DEST_DISK", "/dev/sda")],
            "image2disk: IMG_URL is `ftp://a/b`, not an http or https URL",
        ),
        (&[("IMG_URL", "http://127.0.0.1:9/b")], "image2disk: DEST_DISK is missing"),
    ] {
        assert_eq!(reason(run(Builtin::Image2Disk, variables).await), sentence);
    }
}

#[tokio::test]
async fn reboot_and_poweroff_are_left_to_the_caller() {
    assert_eq!(
        run(Builtin::Terminal(worker::Terminal::Reboot), &[]).await,
        ActionOutcome::Terminal(worker::Terminal::Reboot)
    );
    assert_eq!(
        run(Builtin::Terminal(worker::Terminal::PowerOff), &[]).await,
        ActionOutcome::Terminal(worker::Terminal::PowerOff)
    );
}
