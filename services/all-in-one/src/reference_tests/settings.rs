//! `docs/reference/settings.md`: every setting of the server, as flag, key of the file and variable.

use clap::{Arg, CommandFactory as _};

use super::{Described, cell, name, row};
use crate::Arguments;

/// Sections of the file, in which keys are flags with the section's name.
const SECTIONS: [&str; 2] = ["boot", "dhcp"];
/// Options that are no settings of a site.
const LEFT_OUT: [&str; 4] = ["help", "help_all", "no_rate_limits", "version"];
/// Sections that only the file has: their names, and the sources of their keys.
const FILE_ONLY: [(&str, &str, &str); 2] = [
    ("[[links]]", "links.rs", "pub struct LinkOptions {"),
    ("[[subnets]]", "pools.rs", "pub struct SubnetOptions {"),
];

/// The key of an option in the file.
fn key(id: &str) -> String {
    let in_section = SECTIONS.iter().find_map(|section| {
        let key = id.strip_prefix(section)?.strip_prefix('_')?;
        Some(format!("`[{section}]` `{key}`"))
    });
    match id {
        "config" => String::new(),
        _ => in_section.unwrap_or_else(|| format!("`{id}`")),
    }
}

fn setting(argument: &Arg) -> String {
    let Described { text, mut default } = Described::new(argument);
    let is_boolean = argument.get_possible_values().iter().any(|value| value.get_name() == "true");
    if default.is_empty() && is_boolean {
        default = "`false`".into();
    }
    let variable = argument.get_env().and_then(|name| name.to_str()).unwrap_or_default();
    let id = argument.get_id().as_str();
    row(&[&name(argument), &key(id), &format!("`{variable}`"), &default, &text])
}

/// The keys of a section that only the file has, from the comments of its fields.
fn fields(file: &str, start: &str) -> String {
    let path = setup::root().join("services/all-in-one/src/config").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, body) = text.split_once(start).unwrap();
    let mut comment = String::new();
    let mut table = String::from("| key | meaning |\n|---|---|\n");
    for line in body.lines().take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment += text;
        } else if let Some((field, _)) = line.strip_prefix("pub ").and_then(|it| it.split_once(':'))
        {
            let meaning = cell(&std::mem::take(&mut comment));
            table += &row(&[&format!("`{field}`"), meaning.trim_end_matches('.')]);
        }
    }
    table
}

fn page() -> String {
    let program = Arguments::command();
    let server = program.find_subcommand("serve").unwrap();
    let settings: Vec<_> = server
        .get_arguments()
        .filter(|argument| !LEFT_OUT.contains(&argument.get_id().as_str()))
        .collect();
    let mut groups: Vec<&str> = Vec::new();
    for group in settings.iter().map(|argument| argument.get_help_heading().unwrap_or("General")) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let mut page = String::new();
    for group in groups {
        page += &format!(
            "## {group}\n\n| flag | key | variable | default | meaning |\n|---|---|---|---|---|\n"
        );
        let of_group = |argument: &&&Arg| argument.get_help_heading().unwrap_or("General") == group;
        page.extend(settings.iter().filter(of_group).map(|argument| setting(argument)));
        page.push('\n');
    }
    for (name, file, start) in FILE_ONLY {
        page += &format!("## {name}\n\n{}\n", fields(file, start));
    }
    page
}

#[test]
fn the_reference_page_has_every_setting() {
    let page = page();
    assert!(page.matches("TINWRIGHT_").count() > 80 && page.contains("| `ranges` | "), "{page}");
    setup::reference::check("docs/reference/settings.md", &page);
}
