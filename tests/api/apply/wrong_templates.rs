//! Templates that cannot run. Each is in a file between two right objects, which are stored and reported.

use super::Operator;
use super::wrong_objects::find_problem;

/// The actions of a template, and a part of the error.
const ACTIONS: &[(&str, &str)] = &[
    ("{name: a, image: imagetodisk}", "no action imagetodisk: did you mean image2disk?"),
    (
        "{name: a, image: 'quay.io/acme/ownthing:v1'}",
        "no action ownthing (image quay.io/acme/ownthing:v1); actions: ",
    ),
    ("{name: a, image: waitdaemon}", "waitdaemon needs IMAGE"),
    (
        "{name: a, image: waitdaemon, environment: {IMAGE: image2disk}}",
        "waitdaemon does not start image2disk",
    ),
    (
        "{name: a, image: waitdaemon, environment: {IMAGE: 'quay.io/tinkerbell/actions/kexec:v1'}}",
        "kexec needs BLOCK_DEVICE",
    ),
    (
        "{name: a, image: image2disk, environment: {IMG_ULR: u, DEST_DISK: d}}",
        "image2disk needs IMG_URL",
    ),
    (
        "{name: a, image: image2disk, environment: {IMG_URL: u, DEST_DISK: d, COMPRESED: 'true'}}",
        "did you mean COMPRESSED?",
    ),
    ("{name: a, image: image2disk, environment: {DEST_DISK: d}}", "image2disk needs IMG_URL"),
    (
        "{name: a, image: cexec, environment: {BLOCK_DEVICE: d, FS_TYPE: ext4}}",
        "cexec needs CMD_LINE",
    ),
    ("{name: a, image: writefile, environment: {DEST_DISK: d, FS_TYPE: ext4}}", "writefile needs "),
    ("{name: a, image: poweroff, command: [now]}", "takes no command"),
    ("{name: a, image: rootio}", "rootio needs a command"),
    ("{name: a, image: rootio, command: [partitio]}", "did you mean partition?"),
    ("{name: a}", "invalid action image"),
    ("{name: a, image: 'a b'}", "invalid action image"),
    ("{image: reboot}", "name cannot be empty"),
    (
        "{name: a, image: reboot}\n  - {name: a, image: reboot}",
        "two actions in a task cannot have same name: a",
    ),
    ("{name: a, image: reboot, tiemout: 5}", "unknown field `tiemout`"),
    ("{name: a, image: reboot, timeout: ten}", "timeout"),
    ("{name: a, image: reboot, retries: many}", "retries"),
    ("{name: a, image: reboot, environment: [x]}", "environment"),
    ("reboot", "tasks[0].actions[0]"),
    (
        "{name: a, image: cexec, environment: {CMD_LINE: '{{ nosuch .x }}', BLOCK_DEVICE: d, FS_TYPE: e}}",
        "function \"nosuch\" is unknown",
    ),
    (
        "{name: a, image: cexec, environment: {CMD_LINE: '{{ .x ', BLOCK_DEVICE: d, FS_TYPE: e}}",
        "line 6",
    ),
    (
        "{name: a, image: cexec, environment: {CMD_LINE: '{{ end }}', BLOCK_DEVICE: d, FS_TYPE: e}}",
        "line 6",
    ),
    (
        "{name: a, image: cexec, environment: {CMD_LINE: '{{ if .x }}', BLOCK_DEVICE: d, FS_TYPE: e}}",
        "template",
    ),
];

/// A whole template, and a part of the error.
const TEMPLATES: &[(&str, &str)] = &[
    ("name: t\ntasks: []", "template must have at least one task defined"),
    (
        "name: t\nversion: '9'\ntasks: [{name: os, worker: w, actions: [{name: a, image: reboot}]}]",
        "invalid template version: 9",
    ),
    (
        "tasks: [{name: os, worker: w, actions: [{name: a, image: reboot}]}]",
        "it has neither an id nor a name",
    ),
    (
        "name: a b\ntasks: [{name: os, worker: w, actions: [{name: a, image: reboot}]}]",
        "\"a b\" is not letters, digits, hyphens and underscores",
    ),
    ("name: t\ntasks:\n- name: os\n worker: w", ": not YAML: "),
    (
        "name: t\ntasks: [{name: os, worker: w, actions: [{name: a, image: reboot}]}, {name: os, worker: w, actions: [{name: a, image: reboot}]}]",
        "two tasks in a template cannot have same name: os",
    ),
    (
        "name: t\nglobal_timout: 5\ntasks: [{name: os, worker: w, actions: [{name: a, image: reboot}]}]",
        "unknown field `global_timout`",
    ),
    (
        "name: t\ntasks: [{name: os, wroker: w, actions: [{name: a, image: reboot}]}]",
        "unknown field `wroker`",
    ),
    (
        "name: t\ntasks:\n- name: os\n  worker: \"{{ .device_1 }}\"\n  actions:\n  - {name: a, image: cexec, environment: {CMD_LINE: {{.x}, BLOCK_DEVICE: d, FS_TYPE: e}}",
        "line 6",
    ),
];

#[tokio::test]
async fn each_template_that_cannot_run_is_refused_with_what_is_wrong_in_it() {
    let operator = Operator::start().await;
    let actions = ACTIONS.iter().map(|(actions, expected)| {
        let text = format!("name: t\ntasks:\n- name: os\n  worker: \"{{{{ .device_1 }}}}\"\n  actions:\n  - {actions}");
        (text, *expected)
    });
    let whole = TEMPLATES.iter().map(|(text, expected)| ((*text).to_owned(), *expected));
    let (mut problems, mut count) = (Vec::new(), 0);
    for (number, (text, expected)) in actions.chain(whole).enumerate() {
        problems.extend(find_problem(&operator, number, &text, expected).await);
        count += 1;
    }
    assert!(problems.is_empty(), "{} of {count}:\n{}", problems.len(), problems.join("\n\n"));
    assert!(operator.ok("template list -q").await.is_empty(), "none is stored");
    operator.end().await;
}
