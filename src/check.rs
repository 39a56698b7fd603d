//! Rules for fields of more than one service. Each function returns the stored form of a value, or an error.

mod annotations;
mod boot_url;
mod nested;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::de::DeserializeSeed as _;

pub use self::annotations::{InvalidAnnotations, annotations};
pub use self::boot_url::{InvalidBootUrl, boot_url, tenant_boot_url};

/// Bytes of a host name (RFC 1035 §2.3.4).
const MAX_HOSTNAME_BYTES: usize = 253;
/// Bytes of a label of a host name.
const MAX_LABEL_BYTES: usize = 63;

/// The reason for refusing a value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// The value is longer than allowed.
    #[error("has {length} bytes, at most {max} are allowed")]
    TooLong {
        /// Bytes in the value.
        length: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The value has more entries than allowed.
    #[error("has {count} entries, at most {max} are allowed")]
    TooMany {
        /// Entries in the value.
        count: usize,
        /// Entries allowed.
        max: usize,
    },
    /// The key or the value of a label is longer than allowed.
    #[error("the {part} {key:?} {cause}")]
    Label {
        /// The part of the label that is too long.
        part: &'static str,
        /// The key, shortened.
        key: String,
        /// The reason.
        cause: Box<InvalidValue>,
    },
    /// The value has the wrong form.
    #[error("{value:?} is not {wanted}")]
    Form {
        /// The value, shortened.
        value: String,
        /// The required form, with its article.
        wanted: &'static str,
    },
}

fn wrong_form(value: &str, wanted: &'static str) -> InvalidValue {
    InvalidValue::Form { value: value.chars().take(80).collect(), wanted }
}

/// At most `max` bytes.
pub fn length(value: impl AsRef<[u8]>, max: usize) -> Result<(), InvalidValue> {
    let length = value.as_ref().len();
    if length <= max { Ok(()) } else { Err(InvalidValue::TooLong { length, max }) }
}

/// One JSON object, nested at most `depth` deep, no key twice in one object.
pub fn json_object(text: &[u8], depth: usize) -> Result<(), InvalidValue> {
    let shown = || String::from_utf8_lossy(text.get(..80).unwrap_or(text)).into_owned();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = nested::Nested(depth).deserialize(&mut reader).and_then(|()| reader.end());
    if read.is_ok() && text.trim_ascii_start().starts_with(b"{") {
        Ok(())
    } else {
        Err(wrong_form(&shown(), "a JSON object, or is nested too deep, or has a key twice"))
    }
}

/// At most `max` entries.
pub fn count(count: usize, max: usize) -> Result<(), InvalidValue> {
    if count <= max { Ok(()) } else { Err(InvalidValue::TooMany { count, max }) }
}

/// A host name of RFC 1123 (§2.1), of one label or more; lower-cased.
pub fn hostname(value: &str) -> Result<String, InvalidValue> {
    length(value, MAX_HOSTNAME_BYTES)?;
    if value.split('.').all(is_label) {
        Ok(value.to_ascii_lowercase())
    } else {
        Err(wrong_form(value, "a host name (RFC 1123)"))
    }
}

/// A single label of a host name; lower-cased.
pub fn label(value: &str) -> Result<String, InvalidValue> {
    if is_label(value) {
        Ok(value.to_ascii_lowercase())
    } else {
        Err(wrong_form(value, "a name: letters, digits and inner hyphens, at most 63"))
    }
}

fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// An address that a host may have.
pub fn address(value: &str) -> Result<IpAddr, InvalidValue> {
    let address: IpAddr = value.parse().map_err(|_| wrong_form(value, "an IP address"))?;
    let address = address.to_canonical();
    if address.is_multicast() || address.is_unspecified() || is_broadcast(address) {
        return Err(wrong_form(value, "an address of a host"));
    }
    Ok(address)
}

fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.is_broadcast())
}

/// A network as address/bits, the bits beyond its prefix cleared.
pub fn network(value: &str) -> Result<String, InvalidValue> {
    let refused = || wrong_form(value, "a network: address/prefix length, such as 192.0.2.0/24");
    let (address, bits) = value.split_once('/').ok_or_else(refused)?;
    let (address, bits): (IpAddr, u32) =
        (address.parse().map_err(|_| refused())?, bits.parse().map_err(|_| refused())?);
    let base: IpAddr = match address {
        IpAddr::V4(v4) if bits <= 32 => {
            Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0)).into()
        }
        IpAddr::V6(v6) if bits <= 128 => {
            Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(128 - bits).unwrap_or(0))
                .into()
        }
        IpAddr::V4(_) | IpAddr::V6(_) => return Err(refused()),
    };
    Ok(format!("{base}/{bits}"))
}

