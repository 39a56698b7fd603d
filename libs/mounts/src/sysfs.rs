//! Reading of small files in sysfs.

use std::{fs, io::ErrorKind, path::Path};

use crate::{Error, Result};

/// Returns the text of an attribute without the line end, or `None` if there is no such file.
pub(crate) fn attribute(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned())),
        Err(error) if has_gone(&error) => Ok(None),
        Err(error) => Err(Error::failed(format!("read {}", path.display()), error)),
    }
}

/// Returns the names of a directory's entries in text order; none if there is no such directory.
pub(crate) fn entries(path: &Path) -> Result<Vec<String>> {
    let step = || format!("list {}", path.display());
    let directory = match fs::read_dir(path) {
        Ok(directory) => directory,
        Err(error) if has_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(Error::failed(step(), error)),
    };
    let mut names = Vec::new();
    for entry in directory {
        let entry = entry.map_err(|e| Error::failed(step(), e))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// True if the error says that the object of a sysfs path is gone, or goes while it is read.
fn has_gone(error: &std::io::Error) -> bool {
    let device_gone = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(device_gone)
}
