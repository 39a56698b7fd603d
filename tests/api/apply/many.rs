//! Three hundred machines in a file, ten of them wrong.

use super::Operator;

const OBJECTS: usize = 300;

/// The line of the object itself, and that of the field after its name and interfaces, counted from the line with `---`.
const OBJECT: usize = 1;
const FIELD: usize = 4;

/// A wrong field, the line that its error names, and the error after the position. NAME stands for the name of the machine.
const WRONG: [(&str, usize, &str); 10] = [
    ("nmae: x", FIELD, "nmae: unknown field: did you mean name?"),
    ("labels: {rack: 7}", FIELD, "labels.rack: is 7, not a text: put it in quotes"),
    ("state: failed", OBJECT, "hardware/NAME: state: is neither enrolled nor provisionable"),
    ("location: nowhere", OBJECT, "hardware/NAME: its location: location nowhere not found"),
    (
        "policy: {metadata_hop_limit: 65}",
        OBJECT,
        "hardware/NAME: policy.metadata_hop_limit: 65 is not between 0 and 64",
    ),
    (
        "policy: {boot_method: cdrom}",
        FIELD,
        "policy.boot_method: is \"cdrom\", not one of network, virtual-media",
    ),
    (
        "bonds: [{name: bond0, mode: fast}]",
        OBJECT,
        "hardware/NAME: bonds[0].mode: \"fast\" is none of balance-rr, ",
    ),
    (
        "root_disk: {choose: middle}",
        FIELD,
        "root_disk.choose: is \"middle\", not one of smallest, largest",
    ),
    ("zone: a", OBJECT, "hardware/NAME: zone: is set without location_id"),
    ("extra: [1]", FIELD, "extra: is a list, not a text"),
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
            let (field, offset, error) = WRONG[number / 30];
            text.push_str(&format!("{field}\n"));
            wrong.push((line + offset, error.replace("NAME", &format!("n{number}"))));
        }
    }
    let path = operator.file("all.yaml", &text);
    let (printed, result) = operator.run(&format!("apply -f {path}")).await;
    let created = printed.lines().filter(|line| line.ends_with(" created")).count();
    assert_eq!((printed.lines().count(), created), (OBJECTS - 10, OBJECTS - 10));
    let errors = result.unwrap_err();
    assert_eq!(errors.last().map(String::as_str), Some("10 of 300 objects failed"));
    assert_eq!(errors.len(), 11, "{errors:#?}");
    for (line, error) in wrong {
        let start = format!("{path}:{line}: {error}");
        let count = errors.iter().filter(|error| error.starts_with(&start)).count();
        assert_eq!(count, 1, "{start}\n{errors:#?}");
    }
    let stored = operator.ok("hardware list -q").await;
    assert_eq!(stored.lines().count(), OBJECTS - 10);
    operator.end().await;
}
