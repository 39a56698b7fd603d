//! The restrictions of a machine's policy: the check of its clients' addresses, and what else it restricts. Pure.

use std::time::{Duration, SystemTime};

use runtime::neighbour::SourceCheck;
use tinwright::hardware::v1::{Policy, policy::MetadataSource};
use tinwright::instance::v1::Instance;

/// The restrictions of a machine's policy, and what they depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The check of the client's address; `None` for the site's.
    pub source: Option<SourceCheck>,
    /// IP TTL of the response that carries a session token; `None` for the system's.
    pub hop_limit: Option<u8>,
    /// Session tokens created before this are refused.
    pub tokens_revoked: Option<SystemTime>,
    /// The time for which user data is served after the installed system first read it; `None` for always.
    pub user_data_window: Option<Duration>,
    /// When the instance was installed; until then the installer is the reader.
    pub installed: Option<SystemTime>,
    /// True if the installed system has phoned home, which ends the user data window.
    pub called_home: bool,
}

impl Guard {
    /// Returns the guard of hardware with this policy that this instance occupies.
    pub fn of(policy: Option<&Policy>, occupant: Option<&Instance>) -> Self {
        let guard = Self {
            installed: occupant.and_then(|occupant| occupant.install_time?.try_into().ok()),
            called_home: occupant.is_some_and(|occupant| occupant.phone_home_time.is_some()),
            ..Self::default()
        };
        let Some(policy) = policy else { return guard };
        let hops = u8::try_from(policy.metadata_hop_limit).ok();
        Self {
            source: match policy.metadata_source() {
                MetadataSource::Unspecified => None,
                MetadataSource::Address => Some(SourceCheck::Address),
                MetadataSource::Neighbour => Some(SourceCheck::Neighbour),
                MetadataSource::Port => Some(SourceCheck::Port),
            },
            // 64 is every system's default.
            hop_limit: hops.filter(|hops| (1..64).contains(hops)),
            tokens_revoked: policy.tokens_revoke_time.and_then(|time| time.try_into().ok()),
            user_data_window: policy.user_data_window.and_then(|window| window.try_into().ok()),
            ..guard
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_the_occupant_is_taken_with_and_without_a_policy() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_760_000_000);
        let (install_time, phone_home_time) = (Some(then.into()), Some(then.into()));
        let occupant = Instance { install_time, phone_home_time, ..Instance::default() };
        for policy in [None, Some(&Policy::default())] {
            let guard = Guard::of(policy, Some(&occupant));
            assert_eq!((guard.installed, guard.called_home), (Some(then), true));
        }
    }

    #[test]
    fn an_empty_policy_leaves_everything_to_the_site() {
        assert_eq!(Guard::of(Some(&Policy::default()), None), Guard::default());
        let policy = Policy { metadata_hop_limit: 1, ..Policy::default() };
        assert_eq!(Guard::of(Some(&policy), None).hop_limit, Some(1));
        for off in [64, 65, 300] {
            let policy = Policy { metadata_hop_limit: off, ..Policy::default() };
            assert_eq!(Guard::of(Some(&policy), None).hop_limit, None);
        }
    }
}
