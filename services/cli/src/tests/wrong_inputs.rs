//! Wrong command lines: the error of each, with the right form. Wrong objects in a file: the objects that are stored in spite of them.

mod lines;

use clap::Parser as _;

use super::Program;
use super::apply::{Site, file};

/// Bars stand for spaces in an argument.
#[test]
fn each_wrong_command_line_is_refused_with_the_right_form() {
    let mut failures = Vec::new();
    for (line, expected) in lines::WRONG {
        let words = line.split(' ').map(|word| word.replace('|', " "));
        let words = std::iter::once("tinwright".to_owned()).chain(words);
        let (text, code) = match Program::try_parse_from(words) {
            Ok(program) => (format!("{program:?}"), 0),
            Err(error) => (error.to_string(), error.exit_code()),
        };
        let is_right = text.starts_with("error: ") && text.contains(expected);
        if !is_right || code != 2 {
            failures.push(format!("expected {expected:?} for {line}\n{text}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[tokio::test]
async fn objects_before_and_after_a_wrong_one_in_a_file_are_stored_and_reported() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let text = "kind: Location\nname: a\n---\nkind: Hardware\nname: taken\n---\nkind: Hardware\nname: c\n---\nkind: Hardwear\n---\nkind: Hardware\nname: d\nlocation: nosuch\n";
    let path = file(folder.path(), "five.yaml", text);
    let (printed, result) = site.run(&format!("apply -f {path}")).await;
    assert_eq!((printed.as_str(), site.writes()), ("location/a created\nhardware/c created\n", 2));
    let errors = result.unwrap_err();
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(lines.len(), 4, "{errors}");
    for (line, cause) in [
        (10, "kind \"Hardwear\""),
        (4, "hardware/taken: hardware.name: is taken"),
        (12, "hardware/d: its location: "),
    ] {
        let start = format!("{path}:{line}: {cause}");
        assert!(lines.iter().any(|it| it.starts_with(&start)), "{start}\n{errors}");
    }
    assert_eq!(lines.last(), Some(&"3 of 5 objects failed"));
}

#[tokio::test]
async fn a_wrong_file_beside_a_right_one_does_not_hide_the_stored_objects() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    let wrong = file(folder.path(), "a.yaml", "name: [");
    file(folder.path(), "b.yaml", "kind: Hardware\nname: b\n");
    let (printed, result) = site.run(&format!("apply -f {}", folder.path().display())).await;
    assert_eq!((printed.as_str(), site.writes()), ("hardware/b created\n", 1));
    let error = result.unwrap_err();
    assert!(error.starts_with(&format!("{wrong}:")) && error.contains(": not YAML: "), "{error}");
    assert!(error.ends_with("\n1 of 2 objects failed"), "{error}");
    let (_, result) = site.run("apply -f /nonexistent/x.yaml").await;
    let error = result.unwrap_err();
    assert!(error.starts_with("reading /nonexistent/x.yaml: No such file"), "{error}");
}
