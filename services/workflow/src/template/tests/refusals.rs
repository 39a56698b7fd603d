//! Error texts: each names the place and the cause, in one line, without values.

use serde_json::json;

use super::*;

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

fn refusal(text: &str) -> String {
    let result =
        Template::parse("debian", text).map_err(Error::from).and_then(|it| it.render(values()));
    chain(&result.unwrap_err())
}

fn check_refusal(text: &str) -> String {
    chain(&Template::parse("debian", text).unwrap().check().unwrap_err())
}

/// `DEBIAN` with one change.
fn with(old: &str, new: &str) -> String {
    assert!(DEBIAN.contains(old), "{old}");
    DEBIAN.replacen(old, new, 1)
}

#[test]
fn the_error_names_a_missing_field_and_its_line() {
    let text = with("{{ .image.url }}", "{{ .image.dest_disk }}");
    assert_eq!(
        refusal(&text),
        r#"template "debian" line 16: no field "dest_disk" in the values given"#
    );
    let text = with("{{ .image.url }}", "{{ if .nothing }}x{{ end }}");
    assert_eq!(
        refusal(&text),
        r#"template "debian" line 16: no field "nothing" in the values given"#
    );
}

#[test]
fn the_error_names_an_unknown_function_and_its_line() {
    let text = with("{{ .image.url }}", "{{ env \"HOME\" }}");
    assert_eq!(refusal(&text), r#"template "debian" line 16: function "env" is unknown"#);
}

#[test]
fn the_line_is_correct_after_trims_comments_and_long_placeholders() {
    for (text, line) in [
        ("a\n{{- \"x\" -}}\n\n{{ .nope }}", 4),
        ("{{/* one\ntwo */}}{{ .nope }}", 2),
        ("a\n{{ printf \"%v\"\n\n  .nope }}", 4),
        ("{{ define \"d\" }}\n{{ .nope }}{{ end }}\n{{ template \"d\" . }}", 2),
        ("{{ range $i := .list }}\n\n{{ $.nope }}{{ end }}", 3),
        ("\n{{ with .map }}\n{{ .nope }}{{ end }}", 3),
        ("{{ (fromYaml \"a: 1\") }}\n{{ (fromYaml \"a: 1\").nope }}", 2),
    ] {
        let error = engine::render("t", text, json!({"list": [1], "map": {"a": 1}})).unwrap_err();
        assert_eq!(
            (error.line, error.cause),
            (Some(line), PlaceholderErrorCause::NoField("nope".into())),
            "{text}"
        );
    }
}

#[test]
fn a_line_that_the_library_does_not_report_is_found() {
    let deep = "{{ if true }}".repeat(70);
    let text = format!("name: t\n\nx: {deep}\n");
    let error = Template::parse("t", &text).unwrap_err();
    assert_eq!(error.line, Some(3), "{error}");
}

#[test]
fn grammar_is_checked_before_there_are_values() {
    for (text, line) in
        [("a\n{{ .a", 2), ("a\n{{ end }}", 2), ("\n\n{{ if }}{{ end }}", 3), ("{{ \"a }}", 1)]
    {
        let error = Template::parse("t", text).unwrap_err();
        assert!(
            error.line == Some(line) && matches!(error.cause, PlaceholderErrorCause::Syntax(_)),
            "{text}: {error}"
        );
    }
}

#[test]
fn no_error_quotes_the_values() {
    for text in [
        "{{ .nope }}",
        "{{ .a.b.c }}",
        "{{ len 5 .a }}",
        "{{ index .a 7 }}",
        "{{ .a.s.x }}",
        "{{ lt .a.s .a }}",
        "{{ range .a.s }}{{ end }}",
        "{{ lower .a }}",
        "{{ template \"x\" .a }}",
        "{{ .a.s 1 }}",
        "{{ slice .a 1 2 }}",
    ] {
        let data = json!({"a": {"s": "SECRET", "b": "SECRET"}});
        let error = engine::render("t", text, data).unwrap_err().to_string();
        assert!(!error.contains("SECRET") && !error.contains('\n'), "{error}");
        assert!(error.starts_with("template \"t\" line 1: "), "{error}");
    }
}

#[test]
fn the_error_quotes_the_placeholder_as_written() {
    let error = engine::render("t", "{{ index .a 7 }}", json!({"a": [1]})).unwrap_err().to_string();
    assert_eq!(error, r#"template "t" line 1: cannot evaluate "index .a 7": no such item"#);
    let error = engine::render("t", "x {{ .a.b }}", json!({"a": 1})).unwrap_err().to_string();
    assert_eq!(error, r#"template "t" line 1: cannot evaluate ".a.b": only a map has fields"#);
}

#[test]
fn the_output_has_a_limit() {
    let much = "{{ range 10000 }}0123456789012345678901234567890123456789{{ end }}";
    assert_eq!(refusal(much), r#"template "debian" line 1: larger than 262144 bytes"#);
    let little = format!("{}{{{{ .device_1 }}}}", "x".repeat(MAX_TEMPLATE_BYTES - 16));
    assert_eq!(refusal(&little), r#"template "debian": larger than 262144 bytes"#);
    let error = Template::parse("t", &"x".repeat(MAX_TEMPLATE_BYTES + 1)).unwrap_err();
    assert_eq!(error.to_string(), r#"template "t": larger than 262144 bytes"#);
}

#[test]
fn an_unknown_key_is_refused() {
    let text = with("on-timeout", "on_timeout");
    let refusal = check_refusal(&text);
    assert!(refusal.starts_with("parsing yaml data: "), "{refusal}");
    assert!(refusal.contains("on_timeout") && refusal.contains("line 23"), "{refusal}");
}

#[test]
fn a_repeated_key_is_refused_in_keys_and_in_variables() {
    for (old, new) in [
        ("        timeout: 600", "        timeout: 600\n        timeout: 6"),
        ("LANG: C", "LANG: C, LANG: D"),
    ] {
        let refusal = check_refusal(&with(old, new));
        assert!(
            refusal.starts_with("parsing yaml data: ") && refusal.contains("duplicate"),
            "{refusal}"
        );
    }
}

#[test]
fn broken_rules_have_tinkerbells_texts() {
    let long = "n".repeat(200);
    for (old, new, text) in [
        ("name: debian", "name: \"\"", "name cannot be empty".to_owned()),
        (
            "name: debian",
            &format!("name: {long}"),
            format!("name cannot have more than 200 characters: {long}"),
        ),
        (
            "version: \"0.1\"",
            "version: \"0.2\"",
            "invalid template version: 0.2; the version is 0.1".to_owned(),
        ),
        (
            "name: run",
            "name: reboot",
            "two actions in a task cannot have same name: reboot".to_owned(),
        ),
        ("image: cexec", "image: \"c exec\"", "invalid action image: c exec".to_owned()),
    ] {
        assert_eq!(check_refusal(&with(old, new)), format!("validating workflow template: {text}"));
    }
    assert!(check_refusal("name: t").ends_with("template must have at least one task defined"));
    let twice = "name: t\ntasks:\n- {name: a, worker: w}\n- {name: a, worker: w}\n";
    assert!(check_refusal(twice).ends_with("two tasks in a template cannot have same name: a"));
}

#[test]
fn the_version_may_be_bare_or_absent() {
    for new in ["version: 0.1", ""] {
        assert!(Template::parse("t", &with("version: \"0.1\"", new)).unwrap().check().is_ok());
    }
}

#[test]
fn a_rule_that_the_values_break_is_checked_after_rendering() {
    let text = with("image: cexec", "image: \"{{ .device_1 }}\"");
    assert_eq!(
        refusal(&text),
        "validating workflow template: invalid action image: 02:00:5e:10:00:01"
    );
    let text = with("{{ eq .arch `arm64` }}", "{{ .arch }}");
    let expected = r#"action "run" has an if that is neither true nor false: "amd64""#;
    assert_eq!(refusal(&text), format!("validating workflow template: {expected}"));
}

#[test]
fn a_task_whose_worker_renders_to_an_empty_text_is_refused() {
    let text = with("{{.device_1}}", "{{ default `` `` }}");
    let expected = r#"failed to render template, invalid hardware address: task "os-installation" names no worker"#;
    assert_eq!(refusal(&text), expected);
}

/// A template with an environment of about 100 KB, whose task has so many actions.
fn large(actions: usize) -> String {
    let value = "x".repeat(100_000);
    let actions: String =
        (0..actions).map(|n| format!("  - {{name: a{n}, image: cexec}}\n")).collect();
    format!(
        "name: t\ntasks:\n- name: a\n  worker: w\n  environment: {{LARGE: {value}}}\n  actions:\n{actions}"
    )
}

#[test]
fn too_many_actions_are_refused_with_their_number() {
    let expected =
        "validating workflow template: the tasks have 101 actions, at most 100 are allowed";
    assert_eq!(refusal(&large(101)), expected);
    assert_eq!(check_refusal(&large(101)), expected);
    assert!(Template::parse("t", &large(100)).unwrap().check().is_ok());
}

#[test]
fn an_environment_that_is_too_large_for_all_actions_is_refused_before_it_is_copied() {
    let expected = "the actions have 600030 bytes with the volumes and environments of their tasks, at most 524288 are allowed";
    assert_eq!(refusal(&large(6)), expected);
    let rendered = Template::parse("t", &large(5)).unwrap().render(values()).unwrap().definition;
    assert!(rendered.tasks[0].actions.iter().all(|it| it.environment["LARGE"].len() == 100_000));
}

#[test]
fn aliases_that_stand_for_too_much_are_refused_in_templates_and_in_functions() {
    let text = format!(
        "name: t\nid: &a {}\ntasks:\n- {{name: a, worker: w, volumes: [{}]}}\n",
        "x".repeat(100_000),
        "*a, ".repeat(6)
    );
    assert!(refusal(&text).contains("its aliases stand for more than 524288 bytes"));
    let data = json!({"text": format!("- &a {}\n{}", "x".repeat(100_000), "- *a\n".repeat(6))});
    let error = engine::render("t", "{{ fromYaml .text }}", data).unwrap_err().to_string();
    assert!(error.contains("fromYaml: the text is not YAML"), "{error}");
}
