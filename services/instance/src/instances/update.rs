//! Which fields of an instance may be changed, and changing them.

use tinwright::fault::Violations;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;

const MUTABLE: [&str; 13] = [
    "hostname",
    "custom_ipxe",
    "operating_system",
    "ips",
    "userdata",
    "crypted_root_password",
    "tags",
    "ssh_keys",
    "extra",
    "labels",
    "template_id",
    "template_values",
    "deprovision_template_id",
];

/// `old` with the fields that `paths` names, or every mutable one, from `update`.
pub(super) fn merged(
    old: &pb::Instance,
    update: &pb::Instance,
    paths: &[String],
) -> Result<pb::Instance, Violations> {
    let all = MUTABLE.map(str::to_owned);
    let paths = if paths.is_empty() { &all[..] } else { paths };
    let mut new = old.clone();
    let mut wrong = Violations::default();
    for path in paths {
        if !replace(&mut new, update, path) {
            wrong.add("update_mask", format!("{path:?} is no field that can be updated"));
        }
    }
    wrong.or(new)
}

/// Whether there is such a field.
fn replace(new: &mut pb::Instance, update: &pb::Instance, path: &str) -> bool {
    match path {
        "hostname" => new.hostname.clone_from(&update.hostname),
        "custom_ipxe" => replace_os(new, update, |os| matches!(os, Os::CustomIpxe(_))),
        "operating_system" => replace_os(new, update, |os| matches!(os, Os::OperatingSystem(_))),
        "ips" => new.ips.clone_from(&update.ips),
        "userdata" => new.userdata.clone_from(&update.userdata),
        "crypted_root_password" => {
            new.crypted_root_password.clone_from(&update.crypted_root_password);
        }
        "tags" => new.tags.clone_from(&update.tags),
        "ssh_keys" => new.ssh_keys.clone_from(&update.ssh_keys),
        "extra" => new.extra.clone_from(&update.extra),
        "labels" => new.labels.clone_from(&update.labels),
        "template_id" => new.template_id.clone_from(&update.template_id),
        "template_values" => new.template_values.clone_from(&update.template_values),
        "deprovision_template_id" => {
            new.deprovision_template_id.clone_from(&update.deprovision_template_id);
        }
        _ => return false,
    }
    true
}

/// Of two that exclude each other, naming one and not giving it takes that one away, and leaves the other.
fn replace_os(new: &mut pb::Instance, update: &pb::Instance, named: impl Fn(&Os) -> bool) {
    if update.os.as_ref().is_some_and(&named) {
        new.os.clone_from(&update.os);
    } else if new.os.as_ref().is_some_and(&named) {
        new.os = None;
    }
}
