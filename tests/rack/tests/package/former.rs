//! The programs of the commit before there were packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use setup::run;

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

/// Builds the programs, unless that was done before. It takes as long as a first build of the workspace.
pub(crate) fn build() -> anyhow::Result<Former> {
    let folder = setup::root().join("target/peers/former").join(COMMIT);
    let former =
        Former { programs: folder.join("programs"), hardware: folder.join("hardware.yaml") };
    if former.programs.exists() {
        return Ok(former);
    }
    let work = folder.join("work");
    let (source, target, stripped) =
        (work.join("source"), work.join("target"), work.join("programs"));
    for folder in [&source, &stripped] {
        std::fs::create_dir_all(folder)?;
    }
    let mut unpack = Command::new("sh");
    unpack.args(["-c", "git archive \"$1\" | tar -x -C \"$2\"", "sh", COMMIT]).arg(&source);
    run(unpack.current_dir(setup::root())).context("the history has to have this commit")?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--locked", "--target-dir"]).arg(&target).current_dir(&source);
    for (program, package) in PROGRAMS {
        build.args(["--bin", program, "--package", package]);
    }
    run(build.env("CARGO_INCREMENTAL", "0").env_remove("RUSTC_BOOTSTRAP"))?;
    for (program, _) in PROGRAMS {
        let built = built(&target, program)?;
        run(Command::new("strip").arg("-o").arg(stripped.join(program)).arg(built))?;
    }
    std::fs::copy(source.join("docs/examples/hardware.yaml"), &former.hardware)?;
    std::fs::rename(&stripped, &former.programs)?;
    // Gigabytes that nothing else needs.
    std::fs::remove_dir_all(&work)?;
    Ok(former)
}

/// Returns the path of a built program. The folder of the target between them has the name of this host's kind.
fn built(target: &Path, program: &str) -> anyhow::Result<PathBuf> {
    let folders = std::fs::read_dir(target)?.flatten().map(|entry| entry.path());
    let mut paths = folders.map(|folder| folder.join("debug").join(program));
    paths.find(|path| path.exists()).with_context(|| format!("{program} was not built"))
}
