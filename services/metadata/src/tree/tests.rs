//! The tree of two known machines, and the agreement of listings and fetches for any machine.

use proptest::prelude::*;

use super::*;
use crate::fixture::{USER_DATA, any_machine, node1, node2};
use crate::machine::UserData;
use crate::path::Path;

fn get_text(machine: &Machine, path: &str) -> Option<String> {
    let body = get(machine, &Path::parse(path)?.segments(), None)?;
    Some(String::from_utf8(body.bytes.to_vec()).unwrap())
}

fn meta_data(machine: &Machine, path: &str) -> Option<String> {
    get_text(machine, &format!("/latest/meta-data/{path}"))
}

#[test]
fn every_leaf_of_a_full_record_has_its_value() {
    for (path, value) in [
        ("ami-id", "debian-12-b7"),
        ("block-device-mapping/ami", "/dev/sda"),
        ("block-device-mapping/ephemeral0", "/dev/sdb"),
        ("events/maintenance/scheduled", "[]"),
        ("facility", "lab1"),
        ("hostname", "node1.lab"),
        ("instance-action", "none"),
        ("instance-id", "i-0001"),
        ("instance-life-cycle", "on-demand"),
        ("instance-type", "c3.small"),
        ("ipv6", "2001:db8::50"),
        ("iqn", "iqn.2026-01.lab:node1"),
        ("local-hostname", "node1.lab"),
        ("local-ipv4", "198.51.100.50"),
        ("mac", "52:54:00:00:00:01"),
        ("operating-system/slug", "debian_12"),
        ("placement/availability-zone", "lab1a"),
        ("placement/availability-zone-id", "lab1-az1"),
        ("placement/host-id", "0197f0a0-0000-7000-8000-000000000001"),
        ("placement/region", "lab1"),
        ("public-hostname", "node1.lab"),
        ("public-ipv4", "192.0.2.9"),
        ("public-ipv6", "2001:db8::50"),
    ] {
        assert_eq!(meta_data(&node1(), path).as_deref(), Some(value), "{path}");
    }
}

#[test]
fn an_interface_has_the_values_that_cloud_init_reads() {
    let machine = node1();
    for (leaf, value) in [
        ("device-number", "0"),
        ("mac", "52:54:00:00:00:01"),
        ("local-ipv4s", "198.51.100.50\n198.51.100.51"),
        ("public-ipv4s", "192.0.2.9"),
        ("ipv4-associations/192.0.2.9", "198.51.100.50"),
        ("subnet-ipv4-cidr-block", "198.51.100.0/24"),
        ("owner-id", "acme"),
    ] {
        let path = format!("network/interfaces/macs/52:54:00:00:00:01/{leaf}");
        assert_eq!(meta_data(&machine, &path).as_deref(), Some(value), "{path}");
    }
}

#[test]
fn a_mac_is_found_in_upper_case_and_listed_in_lower_case() {
    let mut machine = node1();
    machine.nics[0].mac = "52:54:00:AB:CD:EF".parse().unwrap();
    assert_eq!(meta_data(&machine, "network/interfaces/macs").unwrap(), "52:54:00:ab:cd:ef/");
    let mac = meta_data(&machine, "network/interfaces/macs/52:54:00:AB:CD:EF/mac");
    assert_eq!(mac.as_deref(), Some("52:54:00:ab:cd:ef"));
}

#[test]
fn an_interface_without_an_address_is_not_set_up() {
    let mut machine = node1();
    let idle = "52:54:00:00:00:99".parse().unwrap();
    let nic = crate::machine::Nic { mac: idle, addresses: vec![], ..machine.nics[0].clone() };
    machine.nics.push(crate::machine::Nic { primary: false, ..nic });
    assert_eq!(meta_data(&machine, "network/interfaces/macs/").unwrap(), "52:54:00:00:00:01/");
    assert_eq!(meta_data(&machine, "network/interfaces/macs/52:54:00:00:00:99/mac"), None);
}

