//! The rules for BMCs and jobs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use data_encoding::HEXLOWER;
use reqwest::Url;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::power::v1::operation::{Boot, Drive, InsertMedia, Power, What, boot};
use tinwright::status::Violations;
use tinwright::{HardwareId, check};

use crate::bmcs::PlaintextHttp;
use crate::ipmi;

/// The longest system id, user name and password.
const MAX_TEXT_BYTES: usize = 255;
/// The longest URL of an image.
const MAX_URL_BYTES: usize = 2048;
/// The longest time for a graceful shutdown.
const MAX_SOFT_OFF_LIMIT: Duration = Duration::from_secs(60 * 60);
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
    let mut limits = (MAX_TEXT_BYTES, MAX_TEXT_BYTES);
    match &mut bmc.protocol {
        None => wrong.add("protocol", "is missing: set redfish or ipmi"),
        Some(Protocol::Redfish(redfish)) => {
            wrong.add_nested("redfish", redfish_violations(redfish, plaintext));
        }
        Some(Protocol::Ipmi(ipmi)) => {
            wrong.add_nested("ipmi", ipmi_violations(ipmi));
            limits = (ipmi::MAX_USERNAME_BYTES, ipmi::MAX_PASSWORD_BYTES);
        }
    }
    let texts = [("username", &bmc.username, limits.0), ("password", &bmc.password, limits.1)];
    for (field, text, limit) in texts {
        wrong.take(field, check::length(text, limit));
        wrong.take(field, without_control_characters(text));
    }
    if bmc.username.contains(':') {
        wrong.add("username", "contains a colon: Basic authentication forbids it (RFC 7617 §2)");
    }
    wrong.into_result(bmc)
}

/// Checks a Redfish service, and puts it into its stored form.
fn redfish_violations(redfish: &mut pb::bmc::Redfish, plaintext: PlaintextHttp) -> Violations {
    let mut wrong = Violations::default();
    if let Some(url) = wrong.take("url", url(&redfish.url, plaintext)) {
        redfish.url = url;
    }
    wrong.take("system_id", check::length(&redfish.system_id, MAX_TEXT_BYTES));
    wrong.take("system_id", without_control_characters(&redfish.system_id));
    let digest = redfish.certificate_sha256.replace(':', "").to_ascii_lowercase();
    if !digest.is_empty() && self::digest(&digest).is_none() {
        wrong.add("certificate_sha256", "is not a SHA-256 digest of 64 hexadecimal digits");
    }
    if redfish.signed_by_root && !digest.is_empty() {
        wrong.add("certificate_sha256", "is for a certificate that no root has to sign");
    }
    redfish.certificate_sha256 = digest;
    wrong
}

fn ipmi_violations(ipmi: &pb::bmc::Ipmi) -> Violations {
    let mut wrong = Violations::default();
    let pb::bmc::Ipmi { host, port, cipher_suite } = ipmi;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let is_host = host.parse::<IpAddr>().is_ok()
        || !host.is_empty() && !host.starts_with('-') && host.bytes().all(is_name);
    wrong.take("host", check::length(host, MAX_TEXT_BYTES));
    if !is_host {
        wrong.add("host", format!("{host:?} is neither an IP address nor a host name"));
    }
    if u16::try_from(*port).is_err() {
        wrong.add("port", format!("{port} is not a UDP port"));
    }
    if *cipher_suite != 0 && !ipmi::CIPHER_SUITES.contains(cipher_suite) {
        let text =
            "is none of 3, 8, 12 and 17, which have authentication, integrity and encryption";
        wrong.add("cipher_suite", text);
    }
    wrong
}

fn without_control_characters(text: &str) -> Result<(), &'static str> {
    match text.chars().any(char::is_control) {
        true => Err("contains a control character"),
        false => Ok(()),
    }
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
                wrong.take(field("soft_off_limit"), soft_off_limit(operation, *number));
            }
            Some(What::Boot(boot)) => wrong.add_nested(&field("boot"), boot_violations(boot)),
            Some(What::InsertMedia(media)) => {
                wrong.add_nested(&field("insert_media"), media_violations(media));
            }
            Some(What::EjectMedia(drive)) => {
                if Drive::try_from(*drive).is_err() {
                    wrong.add(field("eject_media"), format!("{drive} is not a drive"));
                }
            }
        }
    }
    wrong.into_result(())
}

/// Checks the limit of a graceful shutdown.
fn soft_off_limit(operation: &pb::Operation, power: i32) -> Result<(), String> {
    let Some(limit) = operation.soft_off_limit else { return Ok(()) };
    if power != i32::from(Power::SoftOff) {
        return Err("is for POWER_SOFT_OFF only".into());
    }
    match Duration::try_from(limit) {
        Ok(limit) if (Duration::from_secs(1)..=MAX_SOFT_OFF_LIMIT).contains(&limit) => Ok(()),
        Ok(_) | Err(_) => Err("is not between one second and an hour".into()),
    }
}

fn media_violations(media: &InsertMedia) -> Violations {
    let mut wrong = Violations::default();
    let InsertMedia { image_url, drive } = media;
    wrong.take("image_url", check::length(image_url, MAX_URL_BYTES));
    // The error must not quote the URL, which may have a token.
    if check::url(image_url, &["http", "https"]).is_err() {
        wrong.add("image_url", "is not a URL with http or https");
    }
    if Drive::try_from(*drive).is_err() {
        wrong.add("drive", format!("{drive} is not a drive"));
    }
    wrong
}

