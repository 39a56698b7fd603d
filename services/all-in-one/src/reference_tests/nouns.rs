//! The rows of each noun in `docs/reference/events.md` and `docs/reference/metrics.md`. They are texts by hand:
//! only a row that lacks is generated.

use setup::reference::check_complete;
use store::overdue::describe;
use tinwright::nouns::{NOUNS, NounInfo};

/// The heading of the table of maximum stays in states.
const LIMITS: &str = "## States that last too long";
/// The heading of the table of objects' metrics.
const OBJECTS: &str = "## Objects";

/// Returns `text` with `line` at the end of the first table after the line `heading`.
fn with_row(text: String, heading: &str, line: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    let mut after = (0..lines.len()).skip_while(|&at| lines[at] != heading);
    let first = after.find(|&at| lines[at].starts_with('|')).unwrap();
    let rows = lines[first..].iter().take_while(|line| line.starts_with('|')).count();
    lines.insert(first + rows, line);
    lines.join("\n") + "\n"
}

/// Returns `text` with the noun in the row of its owner.
fn with_object(text: &str, noun: &NounInfo) -> String {
    let start = format!("| {} | ", noun.owner);
    let row = text.lines().find(|line| line.starts_with(&start)).unwrap();
    if row.contains(noun.singular) {
        return text.to_owned();
    }
    let (objects, states) = row.rsplit_once(" | ").unwrap();
    text.replace(row, &format!("{objects}, {} | {states}", noun.singular))
}

fn events(mut text: String) -> String {
    for noun in NOUNS.iter().filter(|noun| noun.has_events && !noun.owner.is_empty()) {
        text = with_object(&text, noun);
    }
    for noun in NOUNS {
        for state in noun.states {
            let Some(max_stay) = state.max_stay else { continue };
            let row = format!("| {} | {} | {} |", noun.singular, state.word, describe(max_stay));
            if !text.lines().any(|line| line == row) {
                text = with_row(text, LIMITS, &row);
            }
        }
    }
    text
}

fn metrics(mut text: String) -> String {
    // The edge of the network has metrics of its own.
    for noun in NOUNS.iter().filter(|noun| noun.owner != "netboot") {
        let NounInfo { singular, plural, states, .. } = noun;
        let start = format!("| `tinwright_{plural}` | gauge, `state` |");
        let has_row = text.lines().any(|line| line.starts_with(&start));
        assert!(!has_row || !states.is_empty(), "{singular} has no states");
        if !has_row && !states.is_empty() {
            text = with_row(text, OBJECTS, &format!("{start} {} |", plural.replace('_', " ")));
        }
    }
    text
}

#[test]
fn the_reference_pages_have_every_noun() {
    check_complete("docs/reference/events.md", events);
    check_complete("docs/reference/metrics.md", metrics);
}
