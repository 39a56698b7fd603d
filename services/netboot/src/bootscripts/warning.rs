//! Warnings about script requests, which are logged when the response is applied.

use std::net::IpAddr;

use tinwright::HardwareId;

use super::BOOT_LOOP;
use crate::ipxe::{Arguments, BadWord};

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
        /// The machine.
        hardware: HardwareId,
        /// Identity that it presented.
        presented: String,
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

    /// Logs the warning.
    pub(super) fn log(&self) {
        match self {
            Self::BootLoop { hardware, held } => {
                tracing::warn!(hardware.id = %hardware, held, "boot loop: {BOOT_LOOP}");
            }
            Self::GateClosed { hardware, presented, rule } => {
                tracing::warn!(hardware.id = %hardware, presented, rule, "boot gate closed");
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
