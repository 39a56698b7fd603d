//! Bytes behind the end of a compressed file.

use std::fs;

use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::file_server::FileServer;
use crate::image2disk::{disk_image, packed};
use crate::{Recorder, context, environment, reason};

/// Metadata as a firmware's build system appends them.
const METADATA: &[u8] = b"{\"metadata_version\": \"1.1\", \"compat_version\": \"1.0\"}\0\0FWx0";

async fn written(file: Vec<u8>, disk: &LoopDisk) -> (ActionOutcome, String) {
    let server = FileServer::serve("fwtool.img", file, []).await;
    let (context, recorder) = context();
    let variables = environment(&[("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)]);
    (worker::run(Builtin::Image2Disk, &variables, &context).await, log(&recorder))
}

fn log(recorder: &Recorder) -> String {
    String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_behind_the_image_are_left_out_and_logged() {
    let image = disk_image(700_000);
    for tool in ["gzip", "xz", "zstd", "bzip2"] {
        for behind in [METADATA, &[0; 4096]] {
            let disk = LoopDisk::new(1 << 20);
            let (outcome, log) = written([&packed(tool, &image)[..], behind].concat(), &disk).await;
            assert_eq!(outcome, ActionOutcome::Success, "{tool}");
            assert!(disk.content()[..image.len()] == image, "{tool}");
            let line = format!("\nignored {} bytes behind the end of the {tool}\n", behind.len());
            assert!(log.contains(&line), "{log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_cut_stream_is_a_failure_in_spite_of_metadata() {
    for tool in ["gzip", "xz", "zstd", "bzip2"] {
        let whole = packed(tool, &disk_image(700_000));
        let mut damaged = whole.clone();
        damaged[whole.len() - 6] ^= 1;
        for file in [damaged, whole[..whole.len() - 6].to_vec()] {
            let disk = LoopDisk::new(1 << 20);
            let (outcome, _) = written([&file[..], METADATA].concat(), &disk).await;
            let text = format!("fwtool.img: the file is damaged or incomplete ({tool}): ");
            let reason = reason(outcome);
            assert!(reason.contains(&text), "{reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_with_bytes_behind_it_is_extracted() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("a"), "content").unwrap();
    let place = tree.path().display();
    let tar = crate::contents::made(&format!("tar -C {place} -cf $1 a"));
    let server =
        FileServer::serve("a.tgz", [&packed("gzip", &tar)[..], METADATA].concat(), []).await;
    let disk = LoopDisk::ext4();
    let (context, recorder) = context();
    let variables = environment(&[
        ("ARCHIVE_URL", server.url.as_str()),
        ("ARCHIVE_TYPE", "targz"),
        ("DEST_DISK", &disk.path),
        ("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION", "true"),
    ]);
    let outcome = worker::run(Builtin::Archive2Disk, &variables, &context).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(fs::read_to_string(disk.mounted().path().join("a")).unwrap(), "content");
    let ignored = format!("ignored {} bytes behind the end of the gzip\n", METADATA.len());
    assert!(log(&recorder).starts_with(&ignored), "{}", log(&recorder));
}
