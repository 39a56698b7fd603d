//! Accepted and refused filters, and their results.

use serde_json::{Value, json};

use super::*;
use crate::tree::Kind;
use std::time::Instant;

fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned())).collect()
}

fn refusal(path: &str, code: &str) -> String {
    Endpoints::new(&config(&[(path, code)]), crate::is_reserved_path).unwrap_err().to_string()
}

fn run(code: &str, document: &Value) -> Result<Option<Body>, Failure> {
    let filter = Filter::new(code).unwrap();
    filter.run(document.to_string().as_bytes(), Instant::now() + FILTER_TIMEOUT * 60)
}

fn document() -> Value {
    json!({ "metadata": { "instance": {
        "id": "i-1",
        "tags": ["b", "a"],
        "spot": null,
        "network": { "addresses": [
            { "address": "198.51.100.50", "address_family": 4, "public": false },
            { "address": "192.0.2.9", "address_family": 4, "public": true },
            { "address": "2001:db8::50", "address_family": 6, "public": true },
        ] },
    } } })
}

/// The result of `code` over the document as a text, if there is one.
#[track_caller]
fn text(code: &str) -> Option<String> {
    let body = run(code, &document()).unwrap();
    body.map(|body| String::from_utf8(body.bytes.to_vec()).unwrap())
}

