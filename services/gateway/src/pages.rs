//! The OpenAPI documents of the doors, and pages on which people read them.
//!
//! ```text
//! /openapi.json       the first document, also at other paths of its own
//! /docs               the page of the first document, by Swagger UI (assets/swagger-ui)
//! /docs/<name>        the page of another one
//! ```
//!
//! They say what a server of this version can do, and nothing about the site: no authentication is needed. A page loads nothing from
//! elsewhere.

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;

use crate::openapi;
use crate::routes::Routes;

/// The path of the page of the first document.
const PAGE: &str = "/docs";
/// Allows only scripts from this server, and requests to it. Swagger UI writes styles into its elements, and its icons are in its style sheet.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");
const JAVASCRIPT: HeaderValue = HeaderValue::from_static("text/javascript; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The document of a door.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its name in the path of its page.
    pub name: &'static str,
    /// The title of the link to its page.
    pub title: &'static str,
    /// The paths at which it is served.
    pub paths: &'static [&'static str],
    /// Makes it. It is made once, at the first request.
    pub make: fn() -> Value,
}

impl Document {
    /// The document of the REST mirror.
    pub fn mirror() -> Self {
        Self {
            name: "rest",
            title: "REST",
            paths: &["/openapi.json", "/api/v1/openapi.json"],
            make: || match tinwright::json::pool() {
                Some(pool) => openapi::document(pool, &Routes::new(pool)),
                None => Value::Null,
            },
        }
    }
}

/// A file, and the headers that it is served with.
#[derive(Clone, Debug)]
struct File {
    body: Bytes,
    tag: HeaderValue,
    kind: HeaderValue,
    is_compressed: bool,
}

impl File {
    fn new(kind: HeaderValue, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let digest = digest(&SHA256, &body);
        let hex = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}"));
        let tag = HeaderValue::from_str(&format!("\"{}\"", hex.collect::<String>()));
        let tag = tag.unwrap_or_else(|_| HeaderValue::from_static("\"\""));
        Self { body, tag, kind, is_compressed: false }
    }

    /// A file that is stored as it is sent, by gzip.
    fn compressed(kind: HeaderValue, body: &'static [u8]) -> Self {
        Self { is_compressed: true, ..Self::new(kind, body) }
    }

    /// Returns the file, or says that the client has it.
    fn response(&self, request: &HeaderMap) -> Response {
        let headers = [
            (header::ETAG, self.tag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        if is_known(request, &self.tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let kinds = [
            (header::CONTENT_TYPE, self.kind.clone()),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        let encoding = self.is_compressed.then_some(HeaderValue::from_static("gzip"));
        let mut response = (headers, kinds, self.body.clone()).into_response();
        let encoding = encoding.map(|encoding| (header::CONTENT_ENCODING, encoding));
        response.headers_mut().extend::<Option<(HeaderName, HeaderValue)>>(encoding);
        response
    }
}

/// True if `If-None-Match` names `tag` (RFC 9110 §13.1.2).
fn is_known(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let values = request.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    tags.any(|it| matches!(it.trim(), "*") || it.trim().trim_start_matches("W/") == *tag)
}

/// A file that is made at the first request.
type LazyFile = Arc<LazyLock<File, Box<dyn FnOnce() -> File + Send>>>;

/// Returns the routes of these documents and of their pages. The page of the first one is at `/docs`, too.
pub fn router(documents: &[Document]) -> Router {
    let mut router = Router::new();
    for (n, document) in documents.iter().enumerate() {
        let make = document.make;
        let file = lazy(move || File::new(JSON, make().to_string()));
        for path in document.paths {
            router = router.route(path, get(serve).with_state(file.clone()));
        }
        let page = page(documents, document);
        let file = lazy(move || File::new(HTML, page));
        if n == 0 {
            router = router.route(PAGE, get(serve_page).with_state(file.clone()));
        }
        let path = format!("{PAGE}/{}", document.name);
        router = router.route(&path, get(serve_page).with_state(file));
    }
    for (name, make) in assets() {
        router = router.route(&format!("{PAGE}/{name}"), get(serve).with_state(lazy(make)));
    }
    router
}

fn lazy(make: impl FnOnce() -> File + Send + 'static) -> LazyFile {
    Arc::new(LazyLock::new(Box::new(make)))
}

/// Makes a file.
type MakeFile = fn() -> File;

/// Returns the files that all pages load, by name.
fn assets() -> [(&'static str, MakeFile); 4] {
    [
        ("page.css", || File::new(CSS, &include_bytes!("../assets/page.css")[..])),
        ("page.js", || File::new(JAVASCRIPT, &include_bytes!("../assets/page.js")[..])),
        ("swagger-ui.css", || {
            File::compressed(CSS, include_bytes!("../assets/swagger-ui/swagger-ui.css.gz"))
        }),
        ("swagger-ui-bundle.js", || {
            let bundle = include_bytes!("../assets/swagger-ui/swagger-ui-bundle.js.gz");
            File::compressed(JAVASCRIPT, bundle)
        }),
    ]
}

async fn serve(State(file): State<LazyFile>, request: HeaderMap) -> Response {
    file.response(&request)
}

async fn serve_page(State(file): State<LazyFile>, request: HeaderMap) -> Response {
    let mut response = file.response(&request);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Returns the page of `shown`, with links to all pages.
fn page(documents: &[Document], shown: &Document) -> String {
    let link = |document: &Document| {
        let mark = if document.name == shown.name { " aria-current=\"page\"" } else { "" };
        format!("<a href=\"{PAGE}/{}\"{mark}>{}</a>", document.name, document.title)
    };
    let links: String = documents.iter().map(link).collect();
    let url = shown.paths.first().copied().unwrap_or_default();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Tinwright: {title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"{PAGE}/swagger-ui.css\">\n<link rel=\"stylesheet\" href=\"{PAGE}/page.css\">\n\
         <script src=\"{PAGE}/swagger-ui-bundle.js\" defer></script>\n<script src=\"{PAGE}/page.js\" defer></script>\n\
         </head>\n<body>\n<nav>{links}</nav>\n<div id=\"document\" data-url=\"{url}\"></div>\n\
         <noscript>The document itself is at <a href=\"{url}\">{url}</a>.</noscript>\n</body>\n</html>\n",
        title = shown.title,
    )
}
