//! Programs for UEFI, as far as they tell the processor that they are for.
//!
//! Firmware loads a program only if the machine type in its header is its own (UEFI 2.10, §2.1.1). So
//! the header tells more than the name of the file: loaders beside `\EFI\BOOT` have any name.

use serde::{Deserialize, Serialize};

use crate::partitions::field;

/// Offset of the offset of the header (Microsoft, "PE Format", "MS-DOS Stub").
const HEADER_OFFSET: usize = 0x3c;
/// Bytes at the beginning of the header, before the machine type.
const SIGNATURE: [u8; 4] = *b"PE\0\0";

/// Processor architecture of a boot loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Architecture {
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit ARM.
    Arm,
    /// 32-bit x86.
    I386,
    /// 64-bit LoongArch.
    LoongArch64,
    /// 64-bit RISC-V.
    RiscV64,
    /// 64-bit x86.
    X86_64,
}

impl Architecture {
    /// Names, and machine types of programs.
    const ALL: [(Self, &str, u16); 6] = [
        (Self::Aarch64, "aarch64", 0xaa64),
        (Self::Arm, "arm", 0x01c2),
        (Self::I386, "i386", 0x014c),
        (Self::LoongArch64, "loongarch64", 0x6264),
        (Self::RiscV64, "riscv64", 0x5064),
        (Self::X86_64, "x86_64", 0x8664),
    ];

    /// Returns the name as Linux spells it.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(it, ..)| *it == self);
        found.map_or("", |(_, name, _)| name)
    }

    /// Returns the architecture of the program that begins with `head`. None: no firmware runs it.
    pub(super) fn of_program(head: &[u8]) -> Option<Self> {
        let header = field(head, HEADER_OFFSET).map(u32::from_le_bytes)?;
        let header = head.get(usize::try_from(header).ok()?..)?;
        let machine = field(header, SIGNATURE.len()).map(u16::from_le_bytes)?;
        let is_program = head.starts_with(b"MZ") && header.starts_with(&SIGNATURE);
        let found = Self::ALL.iter().find(|(.., it)| is_program && *it == machine);
        found.map(|(architecture, ..)| *architecture)
    }
}
