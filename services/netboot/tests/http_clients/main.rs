//! Boot HTTP with curl as the client, from chosen addresses: every path and every refusal.
#![allow(clippy::unwrap_used)]

mod cached_images;
mod home;
mod images;
mod limits;
mod platform;
mod site;
mod stored_images;
mod trust;

use site::{MACHINE, OTHER, Site, loader};

#[tokio::test]
async fn firmware_requests_the_length_and_then_the_loader() {
    let site = Site::start().await;
    for path in [
        "/ipxe/snponly.efi",
        "/ipxe/binary/snponly.efi",
        "/ipxe/02-00-00-00-00-01/snponly.efi",
        "/ipxe/binary/02-00-00-00-00-01/snponly.efi",
    ] {
        let head = site.curl(OTHER, &["-I", "-A", "UefiHttpBoot/1.0"], path).await;
        assert_eq!((head.status, head.header("content-length")), (200, loader().len().to_string()));
        assert_eq!(head.header("content-type"), "application/efi");
        assert_eq!(head.header("accept-ranges"), "bytes");
        assert!(head.header("transfer-encoding").is_empty());
        let whole = site.curl(OTHER, &[], path).await;
        assert!(whole.body == loader(), "{path}");
        let known = format!("If-None-Match: {}", head.header("etag"));
        assert_eq!(site.curl(OTHER, &["-H", &known], path).await.status, 304);
    }
}

#[tokio::test]
async fn an_environment_that_is_built_while_the_server_runs_is_served() {
    let site = Site::start().await;
    let kernel = site.kernel_url().await;
    let initramfs = kernel.replace("vmlinuz", "initramfs");
    assert_eq!(site.curl(MACHINE, &[], &initramfs).await.status, 404);
    std::fs::write(site.directory.path().join("initramfs-x86_64"), "built").unwrap();
    let served = site.curl(MACHINE, &[], &initramfs).await;
    assert_eq!((served.status, served.text().as_str()), (200, "built"));
}

#[tokio::test]
async fn the_file_for_refused_machines_is_not_found() {
    let site = Site::start().await;
    for options in [&["-I"][..], &[]] {
        assert_eq!(site.curl(MACHINE, options, "/netboot-not-allowed").await.status, 404);
    }
}

#[tokio::test]
async fn the_script_is_served_at_every_path_of_every_generation() {
    let site = Site::start().await;
    for path in [
        "/auto.ipxe",
        "/02-00-00-00-00-01/auto.ipxe",
        "/02%3A00%3A00%3A00%3A00%3A01/auto.ipxe",
        "/0200.0000.0001/auto.ipxe",
        "/ipxe/script/auto.ipxe",
        "/ipxe/script/020000000001/auto.ipxe",
        "/ipxe?mac=02-00-00-00-00-01&serial=x",
        "/tftp/02-00-00-00-00-01/auto.ipxe",
    ] {
        let script = site.curl(MACHINE, &["--http1.0"], path).await;
        assert_eq!(script.status, 200, "{path}");
        let text = script.text();
        assert!(text.starts_with("#!ipxe\n") && text.contains("boot_token="), "{path}: {text}");
        assert_eq!(script.header("cache-control"), "no-store", "{path}");
        assert!(!script.header("content-length").is_empty(), "{path}");
    }
    let wrong = site.curl(MACHINE, &[], "/00-11-22-33-44-55-66-77/auto.ipxe").await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn a_script_has_the_same_head_at_every_spelling_of_its_path() {
    let site = Site::start().await;
    let own = site.curl(MACHINE, &[], "/02-00-00-00-00-01/auto.ipxe").await;
    assert_eq!(own.header("content-length"), own.body.len().to_string());
    for (options, path) in [
        (&["-I"][..], "/02-00-00-00-00-01/auto.ipxe"),
        (&[], "/02%3A00%3A00%3A00%3A00%3A01/auto.ipxe"),
        (&[], "/02-00-00-00-00-01/auto.ipxe?serial=x&uuid=a%20b"),
    ] {
        let other = site.curl(MACHINE, options, path).await;
        assert_eq!(other.head(), own.head(), "{options:?} {path}");
    }
    let wrong = site.curl(MACHINE, &["-X", "POST"], "/02-00-00-00-00-01/auto.ipxe").await;
    assert_eq!((wrong.status, wrong.header("allow").as_str()), (405, "GET,HEAD"));
}

#[tokio::test]
async fn autoexec_is_empty_or_sends_ipxe_on_to_dhcp() {
    let site = Site::start().await;
    for path in ["/autoexec.ipxe", "/02-00-00-00-00-01/autoexec.ipxe", "/ipxe/autoexec.ipxe"] {
        let empty = site.curl(OTHER, &[], path).await;
        assert_eq!((empty.status, empty.text().as_str()), (200, ""), "{path}");
    }
    let site = Site::with(|site| site.serving.autoexec_script = true).await;
    let script = site.curl(OTHER, &[], "/02-00-00-00-00-01/autoexec.ipxe").await.text();
    assert!(script.contains("\ndhcp\nchain http://127.0.0.1:"), "{script}");
    let script = site.curl(OTHER, &[], "/autoexec.ipxe").await.text();
    assert!(script.contains("/${mac:hexhyp}/auto.ipxe\n"), "{script}");
}

#[tokio::test]
async fn an_interrupted_download_can_be_resumed() {
    let site = Site::start().await;
    let kernel = site.kernel_url().await;
    let part = site.curl(MACHINE, &["-r", "1000-"], &kernel).await;
    assert_eq!(part.status, 206);
    assert!(part.body == loader()[1000..]);
    let range = format!("bytes 1000-{}/{}", loader().len() - 1, loader().len());
    assert_eq!(
        (part.header("content-range"), part.header("cache-control")),
        (range, "no-store".into())
    );
    let other = ["-r", "1000-", "-H", "If-Range: \"old\""];
    assert_eq!(site.curl(MACHINE, &other, &kernel).await.status, 200);
    assert_eq!(site.curl(MACHINE, &["-r", "99999999-"], &kernel).await.status, 416);
}

#[tokio::test]
async fn two_requests_use_one_connection() {
    let site = Site::start().await;
    let again = format!("{}/healthz", site.base);
    let connects = ["-w", "%{num_connects}", "-o", "/dev/null", &again];
    let answer = site.curl(OTHER, &connects, "/healthz").await;
    assert!(answer.text().ends_with('0'), "{}", answer.text());
}

#[tokio::test]
async fn tls_is_served_with_the_configured_key() {
    let site = Site::start().await;
    let port = site.listen_tls().await;
    let url = format!("https://localhost:{port}/ipxe/snponly.efi");
    let ca = site.directory.path().join("c.pem");
    let to = format!("localhost:{port}:127.0.0.1:{port}");
    for version in ["1.2", "1.3"] {
        let options = ["--cacert", ca.to_str().unwrap(), "--tls-max", version, "--connect-to", &to];
        let answer = site.curl_url(OTHER, &options, &url).await;
        assert!(answer.body == loader(), "{version}");
    }
}
