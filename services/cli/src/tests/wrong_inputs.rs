//! Wrong command lines, and wrong files: what is said of each, in which line, what would be right, and what was stored.

mod files;
mod lines;

use clap::Parser as _;

use super::Program;
use super::apply::{Site, file};

/// Bars stand for spaces in an argument.
#[test]
fn each_wrong_command_line_is_refused_with_what_would_be_right() {
    let mut amiss = Vec::new();
    for (line, wanted) in lines::WRONG {
        let words = line.split(' ').map(|word| word.replace('|', " "));
        let words = std::iter::once("tinwright".to_owned()).chain(words);
        let (text, code) = match Program::try_parse_from(words) {
            Ok(program) => (format!("{program:?}"), 0),
            Err(error) => (error.to_string(), error.exit_code()),
        };
        let is_said = text.contains(wanted) && text.starts_with("error: ");
        if !is_said || code != 2 {
            amiss.push(format!("wanted {wanted:?} for {line}\n{text}"));
        }
    }
    assert!(amiss.is_empty(), "{}", amiss.join("\n\n"));
}

#[tokio::test]
async fn each_wrong_file_has_one_line_that_says_where_and_what_and_nothing_is_stored() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let mut amiss = Vec::new();
    for (text, wanted) in files::WRONG {
        let path = file(folder.path(), "a.yaml", text);
        let (printed, result) = site.run(&format!("apply -f {path}")).await;
        let error = result.err().unwrap_or_default();
        let rest = error.strip_prefix(path.as_str()).unwrap_or_default();
        let is_right = rest.starts_with(wanted) && error.lines().count() == 1 && error.len() <= 700;
        if !is_right || site.writes() > 0 || !printed.is_empty() {
            amiss.push(format!("wanted {wanted:?}\n{text}\n{printed}{error}"));
        }
    }
    assert!(amiss.is_empty(), "{} amiss:\n{}", amiss.len(), amiss.join("\n\n"));
}

#[tokio::test]
async fn what_was_stored_before_the_middle_of_a_file_failed_is_reported() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let text = "kind: Location\nname: a\n---\nkind: Hardware\nname: taken\n---\nkind: Hardware\nname: c\n---\nkind: Hardwear\n---\nkind: Hardware\nname: d\nlocation: nosuch\n";
    let path = file(folder.path(), "five.yaml", text);
    let (printed, result) = site.run(&format!("apply -f {path}")).await;
    assert_eq!((printed.as_str(), site.writes()), ("location/a created\nhardware/c created\n", 2));
    let errors = result.unwrap_err();
    let lines: Vec<_> = errors.lines().collect();
    for (line, wanted) in [
        (10, "kind \"Hardwear\""),
        (4, "hardware/taken: hardware.name: is taken"),
        (12, "hardware/d: its location: "),
    ] {
        let start = format!("{path}:{line}: {wanted}");
        assert!(lines.iter().any(|it| it.starts_with(&start)), "{start}\n{errors}");
    }
    assert_eq!(lines.last(), Some(&"3 of 5 objects failed"));
}

#[tokio::test]
async fn a_wrong_file_beside_a_right_one_does_not_hide_what_was_stored() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    file(folder.path(), "a.yaml", "name: [");
    file(folder.path(), "b.yaml", "kind: Hardware\nname: b\n");
    let (printed, result) = site.run(&format!("apply -f {}", folder.path().display())).await;
    assert_eq!((printed.as_str(), site.writes()), ("hardware/b created\n", 1));
    assert!(result.unwrap_err().ends_with("1 of 2 objects failed"));
    let (_, result) = site.run("apply -f /nonexistent/x.yaml").await;
    assert!(result.unwrap_err().starts_with("reading /nonexistent/x.yaml: "));
}
