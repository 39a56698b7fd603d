//! The stored form of instances, and refused fields.

use super::*;
use pb::Instance;
use pb::instance::ip::{Family, Flag};
use pb::instance::{CustomIpxe, Ip, OperatingSystem, Os};
use proptest::prelude::*;

const MACHINE: &str = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";

fn instance() -> Instance {
    Instance { hardware_id: MACHINE.into(), ..Instance::default() }
}

fn ip(address: &str, prefix_length: u32, gateway: &str) -> Instance {
    let ip =
        Ip { address: address.into(), prefix_length, gateway: gateway.into(), ..Ip::default() };
    Instance { ips: vec![ip], ..instance() }
}

fn refused(instance: Instance) -> String {
    normalize(instance).unwrap_err().to_string()
}

#[test]
fn a_record_is_stored_in_canonical_form() {
    let stored = normalize(Instance {
        hardware_id: MACHINE.to_uppercase(),
        hostname: "Web-1.Example.ORG".into(),
        tags: ["b", "a", "b"].map(String::from).into(),
        ips: vec![Ip { flags: vec![2, 1, 2], ..ip("2001:DB8:0::7", 0, "").ips[0].clone() }],
        ..instance()
    })
    .unwrap();
    assert_eq!(
        (stored.hardware_id.as_str(), stored.hostname.as_str()),
        (MACHINE, "web-1.example.org")
    );
    assert_eq!(stored.tags, ["b", "a"]);
    let ip = &stored.ips[0];
    assert_eq!(
        (ip.address.as_str(), ip.prefix_length, ip.family()),
        ("2001:db8::7", 128, Family::V6)
    );
    assert_eq!(ip.flags, [Flag::Public as i32, Flag::Management as i32]);
}

#[test]
fn every_wrong_field_is_named_at_once() {
    let text = refused(Instance {
        hardware_id: "x".into(),
        hostname: "-a".into(),
        template_id: "debian".into(),
        tags: vec!["a\nb".into()],
        ssh_keys: vec!["ssh-dss AAAA".into()],
        userdata: "\0".into(),
        vendor_data: "\0".into(),
        network_config: "n".repeat(64 * 1024 + 1),
        ..ip("224.0.0.1", 24, "")
    });
    for field in [
        "vendor_data",
        "network_config",
        "hardware_id",
        "hostname",
        "template_id",
        "tags[0]",
        "ssh_keys[0]",
        "userdata",
        "ips[0].address",
    ] {
        assert!(text.contains(&format!("{field}: ")), "{field} in {text}");
    }
}

#[test]
fn a_root_disk_hint_is_stored_in_canonical_form_and_its_wrong_fields_are_named() {
    let hinted =
        |hint: &str| Instance { root_disk: Some(Box::new(hint.parse().unwrap())), ..instance() };
    let stored = normalize(hinted("serial= S1 ,medium=ssd")).unwrap();
    assert_eq!(stored.root_disk, hinted("serial=S1,medium=ssd").root_disk);
    let text = refused(hinted("min-size=2GB,max-size=1GB"));
    assert!(text.starts_with("root_disk.min_size_bytes: "), "{text}");
}

#[test]
fn a_boot_gate_is_stored_in_canonical_form() {
    use pb::BootGate;
    let gated = |uuid: &str, mac: &str, ips: &[&str]| Instance {
        boot_gate: Some(BootGate {
            open: true,
            uuid: uuid.into(),
            mac: mac.into(),
            initial_ips: ips.iter().copied().map(String::from).collect(),
            open_time: None,
        }),
        ..instance()
    };
    let given = gated(
        "4C4C4544-0042-3510-8054-B4C04F4D4E31",
        "0200.5E10.0001",
        &["::ffff:192.0.2.1", "192.0.2.1", "2001:DB8::1"],
    );
    let stored = gated(
        "4c4c4544-0042-3510-8054-b4c04f4d4e31",
        "02:00:5e:10:00:01",
        &["192.0.2.1", "2001:db8::1"],
    );
    assert_eq!(normalize(given).unwrap().boot_gate, stored.boot_gate);
    let closed = gated("", "", &[]);
    assert_eq!(normalize(closed.clone()).unwrap().boot_gate, closed.boot_gate);
    let text = refused(gated("x", "x", &["x"]));
    for field in ["boot_gate.uuid: ", "boot_gate.mac: ", "boot_gate.initial_ips[0]: "] {
        assert!(text.contains(field), "{field} in {text}");
    }
}

