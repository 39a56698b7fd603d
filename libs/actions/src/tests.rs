//! The table against its reference page, and the mistakes that are found by it.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const DIGEST: &str = "@sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns what is wrong with these variables of an action of its own.
fn wrong(image: &str, command: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let own = environment(variables);
    let errors = check_variables(find(image, &words(command)).unwrap(), &own, &own, false);
    errors.into_iter().map(|error| error.to_string()).collect()
}

#[test]
fn the_last_path_component_of_a_reference_names_the_action() {
    for image in [
        "quay.io/tinkerbell/actions/image2disk:latest",
        "quay.io/tinkerbell-actions/image2disk:v1.0.0",
        "127.0.0.1/embedded/image2disk:latest",
        "localhost:5000/image2disk",
        "image2disk:v1.0.0",
        "image2disk",
    ] {
        assert_eq!(find(image, &[]).unwrap().image, "image2disk", "{image}");
    }
    for image in
        [format!("quay.io/tinkerbell/actions/cexec{DIGEST}"), format!("cexec:latest{DIGEST}")]
    {
        assert_eq!(find(&image, &[]).unwrap().image, "cexec");
    }
    for image in ["quay.io/image2disk/custom", "image2disk-ng", "alpine", "", "image2disk:5000/os"]
    {
        assert!(matches!(find(image, &[]), Err(UnknownAction::Image { .. })), "{image}");
    }
}

#[test]
fn an_unknown_action_names_the_one_that_may_be_meant_and_all_others() {
    let refused = |image| find(image, &[]).unwrap_err().to_string();
    let all = "actions: archive2disk, cexec, grub2disk, image2disk, kexec, poweroff, reboot, rootio, wipe, writefile";
    assert_eq!(
        refused("imagetodisk"),
        format!("no action imagetodisk: did you mean image2disk?; {all}")
    );
    assert_eq!(
        refused("quay.io/acme/ownthing:v1"),
        format!("no action ownthing (image quay.io/acme/ownthing:v1); {all}")
    );
}

/// Returns what takes the place of waitdaemon with this variable and command.
fn started(image: &str, command: &[&str]) -> Result<String, String> {
    let environment = environment(&[("IMAGE", image), ("WAIT_SECONDS", "10")]);
    let found = in_place_of_waitdaemon(&words(command), &environment);
    found.map(str::to_owned).map_err(|error| error.to_string())
}

#[test]
fn an_action_that_ends_the_boot_takes_the_place_of_waitdaemon() {
    for image in ["ghcr.io/jacobweinstock/waitdaemon:v0.2.1", "waitdaemon"] {
        assert!(is_waitdaemon(image), "{image}");
    }
    for image in
        ["quay.io/tinkerbell/actions/kexec:v1.0.0", "kexec", "127.0.0.1/reboot", "poweroff"]
    {
        assert_eq!(started(image, &[]).as_deref(), Ok(image));
        assert!(find(image, &[]).is_ok());
    }
    for command in [
        &["reboot"][..],
        &["/sbin/reboot", "-f"],
        &["sh", "-c", "reboot"],
        &["/bin/sh", "-c", " /sbin/reboot  --force"],
        &["busybox", "reboot", "-n", "-f"],
    ] {
        assert_eq!(started("alpine", command).as_deref(), Ok("reboot"), "{command:?}");
    }
    assert_eq!(started("debian:12", &["poweroff"]).as_deref(), Ok("poweroff"));
    assert_eq!(
        started("quay.io/a/kexec", &["reboot"]).as_deref(),
        Ok("reboot"),
        "the command counts"
    );
}

#[test]
fn waitdaemon_around_something_else_is_refused_with_what_is_supported() {
    let supported = "supported: kexec, poweroff or reboot as IMAGE without a command, or the command reboot or poweroff";
    for (image, command, text) in [
        ("", &[][..], "waitdaemon needs IMAGE: image that it starts"),
        ("", &["reboot"], "waitdaemon needs IMAGE: image that it starts"),
        ("alpine", &[], "waitdaemon does not start alpine"),
        ("a/image2disk:v1", &[], "waitdaemon does not start a/image2disk:v1"),
        ("kexec", &["-f"], "waitdaemon does not start kexec with \"-f\""),
        ("alpine", &["reboot", "-p"], "waitdaemon does not start alpine with \"reboot -p\""),
        ("a", &["sh", "-c", "reboot; x"], "waitdaemon does not start a with \"sh -c reboot; x\""),
        ("a", &["sh", "-c", ""], "waitdaemon does not start a with \"sh -c\""),
    ] {
        assert_eq!(started(image, command), Err(format!("{text}; {supported}")));
    }
}

