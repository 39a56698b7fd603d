//! Client classes, and the boot file or refusal that each gets (docs/reference/dhcp.md).

use super::*;

const DISCOVER: MessageType = MessageType::Discover;

fn refuse(request: &Packet) -> Packet {
    reply_to(request, broadcast(), Some(&reservation()), &link(), BootOffer::Refused)
        .unwrap()
        .packet
}

fn text(packet: &Packet, code: u8) -> Option<&str> {
    packet.options.get(code).map(|value| std::str::from_utf8(value).unwrap())
}

#[test]
fn clients_are_classified_by_their_options() {
    type RawOptions<'a> = &'a [(u8, &'a [u8])];
    let link = Link { custom_user_class: Some("Tinwright".into()), ..link() };
    let class = |options: RawOptions<'_>| {
        Request::new(with(packet(DISCOVER), options), broadcast(), &link).unwrap().class
    };
    let rows: [(RawOptions<'_>, ClientClass); 15] = [
        (&[], ClientClass::Ordinary),
        (&[(60, b"PXEClient:Arch:00000:UNDI:002001")], ClientClass::Pxe),
        (&[(60, b"HTTPClient:Arch:00016:UNDI:003001")], ClientClass::Http),
        (&[(60, b"udhcp 1.35.0")], ClientClass::Ordinary),
        (&[(77, b"iPXE")], ClientClass::Ipxe { http: false }),
        (&[(77, b"\x01x\x04iPXE")], ClientClass::Ipxe { http: false }),
        (&[(77, b"iPXE\0")], ClientClass::Ipxe { http: false }),
        (&[(77, b"\x05iPXE\0\0")], ClientClass::Ipxe { http: false }),
        (&[(93, &[0, 7])], ClientClass::Pxe),
        (&[(93, &[0, 16])], ClientClass::Http),
        (&[(60, b"udhcp 1.35.0"), (93, &[0, 7])], ClientClass::Ordinary),
        (&[(93, &[7])], ClientClass::Ordinary),
        (&[(60, b"PXEClient"), (175, b"\x13\x01\x01")], ClientClass::Ipxe { http: true }),
        (&[(175, b"")], ClientClass::Ipxe { http: false }),
        (&[(77, b"Tinwright")], ClientClass::Ipxe { http: true }),
    ];
    for (options, expected) in rows {
        assert_eq!(class(options), expected, "{options:?}");
    }
}

#[test]
fn without_option_93_the_architecture_is_that_of_the_vendor_class_or_the_default() {
    type RawOptions<'a> = &'a [(u8, &'a [u8])];
    let rows: [(RawOptions<'_>, &[u16]); 10] = [
        (&[(60, b"PXEClient:Arch:00007"), (93, &[0, 0, 0, 11, 9])], &[0, 11]),
        (&[(60, b"PXEClient:Arch:00007:UNDI:003016")], &[7]),
        (&[(60, b"PXEClient:Arch:00007:UNDI:003016"), (93, &[7])], &[7]),
        (&[(60, b"PXEClient:Arch:00000:UNDI:002001")], &[0]),
        (&[(60, b"PXEClient")], &[0]),
        (&[(60, b"PXEClient"), (93, b"")], &[0]),
        (&[(60, b"HTTPClient:Arch:00019:UNDI:003001")], &[19]),
        (&[(60, b"HTTPClient")], &[16]),
        (&[(60, b"PXEClient:Arch:00007"), (77, b"iPXE")], &[]),
        (&[(60, b"MSFT 5.0")], &[]),
    ];
    for (options, expected) in rows {
        let request = request(&with(packet(DISCOVER), options));
        assert_eq!(request.architectures()[..], *expected, "{options:?}");
    }
}

#[test]
fn firmware_without_an_architecture_gets_the_loader_of_x86_bios() {
    let silent = with(packet(DISCOVER), &[(60, b"PXEClient:Arch:00000:UNDI:002001")]);
    for request in [silent.clone(), with(silent, &[(93, &[0])])] {
        let reply = ask(&request).unwrap();
        assert_eq!((file(&reply.packet), reply.boot), ("undionly.kpxe", BootReply::Offered));
    }
}

#[test]
fn a_malformed_uuid_is_ignored() {
    let uuid = |value: &[u8]| request(&with(packet(DISCOVER), &[(97, value)])).uuid();
    assert_eq!(uuid(&[0; 17]), Some([0; 16]));
    assert_eq!([uuid(&[1; 17]), uuid(&[0; 16]), uuid(&[0; 18]), uuid(&[])], [None; 4]);
}

#[test]
fn firmware_is_sent_to_the_loader_of_its_architecture() {
    for (architecture, loader) in [(0, "undionly.kpxe"), (7, "snponly.efi"), (9, "snponly.efi")] {
        let packet = ask(&pxe(DISCOVER, architecture)).unwrap().packet;
        assert_eq!((file(&packet), text(&packet, 67)), (loader, Some(loader)));
        assert_eq!((packet.siaddr, text(&packet, 66)), (US, Some("198.51.100.1")));
        assert_eq!(
            (text(&packet, 60), packet.options.get(43)),
            (Some("PXEClient"), Some(&[6, 1, 8][..]))
        );
    }
}

#[test]
fn http_firmware_is_sent_to_a_url() {
    let packet = ask(&http(DISCOVER)).unwrap().packet;
    assert_eq!(file(&packet), "http://198.51.100.1:7080/ipxe/52-54-00-00-00-01/snponly.efi");
    assert_eq!((text(&packet, 60), packet.options.get(43)), (Some("HTTPClient"), None));
}

#[test]
fn ipxe_is_sent_to_its_script_and_never_to_a_loader() {
    let packet = ask(&ipxe(DISCOVER)).unwrap().packet;
    assert_eq!(file(&packet), "http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe");
    assert_eq!(packet.options.get(175), Some(&[176, 1, 1][..]));
    let plain = with(pxe(DISCOVER, 0), &[(77, b"iPXE")]);
    assert_eq!(
        file(&ask(&plain).unwrap().packet),
        "tftp://198.51.100.1/52-54-00-00-00-01/auto.ipxe"
    );
}

#[test]
fn a_record_may_name_its_own_server_and_file() {
    let (tftp_server, boot_file) = (Some("192.0.2.9".into()), Some("x/grub.efi".into()));
    let machine = Reservation { tftp_server, boot_file, ..reservation() };
    let packet = ask_as(&pxe(DISCOVER, 7), broadcast(), &machine, &link()).unwrap().packet;
    assert_eq!((file(&packet), packet.siaddr), ("x/grub.efi", Ipv4Addr::new(192, 0, 2, 9)));
    assert_eq!(
        (text(&packet, 60), packet.options.get(43)),
        (Some("PXEClient"), Some(&[6, 1, 8][..]))
    );
    let ordinary = ask_as(&super::packet(DISCOVER), broadcast(), &machine, &link()).unwrap().packet;
    assert_eq!((text(&ordinary, 66), text(&ordinary, 67)), (Some("192.0.2.9"), Some("x/grub.efi")));
}

#[test]
fn an_ordinary_client_gets_no_boot_options() {
    let packet = ask(&packet(DISCOVER)).unwrap().packet;
    assert_eq!([43, 60, 66, 67, 150, 175].map(|code| packet.options.get(code)), [None; 6]);
    assert_eq!((packet.siaddr, file(&packet)), (Ipv4Addr::UNSPECIFIED, ""));
}

#[test]
fn a_file_name_longer_than_its_field_is_never_cut() {
    let long = format!("http://198.51.100.1/{}", "x".repeat(108));
    for (name, in_header) in [(&long[..127], &long[..127]), (&long[..], "")] {
        let machine = Reservation { boot_file: Some(name.into()), ..reservation() };
        let packet = ask_as(&pxe(DISCOVER, 7), broadcast(), &machine, &link()).unwrap().packet;
        assert_eq!((file(&packet), text(&packet, 67)), (in_header, Some(name)));
    }
}

#[test]
fn refused_firmware_is_sent_to_a_file_that_never_exists() {
    let packet = refuse(&pxe(DISCOVER, 7));
    assert_eq!((file(&packet), packet.siaddr), ("netboot-not-allowed", US));
    assert_eq!(
        (text(&packet, 60), packet.options.get(43)),
        (Some("PXEClient"), Some(&[6, 1, 8][..]))
    );
    assert_eq!(packet.yiaddr, OURS);
}

#[test]
fn refused_http_firmware_is_sent_to_a_url_that_never_exists() {
    let packet = refuse(&http(DISCOVER));
    assert_eq!(file(&packet), "http://198.51.100.1:7080/netboot-not-allowed");
    assert_eq!(text(&packet, 60), Some("HTTPClient"));
}

#[test]
fn refused_ipxe_gets_no_file_and_does_not_wait() {
    let packet = refuse(&ipxe(DISCOVER));
    assert_eq!(
        (file(&packet), text(&packet, 67), packet.siaddr),
        ("", None, Ipv4Addr::UNSPECIFIED)
    );
    assert_eq!(
        (text(&packet, 60), packet.options.get(175)),
        (Some("PXEClient"), Some(&[176, 1, 1][..]))
    );
}

#[test]
fn no_record_overrides_a_refusal() {
    let machine = Reservation {
        boot_file: Some("x.efi".into()),
        loader: Some("snponly.efi".into()),
        ..reservation()
    };
    for request in [pxe(DISCOVER, 7), http(DISCOVER), ipxe(DISCOVER), packet(DISCOVER)] {
        let refused = reply_to(&request, broadcast(), Some(&machine), &link(), BootOffer::Refused);
        let packet = refused.unwrap().packet;
        let file = file(&packet);
        assert!(file.is_empty() || file.ends_with(REFUSED_FILE), "{file}");
        assert_eq!(text(&packet, 67).unwrap_or_default(), file);
    }
}

#[test]
fn an_architecture_without_a_loader_is_refused_and_reported() {
    let reply = ask(&pxe(DISCOVER, 11)).unwrap();
    assert_eq!(file(&reply.packet), REFUSED_FILE);
    let missing = Some("ipxe-arm64.efi".to_owned());
    let reason = NoLoader { architectures: vec![11], missing };
    assert_eq!(reply.boot, BootReply::Refused(RefusalReason::NoLoader(reason)));
}

#[test]
fn a_reply_says_what_it_tells_the_client_to_boot() {
    let boot = |request: &Packet, machine: &Reservation, offer| {
        reply_to(request, broadcast(), Some(machine), &link(), offer).unwrap().boot
    };
    let own = |file: &str| Reservation { boot_file: Some(file.into()), ..reservation() };
    let (offered, refused) = (BootOffer::Offered, BootReply::Refused(RefusalReason::NotAllowed));
    assert_eq!(boot(&pxe(DISCOVER, 7), &reservation(), offered), BootReply::Offered);
    for offer in [offered, BootOffer::Refused] {
        assert_eq!(boot(&packet(DISCOVER), &reservation(), offer), BootReply::Absent);
    }
    assert_eq!(boot(&packet(DISCOVER), &own("x"), offered), BootReply::Offered);
    for request in [pxe(DISCOVER, 7), http(DISCOVER), ipxe(DISCOVER), packet(DISCOVER)] {
        assert_eq!(boot(&request, &own("x"), BootOffer::Refused), refused);
        let named = boot(&request, &own(REFUSED_FILE), offered);
        assert_eq!(named, BootReply::Refused(RefusalReason::RefusedFile));
    }
    let rom = with(ipxe(DISCOVER), &[(93, &[0, 0])]);
    assert_eq!(boot(&rom, &reservation(), BootOffer::Chainload), BootReply::Chainload);
    assert_eq!(boot(&ipxe(DISCOVER), &reservation(), BootOffer::Chainload), BootReply::Offered);
    let nak = with(packet(MessageType::Request), &[(50, &OTHER.octets())]);
    assert_eq!(boot(&nak, &reservation(), offered), BootReply::Absent);
}

#[test]
fn a_raspberry_pi_gets_its_boot_menu() {
    let mut rom = pxe(DISCOVER, 0);
    rom.chaddr[..3].copy_from_slice(&[0xdc, 0xa6, 0x32]);
    let packet = ask(&rom).unwrap().packet;
    let menu = packet.options.get(43).unwrap();
    assert_eq!(sub_option(menu, 9), Some(&b"\0\0\x11Raspberry Pi Boot"[..]));
    assert_eq!((sub_option(menu, 10), packet.siaddr), (Some(&b"\0PXE"[..]), US));
    let mut uefi = pxe(DISCOVER, 11);
    uefi.chaddr = rom.chaddr;
    assert_eq!(file(&ask(&uefi).unwrap().packet), REFUSED_FILE);
}

#[test]
fn the_path_of_the_loader_may_contain_the_mac() {
    let link = Link { mac_in_path: true, ..link() };
    let packet = ask_as(&pxe(DISCOVER, 7), broadcast(), &reservation(), &link).unwrap().packet;
    assert_eq!(file(&packet), "52-54-00-00-00-01/snponly.efi");
}

/// Returns the reply to `request` if iPXE is treated as a NIC's firmware.
fn chainload(request: &Packet, link: &Link) -> Packet {
    let machine = reservation();
    let offer = BootOffer::Chainload;
    reply_to(request, broadcast(), Some(&machine), link, offer).unwrap().packet
}

#[test]
fn ipxe_that_is_firmware_is_sent_to_a_loader_like_other_firmware() {
    let rom = |architecture: &[u8; 2]| with(ipxe(DISCOVER), &[(93, architecture)]);
    assert_eq!(file(&chainload(&rom(&[0, 0]), &link())), "undionly.kpxe");
    let packet = chainload(&rom(&[0, 7]), &link());
    assert_eq!(
        (file(&packet), packet.siaddr, text(&packet, 60)),
        ("snponly.efi", US, Some("PXEClient"))
    );
    let link = Link { mac_in_path: true, custom_user_class: Some("Tinwright".into()), ..link() };
    assert_eq!(file(&chainload(&rom(&[0, 0]), &link)), "52-54-00-00-00-01/undionly.kpxe");
}

#[test]
fn the_sites_own_ipxe_and_one_without_a_loader_are_sent_to_the_script() {
    const SCRIPT: &str = "http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe";
    let link = Link { custom_user_class: Some("Tinwright".into()), ..link() };
    let ours = with(ipxe(DISCOVER), &[(93, &[0, 0]), (77, b"Tinwright")]);
    for request in [ours, ipxe(DISCOVER), with(ipxe(DISCOVER), &[(93, &[0, 11])])] {
        assert_eq!(file(&chainload(&request, &link)), SCRIPT);
    }
}

/// Returns a link whose site has all loaders.
fn everything() -> Link {
    let mut link = link();
    let all = architecture::LOADERS.iter().map(|(loader, _)| (*loader).to_owned());
    link.loaders.present = all.collect();
    link
}

#[test]
fn every_architecture_with_a_loader_gets_it_and_the_others_are_refused() {
    let numbers = architecture::REGISTERED;
    for number in numbers.filter(|number| *number != architecture::RASPBERRY_PI) {
        let asked = ask_as(&pxe(DISCOVER, number), broadcast(), &reservation(), &everything());
        let (reply, loader) = (asked.unwrap(), architecture::default_loader(number));
        assert_eq!(file(&reply.packet), loader.unwrap_or(REFUSED_FILE), "{number}");
        assert_eq!(reply.boot == BootReply::Offered, loader.is_some(), "{number}");
    }
}

#[test]
fn an_unregistered_architecture_is_refused_and_reported() {
    let reply = ask_as(&pxe(DISCOVER, 4711), broadcast(), &reservation(), &everything()).unwrap();
    assert_eq!(file(&reply.packet), REFUSED_FILE);
    let reason = NoLoader { architectures: vec![4711], missing: None };
    assert_eq!(reply.boot, BootReply::Refused(RefusalReason::NoLoader(reason)));
}

#[test]
fn of_several_architectures_the_first_with_a_loader_counts() {
    let request = with(pxe(DISCOVER, 0), &[(93, &[0, 12, 0, 11, 0, 7, 0, 0])]);
    let reply = ask(&request).unwrap();
    assert_eq!((file(&reply.packet), reply.boot), ("snponly.efi", BootReply::Offered));
}

#[test]
fn u_boot_is_classified_by_its_architecture_whatever_its_vendor_class() {
    let u_boot =
        |architecture| with(packet(DISCOVER), &[(60, b"U-Boot.armv8"), (93, &[0, architecture])]);
    let ask = |architecture| {
        ask_as(&u_boot(architecture), broadcast(), &reservation(), &everything()).unwrap().packet
    };
    assert_eq!([file(&ask(21)), file(&ask(22))], ["ipxe-arm32.efi", "ipxe-arm64.efi"]);
    let by_http = ask(24);
    assert_eq!(file(&by_http), "http://198.51.100.1:7080/ipxe/52-54-00-00-00-01/ipxe-arm64.efi");
    assert_eq!((ask(22).siaddr, text(&by_http, 60)), (US, Some("HTTPClient")));
}

#[test]
fn a_raspberry_pi_with_its_own_architecture_needs_no_known_vendor() {
    let packet = ask(&pxe(DISCOVER, 41)).unwrap().packet;
    assert_eq!((packet.siaddr, text(&packet, 66)), (US, Some("198.51.100.1")));
    assert!(sub_option(packet.options.get(43).unwrap(), 9).is_some());
    assert_eq!((file(&packet), refuse(&pxe(DISCOVER, 41)).siaddr), ("", US));
    assert_eq!(file(&refuse(&pxe(DISCOVER, 41))), REFUSED_FILE);
}

#[test]
fn a_site_may_serve_another_loader_for_an_architecture() {
    let mut link = everything();
    link.loaders.instead.insert(7, "ipxe-arm64.efi".into());
    let packet = ask_as(&pxe(DISCOVER, 7), broadcast(), &reservation(), &link).unwrap().packet;
    assert_eq!(file(&packet), "ipxe-arm64.efi");
}
