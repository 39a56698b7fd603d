//! What besides its address a machine is known by, and how its sessions are limited. Values in, values out.
//!
//! On a shared link an address is whoever takes it: a second address on an interface is enough. The kernel's neighbour
//! entry says who our answer would go to, so an answer is given only if that is the machine.

use std::time::{Duration, SystemTime};

use tinwright::Mac;
use tinwright::hardware::v1::{Policy, policy::MetadataSource};
use tinwright::instance::v1::Instance;

/// What a machine has to be known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// By the neighbour entry where the machine is on our link, else by its address.
    #[default]
    OnLink,
    /// By its address alone.
    Address,
    /// By the neighbour entry, wherever it is.
    Neighbour,
    /// By the relay port its address was leased through. A reserved address is not leased, so nobody passes under it.
    Port,
}

/// What is known of where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this very host.
    Here,
    /// On our link, with this Ethernet address.
    Holds(Mac),
    /// On our link, and nobody says he has it.
    Nobody,
    /// Behind a router or a proxy that we trust.
    Beyond,
    /// At the machine's relay port: that is where it got the address.
    AtPort,
    /// Nobody looks, or the kernel does not say.
    Unseen,
}

/// Why an address is not taken for its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Somebody else has it.
    #[error("the neighbour entry of the address holds another Ethernet address")]
    Foreign,
    /// Nobody was seen to have it.
    #[error("the address has no neighbour entry")]
    NoEntry,
    /// The check asked for cannot be made.
    #[error(
        "the address is not on a link of ours, or was not leased through the machine's relay port"
    )]
    NotChecked,
}

impl Denied {
    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Foreign => "foreign_neighbour",
            Self::NoEntry => "no_neighbour",
            Self::NotChecked => "unchecked_source",
        }
    }
}

impl SourceCheck {
    /// Whether who asks from `place` is the machine that has the Ethernet addresses `macs`.
    pub fn admits(self, macs: impl IntoIterator<Item = Mac>, place: Place) -> Result<(), Denied> {
        match (self, place) {
            (Self::Port, Place::AtPort)
            | (Self::Address, _)
            | (Self::OnLink, Place::Here | Place::Beyond | Place::AtPort | Place::Unseen) => Ok(()),
            (Self::Port, _) => Err(Denied::NotChecked),
            (Self::OnLink | Self::Neighbour, Place::Holds(mac)) => {
                let mut macs = macs.into_iter();
                if macs.any(|own| own == mac) { Ok(()) } else { Err(Denied::Foreign) }
            }
            (Self::OnLink | Self::Neighbour, Place::Nobody) => Err(Denied::NoEntry),
            (Self::Neighbour, Place::Here | Place::Beyond | Place::AtPort | Place::Unseen) => {
                Err(Denied::NotChecked)
            }
        }
    }
}

/// What a machine's policy says of who may ask, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// What it is known by; `None` for what the site says.
    pub source: Option<SourceCheck>,
    /// IP TTL of the answer that carries a session token; `None` for the system's.
    pub hop_limit: Option<u8>,
    /// Session tokens made before this are refused.
    pub tokens_revoked: Option<SystemTime>,
    /// How long user data is told after the installed system first read it; `None` for always.
    pub user_data_window: Option<Duration>,
    /// When the instance was installed; until then whoever reads is its installer.
    pub installed: Option<SystemTime>,
    /// Whether the installed system has called home, which ends that time.
    pub called_home: bool,
}

impl Guard {
    /// As the hardware's policy and the record of what occupies it say.
    pub fn of(policy: Option<&Policy>, occupant: Option<&Instance>) -> Self {
        let installed = occupant.and_then(|occupant| occupant.install_time?.try_into().ok());
        let called_home = occupant.is_some_and(|occupant| occupant.phone_home_time.is_some());
        let Some(policy) = policy else {
            return Self { installed, called_home, ..Self::default() };
        };
        let source = match policy.metadata_source() {
            MetadataSource::Unspecified => None,
            MetadataSource::Address => Some(SourceCheck::Address),
            MetadataSource::Neighbour => Some(SourceCheck::Neighbour),
            MetadataSource::Port => Some(SourceCheck::Port),
        };
        let hops = u8::try_from(policy.metadata_hop_limit).ok();
        Self {
            source,
            // 64 is what every system sends by itself.
            hop_limit: hops.filter(|hops| (1..64).contains(hops)),
            tokens_revoked: policy.tokens_revoke_time.and_then(|time| time.try_into().ok()),
            user_data_window: policy.user_data_window.and_then(|window| window.try_into().ok()),
            installed,
            called_home,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);

    fn admits(check: SourceCheck, place: Place) -> Result<(), Denied> {
        check.admits([OWN], place)
    }

    #[test]
    fn an_address_alone_is_enough_only_where_that_is_said() {
        for place in [Place::Here, Place::Holds(OTHER), Place::Nobody, Place::Beyond] {
            assert_eq!(admits(SourceCheck::Address, place), Ok(()));
        }
    }

    #[test]
    fn on_our_link_the_neighbour_entry_decides() {
        for check in [SourceCheck::OnLink, SourceCheck::Neighbour] {
            assert_eq!(admits(check, Place::Holds(OWN)), Ok(()));
            assert_eq!(admits(check, Place::Holds(OTHER)), Err(Denied::Foreign));
            assert_eq!(admits(check, Place::Nobody), Err(Denied::NoEntry));
        }
    }

    #[test]
    fn beyond_our_link_only_who_asks_for_the_check_is_refused() {
        for place in [Place::Here, Place::Beyond, Place::Unseen] {
            assert_eq!(admits(SourceCheck::OnLink, place), Ok(()));
            assert_eq!(admits(SourceCheck::Neighbour, place), Err(Denied::NotChecked));
        }
    }

    #[test]
    fn only_who_got_its_address_at_its_relay_port_is_known_by_it() {
        assert_eq!(admits(SourceCheck::Port, Place::AtPort), Ok(()));
        for place in [Place::Holds(OWN), Place::Here, Place::Beyond, Place::Unseen] {
            assert_eq!(admits(SourceCheck::Port, place), Err(Denied::NotChecked));
        }
    }

    #[test]
    fn what_became_of_the_occupant_is_known_with_or_without_a_policy() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_760_000_000);
        let (install_time, phone_home_time) = (Some(then.into()), Some(then.into()));
        let occupant = Instance { install_time, phone_home_time, ..Instance::default() };
        for policy in [None, Some(&Policy::default())] {
            let guard = Guard::of(policy, Some(&occupant));
            assert_eq!((guard.installed, guard.called_home), (Some(then), true));
        }
    }

    #[test]
    fn a_policy_without_words_leaves_everything_to_the_site() {
        assert_eq!(Guard::of(Some(&Policy::default()), None), Guard::default());
        let policy = Policy { metadata_hop_limit: 1, ..Policy::default() };
        assert_eq!(Guard::of(Some(&policy), None).hop_limit, Some(1));
        for off in [64, 65, 300] {
            let policy = Policy { metadata_hop_limit: off, ..Policy::default() };
            assert_eq!(Guard::of(Some(&policy), None).hop_limit, None);
        }
    }
}
