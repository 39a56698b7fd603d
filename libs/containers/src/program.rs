//! Checks the program of a container inside its image, without entering the image.
//!
//! `openat2` with `RESOLVE_IN_ROOT` resolves symbolic links as a process inside would, and changes nothing of the calling
//! process: no `chroot` and no `chdir`, which would concern each of its threads.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

/// Attempts while the kernel reports that the tree changed during the look-up (openat2(2), `EAGAIN`).
const MAX_ATTEMPTS: u32 = 32;

/// A reason why a program cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProgram {
    /// It does not exist, or a link on its way has no target in the image.
    #[error("{program}: {errno}")]
    Unresolved {
        /// The program's name.
        program: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// It is a directory, a device, or the like.
    #[error("{0}: not a regular file")]
    NotRegular(String),
    /// None of its three execute bits is set.
    #[error("{0}: not executable")]
    NotExecutable(String),
}

/// Checks that `program` is a regular file with an execute bit, as seen by a process whose root directory is `image`.
/// A relative name starts at the image's `/`: there is no search path.
///
/// # Errors
/// [`InvalidProgram`] if it is not.
pub fn check_program(image: impl AsFd, program: &str) -> Result<(), InvalidProgram> {
    let unresolved = |errno| InvalidProgram::Unresolved { program: program.to_owned(), errno };
    let file = open_in_root(image, program).map_err(unresolved)?;
    let mode = fstat(&file).map_err(unresolved)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err(InvalidProgram::NotRegular(program.to_owned()));
    }
    if mode & 0o111 == 0 {
        return Err(InvalidProgram::NotExecutable(program.to_owned()));
    }
    Ok(())
}

/// Opens `path` inside `image` as a mere reference to the file.
fn open_in_root(image: impl AsFd, path: &str) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..MAX_ATTEMPTS {
        result = openat2(&image, path, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN)) {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn image() -> (tempfile::TempDir, File) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir_all(path.join("bin")).unwrap();
        for (name, mode) in [("bin/run", 0o755), ("bin/group", 0o010), ("bin/plain", 0o644)] {
            fs::write(path.join(name), "").unwrap();
            fs::set_permissions(path.join(name), Permissions::from_mode(mode)).unwrap();
        }
        let links = [
            ("init", "/bin/run"),
            ("up", "../../../../../../bin/run"),
            ("host", "/bin/sh"),
            ("loop", "loop"),
            ("self", "/proc/self/exe"),
        ];
        for (link, target) in links {
            symlink(target, path.join(link)).unwrap();
        }
        let root = File::open(path).unwrap();
        (directory, root)
    }

    #[test]
    fn links_are_resolved_as_seen_from_inside() {
        let (_directory, root) = image();
        for program in ["/bin/run", "bin/run", "/init", "up", "../../bin/run", "/bin/group"] {
            assert_eq!(check_program(&root, program), Ok(()), "{program}");
        }
    }

    #[test]
    fn what_only_the_host_has_is_not_found() {
        let (_directory, root) = image();
        for program in ["/host", "/bin/sh", "/bin/missing", "self", "../../../../bin/sh"] {
            let expected =
                InvalidProgram::Unresolved { program: program.into(), errno: Errno::NOENT };
            assert_eq!(check_program(&root, program), Err(expected));
        }
        let expected = InvalidProgram::Unresolved { program: "loop".into(), errno: Errno::LOOP };
        assert_eq!(check_program(&root, "loop"), Err(expected));
    }

    #[test]
    fn only_a_regular_file_with_an_execute_bit_is_a_program() {
        let (_directory, root) = image();
        assert_eq!(check_program(&root, "/bin"), Err(InvalidProgram::NotRegular("/bin".into())));
        assert_eq!(
            check_program(&root, "/bin/plain"),
            Err(InvalidProgram::NotExecutable("/bin/plain".into()))
        );
    }
}
