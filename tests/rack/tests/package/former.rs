//! The programs of the commit before there were packages.

use std::path::PathBuf;

/// The commit.
const COMMIT: &str = "c87cd16daa7db47dd0261851488a21dae022e7fd";
/// Its programs, with their packages.
const PROGRAMS: [(&str, &str); 3] =
    [("tinwright", "all-in-one"), ("tinwright-worker", "worker"), ("tinwright-node", "node-agent")];

/// The former programs and examples.
#[derive(Debug)]
pub(crate) struct Former {
    /// The folder of its programs.
    pub(crate) programs: PathBuf,
    /// The example of machines, in the form of that commit.
    pub(crate) hardware: PathBuf,
}

/// Builds the programs, unless that was done before.
pub(crate) fn build() -> anyhow::Result<Former> {
    let folder = setup::former::build(COMMIT, &PROGRAMS, &["docs/examples/hardware.yaml"])?;
    Ok(Former { programs: folder.join("programs"), hardware: folder.join("hardware.yaml") })
}
