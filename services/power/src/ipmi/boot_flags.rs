//! The boot flags of IPMI (IPMI 2.0 §28.13, parameter 5), as a boot override with Redfish's values.

use super::Error;
use crate::plan::BootRequest;
use crate::redfish::BootOverride;

/// The first byte: the flags are valid.
const VALID: u8 = 0x80;
/// The first byte: for every boot.
const PERSISTENT: u8 = 0x40;
/// The first byte: UEFI, else legacy.
const UEFI: u8 = 0x20;
/// Redfish's names of boot devices, and their numbers in bits 2 to 5 of the second byte.
const DEVICES: [(&str, u8); 5] = [("None", 0), ("Pxe", 1), ("Hdd", 2), ("Cd", 5), ("BiosSetup", 6)];

/// The first two bytes; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BootFlags {
    first: u8,
    second: u8,
}

impl BootFlags {
    /// Returns the flags in the response `01 05 <first> <second> …`.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let bytes: Result<Vec<_>, _> =
            text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16)).collect();
        match bytes.as_deref() {
            Ok([_, _, first, second, ..]) => Ok(Self { first: *first, second: *second }),
            Ok(_) | Err(_) => Err(Error::Output(text.trim().to_owned())),
        }
    }

    /// Returns the flags for `request`; none if IPMI has no number for its device.
    pub(super) fn of(request: &BootRequest) -> Option<Self> {
        let target = request.target.unwrap_or("None");
        let (_, device) = DEVICES.iter().find(|(name, _)| *name == target)?;
        let mut first = VALID;
        if request.enabled == "Continuous" && *device != 0 {
            first |= PERSISTENT;
        }
        if request.mode == Some("UEFI") {
            first |= UEFI;
        }
        Some(Self { first, second: device << 2 })
    }

    /// Returns the five bytes of the parameter.
    pub(super) fn bytes(self) -> [u8; 5] {
        [self.first, self.second, 0, 0, 0]
    }

    /// Returns the override that the flags mean.
    pub(super) fn to_override(self) -> BootOverride {
        let number = self.second >> 2 & 0x0f;
        let target = DEVICES.iter().find(|(_, device)| *device == number);
        let target = target.map_or_else(|| format!("device {number}"), |(name, _)| (*name).into());
        let is_valid = self.first & VALID != 0;
        let enabled = match (number, is_valid) {
            (0, _) => "Disabled",
            (_, false) => BootOverride::NOT_VALID,
            (_, true) if self.first & PERSISTENT != 0 => "Continuous",
            (_, true) => "Once",
        };
        let mode = match (is_valid, self.first & UEFI != 0) {
            (false, _) => "",
            (true, true) => "UEFI",
            (true, false) => "Legacy",
        };
        BootOverride { enabled: enabled.into(), target, mode: mode.into(), ..none() }
    }
}

/// Returns no override, with the devices that IPMI knows.
pub(super) fn none() -> BootOverride {
    BootOverride {
        enabled: "Disabled".into(),
        target: "None".into(),
        targets: DEVICES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        ..BootOverride::default()
    }
}
