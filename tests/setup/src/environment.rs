//! The in-memory environments of workers and of nodes, for machines of tests.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{program, root, run};

/// A flavour of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Runs the worker, which installs systems.
    Worker,
    /// Runs the agent of a node.
    Node,
}

impl Environment {
    /// Builds kernel and initramfs, unless those of the last build have the same programs. Returns
    /// their folder.
    pub fn build(self) -> anyhow::Result<PathBuf> {
        let folder = root().join("target/peers/osie");
        fs::create_dir_all(&folder)?;
        let (name, flavour, option) = match self {
            Self::Worker => ("tinwright-worker", "install", "--worker"),
            Self::Node => ("tinwright-node", "node", "--node-agent"),
        };
        // Tests of several processes use it.
        let lock = File::create(folder.join(format!("{flavour}.lock")))?;
        lock.lock()?;
        let builder = program("tinwright");
        let versions = format!("{} {}", version(&builder)?, version(&program(name))?);
        let stamp = folder.join(format!("{flavour}.programs"));
        if fs::read_to_string(&stamp).is_ok_and(|built| built == versions) {
            return Ok(folder);
        }
        // Emulated machines fetch and unpack it.
        let stripped = folder.join(name);
        run(Command::new("strip").arg("-o").arg(&stripped).arg(program(name)))?;
        let mut build = Command::new(builder);
        build.args(["osie", "build", "--flavour", flavour, "--output"]).arg(&folder);
        build.arg(option).arg(&stripped);
        build.arg("--cache").arg(root().join("target/peers/kernel"));
        run(build.stdout(Stdio::null()))?;
        fs::write(stamp, versions)?;
        Ok(folder)
    }
}

/// Returns what differs between two builds of the program at `path`.
fn version(path: &Path) -> anyhow::Result<String> {
    let metadata: Metadata = fs::metadata(path)?;
    Ok(format!("{} {}.{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
