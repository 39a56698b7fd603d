//! The rules for instance records, and their stored form.
//!
//! [`normalize`] returns the stored form (host name in lower case, canonical addresses with their family, each flag once), or
//! all violations, field by field.

mod boot_gate;
mod extra;
mod ip;
mod placement;
mod ssh_key;
mod system;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use tinwright::check::{self, InvalidValue};
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::{Os, PowerManagement};
use tinwright::status::Violations;
use tinwright::{HardwareId, ImageId, TemplateId, TenantName, disk_hint};

pub(crate) use self::system::{is_installed_by_workflow, is_node, is_platform};

/// The longest user data, vendor data and network configuration.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024;
/// The longest record as a caller sends it; the fields that the server adds still fit the store's largest value.
const MAX_RECORD_BYTES: usize = store::limits::MAX_VALUE_BYTES - 64 * 1024;
/// The longest output of crypt(3) (`CRYPT_OUTPUT_SIZE`).
const MAX_CRYPT_BYTES: usize = 384;
/// The most addresses: with its old and new index entries, a record fits one commit.
const MAX_IPS: usize = 32;
/// Maximum length of the scope of a host name.
const MAX_SCOPE_BYTES: usize = 1024;
/// The most tags.
const MAX_TAGS: usize = 128;
/// The longest tag.
const MAX_TAG_BYTES: usize = 255;
/// The most SSH keys of users.
const MAX_SSH_KEYS: usize = 64;
/// The most SSH host keys; cloud-init reports three.
const MAX_HOST_KEYS: usize = 4;
/// The longest id of an outside platform.
const MAX_EXTERNAL_ID_BYTES: usize = 128;
/// The most values for a template.
const MAX_VALUES: usize = 256;
/// The longest sum of these keys and values.
const MAX_VALUES_BYTES: usize = 64 * 1024;

/// Returns `instance` as it is stored, except for output-only fields, or its violations.
pub fn normalize(mut instance: pb::Instance) -> Result<pb::Instance, Violations> {
    let mut wrong = Violations::default();
    references(&mut instance, &mut wrong);
    wrong.normalize_optional("tenant", &mut instance.tenant, str::parse::<TenantName>);
    wrong.take("external_id", external_id(&instance.external_id));
    wrong.normalize_optional("hostname", &mut instance.hostname, check::hostname);
    wrong.take("labels", check::labels(&instance.labels));
    if let Some(os) = &instance.os {
        system::check(os, &instance.tenant, &mut wrong);
    }
    what_is_installed(&instance, &mut wrong);
    wrong.take("annotations", check::annotations(&instance.annotations));
    wrong.take("hostname_scope", check::length(&instance.hostname_scope, MAX_SCOPE_BYTES));
    wrong.take("power_management", power_management(instance.power_management));
    ips(&mut instance.ips, &mut wrong);
    for (field, text) in [
        ("userdata", &instance.userdata),
        ("vendor_data", &instance.vendor_data),
        ("network_config", &instance.network_config),
    ] {
        wrong.take(field, document(field, text));
    }
    wrong.take("userdata_bytes", check::length(&instance.userdata_bytes, MAX_DOCUMENT_BYTES));
    if !instance.userdata.is_empty() && !instance.userdata_bytes.is_empty() {
        wrong.add("userdata_bytes", "is set together with userdata: set one of the two");
    }
    wrong.nest("boot_gate", &mut instance.boot_gate, boot_gate::normalize);
    wrong.nest("placement", instance.placement.as_deref(), placement::check);
    wrong.nest("root_disk", instance.root_disk.as_deref_mut(), disk_hint::normalize);
    let password = &instance.crypted_root_password;
    if !is_crypted(password) {
        wrong.add("crypted_root_password", "is neither crypt(3) text nor * or !");
    }
    tags(&mut instance.tags, &mut wrong);
    wrong.each("ssh_keys", &mut instance.ssh_keys, MAX_SSH_KEYS, |key, wrong| {
        *key = key.trim_matches([' ', '\t']).to_owned();
        wrong.take("", ssh_key::check(key));
    });
    extra::check(&instance.extra, &mut wrong);
    values(&instance.template_values, &mut wrong);
    // Each field has its own limit, but all of them together would not fit the store.
    wrong.take("instance", check::length(instance.encode_to_vec(), MAX_RECORD_BYTES));
    wrong.into_result(instance)
}

/// Passes if `instance`, which is to be created, has something to be done with its machine, names either that or a placement, and leaves the gate of a
/// platform's system to the server.
pub fn check_order(instance: &pb::Instance) -> Result<(), Violations> {
    if is_platform(instance) && instance.boot_gate.is_some() {
        return Err(Violations::single("boot_gate", "is set by the server if os is platform"));
    }
    let installs_nothing = matches!(instance.os, None | Some(Os::OperatingSystem(_)));
    if installs_nothing && !is_installed_by_workflow(instance) && !instance.reserve_only {
        let text = "is missing, so nothing would be installed: set it, image_id, a custom script, a platform's system or an image stack (os), \
                    or reserve_only to keep the machine as it is";
        return Err(Violations::single("template_id", text));
    }
    match (instance.hardware_id.as_str(), &instance.placement) {
        ("", None) => {
            Err(Violations::single("hardware_id", "is missing: set either it or placement"))
        }
        (_, Some(_)) if !instance.hardware_id.is_empty() => {
            Err(Violations::single("placement", "is set together with hardware_id"))
        }
        (_, None | Some(_)) => Ok(()),
    }
}

