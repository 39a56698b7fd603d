//! Signatures of images, with the program `minisign`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;

use super::server::{Images, image};

/// Returns an image that can be signed.
fn ready() -> pb::Image {
    pb::Image {
        sha256: "0".repeat(64),
        stored_sha256: "1".repeat(64),
        map_sha256: "2".repeat(64),
        ..image("debian", ImageState::Ready)
    }
}

/// A directory with the key pairs `a` and `b`.
fn keys() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        minisign(place.path(), &format!("-G -W -p {name}.pub -s {name}"), "");
    }
    place
}

fn minisign(place: &Path, line: &str, input: &str) {
    let mut minisign = Command::new("minisign");
    minisign.args(line.split(' ')).current_dir(place).stdin(Stdio::piped());
    let mut minisign = minisign.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    minisign.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(minisign.wait().unwrap().success(), "{line}");
}

/// Runs a command in which `@` stands for the directory of the keys.
async fn run(images: &Images, place: &TempDir, line: &str) -> Result<String, String> {
    let line = line.replace('@', &format!("{}/", place.path().display()));
    let (printed, result) = images.run(&line).await;
    result.map(|()| printed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_made_added_and_verified() {
    let (place, images) = (keys(), Images::with(ready(), &[]));
    let error = run(&images, &place, "image verify debian --key @a.pub").await.unwrap_err();
    assert_eq!(error, "image debian: no signature");
    let printed = run(&images, &place, "image sign debian --key @a -o name").await;
    assert_eq!(printed, Ok("image/debian\n".into()));
    let error = run(&images, &place, "image verify debian --key @b.pub").await.unwrap_err();
    assert!(error.starts_with("image debian: signed by "), "{error}");
    assert!(error.contains(": not among the accepted keys "), "{error}");
    let words = "image verify debian --key @b.pub --key @a.pub";
    let printed = run(&images, &place, words).await.unwrap();
    assert!(printed.starts_with("image debian: signed by "), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_a_key_is_in_a_file() {
    let (place, images) = (keys(), Images::with(ready(), &[]));
    minisign(place.path(), "-G -p locked.pub -s locked", "secret\nsecret\n");
    std::fs::write(place.path().join("password"), "secret\n").unwrap();
    let words = "image sign debian --key @locked --password-file @password";
    run(&images, &place, words).await.unwrap();
    run(&images, &place, "image verify debian --key @locked.pub").await.unwrap();
    std::fs::write(place.path().join("password"), "wrong\n").unwrap();
    let error = run(&images, &place, words).await.unwrap_err();
    assert!(error.starts_with("minisign did not sign: "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_signed_on_another_computer() {
    let (place, images) = (keys(), Images::with(ready(), &[]));
    let printed = run(&images, &place, "image sign debian --text @text").await.unwrap();
    let line = format!("{} -s {}/a", printed.trim_end(), place.path().display());
    assert!(Command::new("sh").args(["-ec", &line]).status().unwrap().success());
    run(&images, &place, "image sign debian --signature @text.minisig").await.unwrap();
    run(&images, &place, "image verify debian --key @a.pub").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn downloaded_files_are_compared_with_what_was_signed() {
    let (place, images) = (keys(), Images::with(ready(), &[]));
    run(&images, &place, "image sign debian --key @a").await.unwrap();
    for option in ["--stored @a.pub", "--map @a.pub"] {
        let words = format!("image verify debian --key @a.pub {option}");
        let error = run(&images, &place, &words).await.unwrap_err();
        assert!(error.contains("_sha256: signed is "), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_signed_as_it_is_now_is_refused() {
    let (place, images) = (keys(), Images::with(ready(), &[]));
    run(&images, &place, "image sign debian --key @a").await.unwrap();
    let signatures = images.signatures();
    let other = pb::Image { stored_sha256: "3".repeat(64), signatures, ..ready() };
    let error = run(&Images::with(other, &[]), &place, "image verify debian --key @a.pub").await;
    let error = error.unwrap_err();
    assert!(error.contains(": stored_sha256: signed is "), "{error}");
    let empty = Images::with(image("debian", ImageState::Uploading), &[]);
    let error = run(&empty, &place, "image sign debian --key @a").await.unwrap_err();
    assert_eq!(error, "image debian has no content: uploading");
}