#[test]
fn a_record_of_valid_fields_may_be_too_long_in_total() {
    let most = "x".repeat(64 * 1024);
    let long = Instance {
        userdata: most.clone(),
        vendor_data: most.clone(),
        network_config: most.clone(),
        template_values: [("k".into(), "v".repeat(64 * 1024 - 16))].into(),
        extra: format!("{{\"k\": \"{}\"}}", "v".repeat(64 * 1024 - 16)).into_bytes(),
        os: Some(Os::CustomIpxe(CustomIpxe {
            contents: format!("#!ipxe\n{}", "x".repeat(64 * 1024 - 16)),
            ..CustomIpxe::default()
        })),
        ..instance()
    };
    assert!(normalize(long.clone()).is_ok());
    let tags = (0..128).map(|n| format!("{n:0>255}")).collect();
    let labels = (0..64).map(|n| (format!("{n:0>255}"), "v".repeat(255))).collect();
    let text = refused(Instance { tags, labels, ..long });
    assert!(text.starts_with("instance: has ") && text.contains("at most 458752"), "{text}");
}

#[test]
fn a_script_has_exactly_one_of_url_and_contents() {
    let script = |url: &str, contents: &str| Instance {
        os: Some(Os::CustomIpxe(CustomIpxe {
            url: url.into(),
            contents: contents.into(),
            always_pxe: true,
        })),
        ..instance()
    };
    assert!(normalize(script("tftp://192.0.2.1/boot", "")).is_ok());
    assert!(normalize(script("http://h/x?mac=${mac:hexhyp}&uuid=${uuid}", "")).is_ok());
    assert!(normalize(script("", "#!ipxe\nshell")).is_ok());
    for (url, contents, field) in [
        ("", "", "custom_ipxe.url: is empty"),
        ("http://h/x", "#!ipxe", "custom_ipxe.url: is set"),
        ("ftp://h/x", "", "custom_ipxe.url"),
        ("http://h/a b", "", "custom_ipxe.url"),
        ("http://h/${password}", "", "custom_ipxe.url"),
        ("", "#!/bin/sh", "custom_ipxe.contents"),
        ("", &format!("#!ipxe{}", "x".repeat(65536)), "custom_ipxe.contents"),
    ] {
        assert!(refused(script(url, contents)).starts_with(field), "{url} {contents:.20}");
    }
}

#[test]
fn operating_system_names_fit_a_path() {
    let system = |distro: &str, version: &str| Instance {
        os: Some(Os::OperatingSystem(OperatingSystem {
            distro: distro.into(),
            version: version.into(),
            tag: String::new(),
        })),
        ..instance()
    };
    assert!(normalize(system("debian", "13.2")).is_ok());
    for (distro, version, field) in [
        ("", "", "operating_system.distro"),
        ("Debian", "", "operating_system.distro"),
        (&"d".repeat(64), "", "operating_system.distro"),
        ("debian", "13 2", "operating_system.version"),
        ("debian", &"1".repeat(129), "operating_system.version"),
    ] {
        assert!(refused(system(distro, version)).starts_with(field), "{distro:?} {version:?}");
    }
}