/// True if `address` is valid on its own link only.
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// True if `gateway` lies in the network of `address` with a prefix of `bits`.
pub fn same_network(address: IpAddr, gateway: IpAddr, bits: u32) -> bool {
    match (address, gateway) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Accepts one word of an iPXE script or a kernel's command line: it must neither end its word nor have a meaning to iPXE
/// (`docs/reference/boot-scripts.md`).
pub fn script_word(value: &str) -> Result<(), InvalidValue> {
    let printable = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic());
    let special = matches!(value, "||" | "&&" | ";")
        || value.starts_with('#')
        || value.contains("${")
        || value.ends_with('\\');
    if printable && !special {
        Ok(())
    } else {
        Err(wrong_form(value, "a word that a boot script can hold"))
    }
}

/// iPXE's settings that the URL of a boot script may name, as in `${mac:hexhyp}`: the machine puts
/// in its values. None of them is a secret.
pub const SCRIPT_URL_SETTINGS: [&str; 10] = [
    "uuid",
    "mac",
    "mac:hexhyp",
    "mac:hexraw",
    "serial",
    "ip",
    "hostname",
    "domain",
    "buildarch",
    "platform",
];

/// Returns the URL `value` of a boot script with a digit for each setting in
/// [`SCRIPT_URL_SETTINGS`] that it names.
pub fn expand_script_url(value: &str) -> String {
    SCRIPT_URL_SETTINGS
        .iter()
        .fold(value.to_owned(), |text, setting| text.replace(&format!("${{{setting}}}"), "0"))
}

/// A URL of a boot script, of one of `schemes`, at most 2048 bytes. It may name
/// [`SCRIPT_URL_SETTINGS`].
pub fn script_url(value: &str, schemes: &[&str]) -> Result<(), InvalidValue> {
    length(value, 2048)?;
    let expanded = expand_script_url(value);
    if expanded.contains("${") {
        let wanted = "a URL with these settings of iPXE only: ${uuid}, ${mac}, ${mac:hexhyp}, ${mac:hexraw}, \
                      ${serial}, ${ip}, ${hostname}, ${domain}, ${buildarch}, ${platform}";
        return Err(wrong_form(value, wanted));
    }
    url(&expanded, schemes).map_err(|error| match error {
        InvalidValue::Form { value: _, wanted } => wrong_form(value, wanted),
        other @ (InvalidValue::TooLong { .. }
        | InvalidValue::TooMany { .. }
        | InvalidValue::Label { .. }) => other,
    })
}

/// A URL of one of `schemes` that a boot script can hold, at most 2048 bytes.
pub fn url(value: &str, schemes: &[&str]) -> Result<(), InvalidValue> {
    length(value, 2048)?;
    script_word(value)?;
    let (scheme, rest) = value.split_once("://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let known = schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    if known && !host.is_empty() {
        Ok(())
    } else {
        Err(wrong_form(value, "a URL of an accepted scheme"))
    }
}

/// A file's name: one component that a boot script can hold.
pub fn file_name(value: &str) -> Result<(), InvalidValue> {
    length(value, 255)?;
    let special = value.contains(['/', '\\']) || value.starts_with('.');
    if special { Err(wrong_form(value, "a file name")) } else { script_word(value) }
}

