//! The results of each function, called from templates.

#![allow(clippy::unwrap_used)]

use serde_json::json;

use crate::template::engine;

fn rendered(text: &str) -> String {
    let data = json!({
        "name": "Node-1", "ports": [22, 443], "none": null,
        "net": {"mask": "255.255.255.0", "dns": ["192.0.2.1", "192.0.2.2"]},
    });
    engine::render("t", text, data).unwrap_or_else(|fault| fault.to_string())
}

/// Checks pairs of a template and its output.
fn holds(table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(rendered(text), *expected, "{text}");
    }
}

#[test]
fn texts() {
    holds(&[
        ("{{ lower .name }} {{ upper .name }}", "node-1 NODE-1"),
        (r#"[{{ trim "  a b " }}]"#, "[a b]"),
        (r#"{{ contains "ode" .name }} {{ hasPrefix "ode" .name }}"#, "true false"),
        (r#"{{ .name | replace "-" "_" | lower }}"#, "node_1"),
        (r#"{{ quote "a\"b" 5 .none }}"#, r#""a\"b" "5""#),
        (r#"{{ indent 2 "a\nb" }}"#, "  a\n  b"),
        (r#"x:{{ "a\nb" | nindent 2 }}"#, "x:\n  a\n  b"),
    ]);
}

#[test]
fn collections() {
    holds(&[
        (r#"{{ default "x" "" }} {{ "y" | default "x" }} {{ default 7 0 }}"#, "x y 7"),
        (r#"{{ ternary "a" "b" true }} {{ eq .name "other" | ternary "a" "b" }}"#, "a b"),
        (r#"{{ (dict "a" 1 "b").a }} {{ get (dict "a" 1) "c" | default "none" }}"#, "1 none"),
        (
            r#"{{ first .ports }} {{ join "," .ports }} {{ join "-" (list "a" true .none 3) }}"#,
            "22 22,443 a-true-3",
        ),
        (r#"{{ (split "-" .name)._1 }}"#, "1"),
        (
            r#"{{ index .net.dns 1 }} {{ index . "net" "mask" }} {{ index .net "x" | default "y" }}"#,
            "192.0.2.2 255.255.255.0 y",
        ),
        ("{{ range $i, $p := .ports }}{{ $i }}={{ $p }};{{ end }}", "0=22;1=443;"),
    ]);
}

#[test]
fn encodings() {
    holds(&[
        (r#"{{ b64enc "tin" }} {{ b64dec "dGlu" }}"#, "dGlu tin"),
        ("{{ toYaml .net }}", "dns:\n  - 192.0.2.1\n  - 192.0.2.2\nmask: 255.255.255.0"),
        (r#"{{ (fromYaml "a: {b: [1, 2]}").a.b }}"#, "[1 2]"),
    ]);
}

#[test]
fn to_yaml_quotes_what_some_reader_misreads() {
    let texts = "52:54:00:12:34:56 on 12:30:00 1_000 2026-11-28 n = 0777 0x1f 1e3 ~";
    for text in texts.split(' ').chain([""]) {
        let data = json!({ "v": { "k": text, "l": [text], text: 1 } });
        let written = engine::render("t", "{{ toYaml .v.k }} {{ toYaml .v.l }}", data.clone());
        assert_eq!(written.unwrap(), format!("\"{text}\" - \"{text}\""));
        let keys = engine::render("t", "{{ toYaml .v }}", data).unwrap();
        assert!(keys.contains(&format!("\"{text}\": 1")), "{keys}");
    }
    holds(&[
        (
            r#"{{ toYaml (dict "a" 1 "b" 1.5 "c" true "d" .none) }}"#,
            "a: 1\nb: 1.5\nc: true\nd: null",
        ),
        (r#"{{ toYaml (dict "a" "b\nc\n") | indent 2 }}"#, "  a: |\n    b\n    c"),
        (r#"{{ toYaml "b\nc" }}"#, r#""b\nc""#),
    ]);
}

#[test]
fn disks_and_networks() {
    holds(&[
        (r#"{{ formatPartition "/dev/sda" 1 }}"#, "/dev/sda1"),
        (r#"{{ formatPartition "/dev/nvme0n1" 2 }}"#, "/dev/nvme0n1p2"),
        (r#"{{ formatPartition "/dev/disk/by-id/wwn-1" 3 }}"#, "/dev/disk/by-id/wwn-1-part3"),
        ("{{ netmaskToPrefixLength .net.mask }}", "24"),
        (
            r#"{{ netmaskToPrefixLength "0.0.0.0" }} {{ netmaskToPrefixLength "255.255.255.255" }}"#,
            "0 32",
        ),
    ]);
}

#[test]
fn a_whole_number_of_json_stays_one() {
    let text = engine::render("t", "{{ .n }}", json!({"n": 1_000_000})).unwrap();
    assert_eq!(text, "1000000");
}

#[test]
fn a_refusal_names_the_function_and_not_the_value() {
    holds(&[
        (r#"{{ b64dec "se cret" }}"#, r#"template "t" line 1: b64dec: wants base64"#),
        ("{{ lower .net }}", r#"template "t" line 1: lower: wants text as argument 1"#),
        ("\n{{ first .name }}", r#"template "t" line 2: first: wants a list as argument 1"#),
        ("{{ ternary 1 2 }}", r#"template "t" line 1: ternary: wants 3 arguments, got 2"#),
        (
            r#"{{ netmaskToPrefixLength "255.0.255.0" }}"#,
            r#"template "t" line 1: netmaskToPrefixLength: the netmask has holes"#,
        ),
        (
            r#"{{ fromYaml "a: [" }}"#,
            r#"template "t" line 1: fromYaml: the text is not YAML, see its line 2"#,
        ),
    ]);
}

#[test]
fn no_result_exceeds_the_limit() {
    let blow =
        r#"{{ $s := "aaaaaaaaaa" }}{{ range 12 }}{{ $s = replace "a" "aaaaaaaaaa" $s }}{{ end }}"#;
    assert_eq!(rendered(blow), r#"template "t" line 1: replace: the result would be too large"#);
    assert_eq!(
        rendered(r#"{{ indent 100000000 "a" }}"#),
        r#"template "t" line 1: indent: indents by 256 columns at most"#
    );
}

/// The functions with their arguments, and their results.
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("b64dec text", "the text, decoded from base64"),
    ("b64enc text", "the text, encoded in base64"),
    ("contains part text", "true if the text contains `part`"),
    ("default fallback value", "the value, or the fallback if the value is empty"),
    ("dict key value …", "a map"),
    ("first list", "the first item, nil if there is none"),
    ("formatPartition disk number", "the device name of a partition, such as `/dev/nvme0n1p2`"),
    ("fromYaml text", "the value that a YAML text encodes"),
    ("get map key", "the value, or an empty text"),
    ("hasPrefix start text", "true if the text begins with `start`"),
    ("indent columns text", "the text with every line indented"),
    ("index collection key …", "as in Go, but nil for a missing key"),
    ("join separator list", "the items in one text, with the separator between them"),
    ("list item …", "a list"),
    ("lower text", "the text in lower case"),
    ("netmaskToPrefixLength netmask", "the prefix length"),
    ("nindent columns text", "as `indent`, after a line break"),
    ("quote value …", "each value in double quotes"),
    ("replace old new text", "the text with every occurrence replaced"),
    ("split separator text", "a map of the parts: `_0`, `_1`, …"),
    ("ternary yes no condition", "`yes` if the condition is true, else `no`"),
    ("toYaml value", "the value as YAML"),
    ("trim text", "the text without surrounding white space"),
    ("upper text", "the text in upper case"),
];

#[test]
fn the_reference_page_lists_every_function() {
    let described = DESCRIPTIONS.iter().filter_map(|(usage, _)| usage.split(' ').next());
    let existing = super::TABLE.iter().map(|(name, _)| *name);
    assert_eq!(described.collect::<Vec<_>>(), existing.collect::<Vec<_>>());
    let rows = DESCRIPTIONS.iter().map(|(usage, result)| format!("| `{usage}` | {result} |\n"));
    let table = format!("| function | result |\n|---|---|\n{}", rows.collect::<String>());
    setup::reference::check("docs/reference/templates.md", &table);
}
