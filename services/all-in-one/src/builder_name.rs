//! The name of a builder among those of the site's replicas.
//!
//! It is stored beside the files of builds, so that a builder takes its own builds up again after a
//! restart. The directory belongs to one builder.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use uuid::Uuid;

/// File with the name.
const FILE: &str = "name";

/// Returns the name in the directory `scratch`. Stores a new one if there is none.
pub(crate) fn of(scratch: &Path) -> anyhow::Result<String> {
    let path = scratch.join(FILE);
    let stored = std::fs::read_to_string(&path).ok().and_then(|text| Uuid::parse_str(&text).ok());
    if let Some(name) = stored {
        return Ok(name.to_string());
    }
    let name = Uuid::new_v4().to_string();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(scratch);
    let written = made.and_then(|()| std::fs::write(&path, &name));
    written.with_context(|| path.display().to_string())?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builder_keeps_its_name_and_no_other_has_it() {
        let [one, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let scratch = one.path().join("scratch");
        let name = of(&scratch).unwrap();
        assert_eq!(of(&scratch).unwrap(), name);
        assert_ne!(of(other.path()).unwrap(), name);
        std::fs::write(scratch.join(FILE), "").unwrap(); // as after a power cut
        assert_ne!(of(&scratch).unwrap(), name);
    }
}