/// Labels: at most 64, keys of 1 to 255 bytes, values of at most 255, none with a control character.
pub fn labels(labels: &BTreeMap<String, String>) -> Result<(), InvalidValue> {
    count(labels.len(), 64)?;
    for (key, value) in labels {
        let too_long = |part| {
            move |cause| InvalidValue::Label {
                part,
                key: key.chars().take(80).collect(),
                cause: Box::new(cause),
            }
        };
        length(key, 255).map_err(too_long("key"))?;
        length(value, 255).map_err(too_long("value of"))?;
        if key.is_empty() || key.chars().chain(value.chars()).any(char::is_control) {
            return Err(wrong_form(key, "a label key"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_lower_cased_and_bounded() {
        assert_eq!(hostname("Node-1.Lab"), Ok("node-1.lab".into()));
        for wrong in ["", "-a", "a-", "a..b", "a_b", "a b", &"a".repeat(64), "ä"] {
            assert!(hostname(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            hostname(&"a.".repeat(127)),
            Err(InvalidValue::TooLong { length: 254, max: 253 }),
            "long"
        );
    }

    #[test]
    fn a_label_that_is_too_long_is_named() {
        let refused = |key: &str, value: &str| {
            labels(&BTreeMap::from([(key.to_owned(), value.to_owned())])).unwrap_err().to_string()
        };
        let long = "x".repeat(300);
        let wanted = "the value of \"rack\" has 300 bytes, at most 255 are allowed";
        assert_eq!(refused("rack", &long), wanted);
        assert!(refused(&long, "a").starts_with("the key \"xxx"));
        assert!(refused(&long, "a").ends_with("\" has 300 bytes, at most 255 are allowed"));
    }

    #[test]
    fn an_address_is_one_a_host_can_have() {
        assert_eq!(address("::ffff:192.0.2.1"), Ok([192, 0, 2, 1].into()), "mapped");
        for wrong in ["", "192.0.2", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_network_is_stored_without_its_host_bits() {
        assert_eq!(network("198.51.100.77/24"), Ok("198.51.100.0/24".into()));
        assert_eq!(network("0.0.0.0/0"), Ok("0.0.0.0/0".into()));
        assert_eq!(network("2001:db8::7/64"), Ok("2001:db8::/64".into()));
        for wrong in ["", "192.0.2.0", "192.0.2.0/33", "2001:db8::/129", "192.0.2.0/-1"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_is_one_object_of_bounded_depth_without_a_key_twice() {
        for right in ["{}", r#" {"a": [{"b": 1}], "c": {"b": null}}"#] {
            assert_eq!(json_object(right.as_bytes(), 3), Ok(()));
        }
        for wrong in ["", "[]", "1", "{} {}", r#"{"a":1,"a":2}"#, r#"{"a":[[[]]]}"#] {
            assert!(json_object(wrong.as_bytes(), 3).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_gateway_is_inside_its_network() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(same_network(at("192.0.2.10"), at("192.0.2.1"), 24));
        assert!(!same_network(at("192.0.2.10"), at("192.0.3.1"), 24));
        assert!(same_network(at("2001:db8::1"), at("2001:db8::ffff"), 64));
        assert!(!same_network(at("192.0.2.10"), at("2001:db8::1"), 0));
    }

    #[test]
    fn the_url_of_a_script_may_name_some_settings_of_ipxe_and_nothing_else() {
        let check = |url: &str| script_url(url, &["http", "tftp"]);
        let all = SCRIPT_URL_SETTINGS.map(|setting| format!("x=${{{setting}}}")).join("&");
        for right in [
            "http://192.0.2.1/a.ipxe",
            "http://192.0.2.1:8088/plain/menu.ipxe?mac=${mac:hexhyp}&uuid=${uuid}",
            "tftp://192.0.2.1/${mac}",
            &format!("http://192.0.2.1/?{all}"),
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in [
            "http://h/${password}",
            "http://h/${uuid",
            "http://h/${${uuid}}",
            "http://h/ ${uuid}",
            "http://h/${uuid}\nshell",
            "https://h/${uuid}",
            "${uuid}",
            "",
        ] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{wrong:?} is not a ")), "{error}");
        }
        let unknown = check("http://h/${net0/mac}").unwrap_err().to_string();
        assert!(SCRIPT_URL_SETTINGS.iter().all(|it| unknown.contains(&format!("${{{it}}}"))));
    }

    #[test]
    fn a_script_word_cannot_end_its_word() {
        assert!(script_word("ds=nocloud-net;s=http://x/").is_ok());
        for wrong in ["", "a b", "#x", "||", "${net0}", "a\\", "a\nb", "ü"] {
            assert!(script_word(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_names_a_host_by_an_accepted_scheme() {
        assert!(url("HTTP://192.0.2.1/x", &["http", "https"]).is_ok());
        for wrong in ["", "192.0.2.1/x", "ftp://h/x", "http:///x", "http://", "http://h/a b"] {
            assert!(url(wrong, &["http", "https"]).is_err(), "{wrong}");
        }
    }
}
