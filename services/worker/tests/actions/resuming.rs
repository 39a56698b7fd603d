//! Requests of image2disk after a disconnect, and its handling of the responses.

use std::time::Duration;

use worker::progress::Phase;
use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::file_server::{FileServer, Reply};
use crate::image2disk::disk_image;
use crate::{context, environment, reason, run};

const LENGTH: usize = 300_000;

/// Writes an image from a server that sends `replies`. Returns the outcome and the requested ranges.
async fn written(replies: impl IntoIterator<Item = Reply>) -> (ActionOutcome, Vec<String>, String) {
    let image = disk_image(LENGTH);
    let server = FileServer::serve("os.img", image.clone(), replies).await;
    let disk = LoopDisk::new(1 << 20);
    let variables = [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
    let running = run(Builtin::Image2Disk, &variables);
    let outcome = tokio::time::timeout(Duration::from_secs(30), running).await.expect("it hangs");
    assert!(
        outcome != ActionOutcome::Success || disk.content()[..LENGTH] == image,
        "not the image"
    );
    (outcome, server.ranges(), server.url.clone())
}

#[tokio::test]
async fn after_a_disconnect_only_the_rest_is_requested() {
    let (outcome, ranges, _) = written([Reply::cut(100_000)]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(ranges, ["", "bytes=100000-"]);
}

#[tokio::test]
async fn a_stalled_connection_is_a_disconnect() {
    let (outcome, ranges, _) = written([Reply { stall: true, ..Reply::cut(100_000) }]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(ranges, ["", "bytes=100000-"]);
}

#[tokio::test]
async fn a_server_without_ranges_sends_the_whole_file_again_and_its_beginning_is_skipped() {
    let again = Reply { ranges: false, ..Reply::default() };
    assert_eq!(written([Reply::cut(100_000), again]).await.0, ActionOutcome::Success);
}

#[tokio::test]
async fn without_a_validator_no_range_is_requested() {
    let nameless = |send| Reply { etag: None, send, ..Reply::default() };
    let (outcome, ranges, _) = written([nameless(100_000), nameless(LENGTH)]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(ranges, ["", ""]);
}

#[tokio::test]
async fn a_different_beginning_without_a_validator_is_a_failure() {
    let mut other = disk_image(LENGTH);
    other[99_999] ^= 1;
    let nameless = Reply { etag: None, ..Reply::default() };
    let first = Reply { send: 100_000, ..nameless.clone() };
    let (outcome, _, url) = written([first, Reply { instead: Some(other), ..nameless }]).await;
    let change = "changed while it was downloaded: was its beginning, is different";
    assert_eq!(reason(outcome), format!("image2disk: GET {url}: {change}"));
}

#[tokio::test]
async fn another_version_is_a_failure() {
    let changed = Reply { etag: Some("\"two\""), ..Reply::default() };
    let (outcome, _, url) = written([Reply::cut(100_000), changed]).await;
    let change = "changed while it was downloaded: was version \"one\", is version \"two\"";
    assert_eq!(reason(outcome), format!("image2disk: GET {url}: {change}"));
}

#[tokio::test]
async fn temporary_server_errors_are_retried() {
    let error = [
        "503 Service Unavailable\r\nRetry-After: 3600",
        "500 Internal Server Error",
        "429 Too Many Requests",
    ];
    let (outcome, ranges, _) = written(error.map(Reply::refuse)).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(ranges.len(), 4);
}

#[tokio::test]
async fn a_file_that_is_removed_meanwhile_is_an_immediate_failure() {
    let (outcome, ranges, url) = written([Reply::cut(5), Reply::refuse("404 Not Found")]).await;
    assert_eq!(reason(outcome), format!("image2disk: GET {url}: 404 Not Found"));
    assert_eq!(ranges.len(), 2);
}

#[tokio::test]
async fn without_progress_the_download_fails_and_reports_its_position() {
    let server = FileServer::serve(
        "os.img",
        disk_image(LENGTH),
        [Reply::cut(100_000)].into_iter().chain(vec![Reply::refuse("503 x"); 999]),
    )
    .await;
    let disk = LoopDisk::new(1 << 20);
    let (mut context, recorder) = context();
    context.retry_policy.give_up_after = Duration::from_secs(1);
    let variables = environment(&[("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)]);
    let outcome = worker::run(Builtin::Image2Disk, &variables, &context).await;
    let error = "no progress for 1 s, after 100000 of 300000 bytes: 503 Service Unavailable";
    assert_eq!(reason(outcome), format!("image2disk: GET {}: {error}", server.url));
    let waiting = recorder
        .reports
        .lock()
        .unwrap()
        .iter()
        .any(|report| matches!(report.phase, Phase::Waiting(_)));
    assert!(waiting, "no report of the wait");
}

#[tokio::test]
async fn without_retries_the_first_disconnect_is_a_failure() {
    let server = FileServer::serve("os.img", disk_image(LENGTH), [Reply::cut(100_000)]).await;
    let disk = LoopDisk::new(1 << 20);
    let variables =
        [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path), ("RETRY_ENABLED", "false")];
    let reason = reason(run(Builtin::Image2Disk, &variables).await);
    assert!(reason.starts_with(&format!("image2disk: GET {}: ", server.url)), "{reason}");
    assert_eq!(server.ranges(), [""]);
}
