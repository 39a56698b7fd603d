//! Programs that must run where there is nothing else: no loader, no libraries.

/// The program header that names a loader (ELF gABI, `PT_INTERP`).
const INTERPRETER: u32 = 3;

/// Whether `program` is an ELF file that asks for a loader. A script, or what is no program at all, does not.
pub(super) fn needs_loader(program: &[u8]) -> bool {
    program.starts_with(b"\x7fELF") && loader(program).unwrap_or(false)
}

/// Looks through the program headers (gABI, "ELF Header", 64 bits, little-endian); nothing if the file ends before.
fn loader(elf: &[u8]) -> Option<bool> {
    let start = usize::try_from(u64::from_le_bytes(bytes(elf, 0x20)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(bytes(elf, 0x36)?));
    let count = usize::from(u16::from_le_bytes(bytes(elf, 0x38)?));
    for header in 0..count {
        let at = start.checked_add(header.checked_mul(size)?)?;
        if u32::from_le_bytes(bytes(elf, at)?) == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_needs_no_loader() {
        assert!(!needs_loader(&std::fs::read("/bin/busybox").unwrap()));
        assert!(!needs_loader(b"#!/bin/sh\n"));
    }

    #[test]
    fn a_dynamic_program_needs_a_loader() {
        assert!(needs_loader(&std::fs::read("/bin/bash").unwrap()));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(rest in proptest::collection::vec(0_u8.., 0..256)) {
            let _either = needs_loader(&[&b"\x7fELF"[..], &rest].concat());
        }
    }
}
