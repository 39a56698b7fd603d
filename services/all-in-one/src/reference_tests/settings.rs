//! `docs/reference/settings.md`: every setting of the server, as flag, key of the file and variable.

use clap::{Arg, CommandFactory as _};

use super::{Described, cell, name, row};
use crate::Arguments;

/// Sections of the file, in which keys are flags with the section's name.
const SECTIONS: [&str; 3] = ["boot", "dhcp", "images"];
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

/// A key of a section that only the file has.
struct Field {
    name: String,
    value_type: String,
    meaning: String,
}

/// Returns the keys of a section that only the file has, from the declarations and comments of its fields.
fn fields(file: &str, start: &str) -> Vec<Field> {
    let path = setup::root().join("services/all-in-one/src/config").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, body) = text.split_once(start).unwrap();
    let (mut comment, mut fields) = (String::new(), Vec::new());
    for line in body.lines().take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment += text;
        } else if let Some((name, value_type)) =
            line.strip_prefix("pub ").and_then(|it| it.split_once(':'))
        {
            let meaning = cell(&std::mem::take(&mut comment));
            let (name, value_type) = (name.to_owned(), value_type.trim().to_owned());
            fields.push(Field { name, value_type, meaning });
        }
    }
    fields
}

/// Returns the table of the keys of a section that only the file has.
fn table_of_fields(file: &str, start: &str) -> String {
    let mut table = String::from("| key | meaning |\n|---|---|\n");
    for Field { name, meaning, .. } in fields(file, start) {
        table += &row(&[&format!("`{name}`"), meaning.trim_end_matches('.')]);
    }
    table
}

#[test]
fn each_number_in_a_section_of_the_file_has_a_unit() {
    let mut count = 0;
    for (section, file, start) in FILE_ONLY {
        for Field { name, value_type, meaning } in fields(file, start) {
            if ["u16", "u32", "u64"].iter().any(|number| value_type.contains(number)) {
                count += 1;
                let has_unit = ["port", "seconds"].iter().any(|unit| meaning.contains(unit));
                assert!(has_unit, "{section} {name}: {meaning}");
            }
        }
    }
    assert_eq!(count, 2);
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
        page += &format!("## {name}\n\n{}\n", table_of_fields(file, start));
    }
    page
}

#[test]
fn the_reference_page_has_every_setting() {
    let page = page();
    assert!(page.matches("TINWRIGHT_").count() > 80 && page.contains("| `ranges` | "), "{page}");
    setup::reference::check("docs/reference/settings.md", &page);
}
