//! Limits of requests and connections.

use std::io::Read as _;
use std::net::TcpStream;

use super::site::{MACHINE, OTHER, Site};

#[tokio::test]
async fn script_requests_of_one_source_are_limited_by_the_second() {
    let site = Site::start().await;
    let base = &site.base;
    // One process, many requests: fast enough for the limit, whatever the machine.
    let many = format!("{base}/auto.ipxe?[1-40]");
    let codes = site.curl_url(MACHINE, &["-o", "/dev/null", "-w", "%{http_code} "], &many).await;
    let codes = codes.text();
    assert!(codes.starts_with("200 ") && codes.contains("429"), "{codes}");
    assert_eq!(site.curl(OTHER, &[], "/auto.ipxe").await.status, 404);
}

#[tokio::test]
async fn a_client_that_is_refused_too_often_gets_429_for_every_path() {
    let site = Site::start().await;
    let many = format!("{}/v1/boot/x/[1-40]", site.base);
    site.curl_url(OTHER, &["-o", "/dev/null"], &many).await;
    let ignored = site.curl(OTHER, &[], "/ipxe/snponly.efi").await;
    assert_eq!((ignored.status, ignored.body.len()), (429, 0));
    assert_eq!(site.curl(MACHINE, &[], "/auto.ipxe").await.status, 200);
}

#[tokio::test]
async fn the_lengths_of_request_line_and_head_are_limited() {
    let site = Site::start().await;
    let long = format!("/ipxe/{}", "x".repeat(4096));
    assert_eq!(site.curl(OTHER, &[], &long).await.status, 414);
    let header = format!("X: {}", "x".repeat(17 * 1024));
    assert_eq!(site.curl(OTHER, &["-H", &header], "/healthz").await.status, 431);
}

#[tokio::test]
async fn one_source_has_at_most_64_connections() {
    let site = Site::start().await;
    let address = site.base.strip_prefix("http://").unwrap().to_owned();
    let open = tokio::task::spawn_blocking(move || {
        let held: Vec<_> = (0..64).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let mut more = TcpStream::connect(&address).unwrap();
        more.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        // It is closed, not left waiting.
        assert!(matches!(more.read(&mut [0; 1]), Ok(0)));
        held
    });
    let held = open.await.unwrap();
    assert_eq!(site.curl(OTHER, &[], "/healthz").await.status, 200, "another source");
    drop(held);
}
