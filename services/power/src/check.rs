//! The rules for BMCs and jobs.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use reqwest::Url;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{Boot, Power, What, boot};
use tinwright::status::Violations;
use tinwright::{HardwareId, check};

use crate::bmcs::PlaintextHttp;

/// The longest system id, user name and password.
const MAX_TEXT_BYTES: usize = 255;
/// The most operations of a job.
const MAX_OPERATIONS: usize = 16;

/// Returns `bmc` in its stored form, except for output-only fields, or its violations.
pub fn bmc(mut bmc: pb::Bmc, plaintext: PlaintextHttp) -> Result<pb::Bmc, Violations> {
    let mut wrong = Violations::default();
    wrong.take("labels", check::labels(&bmc.labels));
    match bmc.hardware_id.parse::<HardwareId>() {
        Ok(id) => bmc.hardware_id = id.to_string(),
        Err(reason) => wrong.add("hardware_id", reason),
    }
    if let Some(url) = wrong.take("redfish_url", url(&bmc.redfish_url, plaintext)) {
        bmc.redfish_url = url;
    }
    let pb::Bmc { system_id, username, password, .. } = &bmc;
    for (field, text) in [("system_id", system_id), ("username", username), ("password", password)]
    {
        wrong.take(field, check::length(text, MAX_TEXT_BYTES));
        if text.chars().any(char::is_control) {
            wrong.add(field, "contains a control character");
        }
    }
    if bmc.username.contains(':') {
        wrong.add("username", "contains a colon: Basic authentication forbids it (RFC 7617 §2)");
    }
    bmc.certificate_sha256 = bmc.certificate_sha256.replace(':', "").to_ascii_lowercase();
    if !bmc.certificate_sha256.is_empty() && digest(&bmc.certificate_sha256).is_none() {
        wrong.add("certificate_sha256", "is not a SHA-256 digest of 64 hexadecimal digits");
    }
    wrong.into_result(bmc)
}

/// Returns the digest written as `hex`, in lower case.
pub(crate) fn digest(hex: &str) -> Option<[u8; 32]> {
    HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok()
}

/// Returns the origin of a service's URL: scheme, host and port.
fn url(text: &str, plaintext: PlaintextHttp) -> Result<String, String> {
    check::length(text, 2048).map_err(|reason| reason.to_string())?;
    let url: Url = text.parse().map_err(|_| format!("{text:?} is not a URL"))?;
    match (url.scheme(), plaintext) {
        ("https", _) | ("http", PlaintextHttp::Allowed) => {}
        ("http", PlaintextHttp::Refused) => {
            return Err("is not https, and the server's configuration does not allow http".into());
        }
        _ => return Err("is neither https nor http".into()),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains credentials: use username and password".into());
    }
    let root = matches!(url.path().trim_end_matches('/'), "" | "/redfish" | "/redfish/v1");
    if !root || url.query().is_some() || url.fragment().is_some() {
        return Err("has a path or query: only scheme, host and port are allowed".into());
    }
    Ok(url.origin().ascii_serialization())
}

/// Checks the operations and labels of a job.
pub fn job(
    operations: &[pb::Operation],
    labels: &BTreeMap<String, String>,
) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    wrong.take("labels", check::labels(labels));
    if operations.is_empty() {
        wrong.add("operations", "is empty: one to sixteen are required");
    }
    wrong.take("operations", check::count(operations.len(), MAX_OPERATIONS));
    for (n, operation) in operations.iter().enumerate() {
        let field = |name| format!("operations[{n}].{name}");
        match &operation.what {
            None => wrong.add(field("what"), "is missing: set power or boot"),
            Some(What::Power(number)) => {
                if !Power::try_from(*number).is_ok_and(|power| power != Power::Unspecified) {
                    wrong.add(field("power"), format!("{number} is not a power operation"));
                }
            }
            Some(What::Boot(boot)) => wrong.add_nested(&field("boot"), boot_violations(boot)),
        }
    }
    wrong.into_result(())
}

fn boot_violations(boot: &Boot) -> Violations {
    let mut wrong = Violations::default();
    let Boot { device, persistent: _, mode } = boot;
    if !boot::Device::try_from(*device).is_ok_and(|device| device != boot::Device::Unspecified) {
        wrong.add("device", format!("{device} is not a boot device"));
    }
    if boot::Mode::try_from(*mode).is_err() {
        wrong.add("mode", format!("{mode} is not a boot mode"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(redfish_url: &str) -> pb::Bmc {
        let hardware_id = HardwareId::new().to_string();
        pb::Bmc { hardware_id, redfish_url: redfish_url.into(), ..pb::Bmc::default() }
    }

    #[test]
    fn a_service_root_is_stored_as_its_origin() {
        for text in ["https://192.0.2.1:443", "https://192.0.2.1/", "https://192.0.2.1/redfish/v1/"]
        {
            let stored = bmc(with_url(text), PlaintextHttp::Refused).unwrap();
            assert_eq!(stored.redfish_url, "https://192.0.2.1");
        }
    }

    #[test]
    fn http_has_to_be_allowed() {
        assert!(bmc(with_url("http://192.0.2.1"), PlaintextHttp::Refused).is_err());
        assert!(bmc(with_url("http://192.0.2.1"), PlaintextHttp::Allowed).is_ok());
    }

    #[test]
    fn all_violations_are_reported() {
        let wrong = pb::Bmc {
            hardware_id: "r2".into(),
            redfish_url: "https://u:p@192.0.2.1".into(),
            username: "a:b".into(),
            password: "x\n".into(),
            certificate_sha256: "ab".into(),
            ..pb::Bmc::default()
        };
        let wrong = bmc(wrong, PlaintextHttp::Allowed).unwrap_err();
        let fields: Vec<_> = wrong.iter().map(|v| v.field.as_str()).collect();
        let all = ["hardware_id", "redfish_url", "password", "username", "certificate_sha256"];
        assert_eq!(fields, all);
    }

    #[test]
    fn a_digest_may_be_in_the_form_that_openssl_prints() {
        let colons = "AB:".repeat(31) + "AB";
        let bmc = pb::Bmc { certificate_sha256: colons, ..with_url("https://192.0.2.1") };
        let stored = super::bmc(bmc, PlaintextHttp::Refused).unwrap();
        assert_eq!(digest(&stored.certificate_sha256), Some([0xab; 32]));
        assert_eq!(digest("ä".repeat(32).as_str()), None);
        assert_eq!(digest(&"a".repeat(65)), None);
    }

    #[test]
    fn a_job_has_one_to_sixteen_complete_operations() {
        let on = pb::Operation { what: Some(What::Power(Power::On.into())) };
        let operations = |all: &[_]| job(all, &BTreeMap::new());
        assert!(operations(&[on; 16]).is_ok());
        assert!(operations(&[on; 17]).is_err());
        assert!(operations(&[]).is_err());
        assert!(job(&[on], &BTreeMap::from([(String::new(), String::new())])).is_err());
        for what in
            [None, Some(What::Power(0)), Some(What::Power(99)), Some(What::Boot(Boot::default()))]
        {
            assert!(operations(&[pb::Operation { what }]).is_err());
        }
    }
}
