//! The gate of an outside platform: which boot it allows (netboot specification, section 9, G5).

use std::net::IpAddr;

use tinwright::instance::v1::BootGate;
use uuid::Uuid;

use crate::Mac;

/// What a machine shows of itself.
#[derive(Clone, Copy, Debug)]
pub struct PresentedIdentity<'a> {
    /// The SMBIOS UUID, as its script request has it; none where the request was not yet told to have one.
    pub uuid: Option<&'a str>,
    /// The same as its firmware put it into DHCP (option 97), if it did.
    pub dhcp_uuid: Option<[u8; 16]>,
    /// The interface it boots by.
    pub mac: Mac,
    /// Where it asks from.
    pub source: IpAddr,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may boot.
    Open,
    /// It has to show its UUID first.
    AskUuid,
    /// It may not, by this rule.
    Closed(&'static str),
}

/// Whether `gate` lets through what shows itself so. Of what the gate names everything must match; what is shown besides is
/// not looked at.
pub fn judge(gate: &BootGate, shown: &PresentedIdentity<'_>) -> Verdict {
    if !gate.open {
        return Verdict::Closed("the platform allows no boot");
    }
    if !gate.mac.is_empty() && gate.mac.parse() != Ok(shown.mac) {
        return Verdict::Closed("the platform allows another Ethernet address");
    }
    let from = |address: &String| address.parse::<IpAddr>().is_ok_and(|own| own == shown.source);
    if !gate.initial_ips.is_empty() && !gate.initial_ips.iter().any(from) {
        return Verdict::Closed("the platform allows other source addresses");
    }
    if gate.uuid.is_empty() { Verdict::Open } else { judge_uuid(&gate.uuid, shown) }
}

fn judge_uuid(expected: &str, shown: &PresentedIdentity<'_>) -> Verdict {
    let Ok(expected) = expected.parse::<Uuid>() else {
        return Verdict::Closed("the platform's UUID cannot be read");
    };
    // Firmware before SMBIOS 2.6 leaves the byte order of the first three groups open: either is the same machine.
    let either = |uuid: Uuid| uuid == expected || Uuid::from_bytes_le(*uuid.as_bytes()) == expected;
    if shown.dhcp_uuid.is_some_and(|sent| !either(Uuid::from_bytes(sent))) {
        return Verdict::Closed("DHCP was asked with another UUID");
    }
    match shown.uuid.map(str::parse::<Uuid>) {
        None => Verdict::AskUuid,
        Some(Ok(uuid)) if either(uuid) => Verdict::Open,
        Some(Ok(_) | Err(_)) => Verdict::Closed("the platform allows another UUID"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

    fn gate() -> BootGate {
        BootGate {
            open: true,
            uuid: UUID.into(),
            mac: "02:00:00:00:00:01".into(),
            initial_ips: vec!["192.0.2.10".into(), "192.0.2.11".into()],
        }
    }

    fn shown(uuid: Option<&str>) -> PresentedIdentity<'_> {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        PresentedIdentity { uuid, dhcp_uuid: None, mac, source: [192, 0, 2, 10].into() }
    }

    fn closed(gate: &BootGate, shown: &PresentedIdentity<'_>) -> bool {
        matches!(judge(gate, shown), Verdict::Closed(_))
    }

    #[test]
    fn what_matches_in_everything_passes_and_the_uuid_is_asked_for_first() {
        assert_eq!(judge(&gate(), &shown(None)), Verdict::AskUuid);
        assert_eq!(judge(&gate(), &shown(Some(UUID))), Verdict::Open);
        assert_eq!(judge(&gate(), &shown(Some(&UUID.to_uppercase()))), Verdict::Open);
    }

    #[test]
    fn any_one_thing_that_is_other_closes_it() {
        let good = shown(Some(UUID));
        assert!(closed(&BootGate { open: false, ..gate() }, &good));
        assert!(closed(&gate(), &PresentedIdentity { mac: Mac([2, 0, 0, 0, 0, 2]), ..good }));
        assert!(closed(&gate(), &PresentedIdentity { source: [192, 0, 2, 12].into(), ..good }));
        for uuid in ["", "${uuid}", "00112233-4455-6677-8899-aabbccddeefe"] {
            assert!(closed(&gate(), &shown(Some(uuid))), "{uuid}");
        }
        let mut sent = *UUID.parse::<Uuid>().unwrap().as_bytes();
        sent[15] ^= 1;
        assert!(closed(&gate(), &PresentedIdentity { dhcp_uuid: Some(sent), ..good }));
    }

    #[test]
    fn a_uuid_counts_in_either_byte_order() {
        let swapped = Uuid::from_bytes_le(*UUID.parse::<Uuid>().unwrap().as_bytes());
        assert_eq!(judge(&gate(), &shown(Some(&swapped.to_string()))), Verdict::Open);
        let dhcp_uuid = Some(*swapped.as_bytes());
        assert_eq!(
            judge(&gate(), &PresentedIdentity { dhcp_uuid, ..shown(Some(UUID)) }),
            Verdict::Open
        );
    }

    #[test]
    fn what_is_not_named_is_not_looked_at() {
        let open = BootGate { open: true, ..BootGate::default() };
        assert_eq!(judge(&open, &shown(None)), Verdict::Open);
        assert!(closed(&BootGate::default(), &shown(Some(UUID))), "the default is closed");
    }

    proptest! {
        #[test]
        fn nothing_but_its_uuid_opens_it(uuid in "[0-9a-f-]{0,40}") {
            prop_assume!(uuid.parse() != UUID.parse::<Uuid>());
            prop_assert!(closed(&gate(), &shown(Some(&uuid))));
        }
    }
}
