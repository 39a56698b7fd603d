use axum::body::{Body, to_bytes};
use http::Request;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;

async fn request(path: &str, known: Option<&HeaderValue>) -> Response {
    let other = Document {
        name: "other",
        title: "Other",
        paths: &["/v1/openapi.json"],
        make: || json!({"openapi": "3.1.0"}),
    };
    let mut request = Request::get(path);
    if let Some(known) = known {
        request = request.header(header::IF_NONE_MATCH, known);
    }
    let request = request.body(Body::empty()).unwrap();
    router(&[Document::mirror(), other]).oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn each_door_has_its_document_and_its_page() {
    for (path, openapi) in [("/openapi.json", "3.1.0"), ("/v1/openapi.json", "3.1.0")] {
        let response = request(path, None).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let document: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(document["openapi"], openapi, "{path}");
    }
    let same = text(request("/openapi.json", None).await).await;
    assert_eq!(same, text(request("/api/v1/openapi.json", None).await).await);
    for (path, url) in [
        ("/docs", "/openapi.json"),
        ("/docs/rest", "/openapi.json"),
        ("/docs/other", "/v1/openapi.json"),
    ] {
        let page = text(request(path, None).await).await;
        assert!(page.contains(&format!("data-url=\"{url}\"")), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_client_that_has_the_document_gets_no_body() {
    let first = request("/openapi.json", None).await;
    let tag = first.headers()[header::ETAG].clone();
    let weak = HeaderValue::from_str(&format!("\"x\", W/{}", tag.to_str().unwrap())).unwrap();
    for known in [&tag, &weak, &HeaderValue::from_static("*")] {
        let second = request("/openapi.json", Some(known)).await;
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED, "{known:?}");
        assert_eq!(second.headers()[header::ETAG], tag);
        assert_eq!(text(second).await, "");
    }
    let stale = HeaderValue::from_static("\"0\"");
    assert_eq!(request("/openapi.json", Some(&stale)).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_page_loads_what_this_server_has_and_nothing_else() {
    let response = request("/docs", None).await;
    let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    let page = text(response).await;
    assert!(!page.contains("<script>") && !page.contains("://"), "{page}");
    let loaded = page.split(['"']).filter(|it| it.starts_with("/docs/") && it.contains('.'));
    let mut count = 0;
    for path in loaded {
        let response = request(path, None).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let is_compressed = response.headers().contains_key(header::CONTENT_ENCODING);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(body.starts_with(&[0x1f, 0x8b]), is_compressed, "{path}");
        count += 1;
    }
    assert_eq!(count, 4);
}