#[test]
fn the_root_lists_the_versions_oldest_first() {
    let listing = get_text(&node1(), "/").unwrap();
    assert!(listing.starts_with("1.0\n2007-01-19\n") && listing.ends_with("\n2024-04-11\nlatest"));
    assert_eq!(listing.lines().count(), 29);
    assert_eq!(get_text(&node1(), "/2099-01-01/"), None);
}

#[test]
fn a_version_lists_its_parts_without_slashes() {
    assert_eq!(get_text(&node1(), "/latest/").unwrap(), "dynamic\nmeta-data\nuser-data");
    assert_eq!(get_text(&node1(), "/2009-04-04").unwrap(), "meta-data\nuser-data");
    assert_eq!(get_text(&node2(), "/latest").unwrap(), "dynamic\nmeta-data");
}

#[test]
fn a_directory_is_listed_with_its_slash_and_a_leaf_without() {
    let listing = meta_data(&node1(), "").unwrap();
    let names: Vec<_> = listing.lines().collect();
    assert!(names.contains(&"placement/") && names.contains(&"network/"), "{names:?}");
    assert!(names.contains(&"hostname") && names.contains(&"public-keys/"), "{names:?}");
    assert!(names.is_sorted());
}

#[test]
fn unknown_values_are_neither_listed_nor_found() {
    let listing = meta_data(&node2(), "").unwrap();
    for name in
        ["ami-id", "iqn", "operating-system/", "public-ipv4", "public-keys/", "spot/", "tags/"]
    {
        assert!(!listing.lines().any(|listed| listed == name), "{name}");
    }
    for path in ["ami-id", "iqn", "public-ipv4", "spot", "tags", "operating-system/slug"] {
        assert_eq!(meta_data(&node2(), path), None, "{path}");
    }
    assert_eq!(get_text(&node2(), "/latest/user-data"), None);
}

#[test]
fn a_machine_without_an_instance_has_its_hardware_id() {
    let id = "0197f0a0-0000-7000-8000-000000000002";
    assert_eq!(meta_data(&node2(), "instance-id").as_deref(), Some(id));
    assert_eq!(meta_data(&node2(), "hostname").as_deref(), Some("rack1-slot7.lab"));
}

#[test]
fn there_are_no_paths_of_a_cloud_account() {
    for path in ["iam", "iam/security-credentials/", "security-groups", "services/domain"] {
        assert_eq!(meta_data(&node1(), path), None, "{path}");
    }
}

#[test]
fn user_data_is_the_owners_bytes() {
    let mut machine = node1();
    assert_eq!(get_text(&machine, "/2016-09-02/user-data").as_deref(), Some(USER_DATA));
    let gzip = Bytes::from_static(&[0x1f, 0x8b, 0, 0xff, b'\n']);
    machine.instance.as_mut().unwrap().user_data = UserData(gzip.clone());
    let body = get(&machine, &["latest", "user-data"], None).unwrap();
    assert_eq!(body, Body { bytes: gzip, kind: Kind::Octets });
}

#[test]
fn keys_are_listed_by_number_and_comment() {
    let mut machine = node1();
    let keys = &mut machine.instance.as_mut().unwrap().ssh_keys;
    keys.extend(["ssh-rsa AAAA".into(), "ssh-rsa BBBB me=you on laptop\n".into(), "\n".into()]);
    let listing = "0=user@host\n1=key-1\n2=meyouonlaptop";
    assert_eq!(meta_data(&machine, "public-keys").as_deref(), Some(listing));
    assert_eq!(meta_data(&machine, "public-keys/1").as_deref(), Some("openssh-key"));
    assert_eq!(meta_data(&machine, "public-keys/1/openssh-key").as_deref(), Some("ssh-rsa AAAA"));
    assert_eq!(meta_data(&machine, "public-keys/3/openssh-key"), None);
    assert_eq!(meta_data(&machine, "public-keys/01/openssh-key"), None);
}

#[test]
fn keys_with_the_same_comment_have_different_names() {
    let mut machine = node1();
    let keys = ["ssh-rsa A me", "ssh-rsa B me", "ssh-rsa C me-1", "ssh-rsa D me"].map(String::from);
    machine.instance.as_mut().unwrap().ssh_keys = keys.into();
    let listing = "0=me\n1=me-1\n2=me-1-2\n3=me-3";
    assert_eq!(meta_data(&machine, "public-keys").as_deref(), Some(listing));
}