#[test]
fn a_gateway_is_inside_its_prefix_where_the_prefix_has_room() {
    for (address, bits, gateway) in [
        ("192.0.2.7", 24, "192.0.2.1"),
        ("192.0.2.7", 31, "198.51.100.1"),
        ("192.0.2.7", 0, "198.51.100.1"),
        ("2001:db8::7", 64, "fe80::1"),
        ("2001:db8::7", 127, "2001:db8:1::1"),
    ] {
        assert!(normalize(ip(address, bits, gateway)).is_ok(), "{address}/{bits} {gateway}");
    }
    for (address, bits, gateway) in [
        ("192.0.2.7", 24, "192.0.3.1"),
        ("192.0.2.7", 30, "198.51.100.1"),
        ("192.0.2.7", 24, "169.254.0.1"),
        ("192.0.2.7", 32, "2001:db8::1"),
        ("2001:db8::7", 64, "2001:db8:1::1"),
    ] {
        assert!(
            refused(ip(address, bits, gateway)).starts_with("ips[0].gateway"),
            "{address} {gateway}"
        );
    }
}

#[test]
fn addresses_belong_to_hosts_of_their_family_and_are_unique() {
    assert!(refused(ip("192.0.2.7", 33, "")).starts_with("ips[0].prefix_length"));
    assert!(refused(ip("::", 64, "")).starts_with("ips[0].address"));
    let mut twice = ip("192.0.2.7", 24, "");
    twice.ips.push(ip("::ffff:192.0.2.7", 24, "").ips[0].clone());
    assert!(refused(twice).starts_with("ips[1].address: 192.0.2.7 is listed twice"));
    let mut other = ip("192.0.2.7", 24, "");
    other.ips[0].family = Family::V6.into();
    assert!(refused(other).starts_with("ips[0].family"));
}

#[test]
fn flags_are_combined_as_bits_and_other_bits_are_refused() {
    let flags = |flags: &[i32]| {
        let mut instance = ip("192.0.2.7", 24, "");
        instance.ips[0].flags = flags.into();
        normalize(instance).map(|stored| stored.ips[0].flags.clone())
    };
    assert_eq!(flags(&[3]), Ok(vec![1, 2]), "a peer's bit mask");
    assert_eq!(flags(&[0, 1, 1]), Ok(vec![1]));
    for wrong in [4, 5, -1] {
        assert!(flags(&[wrong]).is_err());
    }
}

#[test]
fn a_password_is_crypted_or_locked() {
    let password =
        |text: &str| normalize(Instance { crypted_root_password: text.into(), ..instance() });
    for right in
        ["", "*", "!", "$6$salt$hash", "$2b$12$abc", "$y$j9T$x", "$argon2id$v=19$x", "$7$x"]
    {
        assert!(password(right).is_ok(), "{right}");
    }
    for wrong in
        ["hunter2", "$6$", "$6$a:b", "$6$a\nb", "$9$x", "$2$x y", "$argon2", "**", "$2bbbb$x"]
    {
        let text = password(wrong).unwrap_err().to_string();
        assert!(text.starts_with("crypted_root_password: ") && !text.contains(wrong), "{wrong}");
    }
}

#[test]
fn user_data_and_tags_are_bounded() {
    let long = Instance { userdata: "x".repeat(65537), ..instance() };
    assert_eq!(refused(long), "userdata: has 65537 bytes, at most 65536 are allowed");
    let long = Instance { userdata_bytes: vec![0x1f; 65537], ..instance() };
    assert_eq!(refused(long), "userdata_bytes: has 65537 bytes, at most 65536 are allowed");
    let many = Instance { tags: (0..129).map(|n| n.to_string()).collect(), ..instance() };
    assert_eq!(refused(many), "tags: has 129 entries, at most 128 are allowed");
    assert!(refused(Instance { tags: vec![String::new()], ..instance() }).starts_with("tags[0]"));
    let values = [("k".to_owned(), "v".repeat(65536))].into();
    assert!(
        refused(Instance { template_values: values, ..instance() }).starts_with("template_values")
    );
}

