//! The pages of the reference that are made from the program's own tables: commands, settings, errors and calls.

mod api;
mod commands;
mod errors;
mod nouns;
mod settings;

use clap::Arg;

/// A cell of a table: one line, with bars that do not end it.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A row of a table.
fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The help of an argument, and the default that it has or names.
struct Described {
    text: String,
    default: String,
}

impl Described {
    fn new(argument: &Arg) -> Self {
        let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let mut default = String::new();
        if let Some((before, rest)) = text.clone().split_once("[default: ")
            && let Some((named, after)) = rest.split_once(']')
        {
            text = format!("{}{after}", before.trim_end());
            default = named.to_owned();
        }
        let values: Vec<_> =
            argument.get_default_values().iter().filter_map(|value| value.to_str()).collect();
        if !values.concat().is_empty() && argument.get_action().takes_values() {
            default = format!("`{}`", values.join(","));
        }
        let possible = argument.get_possible_values();
        let is_flag = possible.iter().all(|value| ["true", "false"].contains(&value.get_name()));
        if !possible.is_empty() && !is_flag {
            let named = possible.iter().filter(|value| !value.is_hide_set());
            let meant = named.map(|value| match value.get_help() {
                Some(help) => format!("`{}` ({help})", value.get_name()),
                None => format!("`{}`", value.get_name()),
            });
            text += &format!(": {}", meant.collect::<Vec<_>>().join(", "));
        }
        Self { text: cell(&text), default: cell(&default) }
    }
}

/// The option or the place of an argument, with its value, for a cell: `--output FORMAT`, `MACHINE…`.
fn name(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let value = cell(&values.iter().map(|value| value.as_str()).collect::<Vec<_>>().join(" "));
    let counts = argument.get_num_args();
    let Some(long) = argument.get_long() else {
        let has_many = counts.is_some_and(|counts| counts.max_values() > 1);
        return format!("`{value}{}`", if has_many { "…" } else { "" });
    };
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let takes_value =
        argument.get_action().takes_values() && counts.is_none_or(|counts| counts.min_values() > 0);
    let value = if takes_value { format!(" {value}") } else { String::new() };
    format!("{short}`--{long}{value}`")
}
