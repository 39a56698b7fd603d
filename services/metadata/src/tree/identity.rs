//! `dynamic/`: the identity document of the instance, and ids of EC2 that our records do not have.
//!
//! The document is signed if the site has a key for it (`signed`); otherwise only `document` is listed. The document describes
//! the machine. It does not prove that the bearer is that machine.

use std::fmt::Write as _;
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::row::{Row, text};
use super::signed::Form;
use super::{Body, Kind};
use crate::machine::Machine;

pub(super) const ROWS: &[Row] = &[
    Row::leaf("dynamic/fws/instance-monitoring", |_| text("disabled")),
    Row::leaf("dynamic/instance-identity/document", document),
    Row::leaf("dynamic/instance-identity/pkcs7", |m| to_sign(m, Form::Detached)).signed(),
    Row::leaf("dynamic/instance-identity/rsa2048", |m| to_sign(m, Form::Attached)).signed(),
    Row::leaf("dynamic/instance-identity/signature", |m| to_sign(m, Form::Signature)).signed(),
];

/// Returns an id such as `r-0123456789abcdef0`: 17 hexadecimal digits of the hash of `parts`.
pub(super) fn derived(kind: &str, parts: &[&str]) -> String {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    let mut id = format!("{kind}-");
    for byte in hash.finish().as_ref().iter().take(9) {
        let _infallible = write!(id, "{byte:02x}");
    }
    id.truncate(kind.len() + 1 + 17);
    id
}

/// Returns the document, to be signed later: a listing must not compute signatures.
fn to_sign(machine: &Machine, form: Form) -> Option<Body> {
    document(machine).map(|body| Body { kind: Kind::ToSign(form), ..body })
}

/// Returns the document. Its bytes do not change while the record does not, because signatures cover them.
fn document(machine: &Machine) -> Option<Body> {
    let instance = machine.instance.as_ref();
    let tenant = instance.map_or("", |instance| &instance.tenant);
    let document = json!({
        "accountId": if tenant.is_empty() { "000000000000" } else { tenant },
        "architecture": if machine.architecture == "aarch64" { "arm64" } else { "x86_64" },
        "availabilityZone": machine.availability_zone(),
        "billingProducts": null,
        "devpayProductCodes": null,
        "imageId": machine.image_id(),
        "instanceId": machine.instance_id(),
        "instanceType": machine.instance_type(),
        "kernelId": null,
        "marketplaceProductCodes": null,
        "pendingTime": seconds(instance.map_or(machine.created, |instance| instance.created)),
        "privateIp": machine.local_ipv4(),
        "ramdiskId": null,
        "region": machine.facility,
        "version": "2017-09-30",
    });
    text(format!("{document:#}"))
}

/// Formats a time by RFC 3339, in whole seconds of UTC.
pub(crate) fn seconds(at: SystemTime) -> Option<String> {
    OffsetDateTime::from(at).truncate_to_second().format(&Rfc3339).ok()
}
