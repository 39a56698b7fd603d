//! Builds that end with a failure: one line that names field, value and problem.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::*;

/// Checks that a build of an upload fails with a reason, and is not tried again.
async fn check_upload(name: &str, content: &[u8], reason: &str) {
    let failure = Scene::with_upload(name, content).await.failure().await;
    assert_eq!(failure, BuildFailure { reason: reason.into(), may_retry: false });
}

#[tokio::test]
async fn a_backing_file_is_refused() {
    let reason = "source: format qcow2: refers to backing file \"/etc/shadow\": images that refer \
                  to other files are refused";
    check_upload("a.qcow2", &images::with_backing_file("/etc/shadow"), reason).await;
}

#[tokio::test]
async fn an_unknown_format_is_refused() {
    let reason = "source: unknown format: begins with 01 02 03 01 02 03 01 02 03 01 02 03 01 02 03 01: neither a disk \
                  image's magic nor a boot sector; a raw image needs a name that ends in .raw or \
                  .img, or the declared format raw";
    check_upload("a", &[1, 2, 3].repeat(2000), reason).await;
}

#[tokio::test]
async fn an_archive_in_place_of_a_disk_is_refused() {
    let reason = "source: format tar: not a disk image: register it with the kind archive";
    check_upload("a.tar", &images::tar(), reason).await;
}

#[tokio::test]
async fn a_disk_that_is_too_large_is_refused() {
    let scene = Scene::with_upload("", &images::convert(&images::disk(), "qcow2")).await;
    scene.site.change(|it| it.max_size_bytes = 8 << 20);
    let failure = scene.failure().await;
    let reason = "source: virtual size: 9.00 MiB: the limit is 8.00 MiB";
    assert_eq!(failure, BuildFailure { reason: reason.into(), may_retry: false });
}

#[tokio::test]
async fn a_wrong_checksum_is_refused() {
    let scene = Scene::new().await;
    scene.upload(Upload::Whole(images::disk().into()));
    let checksum = format!("sha256:{}", "0".repeat(64));
    let source = pb::ImageSource { checksum: checksum.clone(), ..upload_source("a.raw") };
    scene.queue(source, ImageKind::Disk);
    let reason =
        format!("source.checksum: {checksum}: the file has sha256:{}", digest(&images::disk()));
    assert_eq!(scene.failure().await, BuildFailure { reason, may_retry: false });
}

#[tokio::test]
async fn an_unknown_declared_format_is_refused() {
    let scene = Scene::new().await;
    let source = pb::ImageSource { format: "iso".into(), ..upload_source("") };
    scene.queue(source, ImageKind::Disk);
    assert_eq!(scene.failure().await.reason, "source.format: unknown format: \"iso\"");
}

#[tokio::test]
async fn a_private_address_is_never_contacted() {
    let scene = Scene::new().await;
    let private = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    private.set_nonblocking(true).unwrap();
    let url = format!("http://{}/a.raw", private.local_addr().unwrap());
    scene.queue(url_source(url.clone()), ImageKind::Disk);
    let reason = format!("source.url: {url}: not a public address");
    assert_eq!(scene.failure().await, BuildFailure { reason, may_retry: false });
    assert_eq!(private.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn without_a_sandbox_nothing_is_fetched_or_parsed() {
    let scene = Scene::with_upload("a.raw", &images::disk()).await;
    // A user namespace that allows no others. The limit does not concern the host.
    let script = scene.place.path().join("confined");
    let limits = "for kind in user mnt pid net; do\n\
                  echo 0 > /proc/sys/user/max_${kind}_namespaces || exit\ndone";
    std::fs::write(&script, format!("#!/bin/sh\n{limits}\nexec \"$@\"\n")).unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(script).arg(process::PROGRAM);
    let builder = Builder::start_by(command, scene.address, &scene.scratch());
    let failure = failure(scene.site.outcome().await);
    assert!(failure.may_retry);
    assert!(failure.reason.starts_with("builder: sandbox unavailable: "), "{failure:?}");
    assert!(failure.reason.contains("max_user_namespaces is 0"), "{failure:?}");
    assert_eq!(scene.site.change(|it| it.fetches.len() + it.sent.len()), 0);
    builder.kill();
}

#[tokio::test]
async fn a_result_that_the_server_refuses_is_a_failure() {
    let scene = Scene::with_upload("a.raw", &images::disk()).await;
    scene.site.change(|it| it.refuses_content = true);
    let _builder = scene.start();
    let reason = "builder: the image service refused the result: content.sha256: refused".into();
    let failure = failure(scene.site.outcome().await);
    assert_eq!(failure, BuildFailure { reason, may_retry: false });
    scene.is_clean().await;
}
