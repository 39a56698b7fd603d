//! Operations, query parameters and headers (docs/imageapi.md).
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod common;

use common::{ACCEPT_JSON, JSON_BODY, call, call_error, error, post, request};
use http::Response;
use imageapi::{ApiError, MAX_BODY_BYTES, Operation};
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{
    Call, DeleteContainer, DeleteObject, ListAttachments, ListContainers, ListMounts,
    SetContainerState,
};
use tinwright::node::v1::{AttachmentKind, MountKind};

const LOCAL: &[u8] = br#"{"kind": "local", "local": {"path": "/dev/sda"}}"#;
const NFS: &[u8] = br#"{"kind": "nfs", "nfs": {"host": "h", "path": "/p"}}"#;
const CONTAINER: &[u8] = br#"{"command": "/init", "mount": {"id": 1}}"#;

#[test]
fn every_operation_has_its_method_path_and_status() {
    let cases: [(&str, &str, &[u8], Operation, u16); 10] = [
        ("GET", "/attach", b"", Operation::ListAttachments, 200),
        ("POST", "/attach", LOCAL, Operation::CreateAttachment, 201),
        ("DELETE", "/attach?id=1", b"", Operation::DeleteAttachment, 200),
        ("GET", "/mount", b"", Operation::ListMounts, 200),
        ("POST", "/mount", NFS, Operation::CreateMount, 201),
        ("DELETE", "/mount?id=1", b"", Operation::DeleteMount, 200),
        ("GET", "/container", b"", Operation::ListContainers, 200),
        ("POST", "/container", CONTAINER, Operation::CreateContainer, 201),
        ("DELETE", "/container?id=1", b"", Operation::DeleteContainer, 200),
        ("PATCH", "/container?id=1&state=running", b"", Operation::SetContainerState, 200),
    ];
    for (method, target, body, operation, status) in cases {
        for target in [target.to_owned(), target.replacen('?', "/?", 1), format!("/{target}")] {
            let call = request(method, &target, &[ACCEPT_JSON, JSON_BODY], body).unwrap();
            assert_eq!(call.operation, operation, "{method} {target}");
            assert_eq!(call.operation.success_status(), status);
            assert_eq!(call.operation.is_read(), method == "GET");
        }
    }
    assert!(call("GET", "/attach/").is_ok());
}

#[test]
fn lists_have_filters_that_an_id_or_a_name_overrides() {
    let attachments = |id, kind: AttachmentKind| {
        Ok(Call::ListAttachments(ListAttachments { id, kind: kind.into() }))
    };
    assert_eq!(call("GET", "/attach"), attachments(None, AttachmentKind::Unspecified));
    assert_eq!(call("GET", "/attach?kind=rbd"), attachments(None, AttachmentKind::Rbd));
    let both = call("GET", "/attach?kind=rbd&id=7");
    assert_eq!(both, attachments(Some(7), AttachmentKind::Unspecified));
    let mounts = |id, kind: MountKind| Ok(Call::ListMounts(ListMounts { id, kind: kind.into() }));
    assert_eq!(call("GET", "/mount?kind=uri"), mounts(None, MountKind::Uri));
    assert_eq!(call("GET", "/mount?kind=overlay&id=0"), mounts(Some(0), MountKind::Unspecified));
    let containers = |id, name: Option<&str>, state: State| {
        let name = name.map(str::to_owned);
        Ok(Call::ListContainers(ListContainers { id, name, state: state.into() }))
    };
    assert_eq!(call("GET", "/container?state=dead"), containers(None, None, State::Dead));
    let named = call("GET", "/container?state=dead&name=a.b");
    assert_eq!(named, containers(None, Some("a.b"), State::Unspecified));
    let both = call("GET", "/container?id=-3&name=a");
    assert_eq!(both, containers(Some(-3), None, State::Unspecified));
}

#[test]
fn every_value_of_an_enum_is_read() {
    for (index, kind) in ["iscsi", "local", "loopback", "rbd"].iter().enumerate() {
        let Ok(Call::ListAttachments(list)) = call("GET", &format!("/attach?kind={kind}")) else {
            panic!("{kind}")
        };
        assert_eq!(list.kind as usize, index + 1);
    }
    for (index, kind) in ["attach", "bind", "nfs", "overlay", "uri"].iter().enumerate() {
        let Ok(Call::ListMounts(list)) = call("GET", &format!("/mount?kind={kind}")) else {
            panic!("{kind}")
        };
        assert_eq!(list.kind as usize, index + 1);
    }
    for (index, state) in ["created", "running", "stopping", "exited", "dead"].iter().enumerate() {
        let Ok(Call::ListContainers(list)) = call("GET", &format!("/container?state={state}"))
        else {
            panic!("{state}")
        };
        assert_eq!(list.state as usize, index + 1);
    }
}

