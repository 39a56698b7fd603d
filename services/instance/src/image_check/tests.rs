use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;

use super::*;

/// A server with an image of three bytes, one that is gone, and redirects to itself and to another host.
async fn server() -> SocketAddr {
    let elsewhere = async || (StatusCode::FOUND, [(header::LOCATION, "http://127.0.0.2:1/a")], "");
    let app = Router::new()
        .route("/files/a.raw", get(async || "abc"))
        .route("/files/moved", get(async || axum::response::Redirect::to("/files/a.raw")))
        .route("/files/elsewhere", get(elsewhere))
        .route("/files/no-head", get(async || StatusCode::METHOD_NOT_ALLOWED));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn image(url: String) -> PlannedImage {
    PlannedImage { action: "write".into(), url, ..PlannedImage::default() }
}

async fn checked(images: &ImageCheck, url: String, is_of_site: bool) -> PlannedImage {
    images.check(vec![image(url)], is_of_site).await.remove(0)
}

#[tokio::test]
async fn an_image_is_found_missing_or_not_known() {
    let (server, images) = (server().await, ImageCheck::new(Vec::new()));
    for (path, check, detail) in [
        ("a.raw", Check::Found, ""),
        ("moved", Check::Found, ""),
        ("b.raw", Check::Failed, "404 Not Found"),
        ("no-head", Check::Unspecified, "405 Method Not Allowed"),
        ("elsewhere", Check::Unspecified, "302 Found"),
    ] {
        let image = checked(&images, format!("http://{server}/files/{path}"), true).await;
        assert_eq!((image.check(), image.detail.as_str()), (check, detail), "{path}");
    }
    let found = checked(&images, format!("http://u:p@{server}/files/a.raw?token=t"), true).await;
    assert_eq!((found.url, found.size_bytes), (format!("http://{server}/files/a.raw"), 3));
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_without_the_url() {
    let images = ImageCheck::new(Vec::new());
    let image = checked(&images, "http://127.0.0.1:1/a.raw?token=hunter2".into(), true).await;
    assert_eq!(image.check(), Check::Failed);
    assert!(image.detail.starts_with("no answer: "), "{}", image.detail);
    assert!(!image.detail.contains("hunter2"));
}

#[tokio::test]
async fn for_a_tenant_only_the_sites_own_files_are_looked_for() {
    let server = server().await;
    let url = || format!("http://{server}/files/a.raw");
    let secretive = format!("http://u:p@{server}/files/a.raw?token=t");
    let unasked = checked(&ImageCheck::new(Vec::new()), secretive, false).await;
    assert_eq!((unasked.check(), unasked.detail.as_str()), (Check::Unspecified, ""));
    assert_eq!(unasked.url, url());
    let images = ImageCheck::new(vec![format!("http://{server}/files/")]);
    assert_eq!(checked(&images, url(), false).await.check(), Check::Found);
}

#[tokio::test]
async fn a_text_that_is_not_a_url_is_not_shown() {
    let images = ImageCheck::new(Vec::new());
    for is_of_site in [true, false] {
        let text = "http://u:hunter2@no host/a.raw?token=hunter2".to_owned();
        let image = checked(&images, text, is_of_site).await;
        assert_eq!((image.check(), image.detail.as_str()), (Check::Failed, "not a URL"));
        assert_eq!(image.url, "");
    }
}

#[tokio::test]
async fn a_path_is_looked_for_below_the_sites_own_files_only() {
    let (own, other) = (server().await, server().await);
    let images = ImageCheck::new(vec![format!("http://{own}/files/")]);
    for (path, check) in [
        ("/files/a.raw".to_owned(), Check::Found),
        ("/files/b.raw".to_owned(), Check::Failed),
        (format!("//{other}/files/a.raw"), Check::Unspecified),
        ("/files/../other/a.raw".to_owned(), Check::Unspecified),
    ] {
        for is_of_site in [true, false] {
            let image = checked(&images, path.clone(), is_of_site).await;
            assert_eq!((image.check(), &image.url), (check, &path));
        }
    }
}
