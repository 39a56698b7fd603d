//! Programs of former commits, for tests of upgrades.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::{root, run};

/// The variable with the path of a former server program, which is used in place of a new build.
pub const PROGRAM_VARIABLE: &str = "TINWRIGHT_OLD_BINARY";
/// The commit from which upgrades are tested: the one before all services had one path of code.
pub const UPGRADED_COMMIT: &str = "a13bfe30948db92829d89bc9a23400fcd1bbe706";

/// Returns the server program of [`UPGRADED_COMMIT`], or the one in [`PROGRAM_VARIABLE`].
pub fn server() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(path.into());
    }
    let folder = build(UPGRADED_COMMIT, &[("tinwright", "all-in-one")], &[])?;
    Ok(folder.join("programs/tinwright"))
}

/// Builds `programs` of `commit`, each named with its package, unless that was done before. It
/// takes as long as a first build of the workspace.
///
/// Returns a folder that has the folder `programs` with them, and copies of the `files` of the
/// commit.
pub fn build(commit: &str, programs: &[(&str, &str)], files: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/peers/former").join(commit);
    fs::create_dir_all(&folder)?;
    // Several tests may need it at the same time.
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock()?;
    let complete = folder.join("programs");
    if complete.exists() {
        return Ok(folder);
    }
    let work = folder.join("work");
    let (source, target, stripped) =
        (work.join("source"), work.join("target"), work.join("programs"));
    for folder in [&source, &stripped] {
        fs::create_dir_all(folder)?;
    }
    unpack(commit, &source)?;
    compile(&source, &target, programs)?;
    for (program, _) in programs {
        let built = built(&target, program)?;
        run(Command::new("strip").arg("-o").arg(stripped.join(program)).arg(built))?;
    }
    for file in files {
        let name = Path::new(file).file_name().unwrap_or_else(|| OsStr::new(file));
        fs::copy(source.join(file), folder.join(name))?;
    }
    fs::rename(&stripped, &complete)?;
    // Gigabytes that nothing else needs.
    fs::remove_dir_all(&work)?;
    Ok(folder)
}

/// Unpacks the files of `commit` into the folder `source`.
fn unpack(commit: &str, source: &Path) -> anyhow::Result<()> {
    let mut unpack = Command::new("sh");
    unpack.args(["-c", "git archive \"$1\" | tar -x -C \"$2\"", "sh", commit]).arg(source);
    run(unpack.current_dir(root())).context("the history has to have this commit")
}

fn compile(source: &Path, target: &Path, programs: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--locked", "--target-dir"]).arg(target).current_dir(source);
    for (program, package) in programs {
        build.args(["--bin", program, "--package", package]);
    }
    run(build.env("CARGO_INCREMENTAL", "0").env_remove("RUSTC_BOOTSTRAP"))
}

/// Returns the path of a built program. The folder of the target between them has the name of this
/// host's kind.
fn built(target: &Path, program: &str) -> anyhow::Result<PathBuf> {
    let folders = fs::read_dir(target)?.flatten().map(|entry| entry.path());
    let mut paths = folders.map(|folder| folder.join("debug").join(program));
    paths.find(|path| path.exists()).with_context(|| format!("{program} was not built"))
}
