//! A directory at a second place.

use std::{os::fd::AsFd, path::Path};

use rustix::{
    fs::{CWD, FileType},
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags},
};

use crate::{Deadline, Error, Result, bounded::bounded, mount_point, paths::ResolvedPath, sys};

/// What a bind mount shows, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BindOptions {
    /// Shows also what is mounted below the directory.
    pub recursive: bool,
    /// Refuses writes, in all that it shows.
    pub read_only: bool,
}

/// Mounts the directory `source` at `target`.
///
/// The copy gets its attributes before it has a place in the tree, so that it is never writable where it must not be: in
/// mount(2), the flag for read-only has no effect together with that for a bind. It does not share later mounts with its source.
///
/// # Errors
/// [`Error::Invalid`] if the source is not a directory, [`Error::Missing`] if the kernel is older than 5.12, [`Error::Failed`]
/// otherwise. A mount that is complete only after the deadline is undone.
pub fn mount(
    source: &ResolvedPath,
    options: BindOptions,
    target: &Path,
    deadline: Deadline,
) -> Result<()> {
    if source.file_type() != FileType::Directory {
        return Err(Error::Invalid(format!("{} is not a directory", source.name().display())));
    }
    let step = format!("bind {}", source.name().display());
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if options.recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = rustix::mount::open_tree(source, "", flags).map_err(|e| refused(&step, e))?;
    let target = target.to_owned();
    let work = {
        let step = step.clone();
        move || {
            sys::set_mount_attributes(tree.as_fd(), options.read_only, options.recursive)
                .map_err(|e| refused(&step, e))?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(tree, "", CWD, &target, flags)
                .map_err(|e| refused(&step, e))?;
            Ok(target)
        }
    };
    bounded(&step, deadline, work, mount_point::undo).map(drop)
}

fn refused(step: &str, errno: Errno) -> Error {
    match errno {
        Errno::NOSYS => Error::Missing("the kernel has no open_tree or mount_setattr".into()),
        other => Error::failed(step, other),
    }
}
