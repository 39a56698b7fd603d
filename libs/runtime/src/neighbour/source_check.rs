//! The check that a client's address belongs to its machine. Pure.
//!
//! On a shared link anybody can take an address: a second address on an interface is enough. The kernel's neighbour entry
//! names the owner to whom the response would be sent, so a response is sent only if that owner is the machine.

use tinwright::Mac;

/// The proof that the client is the machine that has its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// The neighbour entry if the machine is on our link, else the address alone.
    #[default]
    OnLink,
    /// The address alone.
    Address,
    /// The neighbour entry, always.
    Neighbour,
    /// The relay port through which the address was leased. A reserved address is not leased, so it never passes.
    Port,
}

/// The owner of an address, as far as it could be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum NeighbourCheck {
    /// This host itself.
    #[strum(to_string = "this host has it")]
    OwnHost,
    /// The owner of this Ethernet address on our link.
    #[strum(to_string = "{0} has it")]
    Owner(Mac),
    /// Nobody on our link, to which the address belongs.
    #[strum(to_string = "nobody on our link has it")]
    NoOwner,
    /// Behind a router or a trusted proxy.
    #[strum(to_string = "behind a router")]
    Routed,
    /// The relay port through which the machine leased the address.
    #[strum(to_string = "leased through the machine's relay port")]
    RelayPort,
    /// Not looked up, or the kernel does not say.
    #[strum(to_string = "not looked up")]
    Unchecked,
}

/// The reason why an address does not prove its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceRejected {
    /// Somebody else has it.
    #[error("the neighbour entry of the address holds another Ethernet address")]
    Foreign,
    /// Nobody has it.
    #[error("the address has no neighbour entry")]
    NoEntry,
    /// The required check cannot be made.
    #[error(
        "the address is not on a link of ours, or was not leased through the machine's relay port"
    )]
    NotChecked,
}

impl SourceRejected {
    /// Returns its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Foreign => "foreign_neighbour",
            Self::NoEntry => "no_neighbour",
            Self::NotChecked => "unchecked_source",
        }
    }
}

impl SourceCheck {
    /// Accepts a client whose address has the owner `neighbour` as the machine with the Ethernet addresses `macs`.
    pub fn admits(
        self,
        macs: impl IntoIterator<Item = Mac>,
        neighbour: NeighbourCheck,
    ) -> Result<(), SourceRejected> {
        match (self, neighbour) {
            (Self::Address, _) | (Self::Port, NeighbourCheck::RelayPort) => Ok(()),
            (Self::Port, _) => Err(SourceRejected::NotChecked),
            (_, NeighbourCheck::Owner(mac)) => {
                let is_own = macs.into_iter().any(|own| own == mac);
                if is_own { Ok(()) } else { Err(SourceRejected::Foreign) }
            }
            (_, NeighbourCheck::NoOwner) => Err(SourceRejected::NoEntry),
            (Self::OnLink, _) => Ok(()),
            (Self::Neighbour, _) => Err(SourceRejected::NotChecked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NeighbourCheck::{NoOwner, OwnHost, Owner, RelayPort, Routed, Unchecked};

    const OWN: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);

    fn admits(check: SourceCheck, neighbour: NeighbourCheck) -> Result<(), SourceRejected> {
        check.admits([OWN], neighbour)
    }

    #[test]
    fn the_address_check_accepts_every_owner() {
        for neighbour in [OwnHost, Owner(OTHER), NoOwner, Routed] {
            assert_eq!(admits(SourceCheck::Address, neighbour), Ok(()));
        }
    }

    #[test]
    fn on_our_link_the_neighbour_entry_decides() {
        for check in [SourceCheck::OnLink, SourceCheck::Neighbour] {
            assert_eq!(admits(check, Owner(OWN)), Ok(()));
            assert_eq!(admits(check, Owner(OTHER)), Err(SourceRejected::Foreign));
            assert_eq!(admits(check, NoOwner), Err(SourceRejected::NoEntry));
        }
    }

    #[test]
    fn beyond_our_link_only_the_neighbour_check_refuses() {
        for neighbour in [OwnHost, Routed, Unchecked] {
            assert_eq!(admits(SourceCheck::OnLink, neighbour), Ok(()));
            assert_eq!(admits(SourceCheck::Neighbour, neighbour), Err(SourceRejected::NotChecked));
        }
    }

    #[test]
    fn the_port_check_accepts_only_a_lease_from_the_relay_port() {
        assert_eq!(admits(SourceCheck::Port, RelayPort), Ok(()));
        for neighbour in [Owner(OWN), OwnHost, Routed, Unchecked] {
            assert_eq!(admits(SourceCheck::Port, neighbour), Err(SourceRejected::NotChecked));
        }
    }
}
