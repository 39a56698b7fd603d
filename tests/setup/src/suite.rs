//! Runs tests, measurements and checks.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Context as _;
use setup::{packages, program, root, run, tools};

use crate::alone;

/// Boots the rack before a newcomer's eyes.
pub(crate) fn up(arguments: &[&str]) -> anyhow::Result<()> {
    packages()?;
    build()?;
    run(Command::new(program("rack")).args(arguments))
}

/// Runs every test of the workspace on a machine that has what they need.
pub(crate) fn test(arguments: &[String]) -> anyhow::Result<()> {
    packages()?;
    // With the tests, so that these do not want the same programs and libraries with other features a moment later.
    run(&mut cargo(["build", "--workspace", "--bins", "--tests"]))?;
    run(cargo(["test", "--workspace"]).args(arguments))
}

/// Measures the release build of the server, by that of its bench.
pub(crate) fn load(arguments: &[String]) -> anyhow::Result<()> {
    packages()?;
    let build = ["build", "--release", "--package", "all-in-one", "--package", "load", "--bins"];
    run(&mut cargo(build))?;
    // Not by `cargo run`, which for one package would choose other features, and build it all again.
    let own = std::env::current_exe()?;
    let builds = own.ancestors().nth(2).context("this program is in no build's folder")?;
    run(Command::new(builds.join("release/load")).args(arguments))
}

/// Feeds codecs in a build that panics where a number overflows.
pub(crate) fn fuzz(arguments: &[String]) -> anyhow::Result<()> {
    build()?;
    run(Command::new(program("fuzz")).args(arguments))
}

/// Format, lints, documentation, contract.
pub(crate) fn check() -> anyhow::Result<()> {
    packages()?;
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    run(Command::new(tools()?.join("buf")).arg("lint").current_dir(root()))?;
    run(&mut cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    alone::check(tree)?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    // Private items are documented too, so links to them lead somewhere.
    run(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
}

/// Returns the output of `cargo tree` with the features of each package.
fn tree(arguments: &[&str]) -> anyhow::Result<String> {
    let mut tree = cargo(["tree", "--edges", "normal,build,dev", "--prefix", "none"]);
    let output = tree.args(["--format", "{p}|{f}"]).args(arguments).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The cargo that runs this, in the work tree.
fn cargo<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(root());
    cargo
}

/// Builds the programs that machines and the rack run: all at once, for one choice of features.
fn build() -> anyhow::Result<()> {
    run(&mut cargo(["build", "--workspace", "--bins"]))
}
