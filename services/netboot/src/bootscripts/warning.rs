//! Warnings about script requests, which are logged when the response is applied.

use std::net::IpAddr;

use tinwright::HardwareId;

use super::BOOT_LOOP;
use crate::Mac;
use crate::ipxe::{Arguments, BadWord};

/// Characters of a presented UUID in the log: a UUID has 36.
const MAX_UUID_CHARS: usize = 64;

/// A warning about a machine's request. Simulated requests discard theirs.
#[derive(Debug)]
pub(super) enum Warning {
    /// The machine is in a boot loop.
    BootLoop {
        /// The machine.
        hardware: HardwareId,
        /// True if its script is delayed.
        held: bool,
    },
    /// An outside platform's gate does not allow the boot.
    GateClosed {
        /// The machine, if it is known.
        hardware: Option<HardwareId>,
        /// Interface that it named, or that its address belongs to.
        mac: Option<Mac>,
        /// The beginning of the UUID that it presented, if it presented one.
        uuid: Option<String>,
        /// Address of the request.
        source: IpAddr,
        /// The rule that closed the gate.
        rule: &'static str,
    },
    /// A boot without a DHCP exchange and a loader asks for a script.
    UnseenBoot {
        /// The machine.
        hardware: HardwareId,
        /// Address of the request.
        source: IpAddr,
    },
    /// A kernel argument in the machine's record or in the site's settings cannot stand in a script.
    ArgumentLeftOut {
        /// The machine.
        hardware: HardwareId,
        /// The argument.
        word: BadWord,
    },
}

impl Warning {
    /// Returns a warning for each argument that was left out of `arguments`.
    pub(super) fn left_out(
        hardware: HardwareId,
        arguments: &Arguments,
    ) -> impl Iterator<Item = Self> {
        let left_out = arguments.left_out.iter().cloned();
        left_out.map(move |word| Self::ArgumentLeftOut { hardware, word })
    }

    /// Returns the warning that `rule` refused a client that presented these values.
    pub(super) fn gate_closed(
        hardware: Option<HardwareId>,
        (mac, uuid, source): (Option<Mac>, Option<&str>, IpAddr),
        rule: &'static str,
    ) -> Self {
        let uuid = uuid.map(|uuid| uuid.chars().take(MAX_UUID_CHARS).collect());
        Self::GateClosed { hardware, mac, uuid, source, rule }
    }

    /// Logs the warning.
    pub(super) fn log(&self) {
        match self {
            Self::BootLoop { hardware, held } => {
                tracing::warn!(hardware.id = %hardware, held, "boot loop: {BOOT_LOOP}");
            }
            Self::GateClosed { hardware, mac, uuid, source, rule } => {
                let hardware = hardware.map(tracing::field::display);
                let mac = mac.map(tracing::field::display);
                tracing::warn!(hardware.id = hardware, mac, uuid, %source, rule, "boot gate closed");
            }
            Self::UnseenBoot { hardware, source } => {
                tracing::error!(
                    hardware.id = %hardware, %source,
                    "script refused: the machine was not seen booting from the network, its installed system may run"
                );
            }
            Self::ArgumentLeftOut { hardware, word } => {
                tracing::warn!(hardware.id = %hardware, %word, "kernel argument left out");
            }
        }
    }
}
