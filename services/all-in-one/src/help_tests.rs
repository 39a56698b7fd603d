//! The help of every command: verbs first, no question words, units and defaults.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::Arguments;

/// The first words of the descriptions of commands.
const VERBS: &str = "Accept Add Attach Back Bind Bring Build Cancel Change Compare Confirm Control Copy Create Delete Detach End \
    Explain Fetch Forget Get Grant Install Issue Let List Log Manage Print Protect Read Record Release Remove Repeat \
    Replace Restart Restore Revoke Run Set Show Shut Switch Take Turn Use Verify Wait";

/// Words with which a question begins.
const QUESTIONS: [&str; 9] =
    ["What", "How", "Whether", "Where", "Why", "Which", "Who", "Whose", "When"];

/// Names of values that say the unit or the kind of a number.
const UNITS: [&str; 13] = [
    "BITS", "BYTES", "COUNT", "DAYS", "DURATION", "GIB", "MIB", "MINUTES", "NODES", "NUMBER",
    "PORT", "SECONDS", "TIMES",
];

/// The option that no help shows.
const FOR_BENCHMARKS: &str = "no_rate_limits";

/// Calls `check` for `command` and all commands below it, each with its path.
fn walk(command: &Command, path: &str, check: &mut impl FnMut(&Command, &str)) {
    check(command, path);
    for inner in command.get_subcommands() {
        walk(inner, &format!("{path} {}", inner.get_name()), check);
    }
}

/// Returns the problems that `find` has for the text of each command, and of each of its arguments.
fn problems(find: impl Fn(&str, Option<&Arg>) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    walk(&Arguments::command(), "tinwright", &mut |command, path| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        found.extend(find(&about, None).map(|problem| format!("{path}: {problem}")));
        // Options of the server that few sites need are hidden here, and shown by --help-all.
        for argument in command.get_arguments().filter(|it| it.get_id() != FOR_BENCHMARKS) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let problem = find(&help, Some(argument));
            found.extend(problem.map(|it| format!("{path} {}: {it}", argument.get_id())));
        }
    });
    found
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

#[test]
fn the_description_of_each_command_begins_with_a_verb() {
    let verbs: BTreeSet<_> = VERBS.split_whitespace().collect();
    let used = std::cell::RefCell::new(BTreeSet::new());
    let found = problems(|text, argument| {
        let verb = first_word(text).to_owned();
        let is_wrong = argument.is_none() && !verbs.contains(verb.as_str());
        used.borrow_mut().extend(argument.is_none().then_some(verb));
        is_wrong.then(|| text.to_owned())
    });
    assert!(found.is_empty(), "{found:#?}");
    let unused: Vec<_> = verbs.iter().filter(|verb| !used.borrow().contains(**verb)).collect();
    assert!(unused.is_empty(), "no command begins with these verbs: {unused:?}");
}

#[test]
fn no_help_is_missing_or_begins_with_a_question_word() {
    let found = problems(|text, _| {
        let is_question = QUESTIONS.contains(&first_word(text));
        (text.is_empty() || is_question || text.starts_with("If it is")).then(|| text.to_owned())
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_value_of_a_choice_is_explained_by_a_question() {
    let found = problems(|_, argument| {
        let values = argument.map(Arg::get_possible_values).unwrap_or_default();
        let mut texts = values.iter().filter_map(|value| value.get_help().map(ToString::to_string));
        texts.find(|text| QUESTIONS.contains(&first_word(text)))
    });
    assert!(found.is_empty(), "{found:#?}");
}

/// True if the value is a number. Settings of the server are texts until all of their sources are merged: those are numbers whose default is one.
/// `config/command_line/tests.rs` has a test of those that are declared as numbers.
fn is_number(argument: &Arg) -> bool {
    let parser = argument.get_value_parser().type_id();
    let numbers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
    ];
    let takes_value = argument.get_action().takes_values();
    let is_number = |text: &str| takes_value && text.parse::<f64>().is_ok_and(f64::is_finite);
    numbers.into_iter().any(|number| parser == number)
        || defaults(argument).iter().any(|text| is_number(text))
}

/// Returns the defaults of an argument: those that are declared, and the one that its help names.
fn defaults(argument: &Arg) -> Vec<String> {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let named = help.split_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
    let declared = argument.get_default_values().iter().map(|it| it.to_string_lossy().into_owned());
    declared.chain(named.map(|(named, _)| named.to_owned())).collect()
}

/// True if the name of the value says its unit.
fn has_unit(argument: &Arg) -> bool {
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().any(|name| UNITS.contains(&name.as_str()))
}

/// True if the value is a time, such as 30d.
fn is_duration(argument: &Arg) -> bool {
    argument.get_value_parser().type_id() == TypeId::of::<Duration>()
}

#[test]
fn each_duration_has_an_example_with_its_unit() {
    let found = problems(|text, argument| {
        argument.filter(|argument| is_duration(argument))?;
        let is_example = |word: &str| {
            let number = word.strip_suffix(['s', 'm', 'h', 'd']);
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        (!words.any(is_example)).then(|| text.to_owned())
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_optional_number_and_duration_has_a_default() {
    let found = problems(|text, argument| {
        let argument = argument.filter(|it| is_number(it) || is_duration(it) || has_unit(it))?;
        (defaults(argument).is_empty() && !argument.is_required_set()).then(|| text.to_owned())
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_number_has_a_unit() {
    let numbers = std::cell::RefCell::new(BTreeSet::new());
    let found = problems(|_, argument| {
        let argument = argument.filter(|argument| is_number(argument))?;
        numbers.borrow_mut().insert(argument.get_id().to_string());
        (!has_unit(argument)).then(|| format!("{:?} names no unit", argument.get_value_names()))
    });
    assert!(found.is_empty(), "{found:#?}");
    let numbers = numbers.into_inner();
    for setting in ["boot_https_port", "boot_silent_minutes", "dhcp_lease", "drain_seconds"] {
        assert!(numbers.contains(setting), "{setting} is none of the numbers {numbers:?}");
    }
}

#[test]
fn each_default_is_shown_once() {
    let found = problems(|text, argument| {
        let argument = argument?;
        let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        let defaults = argument.get_default_values();
        let has_default = takes_value && defaults.iter().any(|it| !it.is_empty() && *it != "0");
        let is_shown = !argument.is_hide_default_value_set();
        let is_in_text = text.contains("[default:");
        // Exactly one of both.
        (has_default && is_shown == is_in_text).then(|| text.to_owned())
    });
    assert!(found.is_empty(), "{found:#?}");
}