#[test]
fn containers_are_deleted_and_changed_by_id_or_name() {
    let delete = |id, name: Option<&str>, force| {
        Ok(Call::DeleteContainer(DeleteContainer { id, name: name.map(str::to_owned), force }))
    };
    assert_eq!(call("DELETE", "/container?id=4"), delete(Some(4), None, false));
    assert_eq!(call("DELETE", "/container?name=a&force=true"), delete(None, Some("a"), true));
    assert_eq!(call("DELETE", "/container?name=a&id=4"), delete(Some(4), None, false));
    let set = |name: &str, state: State| {
        let name = Some(name.to_owned());
        Ok(Call::SetContainerState(SetContainerState { id: None, name, state: state.into() }))
    };
    assert_eq!(call("PATCH", "/container?name=a&state=running"), set("a", State::Running));
    assert_eq!(call("PATCH", "/container?name=a&state=exited"), set("a", State::Exited));
    // The node refuses it, after it has looked for the container.
    assert_eq!(call("PATCH", "/container?name=a&state=paused"), set("a", State::Paused));
    let neither = (400, 400, "either ID or Name must be provided".to_owned());
    assert_eq!(call_error("DELETE", "/container"), neither);
    assert_eq!(call_error("DELETE", "/container?id=&name="), neither);
    assert_eq!(call_error("PATCH", "/container?state=exited"), neither);
    // Parameters are checked before.
    assert_eq!(call_error("PATCH", "/container?state=dead").0, 422);
}

#[test]
fn force_is_true_for_some_texts_in_any_case_and_else_false() {
    let force = |text: &str| match call("DELETE", &format!("/mount?id=1&force={text}")) {
        Ok(Call::DeleteMount(DeleteObject { id: 1, force })) => force,
        other => panic!("{other:?}"),
    };
    for text in "true 1 yes ok y on selected checked t enabled".split(' ') {
        assert!(force(text) && force(&text.to_uppercase()), "{text}");
    }
    for text in ["false", "0", "no", "2", "", "truth", "%20true"] {
        assert!(!force(text), "{text}");
    }
    assert!(matches!(call("DELETE", "/mount?id=1"), Ok(Call::DeleteMount(it)) if !it.force));
}

#[test]
fn the_last_of_repeated_parameters_counts_and_unknown_ones_are_ignored() {
    let id = |query: &str| match call("DELETE", &format!("/attach?{query}")) {
        Ok(Call::DeleteAttachment(DeleteObject { id, .. })) => id,
        other => panic!("{other:?}"),
    };
    assert_eq!(id("id=1&id=2"), 2);
    assert_eq!(id("id=x&id=%32&ID=3&colour=red"), 2);
    assert_eq!(id("id=-9223372036854775808"), i64::MIN);
    assert_eq!(call_error("DELETE", "/attach?id=1&id=").1, 602);
    assert_eq!(call_error("DELETE", "/attach?ID=1").1, 602, "names of parameters have a case");
}