#[test]
fn without_keys_the_first_is_empty_and_the_listing_too() {
    assert_eq!(meta_data(&node2(), "public-keys/").as_deref(), Some(""));
    assert_eq!(meta_data(&node2(), "public-keys/0/openssh-key").as_deref(), Some(""));
    assert_eq!(meta_data(&node2(), "public-keys/1/openssh-key"), None);
}

#[test]
fn tags_are_a_list_for_tinkerbell_and_a_directory_for_ec2() {
    let machine = node1();
    assert_eq!(get_text(&machine, "/2009-04-04/meta-data/tags").as_deref(), Some("rack=1\nspare"));
    assert_eq!(get_text(&machine, "/2009-04-04/meta-data/tags/instance"), None);
    assert_eq!(meta_data(&machine, "tags").as_deref(), Some("instance/"));
    assert_eq!(meta_data(&machine, "tags/instance").as_deref(), Some("rack\nspare"));
    assert_eq!(meta_data(&machine, "tags/instance/rack").as_deref(), Some("1"));
    assert_eq!(meta_data(&machine, "tags/instance/spare").as_deref(), Some(""));
}

#[test]
fn a_tag_that_clients_cannot_follow_is_left_out() {
    let mut machine = node1();
    let odd = ["a/b=1", "=1", "c\nd", " e", "..", "f\u{2028}g", "h=1", "h=2"].map(String::from);
    machine.instance.as_mut().unwrap().tags = odd.into();
    assert_eq!(meta_data(&machine, "tags/instance").as_deref(), Some("h"));
    assert_eq!(meta_data(&machine, "tags/instance/h").as_deref(), Some("1"));
}

