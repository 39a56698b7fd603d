//! The gate of an outside platform, which allows or refuses boots of its machines.

use std::net::IpAddr;

use tinwright::instance::v1::BootGate;
use uuid::Uuid;

use crate::Mac;

/// The rule of a gate that is not open.
pub const NOT_OPEN: &str = "the platform allows no boot";

/// The gate of a platform's system that has none yet.
pub static CLOSED: BootGate = BootGate {
    open: false,
    uuid: String::new(),
    mac: String::new(),
    initial_ips: Vec::new(),
    open_time: None,
};

/// Identity that a machine presents.
#[derive(Clone, Copy, Debug)]
pub struct PresentedIdentity<'a> {
    /// SMBIOS UUID in the script request; none if it was not requested yet.
    pub uuid: Option<&'a str>,
    /// SMBIOS UUID that its firmware sent by DHCP (option 97).
    pub dhcp_uuid: Option<[u8; 16]>,
    /// Interface that it boots from.
    pub mac: Mac,
    /// Address that the request comes from.
    pub source: IpAddr,
}

/// Evaluates `gate`. Every value that the gate names must match; others are ignored. True if the machine has to present its
/// UUID first; the error is the rule that closes the gate.
pub fn asks_uuid(gate: &BootGate, presented: &PresentedIdentity<'_>) -> Result<bool, &'static str> {
    evaluate_place(gate, presented)?;
    if gate.uuid.is_empty() { Ok(false) } else { evaluate_uuid(&gate.uuid, presented) }
}

/// Evaluates all of `gate` but its UUID.
pub fn evaluate_place(
    gate: &BootGate,
    presented: &PresentedIdentity<'_>,
) -> Result<(), &'static str> {
    if !gate.open {
        return Err(NOT_OPEN);
    }
    if !gate.mac.is_empty() && gate.mac.parse() != Ok(presented.mac) {
        return Err("the platform allows another Ethernet address");
    }
    let from =
        |address: &String| address.parse::<IpAddr>().is_ok_and(|own| own == presented.source);
    if !gate.initial_ips.is_empty() && !gate.initial_ips.iter().any(from) {
        return Err("the platform allows other source addresses");
    }
    Ok(())
}

fn evaluate_uuid(expected: &str, presented: &PresentedIdentity<'_>) -> Result<bool, &'static str> {
    let Ok(expected) = expected.parse::<Uuid>() else {
        return Err("the platform's UUID cannot be read");
    };
    // Firmware before SMBIOS 2.6 leaves the byte order of the first three groups open: either is the same machine.
    let either = |uuid: Uuid| uuid == expected || Uuid::from_bytes_le(*uuid.as_bytes()) == expected;
    if presented.dhcp_uuid.is_some_and(|sent| !either(Uuid::from_bytes(sent))) {
        return Err("the UUID differs from the one sent by DHCP");
    }
    match presented.uuid.map(str::parse::<Uuid>) {
        None => Ok(true),
        Some(Ok(uuid)) if either(uuid) => Ok(false),
        Some(Ok(_) | Err(_)) => Err("the platform allows another UUID"),
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
            open_time: None,
        }
    }

    fn shown(uuid: Option<&str>) -> PresentedIdentity<'_> {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        PresentedIdentity { uuid, dhcp_uuid: None, mac, source: [192, 0, 2, 10].into() }
    }

    fn closed(gate: &BootGate, shown: &PresentedIdentity<'_>) -> bool {
        asks_uuid(gate, shown).is_err()
    }

    #[test]
    fn a_full_match_opens_and_the_uuid_is_asked_for_first() {
        assert_eq!(asks_uuid(&gate(), &shown(None)), Ok(true));
        assert_eq!(asks_uuid(&gate(), &shown(Some(UUID))), Ok(false));
        assert_eq!(asks_uuid(&gate(), &shown(Some(&UUID.to_uppercase()))), Ok(false));
    }

    #[test]
    fn any_mismatch_closes_it() {
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
    fn a_uuid_matches_in_either_byte_order() {
        let swapped = Uuid::from_bytes_le(*UUID.parse::<Uuid>().unwrap().as_bytes());
        assert_eq!(asks_uuid(&gate(), &shown(Some(&swapped.to_string()))), Ok(false));
        let dhcp_uuid = Some(*swapped.as_bytes());
        assert_eq!(
            asks_uuid(&gate(), &PresentedIdentity { dhcp_uuid, ..shown(Some(UUID)) }),
            Ok(false)
        );
    }

    #[test]
    fn values_that_the_gate_does_not_name_are_ignored() {
        let open = BootGate { open: true, ..BootGate::default() };
        assert_eq!(asks_uuid(&open, &shown(None)), Ok(false));
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
