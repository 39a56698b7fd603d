//! Overlays: read-only directories over each other, and a writable one over them (overlay file system, `overlayfs.rst` of the
//! kernel's documentation).
//!
//! The upper and the work directory must be on one file system with `trusted.*` extended attributes that is not an overlay
//! itself. What is written is in the upper directory, and lost with it.

use std::{
    ffi::CString,
    fs,
    io::ErrorKind,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags},
};

use crate::{Deadline, Error, Result, bounded::bounded, mount_point};

/// Longest value of fsconfig(2), in bytes without the zero at its end.
const MAX_VALUE_BYTES: usize = 255;
/// Longest data of mount(2), in bytes without the zero at its end: one page.
const MAX_DATA_BYTES: usize = 4095;
/// The name of the type, and of the source in the mount table.
const OVERLAY: &str = "overlay";
const STEP: &str = "mount overlay";

/// The directories of an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// At least one; the first one is the topmost.
    pub lower: Vec<PathBuf>,
    /// Made by [`mount`], and removed by [`remove_directories`].
    pub upper: PathBuf,
    /// As the upper directory, and on the same file system.
    pub work: PathBuf,
}

/// Makes the upper and the work directory, and mounts the overlay at `target`.
///
/// # Errors
/// [`Error::Invalid`] without a lower directory, [`Error::Missing`] if the kernel has no overlays, [`Error::Failed`] otherwise, also if
/// a directory exists already. What was made is removed then, except at the deadline: a mount that is complete only later is undone,
/// and the directories are the caller's to remove.
pub fn mount(overlay: &Overlay, target: &Path, deadline: Deadline) -> Result<()> {
    if overlay.lower.is_empty() {
        return Err(Error::Invalid("an overlay needs a lower directory".into()));
    }
    mount_point::create(&overlay.upper)?;
    if let Err(error) = mount_point::create(&overlay.work) {
        mount_point::remove(&overlay.upper)?;
        return Err(error);
    }
    let (directories, place) = (overlay.clone(), target.to_owned());
    let work = move || mount_overlay(&directories, &place).map(|()| place);
    let mounted = bounded(STEP, deadline, work, mount_point::undo).map(drop);
    match &mounted {
        Err(error) if *error != Error::expired(STEP) => remove_directories(overlay)?,
        Ok(()) | Err(_) => {}
    }
    mounted
}

/// Removes the upper and the work directory with what they hold, after the overlay was unmounted. Missing ones are skipped.
///
/// # Errors
/// [`Error::Failed`] if one cannot be removed.
pub fn remove_directories(overlay: &Overlay) -> Result<()> {
    for directory in [&overlay.upper, &overlay.work] {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::failed(format!("remove {}", directory.display()), error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn mount_overlay(overlay: &Overlay, target: &Path) -> Result<()> {
    let Overlay { lower, upper, work } = overlay;
    let short = |path: &PathBuf| path.as_os_str().len() <= MAX_VALUE_BYTES;
    // Some kernels take a backslash in the values of these two as an escape, and others do not.
    let exact = |path: &PathBuf| !path.as_os_str().as_bytes().contains(&b'\\');
    let fits = lower.iter().chain([upper, work]).all(short) && [upper, work].into_iter().all(exact);
    if fits && let Some(context) = configured_context(overlay)? {
        return mount_context(context, target);
    }
    mount_with_data(overlay, target)
}

/// Returns a file system context with all directories, or `None` if the kernel is too old to have `lowerdir+`.
fn configured_context(overlay: &Overlay) -> Result<Option<OwnedFd>> {
    let open = || rustix::mount::fsopen(OVERLAY, FsOpenFlags::FSOPEN_CLOEXEC);
    let (probed, context) = match open().and_then(|probed| Ok((probed, open()?))) {
        Ok(contexts) => contexts,
        Err(Errno::NOSYS) => return Ok(None),
        Err(errno) => return Err(refused(errno, None)),
    };
    // Before Linux 6.5 a context takes any key with any value, and only the mount fails.
    if rustix::mount::fsconfig_set_string(&probed, "lowerdir+", "").is_ok() {
        return Ok(None);
    }
    let set = |key: &str, value: &Path| rustix::mount::fsconfig_set_string(&context, key, value);
    for (position, lower) in overlay.lower.iter().enumerate() {
        match set("lowerdir+", lower) {
            Err(Errno::INVAL) if position == 0 && lower.is_dir() => return Ok(None),
            result => result.map_err(|errno| refused(errno, Some(&context)))?,
        }
    }
    set("upperdir", &overlay.upper).map_err(|errno| refused(errno, Some(&context)))?;
    set("workdir", &overlay.work).map_err(|errno| refused(errno, Some(&context)))?;
    Ok(Some(context))
}

fn mount_context(context: OwnedFd, target: &Path) -> Result<()> {
    // The name in the mount table's column for the source.
    rustix::mount::fsconfig_set_string(&context, "source", OVERLAY)
        .and_then(|()| rustix::mount::fsconfig_create(&context))
        .map_err(|errno| refused(errno, Some(&context)))?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())
        .map_err(|errno| refused(errno, Some(&context)))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), "", CWD, target, flags)
        .map_err(|errno| refused(errno, None))
}