#[test]
fn a_spot_instance_has_its_termination_time() {
    let mut machine = node1();
    let extra = serde_json::json!({ "spot": { "termination_time": "2026-01-01T00:00:00Z" } });
    machine.instance.as_mut().unwrap().extra = extra;
    assert_eq!(meta_data(&machine, "instance-life-cycle").as_deref(), Some("spot"));
    assert_eq!(
        meta_data(&machine, "spot/termination-time").as_deref(),
        Some("2026-01-01T00:00:00Z")
    );
    let action = meta_data(&machine, "spot/instance-action").unwrap();
    assert_eq!(action, r#"{"action":"terminate","time":"2026-01-01T00:00:00Z"}"#);
}

#[test]
fn the_identity_document_is_json_and_stays_the_same() {
    let document = get_text(&node1(), "/latest/dynamic/instance-identity/document").unwrap();
    let value: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(value["instanceId"], "i-0001");
    assert_eq!(value["pendingTime"], "2025-10-09T08:53:20Z");
    assert_eq!(value["region"], "lab1");
    assert!(value["kernelId"].is_null() && value["privateIp"] == "198.51.100.50");
    assert_eq!(get_text(&node1(), "/latest/dynamic/instance-identity/document"), Some(document));
    assert_eq!(
        get_text(&node1(), "/latest/dynamic/instance-identity").as_deref(),
        Some("document")
    );
}

#[test]
fn signatures_are_listed_only_with_a_signer() {
    let folder = tempfile::tempdir().unwrap();
    let site = runtime::authority::SiteAuthority::open(folder.path()).unwrap();
    site.ensure_document_key().unwrap();
    let signer = Signer::new(&site.document_key().unwrap().unwrap()).unwrap();
    let signed = |path: &str| get(&node1(), &Path::parse(path).unwrap().segments(), Some(&signer));
    let text = |path: &str| String::from_utf8(signed(path)?.bytes.to_vec()).ok();
    let directory = "/latest/dynamic/instance-identity";
    assert_eq!(text(directory).unwrap(), "document\npkcs7\nrsa2048\nsignature");
    for name in ["pkcs7", "rsa2048", "signature"] {
        let path = format!("{directory}/{name}/");
        assert!(text(&path).is_some_and(|base64| !base64.contains('{')), "{name}");
        assert_eq!(get_text(&node1(), &path), None, "{name}");
    }
}

#[test]
fn raw_keys_are_served_to_old_clients_in_their_version_only() {
    let machine = Machine { raw_keys: true, ..node1() };
    let key = machine.ssh_keys()[0].to_owned();
    assert_eq!(get_text(&machine, "/2009-04-04/meta-data/public-keys"), Some(key));
    assert_eq!(meta_data(&machine, "public-keys").as_deref(), Some("0=user@host"));
    let listing = get_text(&machine, "/2009-04-04/meta-data/").unwrap();
    assert!(listing.lines().any(|name| name == "public-keys"), "{listing}");
}

#[test]
fn derived_ids_have_seventeen_digits() {
    let id = meta_data(&node1(), "reservation-id").unwrap();
    assert_eq!((id.len(), id.get(..2)), (19, Some("r-")));
    assert_eq!(meta_data(&node2(), "reservation-id"), None);
}

#[test]
fn only_user_data_and_keys_are_secret() {
    let secret = |path| is_secret(&Path::parse(path).unwrap().segments());
    assert!(secret("/latest/user-data/") && secret("/1.0/meta-data/public-keys/0/openssh-key"));
    assert!(!secret("/latest/meta-data/hostname") && !secret("/user-data-of-mine"));
}

/// Follows every listing below the directory `path` as cloud-init does, and collects the fetched paths.
fn crawl(machine: &Machine, path: &str, seen: &mut Vec<String>) {
    let plain = get_bytes(machine, path.trim_end_matches('/'));
    let body = get_bytes(machine, path).unwrap_or_else(|| panic!("{path} is listed but not found"));
    assert_eq!(plain.as_ref(), Some(&body), "{path} without its slash");
    seen.push(path.to_owned());
    if !path.ends_with('/') || path.ends_with("/public-keys/") {
        assert_eq!(get_bytes(machine, &format!("{path}/")), Some(body), "{path} with a slash");
        return;
    }
    let listing = String::from_utf8(body.to_vec()).unwrap();
    for name in listing.split(breaks_lines).map(str::trim) {
        assert!(!name.is_empty(), "{path} lists {listing:?}");
        crawl(
            machine,
            &format!("{path}{}", percent_encoding::utf8_percent_encode(name, UNESCAPED)),
            seen,
        );
    }
}

fn get_bytes(machine: &Machine, path: &str) -> Option<Bytes> {
    Some(get(machine, &Path::parse(path)?.segments(), None)?.bytes)
}

/// True for a line separator of Python's `splitlines`.
fn breaks_lines(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The characters that Python's `quote(…, safe="/:")` does not escape.
const UNESCAPED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b':')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

proptest! {
    #[test]
    fn every_listed_path_is_found(machine in any_machine()) {
        for version in ["latest", "2009-04-04"] {
            let mut seen = Vec::new();
            crawl(&machine, &format!("/{version}/meta-data/"), &mut seen);
            crawl(&machine, &format!("/{version}/dynamic/"), &mut seen);
            let instance_id = format!("/{version}/meta-data/instance-id");
            prop_assert!(seen.contains(&instance_id));
            prop_assert!(seen.len() >= 15, "{:?}", seen);
        }
    }

    #[test]
    fn any_path_can_be_requested(machine in any_machine(), path: String) {
        let _either = Path::parse(&path).and_then(|path| get(&machine, &path.segments(), None));
    }
}

#[test]
fn the_reference_page_has_the_rows_of_the_table() {
    let page = include_str!("../../../../docs/reference/ec2-metadata.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|line| Some((line.split_once('`')?.0, line.rsplit('|').nth(1)?)));
    let mut documented: Vec<_> =
        rows.map(|(path, only)| (path.to_owned(), only.trim().to_owned())).collect();
    let mut served: Vec<_> = TABLE.into_iter().flatten().map(Row::reference).collect();
    documented.sort();
    served.sort();
    assert_eq!(documented, served);
}