#[test]
fn user_data_is_text_or_bytes_of_any_kind() {
    let gzip = Instance { userdata_bytes: vec![0x1f, 0x8b, 8, 0, 0xff], ..instance() };
    assert_eq!(normalize(gzip.clone()), Ok(gzip.clone()));
    let both = Instance { userdata: "#!/bin/sh".into(), ..gzip };
    let text = "userdata_bytes: is set together with userdata: set one of the two";
    assert_eq!(refused(both), text);
    let zero = Instance { userdata: "a\0".into(), ..instance() };
    assert_eq!(refused(zero), "userdata: has a zero byte: set userdata_bytes in its place");
}

#[test]
fn extra_is_one_json_object_beside_the_typed_fields() {
    let extra = |text: &str| normalize(Instance { extra: text.to_owned().into(), ..instance() });
    assert!(extra(r#"{"storage": {"disks": []}, "customdata": 1}"#).is_ok());
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(33), "]".repeat(33));
    for wrong in
        ["[]", "{", r#"{"a": 1, "a": 2}"#, &deep, r#"{"ssh_keys": []}"#, r#"{"sshKeys": []}"#]
    {
        let text = extra(wrong).unwrap_err().to_string();
        assert!(text.starts_with("extra: "), "{wrong}: {text}");
    }
    let secret = extra(r#"["hunter2"]"#).unwrap_err().to_string();
    assert!(!secret.contains("hunter2"), "{secret}");
}

proptest! {
    #[test]
    fn the_stored_form_is_its_own_stored_form(
        a: [u8; 4], bits in 0..40_u32, flags in proptest::collection::vec(0..4, 0..4),
        host in "[a-zA-Z0-9-]{0,9}", tags in proptest::collection::vec("[ab]{1,2}", 0..5),
    ) {
        let mut given = ip(&std::net::Ipv4Addr::from(a).to_string(), bits, "");
        given.ips[0].flags = flags;
        if let Ok(stored) = normalize(Instance { hostname: host, tags, ..given }) {
            prop_assert_eq!(normalize(stored.clone()), Ok(stored));
        }
    }

    #[test]
    fn no_text_breaks_the_checks(text in "\\PC*", bytes: Vec<u8>) {
        let given = Instance {
            hostname: text.clone(), crypted_root_password: text.clone(), extra: bytes,
            ssh_keys: vec![text.clone()], tags: vec![text.clone()], ..ip(&text, 24, &text)
        };
        let _verdict = normalize(given);
    }
}

fn platform(url: &str) -> Instance {
    let boot = pb::PlatformBoot { url: url.into(), ..Default::default() };
    Instance { os: Some(Os::Platform(boot)), ..instance() }
}

#[test]
fn the_url_of_a_platform_is_on_a_server_or_below_the_folder_of_its_files() {
    let with_settings = "https://x.example/a?u=${uuid}&m=${mac:hexhyp}";
    let plain = ["", "http://192.0.2.1/a.ipxe", "https://x.example/a?b=c", "/platform/a/b-1.ipxe"];
    for url in plain.into_iter().chain([with_settings]) {
        assert!(normalize(platform(url)).is_ok(), "{url}");
    }
    for url in [
        "tftp://192.0.2.1/a",
        "file:///etc/passwd",
        "platform/a",
        "/platform/",
        "/platform//a",
        "/platform/../key",
        "/platform/a/..",
        "/platform/./a",
        "/platform/%2e%2e/key",
        "/platform/a\nb",
        "/platform/a b",
        "/platform/a?b",
        "/platform/t/token",
        "/platforms/a",
        "/tinwright/a",
    ] {
        let text = refused(platform(url));
        assert!(text.contains("platform.url: "), "{url}: {text}");
    }
    let group = |group: String| {
        let boot = pb::PlatformBoot { group, ..Default::default() };
        normalize(Instance { os: Some(Os::Platform(boot)), ..instance() })
    };
    assert!(group("g".repeat(128)).is_ok() && group("g".repeat(129)).is_err());
}

#[test]
fn a_platform_excludes_a_template_a_reservation_and_a_gate_of_the_caller() {
    let template_id = "7e9d3a10-1f6c-4d0b-8d55-2a4c6b8e0f12".to_owned();
    let text = refused(Instance { template_id, ..platform("") });
    assert!(text.contains("template_id: is set together with platform"), "{text}");
    let text = refused(Instance { reserve_only: true, ..platform("") });
    assert!(text.contains("reserve_only: "), "{text}");
    let gated = Instance { boot_gate: Some(pb::BootGate::default()), ..platform("") };
    let text = check_order(&gated).unwrap_err().to_string();
    assert!(text.contains("boot_gate: is set by the server"), "{text}");
    let reserved = Instance { os: None, reserve_only: true, ..gated };
    assert!(check_order(&reserved).is_ok());
}

#[test]
fn an_order_of_nothing_is_refused() {
    let system = pb::instance::OperatingSystem { distro: "debian".into(), ..Default::default() };
    let named = Instance { os: Some(Os::OperatingSystem(system)), ..instance() };
    let nothing = Instance { os: None, template_id: String::new(), ..instance() };
    for order in [nothing.clone(), Instance { template_id: String::new(), ..named.clone() }] {
        let text = check_order(&order).unwrap_err().to_string();
        assert!(
            text.starts_with("template_id: is missing, so nothing would be installed"),
            "{text}"
        );
    }
    let template_id = "7e9d3a10-1f6c-4d0b-8d55-2a4c6b8e0f12".to_owned();
    assert!(check_order(&Instance { template_id, ..named }).is_ok());
    assert!(check_order(&Instance { reserve_only: true, ..nothing }).is_ok());
}

#[test]
fn a_stack_is_named_by_id_or_name_and_excludes_a_template_and_a_reservation() {
    let with_stack = |stack_id: &str| {
        let stack = pb::ImageStack { stack_id: stack_id.into() };
        Instance { os: Some(Os::ImageStack(stack)), ..instance() }
    };
    let template_id = "7e9d3a10-1f6c-4d0b-8d55-2a4c6b8e0f12".to_owned();
    for stack in ["web-1", &template_id] {
        assert!(normalize(with_stack(stack)).is_ok(), "{stack}");
    }
    for stack in ["", "Web", "a b", "-a"] {
        let text = refused(with_stack(stack));
        assert!(text.contains("image_stack.stack_id: "), "{stack}: {text}");
    }
    let text = refused(Instance { template_id, ..with_stack("web") });
    assert!(text.contains("template_id: is set together with image_stack"), "{text}");
    let text = refused(Instance { reserve_only: true, ..with_stack("web") });
    assert!(text.contains("reserve_only: "), "{text}");
}

#[test]
fn annotations_are_bounded_together_and_by_key() {
    let with = |key: &str, value: &str| {
        let annotations = [(key.to_owned(), value.to_owned())].into();
        normalize(Instance { annotations, ..instance() })
    };
    assert!(with("ial/extra", "{\"a\":\n1}").is_ok());
    assert!(with("k", &"v".repeat(16 * 1024 - 1)).is_ok());
    for (key, value) in
        [("k", "v".repeat(16 * 1024)), (&*"k".repeat(256), String::new()), ("", "v".into())]
    {
        let text = with(key, &value).unwrap_err().to_string();
        assert!(text.contains("annotations: ") && !text.contains("vvvv"), "{text}");
    }
    assert!(with("a\nb", "").is_err() && with("k", "\0").is_err());
}

#[test]
fn a_zone_needs_its_location() {
    let placed = |location_id: &str| {
        let (location_id, zone) = (location_id.to_owned(), "a".to_owned());
        let placement = pb::Placement { location_id, zone, ..Default::default() };
        normalize(Instance { placement: Some(Box::new(placement)), ..Default::default() })
    };
    assert!(placed("hall-1").is_ok());
    assert!(placed("").unwrap_err().to_string().contains("placement.zone: "));
}
