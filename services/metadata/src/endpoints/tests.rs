//! Which filters are taken, and what they make.

use serde_json::{Value, json};

use super::*;
use crate::tree::Kind;

fn said(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned())).collect()
}

fn refusal(path: &str, code: &str) -> String {
    Endpoints::new(&said(&[(path, code)]), crate::is_reserved_path).unwrap_err().to_string()
}

fn made(code: &str, document: &Value) -> Result<Option<Body>, Failure> {
    let filter = Filter::new(code).unwrap();
    filter.run(document.to_string().as_bytes(), Instant::now() + PATIENCE * 60)
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

/// The text that `code` makes of the document, or nothing.
#[track_caller]
fn text(code: &str) -> Option<String> {
    let body = made(code, &document()).unwrap();
    body.map(|body| String::from_utf8(body.bytes.to_vec()).unwrap())
}

#[test]
fn texts_are_told_as_they_are_other_values_as_json_each_on_its_line() {
    assert_eq!(text(".metadata.instance.id").unwrap(), "i-1");
    assert_eq!(text(".metadata.instance.tags").unwrap(), r#"["b","a"]"#);
    assert_eq!(text(".metadata.instance | .id, .tags[], 1, true").unwrap(), "i-1\nb\na\n1\ntrue");
    let kind = |code| made(code, &document()).unwrap().unwrap().kind;
    assert_eq!(kind(".metadata.instance.id"), Kind::Text);
    assert_eq!(kind(".metadata.instance"), Kind::Json);
    assert_eq!(kind(".metadata.instance.tags, 1"), Kind::Text);
}

#[test]
fn null_is_no_line_and_no_line_is_nothing() {
    assert_eq!(text(".metadata.instance | .id, .spot, .nothing").unwrap(), "i-1");
    for nothing in [".metadata.instance.spot", ".metadata.instance.missing", "empty", "\"\""] {
        assert_eq!(text(nothing), None, "{nothing}");
    }
}

#[test]
fn the_filters_that_hegels_own_tables_are_written_in_are_understood() {
    for (code, told) in [
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
        assert_eq!(text(code).as_deref(), told, "{code}");
    }
}

#[test]
fn every_function_that_is_offered_is_there() {
    for name in offered::FUNCTIONS {
        let codes = match name.strip_prefix('@') {
            Some(_) => vec![format!("{name} \"\\(.)\"")],
            None => vec![(*name).to_owned(), format!("{name}(.)"), format!("{name}(.; .)")],
        };
        assert!(codes.iter().any(|code| Filter::new(code).is_ok()), "{name}");
    }
}

#[test]
fn what_could_run_or_grow_without_end_is_not_offered_wherever_it_stands() {
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
        assert_eq!(refusal("/a", code), format!("/a: filter: {name} is not offered"), "{code}");
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
        assert_eq!(refusal("/a", &code), "/a: filter: range is not offered", "{code}");
    }
}

#[test]
fn a_filter_that_makes_no_sense_is_refused_with_its_path_and_the_reason() {
    for (code, reason) in [
        (".a | nonsense", "nonsense is not offered"),
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
fn a_path_that_is_taken_or_no_path_is_refused() {
    for (path, reason) in [
        ("a", "is not a path that begins with /"),
        ("/../a", "is not a path that begins with /"),
        ("/", "is answered by the service itself"),
        ("/metadata", "is answered by the service itself"),
        ("/latest/meta-data/x", "is answered by the service itself"),
        ("/2009-04-04/x", "is answered by the service itself"),
        ("/nocloud/x", "is answered by the service itself"),
        ("/phone-home", "is answered by the service itself"),
        ("/_packet/version", "is answered by the service itself"),
        ("/events/", "is answered by the service itself"),
    ] {
        assert_eq!(refusal(path, "."), format!("{path}: {reason}"));
    }
    let twice = said(&[("/a", "."), ("/a/", ".b")]);
    assert_eq!(
        Endpoints::new(&twice, crate::is_reserved_path).unwrap_err().to_string(),
        "/a/: is given twice"
    );
}

#[test]
fn hegels_default_is_taken_and_adds_nothing() {
    let endpoints =
        Endpoints::new(&said(&[("/metadata", ".metadata.instance")]), crate::is_reserved_path)
            .unwrap();
    assert!(endpoints.at(&Path::parse("/metadata").unwrap().segments()).is_none());
}

#[test]
fn an_endpoint_is_found_with_or_without_a_slash_and_nowhere_else() {
    let endpoints = Endpoints::new(&said(&[("/a/b", ".")]), crate::is_reserved_path).unwrap();
    let found = |path| endpoints.at(&Path::parse(path).unwrap().segments()).is_some();
    assert!(found("/a/b") && found("/a/b/") && found("//a//b"));
    assert!(!found("/a") && !found("/a/b/c") && !found("/"));
}

#[test]
fn what_fails_is_too_long_or_too_late_makes_nothing() {
    assert_eq!(made(".metadata.instance.id.x", &document()), Err(Failure::Failed));
    let long = json!("x".repeat(1000));
    let thousands = vec![long; 500];
    assert!(made(".[]", &json!(thousands)).is_ok());
    assert_eq!(made(".[], .[], .[]", &json!(thousands)), Err(Failure::TooLong));
    assert_eq!(
        made(".", &json!([thousands.clone(), thousands.clone(), thousands])),
        Err(Failure::TooLong)
    );
    let filter = Filter::new(".[]").unwrap();
    let over = Instant::now().checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(filter.run(b"[1]", over), Err(Failure::TooLate));
}

#[tokio::test]
async fn a_filter_that_has_not_ended_is_not_waited_for() {
    let slow = "[.[] as $a | .[] as $b | .[] as $c | .[] as $d | empty]";
    let endpoints = Endpoints::new(&said(&[("/slow", slow)]), crate::is_reserved_path).unwrap();
    let slow = endpoints.at(&Path::parse("/slow").unwrap().segments()).unwrap();
    let numbers: Value = (0..200).collect();
    assert_eq!(endpoints.answer(slow, numbers.to_string()).await, Err(Failure::TooLate));
    assert_eq!(endpoints.running.available_permits(), RUNNING - 1);
    assert_eq!(endpoints.answer(slow, "[]".into()).await.unwrap().unwrap().bytes, "[]");
}

#[tokio::test]
async fn no_more_run_at_once_than_may() {
    let endpoints = Endpoints::new(&said(&[("/a", ".")]), crate::is_reserved_path).unwrap();
    let filter = endpoints.at(&Path::parse("/a").unwrap().segments()).unwrap();
    let all = endpoints.running.clone().acquire_many_owned(4).await.unwrap();
    assert_eq!(endpoints.answer(filter, "1".into()).await, Err(Failure::TooLate));
    drop(all);
    assert_eq!(endpoints.answer(filter, "1".into()).await.unwrap().unwrap().bytes, "1");
}
