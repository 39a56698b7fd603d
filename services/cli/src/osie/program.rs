//! Programs that must run where there is nothing else: without loader and libraries, or with all of theirs beside them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program header that names a loader (ELF gABI, `PT_INTERP`).
const INTERPRETER: u32 = 3;

/// Whether `program` is an ELF file that asks for a loader. A script, or what is no program at all, does not.
pub(super) fn needs_loader(program: &[u8]) -> bool {
    program.starts_with(b"\x7fELF") && loader(program).unwrap_or(false)
}

/// The loader and the libraries that the program at `path` is linked with, as ldd(1) finds them here. It is asked only of
/// Debian's own programs: ldd may run what it looks at.
pub(super) fn libraries(path: &Path) -> io::Result<Vec<PathBuf>> {
    let told = Command::new("ldd").arg(path).output()?;
    if !told.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&told.stderr).trim().to_owned()));
    }
    let told = String::from_utf8_lossy(&told.stdout);
    Ok(told.lines().filter_map(library).collect())
}

/// What a line such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)` names; nothing for the kernel's own.
fn library(line: &str) -> Option<PathBuf> {
    let place = line.split_once("=>").map_or(line, |(_, place)| place);
    let path = place.split_whitespace().next()?;
    path.starts_with('/').then(|| path.into())
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

    #[test]
    fn the_loader_is_among_the_libraries_and_the_kernels_page_is_not() {
        let libraries = libraries(Path::new("/bin/bash")).unwrap();
        assert!(libraries.iter().all(|path| path.is_absolute() && path.exists()));
        for name in ["ld-linux-x86-64.so.2", "libc.so.6"] {
            assert!(libraries.iter().any(|path| path.ends_with(name)), "{libraries:?}");
        }
    }

    #[test]
    fn a_script_has_no_libraries() {
        assert!(libraries(Path::new("/etc/passwd")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(rest in proptest::collection::vec(0_u8.., 0..256)) {
            let _either = needs_loader(&[&b"\x7fELF"[..], &rest].concat());
        }
    }
}
