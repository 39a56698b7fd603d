//! Loaders and libraries of programs: the image has no libraries except those of mke2fs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use elf::ElfBytes;
use elf::endian::AnyEndian;

/// True if `program` is an ELF file that needs a loader. Scripts and damaged files do not.
pub(super) fn needs_loader(program: &[u8]) -> bool {
    let headers = ElfBytes::<AnyEndian>::minimal_parse(program);
    let headers = headers.ok().and_then(|file| file.segments()).into_iter().flatten();
    headers.into_iter().any(|header| header.p_type == elf::abi::PT_INTERP)
}

/// Returns the loader and the libraries of the program at `path`, found by ldd(1). Call it only for Debian's own programs:
/// ldd may run the program.
pub(super) fn libraries(path: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(path).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let output = String::from_utf8_lossy(&output.stdout);
    Ok(output.lines().filter_map(library).collect())
}

/// Returns the path in a line such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)`; nothing for the vDSO.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.split_once("=>").map_or(line, |(_, path)| path).split_whitespace().next()?;
    path.starts_with('/').then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_programs_need_no_loader() {
        assert!(!needs_loader(&std::fs::read("/bin/busybox").unwrap()));
        assert!(!needs_loader(b"#!/bin/sh\n"));
    }

    #[test]
    fn dynamic_programs_need_a_loader() {
        assert!(needs_loader(&std::fs::read("/bin/bash").unwrap()));
    }

    #[test]
    fn libraries_include_the_loader_but_not_the_vdso() {
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
        fn any_bytes_are_accepted(rest in proptest::collection::vec(0_u8.., 0..256)) {
            let _either = needs_loader(&[&b"\x7fELF"[..], &rest].concat());
        }
    }
}
