//! Block devices that the host has anyway. Attaching one only checks it, and detaching does nothing.

use std::path::Path;

use crate::{Error, Result, block_device};

/// Checks that `path` is a block device.
///
/// # Errors
/// [`Error::Failed`] if its status cannot be read, [`Error::Invalid`] if it is something else.
pub fn check(path: &Path) -> Result<()> {
    let stat =
        rustix::fs::stat(path).map_err(|e| Error::failed(format!("stat {}", path.display()), e))?;
    if block_device::is_block_device(&stat) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{} is not a block device", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_a_failure_and_a_wrong_file_type_invalid() {
        let missing = check(Path::new("/dev/no-such-device")).unwrap_err();
        assert!(matches!(missing, Error::Failed { errno: Some(2), .. }), "{missing}");
        let character = check(Path::new("/dev/null")).unwrap_err();
        assert_eq!(character, Error::Invalid("/dev/null is not a block device".into()));
    }
}
