//! `docs/reference/commands.md`: every command, with its arguments and examples.

use clap::{Arg, Command, CommandFactory as _};

use super::{Described, name, row};
use crate::{Arguments, examples};

/// Options that many commands have, and their ids. They are described once.
const COMMON: [&str; 4] = ["context", "server", "connection_secrets", "connection_data"];
/// Options of each command.
const EVERYWHERE: [&str; 3] = ["help", "help_all", "version"];
/// The commands whose options are those of the server, which another page lists.
const OF_SERVER: [&str; 3] =
    ["tinwright serve", "tinwright store restore", "tinwright store check"];

fn arguments<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut table = String::new();
    for argument in arguments {
        let Described { text, default } = Described::new(argument);
        let required = if argument.is_required_set() { "required" } else { &default };
        table += &row(&[&name(argument), required, &text]);
    }
    match table.is_empty() {
        true => table,
        false => format!("\n| argument | default | meaning |\n|---|---|---|\n{table}"),
    }
}

/// Adds the description of `command`, or of those below it.
fn describe(command: &Command, path: &str, page: &mut String) {
    if command.has_subcommands() {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            describe(inner, &format!("{path} {}", inner.get_name()), page);
        }
        return;
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    *page += &format!("## {path}\n\n{about}.\n");
    let is_setting = |argument: &&Arg| {
        let is_flag_of_server = argument.get_env().is_some() && argument.get_long().is_some();
        !(OF_SERVER.contains(&path) && is_flag_of_server)
    };
    let own = command.get_arguments().filter(|argument| {
        let id = argument.get_id().as_str();
        !COMMON.contains(&id) && !EVERYWHERE.contains(&id)
    });
    *page += &arguments(own.filter(is_setting));
    if OF_SERVER.contains(&path) {
        *page += "\nIts options are [settings](settings.md) of the server.\n";
    }
    let lines: Vec<_> = examples::of(path).collect();
    *page += &format!("\n```sh\n{}\n```\n\n", lines.join("\n"));
}

fn page() -> String {
    let program = Arguments::command();
    let client = program.find_subcommand("hardware").unwrap();
    let common = client.get_arguments().filter(|it| COMMON.contains(&it.get_id().as_str()));
    let mut page =
        format!("## Options of all commands that call a server\n{}\n", arguments(common));
    describe(&program, "tinwright", &mut page);
    page
}

#[test]
fn the_reference_page_has_every_command() {
    let page = page();
    assert!(page.matches("\n## tinwright ").count() > 100, "{page}");
    setup::reference::check("docs/reference/commands.md", &page);
}