/// The way of older kernels: all directories in one string, which cannot be longer than a page.
fn mount_with_data(overlay: &Overlay, target: &Path) -> Result<()> {
    let data = mount_data(overlay);
    if data.len() > MAX_DATA_BYTES {
        let cause = format!("{} bytes of directory names do not fit into one page", data.len());
        return Err(Error::failed_because(STEP, cause));
    }
    let data = CString::new(data)
        .map_err(|_| Error::Invalid("a directory of an overlay has a zero byte".into()))?;
    rustix::mount::mount(OVERLAY, target, OVERLAY, MountFlags::empty(), data.as_c_str())
        .map_err(|errno| refused(errno, None))
}

fn mount_data(overlay: &Overlay) -> Vec<u8> {
    let mut data = b"lowerdir=".to_vec();
    for (position, lower) in overlay.lower.iter().enumerate() {
        if position > 0 {
            data.push(b':');
        }
        data.extend(escape(lower, b":,\\"));
    }
    data.extend(b",upperdir=");
    data.extend(escape(&overlay.upper, b",\\"));
    data.extend(b",workdir=");
    data.extend(escape(&overlay.work, b",\\"));
    data
}

/// Puts a backslash before bytes that the file system would take as separators.
fn escape(path: &Path, separators: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if separators.contains(byte) {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// The failure, with the message that the kernel left in the file system context.
fn refused(errno: Errno, context: Option<&OwnedFd>) -> Error {
    if errno == Errno::NODEV {
        return Error::Missing("the kernel has no file system overlay".into());
    }
    let mut cause = std::io::Error::from(errno).to_string();
    let mut message = [0; 256];
    if let Some(context) = context
        && let Ok(length) = rustix::io::read(context, &mut message)
    {
        let text = String::from_utf8_lossy(message.get(..length).unwrap_or_default()).into_owned();
        cause = format!("{cause}: {}", text.trim_start_matches("e ").trim_end());
    }
    Error::Failed { step: STEP.into(), cause, errno: Some(errno.raw_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_string_has_the_topmost_first_and_separators_escaped() {
        let overlay = Overlay {
            lower: vec!["/top:a".into(), "/below,b".into(), "/c\\d".into()],
            upper: "/u,p:p".into(),
            work: "/work".into(),
        };
        let data = String::from_utf8(mount_data(&overlay)).unwrap();
        let expected = r"lowerdir=/top\:a:/below\,b:/c\\d,upperdir=/u\,p:p,workdir=/work";
        assert_eq!(data, expected);
    }

    #[test]
    fn an_overlay_without_a_lower_directory_is_invalid() {
        let overlay = Overlay { lower: vec![], upper: "/no/u".into(), work: "/no/w".into() };
        let limit = Deadline::after(std::time::Duration::from_secs(60));
        assert!(matches!(mount(&overlay, Path::new("/no/t"), limit), Err(Error::Invalid(_))));
    }
}