fn boot_violations(boot: &Boot) -> Violations {
    let mut wrong = Violations::default();
    let Boot { device, persistent: _, mode, http_url } = boot;
    if !http_url.is_empty() {
        wrong.take("http_url", check::url(http_url, &["http", "https"]));
        if boot.device() != boot::Device::UefiHttp {
            wrong.add("http_url", "is for DEVICE_UEFI_HTTP only");
        }
    }
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

    fn with(protocol: Protocol) -> pb::Bmc {
        let hardware_id = HardwareId::new().to_string();
        pb::Bmc { hardware_id, protocol: Some(protocol), ..pb::Bmc::default() }
    }

    fn with_url(url: &str) -> pb::Bmc {
        with(Protocol::Redfish(pb::bmc::Redfish { url: url.into(), ..Default::default() }))
    }

    fn redfish(bmc: pb::Bmc) -> pb::bmc::Redfish {
        match bmc.protocol {
            Some(Protocol::Redfish(redfish)) => redfish,
            other => panic!("{other:?}"),
        }
    }

    fn fields(bmc: pb::Bmc) -> Vec<String> {
        let wrong = super::bmc(bmc, PlaintextHttp::Allowed).unwrap_err();
        wrong.iter().map(|violation| violation.field.clone()).collect()
    }

    #[test]
    fn a_service_root_is_stored_as_its_origin() {
        for text in ["https://192.0.2.1:443", "https://192.0.2.1/", "https://192.0.2.1/redfish/v1/"]
        {
            let stored = bmc(with_url(text), PlaintextHttp::Refused).unwrap();
            assert_eq!(redfish(stored).url, "https://192.0.2.1");
        }
    }

    #[test]
    fn http_has_to_be_allowed() {
        assert!(bmc(with_url("http://192.0.2.1"), PlaintextHttp::Refused).is_err());
        assert!(bmc(with_url("http://192.0.2.1"), PlaintextHttp::Allowed).is_ok());
    }

    #[test]
    fn all_violations_are_reported() {
        let redfish = pb::bmc::Redfish {
            url: "https://u:p@192.0.2.1".into(),
            certificate_sha256: "ab".into(),
            ..Default::default()
        };
        let wrong = pb::Bmc {
            hardware_id: "r2".into(),
            username: "a:b".into(),
            password: "x\n".into(),
            ..with(Protocol::Redfish(redfish))
        };
        let all =
            ["hardware_id", "redfish.url", "redfish.certificate_sha256", "password", "username"];
        assert_eq!(fields(wrong), all);
        assert_eq!(fields(pb::Bmc { protocol: None, ..with_url("") }), ["protocol"]);
    }

    #[test]
    fn ipmi_has_a_host_and_an_encrypting_cipher_suite_and_short_names() {
        let ipmi = pb::bmc::Ipmi { host: "192.0.2.1".into(), port: 0, cipher_suite: 17 };
        assert_eq!(crate::address::port(&ipmi), 623);
        let right = with(Protocol::Ipmi(ipmi));
        assert!(bmc(right.clone(), PlaintextHttp::Refused).is_ok());
        let long = pb::Bmc { username: "u".repeat(17), password: "p".repeat(21), ..right };
        assert_eq!(fields(long), ["username", "password"]);
        let ipmi = pb::bmc::Ipmi { host: "-x".into(), port: 65_536, cipher_suite: 1 };
        let all = ["ipmi.host", "ipmi.port", "ipmi.cipher_suite"];
        assert_eq!(fields(with(Protocol::Ipmi(ipmi))), all);
    }

    #[test]
    fn a_digest_may_be_in_the_form_that_openssl_prints() {
        let certificate_sha256 = "AB:".repeat(31) + "AB";
        let written =
            pb::bmc::Redfish { certificate_sha256, ..redfish(with_url("https://192.0.2.1")) };
        let stored = bmc(with(Protocol::Redfish(written)), PlaintextHttp::Refused).unwrap();
        assert_eq!(digest(&redfish(stored).certificate_sha256), Some([0xab; 32]));
        assert_eq!(digest("ä".repeat(32).as_str()), None);
        assert_eq!(digest(&"a".repeat(65)), None);
    }

    #[test]
    fn only_a_graceful_shutdown_has_a_limit_up_to_an_hour() {
        let with = |power: Power, seconds| pb::Operation {
            what: Some(What::Power(power.into())),
            soft_off_limit: Some(prost_types::Duration { seconds, nanos: 0 }),
        };
        let is_right = |operation| job(&[operation], &BTreeMap::new()).is_ok();
        assert!(is_right(with(Power::SoftOff, 3600)));
        for wrong in [with(Power::Off, 60), with(Power::SoftOff, 0), with(Power::SoftOff, 3601)] {
            assert!(!is_right(wrong));
        }
    }

    #[test]
    fn a_job_has_one_to_sixteen_complete_operations() {
        let on = pb::Operation { what: Some(What::Power(Power::On.into())), soft_off_limit: None };
        let operations = |all: &[_]| job(all, &BTreeMap::new());
        assert!(operations(&vec![on.clone(); 16]).is_ok());
        assert!(operations(&vec![on.clone(); 17]).is_err());
        assert!(operations(&[]).is_err());
        assert!(job(&[on], &BTreeMap::from([(String::new(), String::new())])).is_err());
        for what in
            [None, Some(What::Power(0)), Some(What::Power(99)), Some(What::Boot(Boot::default()))]
        {
            assert!(operations(&[pb::Operation { what, soft_off_limit: None }]).is_err());
        }
    }
}
