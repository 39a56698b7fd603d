//! The sentences of image2disk: each names what failed and where, in one line.

use std::process::Command;

use tempfile::NamedTempFile;
use worker::{Builtin, Outcome};

use crate::disk::LoopDisk;
use crate::image2disk::noise;
use crate::site::{Reply, Site};
use crate::{reason, run};

async fn refused(
    name: &str,
    file: Vec<u8>,
    reply: Reply,
    more: &[(&str, &str)],
) -> (String, LoopDisk, String) {
    let site = Site::serve(name, file, [reply]).await;
    let disk = LoopDisk::new(1 << 20);
    let mut variables = vec![("IMG_URL", site.url.as_str()), ("DEST_DISK", &disk.path)];
    variables.extend(more);
    let outcome = run(Builtin::Image2Disk, &variables).await;
    (reason(outcome), disk, site.url.clone())
}

#[tokio::test]
async fn what_is_not_there_is_refused_at_once() {
    let (reason, disk, url) =
        refused("os.img.zst", Vec::new(), Reply::refuse("404 Not Found"), &[]).await;
    assert_eq!(reason, format!("image2disk: GET {url}: 404 Not Found"));
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn an_empty_file_is_no_image() {
    let (reason, _, url) = refused("os.img", Vec::new(), Reply::default(), &[]).await;
    assert_eq!(reason, format!("image2disk: GET {url}: the file is empty"));
}

#[tokio::test]
async fn a_wrong_sum_names_both() {
    let zero = "0".repeat(64);
    let (reason, _, url) =
        refused("os.img", b"abc".to_vec(), Reply::default(), &[("IMG_SHA256", &zero)]).await;
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(
        reason,
        format!("image2disk: GET {url}: the bytes downloaded have sha256:{abc}, not sha256:{zero}")
    );
}

#[tokio::test]
async fn a_cut_packed_file_is_a_failure_even_if_the_server_calls_it_whole() {
    let file = [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x19, 0x00, 0x00].to_vec(); // A zstd frame without its block's end.
    let (reason, _, url) = refused("os.img.zst", file, Reply::default(), &[]).await;
    assert!(
        reason.starts_with(&format!(
            "image2disk: GET {url}: the file is damaged or not whole zstd: "
        )),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_there_is_no_room_for_is_refused_before_the_first_byte() {
    for (tool, format) in
        [("cat $0 | zstd --long=28 -c", "zstd"), ("xz --lzma2=preset=0,dict=256MiB -c $0", "xz")]
    {
        let file = piped(tool, &noise(5000));
        let (reason, disk, url) = refused("os.img", file, Reply::default(), &[]).await;
        let sentence = format!(
            "image2disk: GET {url}: unpacking this {format} takes a window of 256 MiB, and"
        );
        assert!(reason.starts_with(&sentence) && reason.ends_with(" MiB"), "{reason}");
        assert!(disk.is_untouched());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_grows_in_a_later_part_is_refused_as_well() {
    for (tool, format) in [
        ("zstd -c $0; cat $0 | zstd --long=28 -c", "zstd"),
        ("xz -c $0; xz --lzma2=preset=0,dict=256MiB -c $0", "xz"),
    ] {
        let (reason, _, url) =
            refused("os.img", piped(tool, &noise(5000)), Reply::default(), &[]).await;
        let needs = format!("unpacking this {format} takes a larger window in a later part, and");
        assert!(reason.starts_with(&format!("image2disk: GET {url}: {needs}")), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_windows_that_packers_choose_by_themselves_are_unpacked() {
    for tool in ["xz -9 -c $0", "cat $0 | zstd --long -19 -c"] {
        let site = Site::serve("os.img", piped(tool, &noise(5000)), []).await;
        let disk = LoopDisk::new(1 << 20);
        let variables = [("IMG_URL", site.url.as_str()), ("DEST_DISK", &disk.path)];
        assert_eq!(run(Builtin::Image2Disk, &variables).await, Outcome::Success, "{tool}");
        assert!(disk.content()[..5000] == noise(5000));
    }
}

/// What the shell command `line` makes of a file with `content`, which is its `$0`.
fn piped(line: &str, content: &[u8]) -> Vec<u8> {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, content).unwrap();
    let output = Command::new("sh").args(["-ec", line]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{line}");
    output.stdout
}

#[tokio::test]
async fn what_should_be_packed_and_is_not_is_refused() {
    let (reason, disk, url) =
        refused("os.xz", noise(5000), Reply::default(), &[("COMPRESSED", "true")]).await;
    assert_eq!(
        reason,
        format!("image2disk: GET {url}: the file is not xz, though COMPRESSED is true")
    );
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn an_image_whose_end_cannot_be_told_from_a_cut_is_refused() {
    let endless = Reply { length: false, ..Reply::default() };
    let (reason, _, url) = refused("os.img", noise(5000), endless, &[]).await;
    let why = "the server tells no length, so a cut would pass for the end; set IMG_CHECKSUM";
    assert_eq!(reason, format!("image2disk: GET {url}: {why}"));
}

#[tokio::test]
async fn an_image_larger_than_the_disk_is_refused_before_the_first_byte() {
    let (reason, disk, _) = refused("os.img", noise(2 << 20), Reply::default(), &[]).await;
    assert_eq!(
        reason,
        format!("image2disk: {}: holds 1048576 bytes, the image 2097152", disk.path)
    );
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn a_disk_that_is_not_there_is_named_beside_those_that_are() {
    let variables = [("IMG_URL", "http://127.0.0.1:9/os.img"), ("DEST_DISK", "/dev/sdnone")];
    let reason = reason(run(Builtin::Image2Disk, &variables).await);
    assert!(
        reason.starts_with("image2disk: /dev/sdnone: no such disk; this machine has /dev/"),
        "{reason}"
    );
}

#[tokio::test]
async fn what_is_no_disk_is_refused() {
    let variables = [("IMG_URL", "http://127.0.0.1:9/os.img"), ("DEST_DISK", "/dev/null")];
    assert_eq!(
        reason(run(Builtin::Image2Disk, &variables).await),
        "image2disk: /dev/null: not a disk"
    );
}

#[tokio::test]
async fn a_mounted_disk_is_refused_and_its_place_named() {
    let disk = LoopDisk::ext4();
    let mounted = disk.mounted();
    let variables = [("IMG_URL", "http://127.0.0.1:9/os.img"), ("DEST_DISK", &disk.path)];
    let place = mounted.path().display();
    let sentence = format!("image2disk: {}: in use: mounted on {place}", disk.path);
    assert_eq!(reason(run(Builtin::Image2Disk, &variables).await), sentence);
}

#[tokio::test]
async fn nobody_listening_is_told_as_the_system_tells_it() {
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
async fn variables_that_are_missing_or_nonsense_are_named() {
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
    assert_eq!(run(Builtin::Reboot, &[]).await, Outcome::Terminal(worker::Terminal::Reboot));
    assert_eq!(run(Builtin::PowerOff, &[]).await, Outcome::Terminal(worker::Terminal::PowerOff));
}
