//! The form of documents, and values that are read back.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Returns the text after the key.
fn field(value: impl Into<Value>) -> String {
    let text = document(&json!({ "k": value.into() }));
    text.strip_prefix("k: ").unwrap().to_owned()
}

#[test]
fn a_document_is_in_block_style() {
    let value = json!({
        "version": 2,
        "ethernets": { "eth0": { "mac": "52:54:00:00:00:01", "addresses": ["192.0.2.1/24"] } },
        "routes": [{ "to": "default", "via": "192.0.2.254" }, {}],
        "matrix": [[1, 2], [[]]],
        "no": null,
    });
    let expected = "\
version: 2
ethernets:
  eth0:
    mac: \"52:54:00:00:00:01\"
    addresses:
      - 192.0.2.1/24
routes:
  - to: default
    via: 192.0.2.254
  - {}
matrix:
  - - 1
    - 2
  - - []
\"no\": null
";
    assert_eq!(document(&value), expected);
}

#[test]
fn a_document_may_be_one_value() {
    for (value, text) in [
        (json!("a b"), "a b\n"),
        (json!("a\nb\n"), "\"a\\nb\\n\"\n"),
        (json!(""), "\"\"\n"),
        (json!({}), "{}\n"),
        (json!(true), "true\n"),
        (json!(["a"]), "- a\n"),
    ] {
        assert_eq!(document(&value), text);
    }
}

#[test]
fn texts_that_no_reader_misreads_have_no_quotes() {
    let words = "node1.lab /dev/sda 192.0.2.1 1.2.3 01a224dd-1562-71c5-b5df-5dae9ef84cca 90m 10Gi \
                 nothing key=value _x dhcp4 eth0";
    let lines = ["ssh-ed25519 AAAAC3Nza+C/1lZDI1NTE5== user@host", "Münchner Straße 5"];
    for text in words.split_whitespace().chain(lines) {
        assert_eq!(field(text), format!("{text}\n"));
    }
}

#[test]
fn texts_that_a_reader_misreads_are_in_quotes() {
    let words = "~ Null y N oN TRUE = << 0 -1 +1 0o17 0x1F 0b1 017 1_000 0_x1f e1 1,000 1. .5 1e3 \
                 .inf 12:30:00 52:54:00:12:34:56 2026-11-28 2026-11-28T12:00:00Z a: #a - --- ... ? \
                 [a] {a} &a *a !a | > %a @a `a 'a' :a ye\u{17f} fal\u{17f}e o\u{fb00} nu\u{fb02}";
    let lines = ["", " a", "a ", "a: b", "a #b", "- a", "a, b"];
    for text in words.split_whitespace().chain(lines) {
        assert_eq!(field(text), format!("\"{text}\"\n"));
        let tag = if text == "<<" { "!!str " } else { "" };
        assert_eq!(document(&json!({ text: 1 })), format!("{tag}\"{text}\": 1\n"));
    }
}

#[test]
fn characters_that_a_reader_refuses_or_changes_are_escaped() {
    for (text, written) in [
        ("a\"b\\c\u{7f}", r#""a\"b\\c\u007f""#),
        ("a'\"\t", r#""a'\"\t""#),
        ("\0\u{7}\u{1b}\u{7f}", r#""\u0000\u0007\u001b\u007f""#),
        ("a\u{85}b\u{2028}c\u{2029}d\u{feff}", r#""a\u0085b\u2028c\u2029d\ufeff""#),
        ("a\u{a0}b\u{200b}c\u{202e}", r#""a\u00a0b\u200bc\u202e""#),
        ("\u{1f600}", r#""\U0001f600""#),
        ("\r\n", r#""\r\n""#),
        ("1 €, 日本", "\"1 €, 日本\""),
    ] {
        assert_eq!(field(text), format!("{written}\n"));
    }
}

#[test]
fn a_visible_text_has_no_escapes() {
    for (text, written) in [
        ("{{ index .x \"a\" }}", "'{{ index .x \"a\" }}'"),
        ("C:\\a", "'C:\\a'"),
        (" \"a\" ", "' \"a\" '"),
        ("it's", "\"it's\""),
        ("it's \"a\"", "|-\n  it's \"a\""),
        (" it's \"a\"", "\" it's \\\"a\\\"\""),
    ] {
        assert_eq!(field(text), format!("{written}\n"));
    }
    assert_eq!(document(&json!({ "a'\"b": 1 })), "\"a'\\\"b\": 1\n");
}

#[test]
fn lines_are_a_literal_block_if_every_reader_keeps_them() {
    for (text, written) in [
        ("#!/bin/sh\necho: \"a\"\n\n\tb \n", "|\n  #!/bin/sh\n  echo: \"a\"\n\n  \tb \n"),
        ("a\n  b", "|-\n  a\n    b\n"),
        ("---\n...\n", "|\n  ---\n  ...\n"),
        (" a\nb", "\" a\\nb\"\n"),
        ("\na", "\"\\na\"\n"),
        ("a\n\n", "\"a\\n\\n\"\n"),
        ("a\n \nb", "\"a\\n \\nb\"\n"),
        ("a\r\nb", "\"a\\r\\nb\"\n"),
    ] {
        assert_eq!(field(text), written);
    }
    let nested = document(&json!([["a\nb\n"], { "k": "c\nd" }]));
    assert_eq!(nested, "- - |\n    a\n    b\n- k: |-\n    c\n    d\n");
}

#[test]
fn numbers_are_numbers_where_every_reader_reads_the_same_one() {
    for (value, written) in [
        (json!(0), "0"),
        (json!(-5), "-5"),
        (json!(9_007_199_254_740_991_u64), "9007199254740991"),
        (json!(9_007_199_254_740_992_u64), "\"9007199254740992\""),
        (json!(u64::MAX), "\"18446744073709551615\""),
        (json!(i64::MIN), "\"-9223372036854775808\""),
        (json!(1.0), "1.0"),
        (json!(-0.5), "-0.5"),
        (json!(1e100), "1.0e+100"),
        (json!(1.5e-7), "1.5e-7"),
    ] {
        assert_eq!(field(value), format!("{written}\n"));
    }
}

#[test]
fn a_key_of_many_characters_stands_behind_a_question_mark() {
    let (short, long) = ("k".repeat(1000), "k".repeat(1001));
    assert_eq!(document(&json!({ &short: 1 })), format!("{short}: 1\n"));
    let nested = json!([{ &long: { "a": 1, "b": ["c\nd\n"] } }]);
    let expected = format!("- ? {long}\n  : a: 1\n    b:\n      - |\n        c\n        d\n");
    assert_eq!(document(&nested), expected);
}

#[test]
fn a_value_that_json_cannot_hold_is_refused() {
    let keyed = std::collections::BTreeMap::from([(vec![1], 2)]);
    assert!(to_string(&keyed).is_err());
    assert_eq!(to_string(&["a"]).unwrap(), "- a\n");
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[0-9:._+,xobe-]{0,9}|[a-z~\t\n #:'\"-]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC*|[0-9:.]{0,4}", inner, 0..4)
                .prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn our_own_reader_reads_what_was_written(value in any_value()) {
        let read: Value = yaml_serde::from_str(&document(&value)).unwrap();
        prop_assert_eq!(read, value);
    }
}
