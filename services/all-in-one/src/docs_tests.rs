//! The documents: each command in them can be parsed, each option in their text exists, and each link leads somewhere.
//!
//! `tests/processes/docs` runs the commands.

use std::collections::BTreeSet;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _, Parser as _};
use setup::pages::{Page, pages};

use crate::Arguments;

/// Programs before the name of ours in a command line.
const LAUNCHERS: [&str; 3] = ["docker", "ip", "sudo"];
/// Operators of a shell between commands.
const OPERATORS: [&str; 5] = ["|", "||", "&&", "&", ";"];
/// Errors of a command in the text, which need not be complete.
const INCOMPLETE: [ErrorKind; 5] = [
    ErrorKind::DisplayHelp,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::DisplayVersion,
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
];
/// A part of the error of an option without its value.
const WITHOUT_VALUE: &str = "a value is required for";
/// Options of other programs that the text names: of etcd, of a node's agent in `/init`, of Docker.
const FOREIGN_OPTIONS: [&str; 3] = ["auto-compaction-retention", "cmdline", "privileged"];
/// The page about the program `tinwright-node`, which has options of its own.
const NODE_PAGE: &str = "docs/imageapi.md";

/// Returns the words of each call of the program in a line for a shell, without redirections.
fn calls(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(&without_substitutions(line));
    let words = words.unwrap_or_else(|| panic!("a quotation has no end: {line}"));
    let commands = words.split(|word| OPERATORS.contains(&word.as_str()));
    let call = |command: &[String]| {
        let name = command.iter().position(|word| word == "tinwright")?;
        let is_called = name == 0 || LAUNCHERS.contains(&command[0].as_str());
        let is_redirection = |word: &&String| word.starts_with(['<', '>']);
        let call = command[name..].iter().take_while(|word| !is_redirection(word));
        is_called.then(|| call.cloned().collect())
    };
    commands.filter_map(call).collect()
}

/// Returns `line` with a word in place of each `$(…)`.
fn without_substitutions(line: &str) -> String {
    let mut parts = line.split("$(");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += "X";
        text += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    text
}

/// Returns the error of parsing `words`, unless it is one of `allowed`.
fn error(words: &[String], allowed: &[ErrorKind]) -> Option<String> {
    let error = Arguments::try_parse_from(words).err()?;
    (!allowed.contains(&error.kind())).then(|| error.to_string())
}

#[test]
fn each_command_in_a_block_can_be_parsed() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for block in pages().iter().flat_map(Page::blocks) {
        let is_marked = block.is_shell();
        let has_command = |line: &String| line.trim_start_matches("$ ").starts_with("tinwright ");
        assert!(
            is_marked || !block.lines.iter().any(has_command),
            "{}:{}: a block with commands is marked sh or console",
            block.page,
            block.line
        );
        for call in block.commands().iter().flat_map(|command| calls(command)) {
            count += 1;
            let help = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
            let found = error(&call, &help);
            wrong.extend(found.map(|it| format!("{}:{}: {it}", block.page, block.line)));
        }
    }
    assert!(count > 60, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_command_in_the_text_can_be_parsed() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for (line, code) in page.inline_code() {
            let code = code.trim_end_matches([' ', '…']);
            // Not what `tinwright --version` prints.
            let rest = code.strip_prefix("tinwright ").filter(|it| !it.starts_with("0."));
            for call in rest.map(|_| calls(code)).into_iter().flatten() {
                count += 1;
                let found = error(&call, &INCOMPLETE).filter(|it| !it.contains(WITHOUT_VALUE));
                wrong.extend(found.map(|it| format!("{}:{line}: {code}: {it}", page.path)));
            }
        }
    }
    assert!(count > 120, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_command_in_the_comments_of_examples_can_be_parsed() {
    let mut count = 0;
    for entry in std::fs::read_dir(setup::root().join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap().replace("\\\n#", "");
        for line in text.lines().filter_map(|line| line.strip_prefix("#   ")) {
            for call in calls(line) {
                count += 1;
                let found = error(&call, &[]);
                assert!(found.is_none(), "{}: {line}: {found:?}", path.display());
            }
        }
    }
    assert!(count > 15, "{count}");
}

/// Adds the names of all options of `command` and of all commands below it.
fn add_options(command: &Command, names: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        names.extend(argument.get_long().into_iter().chain(aliases).map(str::to_owned));
    }
    command.get_subcommands().for_each(|inner| add_options(inner, names));
}

#[test]
fn each_option_in_the_text_exists() {
    let mut options = BTreeSet::from(["help".to_owned(), "version".to_owned()]);
    add_options(&Arguments::command(), &mut options);
    let help = std::process::Command::new(setup::program("tinwright-node")).arg("--help").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let of_node: BTreeSet<_> =
        help.split_whitespace().filter_map(|it| it.strip_prefix("--")).collect();
    assert!(of_node.contains("tls-client-name"), "{help}");
    // A name in capitals stands for any.
    let is_any = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase());
    let exists = |name: &str| match name.strip_suffix(['…', '-']) {
        _ if is_any(name) => true,
        Some(start) => options.iter().any(|option| option.starts_with(start)),
        None => options.contains(name) || FOREIGN_OPTIONS.contains(&name),
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for (line, code) in page.inline_code() {
            let Some(option) = code.strip_prefix("--") else { continue };
            count += 1;
            let name = option.split([' ', '=', ':']).next().unwrap_or_default();
            let is_of_node = page.path == NODE_PAGE && of_node.contains(name);
            if !exists(name) && !is_of_node {
                wrong.push(format!("{}:{line}: --{name}", page.path));
            }
        }
    }
    assert!(count > 600, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the anchor of a heading, as web pages that show Markdown name it.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.collect::<String>().trim().replace(' ', "-")
}

/// Returns the anchors of the headings in a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_in_block = false;
    let mut anchors = BTreeSet::new();
    for line in page.lines() {
        is_in_block ^= line.trim_start().starts_with("```");
        if !is_in_block && line.starts_with('#') {
            anchors.insert(anchor(line.trim_start_matches('#')));
        }
    }
    anchors
}

#[test]
fn each_link_leads_to_a_file_and_to_a_heading_in_it() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let folder = Path::new(&page.path).parent().unwrap();
        let links = page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let own = Path::new(&page.path).file_name().unwrap();
            let file = if file.is_empty() { Path::new(own) } else { Path::new(file) };
            let target = setup::root().join(folder).join(file);
            let has_heading = || {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                heading.is_empty() || anchors(&text).contains(heading)
            };
            if !target.exists() || !has_heading() {
                wrong.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(count > 100, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
