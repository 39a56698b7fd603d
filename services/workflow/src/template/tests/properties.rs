//! Rendering ends without a panic, whatever its input.

use proptest::prelude::*;

use super::*;

/// Pieces of templates, valid and invalid.
fn piece() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "{{",
        "}}",
        "{{-",
        "-}}",
        "{{/*",
        "*/}}",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define",
        "template",
        "block",
        "break",
        "continue",
        "\"r\"",
        "`",
        "\"",
        "'a'",
        "|",
        ":=",
        "=",
        "$",
        "$x",
        "$i, $v",
        ".",
        ".a",
        ".a.b",
        ".list",
        "(",
        ")",
        ",",
        "\n",
        " ",
        "1",
        "10000",
        "-1",
        "0x7f",
        "1e9",
        "nil",
        "true",
        "and",
        "or",
        "not",
        "len",
        "index",
        "slice",
        "printf",
        "\"%099999d\"",
        "print",
        "html",
        "call",
        "eq",
        "replace",
        "indent",
        "toYaml",
        "fromYaml",
        "b64dec",
        "join",
        "split",
        "dict",
        "list",
        "first",
        "get",
        "ternary",
        "default",
        "quote",
        "name: ",
        "- ",
        "é\u{2028}",
    ]);
    prop_oneof![9 => known.prop_map(str::to_owned), 1 => ".{0,4}"]
}

/// [`DEBIAN`] with a part replaced.
fn mutated() -> impl Strategy<Value = String> {
    (0..DEBIAN.len(), 0_usize..40, prop::collection::vec(piece(), 0..4)).prop_map(
        |(at, cut, new)| {
            let rest = (at + cut).min(DEBIAN.len());
            format!("{}{}{}", &DEBIAN[..at], new.concat(), &DEBIAN[rest..])
        },
    )
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-zA-Z0-9/:=., {}\\[\\]#&*!|>'\"%@`~\\\\\\n\\t-]{1,12}",
        "yes|no|null|~|0644|1e3"
    ]
}

fn environment() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(text(), text(), 0..4)
}

prop_compose! {
    fn action(name: usize)(
        timeout in any::<u64>(), retries in any::<u32>(), background in any::<bool>(),
        lists in prop::array::uniform4(prop::collection::vec(text(), 0..3)),
        environment in environment(), condition in prop::option::of(text()),
        restart in prop::option::of(prop::sample::select(vec![AfterLoss::Retry, AfterLoss::Fail])),
        namespaces in (text(), text()), pid in text(),
    ) -> definition::Action {
        let [command, on_timeout, on_failure, volumes] = lists;
        let namespaces = Namespaces { network: namespaces.0, pid: namespaces.1 };
        definition::Action {
            name: format!("a{name}"), image: "cexec:v1".into(), timeout, command, on_timeout, on_failure, pid, namespaces,
            volumes, environment, condition, retries, background, restart, skipped: false,
        }
    }
}

prop_compose! {
    fn task(name: usize)(
        worker in text(), volumes in prop::collection::vec(text(), 0..3), environment in environment(),
        actions in prop::collection::vec(any::<prop::sample::Index>(), 0..3).prop_flat_map(|them| {
            (0..them.len()).map(action).collect::<Vec<_>>()
        }),
    ) -> definition::Task {
        definition::Task { name: format!("t{name}"), worker, volumes, environment, actions }
    }
}

prop_compose! {
    fn definition()(
        tasks in (1_usize..4).prop_flat_map(|count| (0..count).map(task).collect::<Vec<_>>()),
        version in prop::option::of(Just("0.1".to_owned())), name in "[a-z~0-9]{1,9}", global_timeout in any::<u64>(),
        id in prop::option::of(text()),
    ) -> Definition {
        Definition { version, name, id, global_timeout, tasks }
    }
}

proptest! {
    #[test]
    fn rendering_ends_without_a_panic(pieces in prop::collection::vec(piece(), 0..24)) {
        render(&pieces.concat());
    }

    #[test]
    fn placeholders_of_any_shape_end_without_a_panic(
        actions in prop::collection::vec(prop::collection::vec(piece(), 0..5), 0..6),
    ) {
        let actions = actions.iter().map(|words| format!("{{{{ {} }}}}\n", words.join(" ")));
        render(&actions.collect::<String>());
    }

    #[test]
    fn a_mutated_template_is_rendered_or_refused_in_one_line(text in mutated()) {
        render(&text);
    }

    #[test]
    fn a_valid_definition_breaks_no_rule(definition in definition()) {
        prop_assert_eq!(definition.validate(Stage::Unrendered), Ok(()));
    }
}

/// Renders the text, or checks that the error is one line and names a line of the text.
fn render(text: &str) {
    let mut values = values();
    values.hardware_map.insert("a".into(), json!({"b": "c"}));
    values.hardware_map.insert("list".into(), json!([1, "two", null]));
    let result = Template::parse("t", text).map_err(Error::from).and_then(|template| {
        let _ = template.check();
        template.render(values)
    });
    if let Err(Error::Placeholder(error)) = result {
        assert!(!error.to_string().contains('\n'), "{error}");
        let last = text.split('\n').count();
        assert!(error.line.is_none_or(|line| (1..=last).contains(&line)), "{error} of {last}");
    }
}
