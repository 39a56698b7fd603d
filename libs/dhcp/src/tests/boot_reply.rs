//! The words for the boot part of a reply.

use super::*;

const DECISION: &str = "its instance is active";

/// Returns the reply to a DISCOVER with the architecture `number`, if the decision is `offer`.
fn reply_for(number: u16, boot_file: Option<&str>, offer: BootOffer) -> Reply {
    let own = Reservation { boot_file: boot_file.map(str::to_owned), ..reservation() };
    let discover = pxe(MessageType::Discover, number);
    reply_to(&discover, broadcast(), Some(&own), &link(), offer).unwrap()
}

#[test]
fn an_offer_names_its_file_or_menu_and_has_no_refusal() {
    for (number, file) in [(7, "file snponly.efi"), (41, "boot menu")] {
        let reply = reply_for(number, None, BootOffer::Offered);
        assert_eq!((reply.boot.label(), reply.boot.is_offered()), ("offered", true));
        assert_eq!((&*reply.boot_file_label(), reply.boot.refusal(DECISION)), (file, None));
    }
}

#[test]
fn a_refusal_has_its_reason_and_is_no_offer() {
    let named = "its record names the boot file netboot-not-allowed, which never exists";
    for (reply, reason, no_loader) in [
        (reply_for(7, None, BootOffer::Refused), DECISION, vec![]),
        (reply_for(7, Some(REFUSED_FILE), BootOffer::Offered), named, vec![]),
        (reply_for(12, None, BootOffer::Offered), "no loader for architecture 12", vec![12]),
    ] {
        assert_eq!((reply.boot.label(), reply.boot.is_offered()), ("refused", false));
        assert_eq!(reply.boot.refusal(DECISION).as_deref(), Some(reason));
        assert_eq!(reply.boot.no_loader(), no_loader);
    }
}

#[test]
fn a_client_that_does_not_boot_is_refused_nothing() {
    let own = Reservation { tftp_server: Some("192.0.2.9".into()), ..reservation() };
    for kind in [MessageType::Discover, MessageType::Request] {
        let ordinary = with(packet(kind), &[(50, &OURS.octets())]);
        let reply = reply_to(&ordinary, broadcast(), Some(&own), &link(), BootOffer::Refused);
        let reply = reply.unwrap();
        assert_eq!((reply.boot.label(), reply.boot.refusal(DECISION)), ("none", None));
        assert_eq!([43, 60, 66, 67].map(|code| reply.packet.options.get(code)), [None; 4]);
    }
}