/// Adds violations unless at most one thing installs the machine, or nothing does.
fn what_is_installed(instance: &pb::Instance, wrong: &mut Violations) {
    let has_workflow = is_installed_by_workflow(instance);
    if instance.reserve_only && (instance.os.is_some() || has_workflow) {
        let text = "excludes an operating system, a custom script, a template and an image";
        wrong.add("reserve_only", text);
    }
    let system = match &instance.os {
        Some(Os::Platform(_)) => "platform",
        Some(Os::ImageStack(_)) => "image_stack",
        Some(Os::CustomIpxe(_) | Os::OperatingSystem(_)) | None => return,
    };
    for (field, id) in [("template_id", &instance.template_id), ("image_id", &instance.image_id)] {
        if !id.is_empty() {
            let text = format!("is set together with {system}, of which nothing is installed");
            wrong.add(field, text);
        }
    }
}

/// Normalizes the ids of other objects.
fn references(instance: &mut pb::Instance, wrong: &mut Violations) {
    let pb::Instance { hardware_id, template_id, deprovision_template_id, image_id, .. } = instance;
    // Of an order by placement, until its machine is chosen.
    if !hardware_id.is_empty() || instance.placement.is_none() {
        wrong.normalize("hardware_id", hardware_id, str::parse::<HardwareId>);
    }
    wrong.normalize_optional("template_id", template_id, str::parse::<TemplateId>);
    wrong.normalize_optional("image_id", image_id, str::parse::<ImageId>);
    let field = "deprovision_template_id";
    wrong.normalize_optional(field, deprovision_template_id, str::parse::<TemplateId>);
}

fn power_management(number: i32) -> Result<(), String> {
    let known = PowerManagement::try_from(number);
    known.map(drop).map_err(|_| format!("{number} is not a known value"))
}

fn external_id(id: &str) -> Result<(), String> {
    check::length(id, MAX_EXTERNAL_ID_BYTES).map_err(|e| e.to_string())?;
    if id.chars().any(char::is_control) {
        return Err("has a control character".into());
    }
    Ok(())
}

fn ips(ips: &mut [pb::instance::Ip], wrong: &mut Violations) {
    let mut addresses = BTreeSet::new();
    wrong.each("ips", ips, MAX_IPS, |ip, wrong| {
        ip::normalize(ip, wrong);
        if !addresses.insert(ip.address.clone()) {
            wrong.add("address", format!("{} is listed twice", ip.address));
        }
    });
}

fn document(field: &str, text: &str) -> Result<(), String> {
    check::length(text, MAX_DOCUMENT_BYTES).map_err(|e| e.to_string())?;
    match (text.contains('\0'), field) {
        (false, _) => Ok(()),
        (true, "userdata") => Err("has a zero byte: set userdata_bytes in its place".into()),
        (true, _) => Err("has a zero byte: encode binary data as base64 MIME".into()),
    }
}

/// True if `text` is empty, a lock, or output of crypt(3), and so no plain password. Its value must not be in messages.
fn is_crypted(text: &str) -> bool {
    const FIXED: [&str; 5] = ["$1$", "$5$", "$6$", "$y$", "$7$"];
    // Families with letters before the next dollar sign: $2b$, $argon2id$.
    const FAMILIES: [&str; 2] = ["$2", "$argon2"];
    let hash = FIXED.iter().find_map(|prefix| text.strip_prefix(prefix)).or_else(|| {
        let rest = FAMILIES.iter().find_map(|family| text.strip_prefix(family))?;
        let (variant, hash) = rest.split_once('$')?;
        (variant.len() <= 2 && variant.bytes().all(|b| b.is_ascii_lowercase())).then_some(hash)
    });
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    matches!(text, "" | "*" | "!")
        || hash.is_some_and(|hash| !hash.is_empty()) && printable && text.len() <= MAX_CRYPT_BYTES
}

/// Checks tags and removes duplicates. The metadata service lists one tag a line, so none may hold a newline.
fn tags(tags: &mut Vec<String>, wrong: &mut Violations) {
    wrong.each("tags", &*tags, MAX_TAGS, |tag, wrong| {
        wrong.take("", check::length(tag, MAX_TAG_BYTES));
        if tag.is_empty() || tag.chars().any(char::is_control) {
            wrong.add("", "is empty or has a control character");
        }
    });
    let mut unique = BTreeSet::new();
    tags.retain(|tag| unique.insert(tag.clone()));
}

/// Returns the valid SSH host keys of a phone-home call. The others are dropped, and the call is accepted.
pub fn valid_host_keys(reported: Vec<String>) -> Vec<String> {
    let keys = reported.iter().map(|key| key.trim());
    let keys = keys.filter(|key| ssh_key::check(key).is_ok());
    keys.take(MAX_HOST_KEYS).map(str::to_owned).collect()
}

fn values(values: &BTreeMap<String, String>, wrong: &mut Violations) {
    wrong.take("template_values", check::count(values.len(), MAX_VALUES));
    let length = values.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > MAX_VALUES_BYTES {
        wrong.add("template_values", InvalidValue::TooLong { length, max: MAX_VALUES_BYTES });
    }
    if values.keys().any(|key| key.is_empty() || key.chars().any(char::is_control)) {
        wrong.add("template_values", "has a key that is empty or has a control character");
    }
}

#[cfg(test)]
mod tests;
