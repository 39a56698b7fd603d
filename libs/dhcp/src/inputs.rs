//! The inputs of a reply besides the request.

use crate::config::{Link, Mode, Reservation};

/// The boot decision as far as DHCP carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOffer {
    /// A loader for firmware, a script for iPXE.
    Offered,
    /// A loader for iPXE too, because it is a network interface's firmware.
    Chainload,
    /// A reply that makes firmware go on to its next boot device at once.
    Refused,
}

/// Everything that a reply depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub struct ReplyInputs<'a> {
    /// The link that received the request.
    pub link: &'a Link,
    /// The mode for this request; usually the link's.
    pub mode: Mode,
    /// The reservation of the client.
    pub reservation: Option<&'a Reservation>,
    /// The boot decision.
    pub offer: BootOffer,
    /// True if the reserved address was declined and is not offered yet.
    pub is_withheld: bool,
}
