//! What an instance's record may say, and the form it is stored in.
//!
//! [`normal`] answers with the stored form (host name in lower case, addresses canonical with their family, flags one by
//! one), or with everything that is wrong, field by field (control-plane specification, sections 3.2 and 3.5).

mod boot_gate;
mod extra;
mod ip;
mod ssh_key;
mod system;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use tinwright::check::{self, InvalidValue};
use tinwright::instance::v1 as pb;
use tinwright::status::Violations;
use tinwright::{HardwareId, TemplateId};

/// The longest user data, vendor data and network configuration, in bytes.
const DOCUMENT: usize = 64 * 1024;
/// The longest of all that a caller says together, in bytes: what the server adds still fits the store's largest value.
const TOGETHER: usize = store::limits::MAX_VALUE_BYTES - 64 * 1024;
/// The longest text that crypt(3) makes (`CRYPT_OUTPUT_SIZE`), in bytes.
const CRYPTED: usize = 384;
/// The most addresses: with its indexes, old and new, a record fits one commit.
const IPS: usize = 32;
/// The most tags.
const TAGS: usize = 128;
/// The longest tag, in bytes.
const TAG: usize = 255;
/// The most keys.
const SSH_KEYS: usize = 64;
/// The most keys of an installed system's own; cloud-init tells three.
const HOST_KEYS: usize = 4;
/// The most values for a template.
const VALUES: usize = 256;
/// The longest of these values all together, in bytes.
const VALUES_LENGTH: usize = 64 * 1024;

/// `instance` as it is stored, but for what only the server writes; or what is wrong with it.
pub fn normal(mut instance: pb::Instance) -> Result<pb::Instance, Violations> {
    let mut wrong = Violations::default();
    references(&mut instance, &mut wrong);
    if !instance.hostname.is_empty()
        && let Some(name) = wrong.take("hostname", check::hostname(&instance.hostname))
    {
        instance.hostname = name;
    }
    wrong.take("labels", check::labels(&instance.labels));
    if let Some(os) = &instance.os {
        system::check(os, &mut wrong);
    }
    ips(&mut instance.ips, &mut wrong);
    for (field, text) in [
        ("userdata", &instance.userdata),
        ("vendor_data", &instance.vendor_data),
        ("network_config", &instance.network_config),
    ] {
        wrong.take(field, document(text));
    }
    if let Some(gate) = &mut instance.boot_gate {
        wrong.add_nested("boot_gate", boot_gate::normalize(gate));
    }
    let password = &instance.crypted_root_password;
    if !is_crypted(password) {
        wrong.add("crypted_root_password", "is neither crypt(3) text nor * or !");
    }
    tags(&mut instance.tags, &mut wrong);
    ssh_keys(&mut instance.ssh_keys, &mut wrong);
    extra::check(&instance.extra, &mut wrong);
    values(&instance.template_values, &mut wrong);
    wrong.take("instance", length(&instance));
    wrong.into_result(instance)
}

/// Ids of what the instance refers to, in their one spelling.
fn references(instance: &mut pb::Instance, wrong: &mut Violations) {
    match instance.hardware_id.parse::<HardwareId>() {
        Ok(id) => instance.hardware_id = id.to_string(),
        Err(reason) => wrong.add("hardware_id", reason),
    }
    let pb::Instance { template_id, deprovision_template_id, .. } = instance;
    for (field, text) in
        [("template_id", template_id), ("deprovision_template_id", deprovision_template_id)]
    {
        if !text.is_empty()
            && let Some(id) = wrong.take(field, text.parse::<TemplateId>())
        {
            *text = id.to_string();
        }
    }
}

fn ips(ips: &mut [pb::instance::Ip], wrong: &mut Violations) {
    wrong.take("ips", check::count(ips.len(), IPS));
    let mut seen = BTreeSet::new();
    for (n, ip) in ips.iter_mut().enumerate() {
        wrong.add_nested(&format!("ips[{n}]"), ip::normalize(ip));
        if !seen.insert(ip.address.clone()) {
            wrong.add(format!("ips[{n}].address"), format!("{} is there twice", ip.address));
        }
    }
}

/// Each part has a limit of its own; with all of them at theirs a record would be too long to be stored.
fn length(instance: &pb::Instance) -> Result<(), InvalidValue> {
    let given = instance.encoded_len();
    if given <= TOGETHER {
        Ok(())
    } else {
        Err(InvalidValue::TooLong { length: given, max: TOGETHER })
    }
}

fn document(text: &str) -> Result<(), String> {
    check::length(text, DOCUMENT).map_err(|e| e.to_string())?;
    if text.contains('\0') {
        return Err("has a zero byte: binary data goes into base64 MIME".into());
    }
    Ok(())
}

/// Whether `text` is nothing, a lock, or what crypt(3) makes; never a password in plain. Its value is not for messages.
fn is_crypted(text: &str) -> bool {
    const FIXED: [&str; 5] = ["$1$", "$5$", "$6$", "$y$", "$7$"];
    // These families have a letter or more before the next dollar sign: $2b$, $argon2id$.
    const FAMILIES: [&str; 2] = ["$2", "$argon2"];
    let hash = FIXED.iter().find_map(|prefix| text.strip_prefix(prefix)).or_else(|| {
        let rest = FAMILIES.iter().find_map(|family| text.strip_prefix(family))?;
        let (variant, hash) = rest.split_once('$')?;
        (variant.len() <= 2 && variant.bytes().all(|b| b.is_ascii_lowercase())).then_some(hash)
    });
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    matches!(text, "" | "*" | "!")
        || hash.is_some_and(|hash| !hash.is_empty()) && printable && text.len() <= CRYPTED
}

/// Metadata lists tags one a line: none may hold a newline, nor be there twice.
fn tags(tags: &mut Vec<String>, wrong: &mut Violations) {
    wrong.take("tags", check::count(tags.len(), TAGS));
    for (n, tag) in tags.iter().enumerate() {
        let field = format!("tags[{n}]");
        wrong.take(field.clone(), check::length(tag, TAG));
        if tag.is_empty() || tag.chars().any(char::is_control) {
            wrong.add(field, "is empty or has a control character");
        }
    }
    let mut seen = BTreeSet::new();
    tags.retain(|tag| seen.insert(tag.clone()));
}

fn ssh_keys(keys: &mut [String], wrong: &mut Violations) {
    wrong.take("ssh_keys", check::count(keys.len(), SSH_KEYS));
    for (n, key) in keys.iter_mut().enumerate() {
        *key = key.trim_matches([' ', '\t']).to_owned();
        wrong.take(format!("ssh_keys[{n}]"), ssh_key::check(key));
    }
}

/// Those of the keys that a system called home with that are keys; a call is not refused for the others.
pub fn host_keys(said: Vec<String>) -> Vec<String> {
    let keys = said.iter().map(|key| key.trim());
    let keys = keys.filter(|key| ssh_key::check(key).is_ok());
    keys.take(HOST_KEYS).map(str::to_owned).collect()
}

fn values(values: &BTreeMap<String, String>, wrong: &mut Violations) {
    wrong.take("template_values", check::count(values.len(), VALUES));
    let given = values.iter().map(|(key, value)| key.len() + value.len()).sum();
    if given > VALUES_LENGTH {
        wrong.add("template_values", InvalidValue::TooLong { length: given, max: VALUES_LENGTH });
    }
    if values.keys().any(|key| key.is_empty() || key.chars().any(char::is_control)) {
        wrong.add("template_values", "has a key that is empty or has a control character");
    }
}

#[cfg(test)]
mod tests;
