//! `template actions`: the built-in actions and their variables.

use std::io::Write;

use actions::{ACTIONS, Action, Need, Variable};
use serde_json::{Value, json};

use crate::output::{Format, Table, print_line, print_values};

/// The actions to print, and their format.
#[derive(Debug, clap::Args)]
pub struct ActionsOptions {
    /// Print only this action: its image, as templates name it
    #[arg(value_name = "ACTION")]
    action: Option<String>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Prints the actions.
pub(super) fn run(
    ActionsOptions { action, output }: ActionsOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let actions = match &action {
        None => ACTIONS.iter().collect(),
        Some(image) => of_image(image)?,
    };
    match output {
        Format::Table | Format::Wide => print_line(out, &text(&actions)),
        Format::Name => {
            let names: Vec<_> = actions.iter().map(ToString::to_string).collect();
            print_line(out, &names.join("\n"))
        }
        Format::Json | Format::Yaml | Format::JsonPath(_) => {
            print_values(out, actions.into_iter().map(value).collect(), &output)
        }
    }
}

/// Returns the actions that replace `image`.
fn of_image(image: &str) -> anyhow::Result<Vec<&'static Action>> {
    let name = actions::short_name(image);
    let found: Vec<_> = ACTIONS.iter().filter(|action| action.image == name).collect();
    match found.is_empty() {
        false => Ok(found),
        true => {
            let known = ACTIONS.iter().map(|action| action.image);
            let hint = actions::suggest(name, known);
            let hint = hint.map(|it| format!(": did you mean {it}?")).unwrap_or_default();
            anyhow::bail!("no action {name}{hint}")
        }
    }
}

/// Returns what people read: each action with a table of its variables.
fn text(actions: &[&Action]) -> String {
    let each = actions.iter().map(|action| {
        let head = format!("{action}: {}\n", action.summary);
        if action.variables.is_empty() {
            return head;
        }
        let columns = ["VARIABLE", "REQUIRED", "DEFAULT", "MEANING"];
        let table = Table::new(&columns, action.variables.iter().map(row)).render(true, true);
        let lines = table.lines().map(|line| format!("  {}\n", line.trim_end()));
        head + &lines.collect::<String>()
    });
    each.collect::<Vec<_>>().join("\n")
}

fn row(variable: &Variable) -> Vec<String> {
    let Variable { name, need, default, meaning } = variable;
    [(*name).to_owned(), need_text(*need), plain(default), plain(meaning)].into()
}

/// Returns when the variable is required, in words.
fn need_text(need: Need) -> String {
    match need {
        Need::Required => "yes".into(),
        Need::Optional => String::new(),
        Need::Unless(others) => format!("without {}", others.join(" and ")),
    }
}

/// Returns `text` without the marks of Markdown.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Returns `action` for programs.
fn value(action: &Action) -> Value {
    let variables: Vec<_> = action.variables.iter().map(variable).collect();
    json!({
        "image": action.image,
        "command": action.command,
        "summary": action.summary,
        "takes_other_variables": action.runs_programs,
        "variables": variables,
    })
}

fn variable(variable: &Variable) -> Value {
    let Variable { name, need, default, meaning } = variable;
    let (required, unless): (bool, &[&str]) = match need {
        Need::Required => (true, &[]),
        Need::Optional => (false, &[]),
        Need::Unless(others) => (true, others),
    };
    json!({
        "name": name,
        "required": required,
        "required_unless": unless,
        "default": plain(default),
        "meaning": plain(meaning),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(action: Option<&str>, output: Format) -> anyhow::Result<String> {
        let mut out = Vec::new();
        let options = ActionsOptions { action: action.map(str::to_owned), output };
        run(options, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn people_get_each_action_with_its_variables() {
        let text = printed(Some("quay.io/tinkerbell/actions/wipe:v1"), Format::Table).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "wipe: erases disks");
        let head: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(head, ["VARIABLE", "REQUIRED", "DEFAULT", "MEANING"]);
        assert!(lines[2].starts_with("  DEST_DISK"), "{text}");
        assert!(lines[2].contains("without WIPE_DISKS"), "{text}");
        let all = printed(None, Format::Table).unwrap();
        assert!(ACTIONS.iter().all(|action| all.contains(&format!("{action}: "))), "{all}");
    }

    #[test]
    fn programs_get_every_variable() {
        let json: Value = serde_json::from_str(&printed(None, Format::Json).unwrap()).unwrap();
        let count = |action: &Value| action["variables"].as_array().unwrap().len();
        let found: Vec<_> = json.as_array().unwrap().iter().map(count).collect();
        let wanted: Vec<_> = ACTIONS.iter().map(|action| action.variables.len()).collect();
        assert_eq!(found, wanted);
        assert_eq!(json[3]["variables"][0]["name"], "IMG_URL");
    }

    #[test]
    fn an_unknown_action_is_an_error_with_the_one_that_may_be_meant() {
        let refused = printed(Some("imagetodisk"), Format::Table).unwrap_err().to_string();
        assert_eq!(refused, "no action imagetodisk: did you mean image2disk?");
    }
}
