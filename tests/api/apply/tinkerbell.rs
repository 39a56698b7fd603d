//! Objects with all fields of Tinkerbell's CRDs are applied; each field without a place here is named.

use super::Operator;

/// The objects, in the order in which they are applied.
macro_rules! objects {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../services/cli/src/tinkerbell/tests/objects/", $name, ".yaml")),)*]
    };
}

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: NAME}\nstringData: {username: admin, password: secret}\n";

/// Returns all objects in one file. Those of the first version are a site of their own, and so are those of the second.
fn site() -> String {
    let mut texts: Vec<String> = objects!(
        "hardware-v1alpha1" "template-v1alpha1" "workflow-v1alpha1" "machine-v1alpha1"
        "hardware-v1alpha2" "task-v1alpha2" "workflow-v1alpha2"
    )
    .map(str::to_owned)
    .into();
    // No action here takes the command of a container.
    let command = "- args:\n    - x\n    background: true\n    command: /usr/bin/true\n";
    assert!(texts[5].contains(command), "{}", texts[5]);
    texts[5] = texts[5].replace(command, "- background: true\n");
    texts.extend(["bmc-71", "bmc-72"].map(|name| SECRET.replace("NAME", name)));
    texts.join("---\n")
}

#[tokio::test]
async fn objects_with_all_fields_are_applied_and_what_has_no_place_is_named() {
    let operator = Operator::start().await;
    let text = site();
    let path = operator.file("site.yaml", &text);
    let command = format!("apply --skip-login -f {path}");
    let printed = operator.ok(&command).await;
    let results: Vec<_> =
        printed.lines().filter(|line| !line.contains(": no place here for ")).collect();
    let wanted = [
        "template/debian created",
        "template/wipe-72 created",
        "hardware/node-71 created",
        "hardware/node-72 created",
        "bmc/node-71 created",
        "bmc/node-72 created",
        "workflow/install-71 skipped: it has ended, or is disabled",
        "workflow/wipe-72-1 skipped: it has ended, or is disabled",
    ];
    assert_eq!(results, wanted, "{printed}");
    for (object, field) in [
        ("hardware/node-71", "spec.metadata.instance"),
        ("hardware/node-71", "spec.interfaces[0].netboot.pxelinux.config"),
        ("hardware/node-72", "spec.networkInterfaces.02:00:00:00:07:02.ipam.ipv6.address"),
        ("template/wipe-72", "spec.references"),
        ("workflow/install-71", "spec.bootOptions.toggleAllowNetboot"),
        ("workflow/wipe-72-1", "spec.globals.env.x"),
        ("bmc/node-71", "spec.connection.insecureTLS"),
    ] {
        let note = printed.lines().find(|line| line.starts_with(&format!("{object}: no place")));
        assert!(note.is_some_and(|note| note.contains(field)), "{object} {field}\n{printed}");
    }
    // Workflows of the site that are not disabled begin.
    let text = text.replace("\n  disabled: true\n", "\n  disabled: false\n");
    let path = operator.file("site.yaml", &text);
    let printed = operator.ok(&format!("apply --skip-login -f {path}")).await;
    let results: Vec<_> =
        printed.lines().filter(|line| !line.contains(": no place here for ")).collect();
    assert_eq!(
        results[..4],
        wanted.map(|line| line.replace("created", "unchanged"))[..4],
        "{printed}"
    );
    // A password cannot be compared.
    assert_eq!(results[4..6], ["bmc/node-71 changed", "bmc/node-72 changed"]);
    assert_eq!(results[6..], ["workflow/install-71 created", "workflow/wipe-72-1 created"]);
    operator.end().await;
}
