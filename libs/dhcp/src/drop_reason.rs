//! The reasons for which requests are not answered.

use std::net::Ipv4Addr;

/// The reason why a request is not answered. Converts into a metric label. The caller records declined and released addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[allow(missing_docs)] // the messages document the variants
pub enum DropReason {
    #[error("DHCP is off on this link")]
    Off,
    #[error("its relay is not one of ours")]
    Relay,
    #[error("its vendor is ignored")]
    Vendor,
    #[error("InfiniBand is not supported")]
    Infiniband,
    #[error("no record of this machine")]
    Unknown,
    #[error("its record leaves it to another server")]
    LeftToOthers,
    #[error("its record names another relay port")]
    OtherPort,
    #[error("its record has no address")]
    NoAddress,
    #[error("its address belongs to another network")]
    OtherNetwork,
    #[error("it has chosen another server")]
    OtherServer,
    #[error("it names no address")]
    Incomplete,
    #[error("its address was declined less than a minute ago")]
    Withheld,
    #[error("another host uses its address {0}")]
    Declined(Ipv4Addr),
    #[error("it released {0}")]
    Released(Ipv4Addr),
    #[error("it declined or released an address that is not its own")]
    NotOurs,
    #[error("servers do not answer this message type")]
    MessageType,
    #[error("another server gives it its address")]
    Proxy,
    #[error("it does not boot by PXE")]
    NotBooting,
    #[error("its reply does not fit")]
    TooLarge,
    #[error("every address of the pool is taken")]
    PoolExhausted,
    #[error("too many machines without a record are enrolled at once")]
    EnrolmentRate,
    #[error("leases or records are still being read")]
    NotReady,
    #[error("its lease cannot be stored")]
    LeaseNotStored,
    #[error("too many leases are being stored")]
    Busy,
}