#[test]
fn wrong_parameters_are_422_with_a_code_of_their_own() {
    let cases = [
        ("GET", "/attach?id=abc", 601, r#"id in query must be of type int64: "abc""#),
        ("GET", "/mount?id=1.0", 601, r#"id in query must be of type int64: "1.0""#),
        (
            "GET",
            "/container?id=9223372036854775808",
            601,
            r#"id in query must be of type int64: "9223372036854775808""#,
        ),
        ("DELETE", "/attach", 602, "id in query is required"),
        ("DELETE", "/mount?id=", 602, "id in query is required"),
        ("PATCH", "/container?id=1", 602, "state in query is required"),
        ("PATCH", "/container?id=1&state=", 602, "state in query is required"),
        (
            "PATCH",
            "/container?id=1&state=created",
            606,
            "state in query should be one of [running exited paused]",
        ),
        (
            "GET",
            "/attach?kind=RBD",
            606,
            "kind in query should be one of [iscsi local loopback rbd]",
        ),
        (
            "GET",
            "/mount?kind=rbd",
            606,
            "kind in query should be one of [attach bind nfs overlay uri]",
        ),
        (
            "GET",
            "/container?state=paused",
            606,
            "state in query should be one of [created running stopping exited dead]",
        ),
        ("PATCH", "/container?state=x&id=y", 601, r#"id in query must be of type int64: "y""#),
    ];
    for (method, target, code, message) in cases {
        assert_eq!(call_error(method, target), (422, code, message.to_owned()), "{target}");
    }
}

#[test]
fn unknown_paths_and_methods_are_404_and_405() {
    for path in ["/nothing", "", "/", "//", "/attach/7", "/attach//", "attach", "/Attach"] {
        let message = format!("path /imageapi/v1{path} was not found");
        assert_eq!(call_error("GET", path), (404, 404, message));
    }
    let cases = [
        ("PUT", "/attach", "GET,DELETE,POST"),
        ("PATCH", "/mount", "GET,DELETE,POST"),
        ("HEAD", "/mount", "GET,DELETE,POST"),
        ("OPTIONS", "/container/", "GET,DELETE,POST,PATCH"),
    ];
    for (method, path, allow) in cases {
        let refused = call(method, path).unwrap_err();
        let message = format!("method {method} is not allowed, but [{allow}] are");
        assert_eq!(error(refused.clone()), (405, 405, message));
        assert_eq!(Response::from(refused).headers()["allow"], allow);
    }
}

#[test]
fn only_clients_that_accept_json_are_served() {
    let with = |accept: &[&str]| {
        let headers: Vec<_> = accept.iter().map(|value| ("accept", *value)).collect();
        request("GET", "/mount", &headers, b"")
    };
    let accepted: [&[&str]; 9] = [
        &[],
        &[""],
        &["*/*"],
        &["application/*"],
        &["Application/JSON"],
        &["application/json; charset=utf-8"],
        &["text/html, application/json;q=0.1"],
        &["text/html", "application/json"],
        &["text/html, */*;q=0.8"],
    ];
    for accept in accepted {
        assert!(with(accept).is_ok(), "{accept:?}");
    }
    let refused: [&[&str]; 5] = [
        &["text/html"],
        &["text/*, image/png"],
        &["application/json;q=0"],
        &["application/json; q=0.000, */*"],
        &["json"],
    ];
    for accept in refused {
        let message = "unsupported media type requested, only [application/json] are available";
        assert_eq!(error(with(accept).expect_err(accept[0])), (406, 406, message.to_owned()));
    }
}

#[test]
fn a_body_needs_the_type_json_and_no_body_needs_none() {
    let with = |content_type: Option<&str>, body: &[u8]| {
        let headers: Vec<_> = content_type.iter().map(|value| ("content-type", *value)).collect();
        request("POST", "/attach", &headers, body)
    };
    for content_type in ["application/json", "application/json; charset=utf-8", "Application/Json"]
    {
        assert!(with(Some(content_type), LOCAL).is_ok(), "{content_type}");
    }
    let cases = [
        (Some("text/plain"), "text/plain"),
        (Some("Text/Plain; charset=utf-8"), "text/plain"),
        (Some("application/jsonp"), "application/jsonp"),
        (Some(""), ""),
        (None, "application/octet-stream"),
    ];
    for (content_type, shown) in cases {
        let message =
            format!("unsupported media type \"{shown}\", only [application/json] are allowed");
        assert_eq!(error(with(content_type, LOCAL).unwrap_err()), (415, 415, message));
    }
    // An empty POST lacks its body, whatever its type.
    for content_type in [None, Some("text/plain")] {
        assert_eq!(error(with(content_type, b"").unwrap_err()).1, 602);
    }
    let patch = request("PATCH", "/container?id=1&state=exited", &[("content-length", "0")], b"");
    assert!(patch.is_ok());
}

#[test]
fn errors_of_the_http_layer_come_before_those_of_the_query_and_the_body() {
    let refused = [("accept", "text/html"), ("content-type", "text/plain")];
    let status = |method, target, headers: &[(&str, &str)]| {
        request(method, target, headers, b"[").unwrap_err().status.as_u16()
    };
    assert_eq!(status("PUT", "/nothing", &refused), 404);
    assert_eq!(status("PUT", "/attach", &refused), 405);
    assert_eq!(status("POST", "/attach", &refused), 415);
    assert_eq!(status("POST", "/attach", &[refused[0], JSON_BODY]), 406);
    assert_eq!(status("POST", "/attach", &[ACCEPT_JSON, JSON_BODY]), 400);
}

#[test]
fn d34_a_body_of_more_than_one_mebibyte_is_400() {
    let mut body = LOCAL.to_vec();
    body.resize(MAX_BODY_BYTES, b' ');
    assert!(post("/attach", &body).is_ok());
    body.push(b' ');
    let (status, code, message) = error(post("/attach", &body).unwrap_err());
    let expected = "parsing attach body from \"\" failed, because it has more than 1048576 bytes";
    assert_eq!((status, code, message.as_str()), (400, 400, expected));
}

#[test]
fn errors_of_a_door_have_the_same_form() {
    let (status, code, message) = error(ApiError::unavailable("no connection"));
    assert_eq!((status, code), (503, 503));
    assert_eq!(message, "node not available: no connection");
}
