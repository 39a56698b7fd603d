//! The target itself: its corpus reaches each call, and a wrong answer is an error.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use gateway::ial::routes::Endpoint;
use strum::VariantArray as _;

use super::*;

#[test]
fn the_examples_reach_each_call() {
    let mut target = Ial::new().unwrap();
    let (mut calls, mut refused) = (BTreeSet::new(), Vec::new());
    for input in target.corpus() {
        target.take(&input).unwrap();
        let (head, body) = parts(&input).unwrap();
        let answer = target.send(head, &body).unwrap().unwrap();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status != StatusCode::OK {
            refused.push(text);
            continue;
        }
        let request = http_text::request(head, Vec::new()).unwrap();
        let path = path_of_door(request.uri().path()).unwrap();
        calls.extend(Endpoint::find(request.method(), path).map(|route| format!("{route:?}")));
    }
    assert_eq!(calls, Endpoint::VARIANTS.iter().map(|it| format!("{it:?}")).collect());
    // An address is left, and an address that was never granted; each in both forms of an input.
    let codes = ["403.invalid-state", "404.infrastructure.ips.pool"];
    let found = codes.map(|code| refused.iter().filter(|text| text.contains(code)).count());
    assert_eq!((found, refused.len()), ([2, 2], 4), "{refused:?}");
}

#[test]
fn what_is_not_the_doors_is_not_checked() {
    let mut target = Ial::new().unwrap();
    for (path, below) in
        [("/v1", Some("")), ("//v1/a", Some("/a")), ("/v1a", None), ("/", None), ("/V1/a", None)]
    {
        assert_eq!(path_of_door(path), below, "{path}");
        for method in ["GET", "HEAD", "PATCH"] {
            target.take(format!("\0{method} {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        }
    }
}

#[test]
fn answers_without_the_envelope_are_errors() {
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let text = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
    let check = |status: u16, headers, body: &str| {
        let status = StatusCode::from_u16(status).unwrap();
        envelope::check(&Method::POST, status, headers, body.as_bytes())
    };
    let gone =
        r#"{"data":null,"error":{"status":404,"code":"404.uri","title":"x","source":"/a~1b"}}"#;
    check(404, &json, gone).unwrap();
    check(200, &json, r#"{"data":true,"error":null}"#).unwrap();
    assert!(check(404, &text, gone).is_err());
    for (status, part, instead) in [
        (404, r#""status":404"#, r#""status":400"#),
        (404, "404.uri", "400.invalid-syntax"),
        (404, "404.uri", "404.other"),
        (404, r#""title":"x""#, r#""title":"""#),
        (404, r#""title":"x""#, r#""title":"x","more":1"#),
        (404, "/a~1b", "/a~2b"),
        (404, "/a~1b", "a"),
        (404, r#""data":null"#, r#""data":{}"#),
        (404, r#""data":null,"#, ""),
        (200, "", ""),
        (503, "404", "503"),
    ] {
        let body = gone.replace(part, instead);
        assert!(check(status, &json, &body).is_err(), "{status} {body}");
    }
    assert!(check(200, &json, r#"{"data":false,"error":null}"#).is_err());
    assert!(check(404, &json, "not found").is_err());
}