#[test]
fn the_command_selects_the_step_of_rootio_and_no_other_action_has_one() {
    let refused = |image, command: &[&str]| find(image, &words(command)).unwrap_err().to_string();
    assert_eq!(find("rootio", &words(&["partition"])).unwrap().to_string(), "rootio partition");
    assert_eq!(find("cexec", &words(&[""])).unwrap().to_string(), "cexec");
    let all = "format, mount, partition, version, wipe";
    assert_eq!(refused("rootio", &[]), format!("rootio needs a command: {all}"));
    let wanted =
        format!("rootio has no command \"partitions\": did you mean partition?; commands: {all}");
    assert_eq!(refused("rootio", &["partitions"]), wanted);
    assert!(
        refused("rootio", &["partition", "--force"]).contains("no command \"partition --force\"")
    );
    let wanted = "cexec takes no command, and has \"sh -c\": containers are not supported";
    assert_eq!(refused("cexec", &["sh", "-c"]), wanted);
}

#[test]
fn missing_and_unknown_variables_are_named() {
    let found = wrong("image2disk", &[], &[("IMG_ULR", "http://a/b"), ("DEST_DISK", "")]);
    let wanted = [
        "image2disk needs IMG_URL: URL of the image: `http`, `https`, or a path on the boot server",
        "image2disk needs DEST_DISK: disk, partition or file to which it is written; it must exist",
        "image2disk has no variable IMG_ULR: did you mean IMG_URL?",
    ];
    assert_eq!(found, wanted);
    assert_eq!(wrong("reboot", &[], &[("COLOUR", "1")]), ["reboot has no variable COLOUR"]);
    assert!(wrong("reboot", &[], &[("TINK_BOOT_ID", "x")]).is_empty());
}

#[test]
fn one_of_several_variables_may_be_enough() {
    let found = wrong("wipe", &[], &[]);
    assert!(
        found.len() == 1 && found[0].starts_with("wipe needs DEST_DISK or WIPE_DISKS: "),
        "{found:?}"
    );
    assert!(wrong("wipe", &[], &[("WIPE_DISKS", "all")]).is_empty());
    assert!(wrong("rootio", &["wipe"], &[("TEST", "1"), ("JSON_FILE", "/a")]).is_empty());
    assert_eq!(wrong("rootio", &["wipe"], &[]).len(), 1);
}

#[test]
fn variables_for_programs_and_of_the_task_need_not_be_known() {
    let own = environment(&[
        ("BLOCK_DEVICE", "/dev/sda1"),
        ("FS_TYPE", "ext4"),
        ("CMD_LINE", "ls"),
        ("LANG", "C"),
    ]);
    assert_eq!(check_variables(find("cexec", &[]).unwrap(), &own, &own, false), []);
    let all = environment(&[("WIPE_DISKS", "all"), ("MIRROR_HOST", "a")]);
    let wipe = find("wipe", &[]).unwrap();
    assert_eq!(check_variables(wipe, &all, &environment(&[("WIPE_DISKS", "all")]), false), []);
    assert_eq!(check_variables(wipe, &all, &all, true), [], "a reaction gets them");
    assert_eq!(check_variables(wipe, &all, &all, false).len(), 1);
}

#[test]
fn a_suggestion_is_near_and_another_name() {
    let known = ["img", "image", "disk"];
    assert_eq!(suggest("imag", known), Some("img"));
    assert_eq!(suggest("disk", known), None);
    assert_eq!(suggest("something", known), None);
    assert_eq!(suggest("DISC", known), Some("disk"));
}

/// The part of the reference page that follows from the table.
fn reference() -> String {
    let mut page = String::from("| image | command | action |\n|---|---|---|\n");
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}` ") };
    for Action { image, command, summary, .. } in ACTIONS {
        let _ = writeln!(page, "| `{image}` | {}| {summary} |", code(command));
    }
    for action in ACTIONS.iter().filter(|action| !action.variables.is_empty()) {
        let _ = write!(
            page,
            "\n### {action}\n\n| variable | required | default | meaning |\n|---|---|---|---|\n"
        );
        for Variable { name, need, default, meaning } in action.variables {
            let need = match need {
                Need::Required => "yes ".to_owned(),
                Need::Optional => String::new(),
                Need::Unless(others) => format!("without `{}` ", others.join("` and `")),
            };
            let default = if default.is_empty() { String::new() } else { format!("{default} ") };
            let _ = writeln!(page, "| `{name}` | {need}| {default}| {meaning} |");
        }
    }
    page
}

#[test]
fn the_reference_page_has_every_action_and_variable() {
    setup::reference::check("docs/reference/actions.md", &reference());
}

#[test]
fn the_actions_of_an_image_are_together_and_each_is_listed_once() {
    let names: Vec<_> = ACTIONS.iter().map(ToString::to_string).collect();
    assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

proptest! {
    #[test]
    fn find_and_suggest_never_panic(
        image in "\\PC{0,60}",
        command in prop::collection::vec("\\PC{0,5}", 0..3),
    ) {
        let _either = find(&image, &command).map_err(|error| error.to_string());
        let _either = suggest(&image, ["a", "image2disk"]);
    }
}
