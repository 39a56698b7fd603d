//! Three hundred machines in a file, ten of them wrong.

use super::Operator;

const OBJECTS: usize = 300;

/// What is wrong with the machine that has it, in the line after its name, and the error after the position.
const WRONG: [(&str, &str); 10] = [
    ("nmae: x", "nmae: unknown field: did you mean name?"),
    ("labels: {rack: 7}", "labels.rack: is 7, not a text"),
    ("state: failed", "hardware/n"),
    ("location: nowhere", "hardware/n"),
    ("policy: {metadata_hop_limit: 65}", "hardware/n"),
    ("policy: {boot_method: cdrom}", "policy.boot_method: is \"cdrom\", not one of"),
    ("bonds: [{name: bond0, mode: fast}]", "hardware/n"),
    ("root_disk: {choose: middle}", "root_disk.choose: is \"middle\", not one of"),
    ("zone: a", "hardware/n"),
    ("extra: [1]", "extra: is a list"),
];

#[tokio::test]
async fn of_three_hundred_machines_the_right_ones_are_stored_and_the_wrong_ones_reported() {
    let operator = Operator::start().await;
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for number in 0..OBJECTS {
        let line = text.lines().count() + 1;
        let mac = format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256);
        text.push_str(&format!(
            "---\nkind: Hardware\nname: n{number}\ninterfaces: [{{mac: '{mac}'}}]\n"
        ));
        if number % 30 == 7 {
            let (field, error) = WRONG[number / 30];
            text.push_str(&format!("{field}\n"));
            wrong.push((line, error, number));
        }
    }
    let path = operator.file("all.yaml", &text);
    let (printed, result) = operator.run(&format!("apply -f {path}")).await;
    let created = printed.lines().filter(|line| line.ends_with(" created")).count();
    assert_eq!((printed.lines().count(), created), (OBJECTS - 10, OBJECTS - 10));
    let errors = result.unwrap_err();
    assert_eq!(errors.last().map(String::as_str), Some("10 of 300 objects failed"));
    assert_eq!(errors.len(), 11, "{errors:#?}");
    for (line, wanted, number) in wrong {
        // Those that cannot be read come first, and name the line of the field.
        let is_it = |error: &&String| {
            let at = |line: usize| error.starts_with(&format!("{path}:{line}: {wanted}"));
            (at(line + 1) && error.contains(&format!("hardware/n{number}:"))) || at(line + 4)
        };
        assert_eq!(errors.iter().filter(is_it).count(), 1, "{number} {wanted}\n{errors:#?}");
    }
    let stored = operator.ok("hardware list -q").await;
    assert_eq!(stored.lines().count(), OBJECTS - 10);
    operator.end().await;
}