#[test]
fn each_value_is_one_line_texts_unchanged_and_others_as_json() {
    assert_eq!(text(".metadata.instance.id").unwrap(), "i-1");
    assert_eq!(text(".metadata.instance.tags").unwrap(), r#"["b","a"]"#);
    assert_eq!(text(".metadata.instance | .id, .tags[], 1, true").unwrap(), "i-1\nb\na\n1\ntrue");
    let kind = |code| run(code, &document()).unwrap().unwrap().kind;
    assert_eq!(kind(".metadata.instance.id"), Kind::Text);
    assert_eq!(kind(".metadata.instance"), Kind::Json);
    assert_eq!(kind(".metadata.instance.tags, 1"), Kind::Text);
}

#[test]
fn nulls_are_left_out_and_an_empty_result_is_none() {
    assert_eq!(text(".metadata.instance | .id, .spot, .nothing").unwrap(), "i-1");
    for nothing in [".metadata.instance.spot", ".metadata.instance.missing", "empty", "\"\""] {
        assert_eq!(text(nothing), None, "{nothing}");
    }
}

#[test]
fn filters_of_hegels_configuration_work() {
    for (code, result) in [
        (
            ".metadata.instance.network.addresses[]? | select(.address_family == 4 and .public == true) | .address",
            Some("192.0.2.9"),
        ),
        ("[.metadata.instance.tags[]] | sort | .[]", Some("a\nb")),
        ("if .metadata.instance.spot then \"spot\" else empty end", None),
        (".metadata.instance.spot // \"on-demand\"", Some("on-demand")),
        (".metadata.instance.id + \"-x\"", Some("i-1-x")),
        ("\"meta-data\", \"user-data\"", Some("meta-data\nuser-data")),
        (".metadata.instance.operating_system.license_activation?.state", None),
        ("[..|.address?|strings]|length", Some("3")),
        (".metadata.instance | to_entries | map(.key) | join(\",\")", Some("id,tags,spot,network")),
    ] {
        assert_eq!(text(code).as_deref(), result, "{code}");
    }
}

#[test]
fn every_allowed_function_exists() {
    for name in allowed::FUNCTIONS {
        let codes = match name.strip_prefix('@') {
            Some(_) => vec![format!("{name} \"\\(.)\"")],
            None => vec![(*name).to_owned(), format!("{name}(.)"), format!("{name}(.; .)")],
        };
        assert!(codes.iter().any(|code| Filter::new(code).is_ok()), "{name}");
    }
}

#[test]
fn unbounded_functions_are_not_allowed_anywhere() {
    for (code, name) in [
        ("[range(1000000000)]", "range"),
        ("repeat(1)", "repeat"),
        ("recurse(.)", "recurse"),
        ("def f: f; f", "def"),
        (".a | (def f: f; f)", "def"),
        ("reduce .[] as $x (0; . + $x)", "reduce"),
        ("foreach .[] as $x (0; .)", "foreach"),
        ("label $out | break $out", "label"),
        ("\"x\" * 1000000000", "*"),
        (".a = 1", "assignment"),
        (".a |= .", "assignment"),
        (".a *= 3", "assignment"),
        ("env", "env"),
        ("input", "input"),
        ("halt", "halt"),
        ("now", "now"),
        ("error", "error"),
        ("debug", "debug"),
        ("@sh \"x\"", "@sh"),
        ("import \"a\" as a; .", "import"),
    ] {
        assert_eq!(refusal("/a", code), format!("/a: filter: {name} is not allowed"), "{code}");
    }
    for place in [
        "[{}]",
        "{a: {}}",
        "{({}): 1}",
        "-{}",
        "({}) + 1",
        "1 | {}",
        "try {}",
        "try 1 catch {}",
        "if {} then 1 end",
        "if 1 then {} end",
        "if 1 then 2 else {} end",
        "map({})",
        ".[{}]",
        ".[{}:]",
        ".[:{}]",
        "\"\\({})\"",
        "[1] as [$x] | {}",
        ". as {({}): $x} | 1",
        "({}).a",
    ] {
        let code = place.replacen("{}", "range(9)", 1).replace("{range(9)}", "{}");
        let code = if place.starts_with("{a") { "{a: range(9)}".to_owned() } else { code };
        assert_eq!(refusal("/a", &code), "/a: filter: range is not allowed", "{code}");
    }
}

#[test]
fn an_invalid_filter_is_refused_with_its_path_and_the_reason() {
    for (code, reason) in [
        (".a | nonsense", "nonsense is not allowed"),
        (".a |", "term expected before its end"),
        ("", "term expected before its end"),
        (".a ]", "token expected before \"]\""),
        ("$x", "there is no variable $x"),
        ("select(1; 2)", "there is no filter select"),
        ("(.a", "closing parenthesis expected before"),
    ] {
        let refused = refusal("/a/b", code);
        assert!(refused.starts_with(&format!("/a/b: filter: {reason}")), "{code}: {refused}");
    }
}

#[test]
fn a_reserved_or_invalid_path_is_refused() {
    for (path, reason) in [
        ("a", "is not a path that begins with /"),
        ("/../a", "is not a path that begins with /"),
        ("/", "is reserved for the service itself"),
        ("/metadata", "is reserved for the service itself"),
        ("/latest/meta-data/x", "is reserved for the service itself"),
        ("/2009-04-04/x", "is reserved for the service itself"),
        ("/nocloud/x", "is reserved for the service itself"),
        ("/phone-home", "is reserved for the service itself"),
        ("/_packet/version", "is reserved for the service itself"),
        ("/events/", "is reserved for the service itself"),
    ] {
        assert_eq!(refusal(path, "."), format!("{path}: {reason}"));
    }
    let twice = config(&[("/a", "."), ("/a/", ".b")]);
    assert_eq!(
        Endpoints::new(&twice, crate::is_reserved_path).unwrap_err().to_string(),
        "/a/: is configured twice"
    );
}

#[test]
fn hegels_default_endpoint_is_accepted_and_ignored() {
    let endpoints =
        Endpoints::new(&config(&[("/metadata", ".metadata.instance")]), crate::is_reserved_path)
            .unwrap();
    assert!(endpoints.at(&Path::parse("/metadata").unwrap().segments()).is_none());
}

#[test]
fn an_endpoint_is_found_with_or_without_a_trailing_slash() {
    let endpoints = Endpoints::new(&config(&[("/a/b", ".")]), crate::is_reserved_path).unwrap();
    let found = |path| endpoints.at(&Path::parse(path).unwrap().segments()).is_some();
    assert!(found("/a/b") && found("/a/b/") && found("//a//b"));
    assert!(!found("/a") && !found("/a/b/c") && !found("/"));
}

#[test]
fn a_failed_too_long_or_late_filter_has_no_result() {
    assert_eq!(run(".metadata.instance.id.x", &document()), Err(Failure::Failed));
    let long = json!("x".repeat(1000));
    let thousands = vec![long; 500];
    assert!(run(".[]", &json!(thousands)).is_ok());
    assert_eq!(run(".[], .[], .[]", &json!(thousands)), Err(Failure::TooLong));
    assert_eq!(
        run(".", &json!([thousands.clone(), thousands.clone(), thousands])),
        Err(Failure::TooLong)
    );
    let doubled_40_times = ["[., .]"; 40].join(" | ");
    assert_eq!(run(&doubled_40_times, &json!("x")), Err(Failure::TooLong));
    let filter = Filter::new(".[]").unwrap();
    let over = Instant::now().checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(filter.run(b"[1]", over), Err(Failure::TooLate));
}

#[tokio::test]
async fn a_slow_filter_times_out() {
    let slow = "[.[] as $a | .[] as $b | .[] as $c | .[] as $d | empty]";
    let endpoints = Endpoints::new(&config(&[("/slow", slow)]), crate::is_reserved_path).unwrap();
    let slow = endpoints.at(&Path::parse("/slow").unwrap().segments()).unwrap();
    let numbers: Value = (0..200).collect();
    assert_eq!(endpoints.answer(slow, numbers.to_string()).await, Err(Failure::TooLate));
    assert_eq!(endpoints.running.available_permits(), MAX_RUNNING_FILTERS - 1);
    assert_eq!(endpoints.answer(slow, "[]".into()).await.unwrap().unwrap().bytes, "[]");
}

#[tokio::test]
async fn the_number_of_running_filters_is_limited() {
    let endpoints = Endpoints::new(&config(&[("/a", ".")]), crate::is_reserved_path).unwrap();
    let filter = endpoints.at(&Path::parse("/a").unwrap().segments()).unwrap();
    let all = endpoints.running.clone().acquire_many_owned(4).await.unwrap();
    assert_eq!(endpoints.answer(filter, "1".into()).await, Err(Failure::TooLate));
    drop(all);
    assert_eq!(endpoints.answer(filter, "1".into()).await.unwrap().unwrap().bytes, "1");
}
