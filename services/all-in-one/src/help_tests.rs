//! The help of every command: verbs first, no question words, units and defaults.

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::Arguments;

/// The first words of the descriptions of commands.
const VERBS: &str = "Accept Add Apply Attach Back Bind Bring Build Cancel Change Check Compare Confirm Control Copy Create \
    Delete Describe Detach Discover End Evaluate Explain Fetch Follow Forget Get Grant Import Install Issue List Log Manage \
    Print Protect Read Record Release Remove Render Repeat Replace Restart Restore Revoke Rollback Run Set Show Shut \
    Switch Take Test Turn Update Use Wait Write";

/// Words with which a question begins.
const QUESTIONS: [&str; 9] =
    ["What", "How", "Whether", "Where", "Why", "Which", "Who", "Whose", "When"];

/// Names of values that say the unit or the kind of a number.
const UNITS: [&str; 11] = [
    "BITS", "BYTES", "COUNT", "DAYS", "DURATION", "MINUTES", "NODES", "NUMBER", "PORT", "SECONDS",
    "TIMES",
];

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
        for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
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
    let is_verb = |word: &str| VERBS.split_whitespace().any(|verb| verb == word);
    let found = problems(|text, argument| {
        (argument.is_none() && !is_verb(first_word(text))).then(|| text.to_owned())
    });
    assert!(found.is_empty(), "{found:#?}");
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
fn each_number_has_a_unit() {
    let is_number = |argument: &Arg| {
        let parser = argument.get_value_parser().type_id();
        [
            std::any::TypeId::of::<u16>(),
            std::any::TypeId::of::<u32>(),
            std::any::TypeId::of::<u64>(),
            std::any::TypeId::of::<usize>(),
            std::any::TypeId::of::<i32>(),
            std::any::TypeId::of::<i64>(),
        ]
        .into_iter()
        .any(|number| parser == number)
    };
    let found = problems(|_, argument| {
        let argument = argument.filter(|argument| is_number(argument))?;
        let names = argument.get_value_names().unwrap_or_default();
        let has_unit = names.iter().any(|name| UNITS.contains(&name.as_str()));
        (!has_unit).then(|| format!("{names:?} names no unit"))
    });
    assert!(found.is_empty(), "{found:#?}");
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
