//! Runs tests, measurements and checks, and packs the programs.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use setup::package::Contents;
use setup::{packages, program, root, run, tools};

use crate::times::{self, Times};
use crate::{alone, lab, lanes};

/// The script that installs the BMCs of the virtual rack.
const RACK_PEERS: &str = "tests/rack/assets/peers.sh";
/// The scripts that install other programs below `target`, for tests.
const PEERS: [&str; 4] = [
    RACK_PEERS,
    "services/image/tests/peers.sh",
    "services/metadata/tests/peers.sh",
    "services/power/tests/peers.sh",
];

/// Programs of the virtual rack and of the lab.
const RACK_PROGRAMS: &[&str] = &["tinwright", "tinwright-worker", "rack"];

/// Boots and provisions the virtual rack. Packages, images and BMCs are prepared while its programs are built.
pub(crate) fn up(arguments: &[OsString]) -> anyhow::Result<()> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "run this as root: it creates network namespaces"
    );
    beside_build(build(RACK_PROGRAMS), || {
        setup::rack_packages()?;
        setup::images()?;
        setup::peers(RACK_PEERS).map(drop)
    })?;
    // In place of this process: Ctrl-C is for the rack alone, which removes its machines and networks.
    let error = Command::new(program("rack")).args(arguments).exec();
    Err(error).context("starting the rack")
}

/// Starts the lab in containers; if it is to go `down`, removes it once its instance is active.
pub(crate) fn lab(down: bool) -> anyhow::Result<()> {
    packages()?;
    run(&mut build(RACK_PROGRAMS))?;
    lab::up(down)
}

/// Does `work` while `build` runs. Returns the duration of the build.
fn beside_build(
    mut build: Command,
    work: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let (built, done) = std::thread::scope(|scope| {
        let done = scope.spawn(work);
        (run(&mut build).map(|()| begin.elapsed()), done.join())
    });
    both(built, done.map_err(|_| anyhow::anyhow!("a panic"))?)
}

/// Runs one test of the lab in containers.
pub(crate) fn test_lab(test: lab::Test) -> anyhow::Result<()> {
    build_tests()?;
    lab::test(test)
}

/// Runs all tests of the workspace, or `cargo test` with `arguments` if there are any. Installs what the tests need. After all tests, prints what
/// took longest, also after a failure.
pub(crate) fn test(arguments: &[String]) -> anyhow::Result<()> {
    let build = build_tests()?;
    if !arguments.is_empty() {
        return run(cargo(["test", "--workspace"]).args(arguments));
    }
    let times = Times::create(target_folder()?)?;
    let result = lanes::run(&times);
    times.print(build);
    result
}

/// Builds programs and tests at once: built separately, their dependencies would have different features. Meanwhile, prepares what the tests need
/// besides: it waits for the network most of the time. Returns the duration of the build.
pub(crate) fn build_tests() -> anyhow::Result<Duration> {
    packages()?;
    times::remove_reports(&target_folder()?);
    let build = cargo(["build", "--workspace", "--timings", "--all-targets"]);
    beside_build(build, || {
        setup::images()?;
        PEERS.iter().try_for_each(|script| setup::peers(script).map(drop))?;
        tools().map(drop)
    })
}

/// Returns the first error. If there are two, prints the second one.
pub(crate) fn both<T>(first: anyhow::Result<T>, second: anyhow::Result<()>) -> anyhow::Result<T> {
    if let (Err(_), Err(second)) = (&first, &second) {
        eprintln!("cargo rack: {second:#}");
    }
    first.and_then(|value| second.map(|()| value))
}

/// Builds the release programs, packs them, and prints the paths of the packages.
pub(crate) fn package(version: String) -> anyhow::Result<()> {
    setup::packing_packages()?;
    let packages = ["--package", "all-in-one", "--package", "worker", "--package", "node-agent"];
    let mut build = cargo(["build", "--release", "--locked", "--bins"]);
    run(build.args(packages))?;
    let output = root().join("target/package");
    std::fs::create_dir_all(&output)?;
    let contents = Contents { version, ..Contents::of(&release_folder()?)? };
    for path in [contents.tarball(&output)?, contents.debian(&output)?] {
        println!("{}", path.display());
    }
    Ok(())
}

/// Returns the folder of the programs of the release build.
fn release_folder() -> anyhow::Result<PathBuf> {
    Ok(folder_above(2)?.join("release"))
}

/// Returns cargo's target directory.
fn target_folder() -> anyhow::Result<PathBuf> {
    // This program is `TARGET/TRIPLE/PROFILE/cargo-rack`.
    folder_above(3)
}

/// Returns the folder `levels` above this program.
fn folder_above(levels: usize) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(levels);
    folder.map(PathBuf::from).context("this program is not in a target directory")
}

/// Measures the release build of the server with the release build of the bench.
pub(crate) fn load(arguments: &[String]) -> anyhow::Result<()> {
    packages()?;
    let build = ["build", "--release", "--package", "all-in-one", "--package", "load", "--bins"];
    run(&mut cargo(build))?;
    // Not with `cargo run`, which would choose the features for one package, and build everything again.
    run(Command::new(release_folder()?.join("load")).args(arguments))
}

/// Feeds codecs with mutated inputs, in a build with overflow checks.
pub(crate) fn fuzz(arguments: &[String]) -> anyhow::Result<()> {
    run(&mut build(&["fuzz"]))?;
    run(Command::new(program("fuzz")).args(arguments))
}

/// Checks format, contract, and the features of each crate; lints and documentation too, unless each build does.
pub(crate) fn check() -> anyhow::Result<()> {
    packages()?;
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    run(Command::new(tools()?.join("buf")).arg("lint").current_dir(root()))?;
    alone::check(tree)?;
    if build_checks() {
        return Ok(());
    }
    run(&mut cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    // Private items are documented too, so links to them are valid.
    run(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
}

/// True if `.ci/compile` is the compiler: each build checks lints and documentation then.
fn build_checks() -> bool {
    let compiler = std::env::var_os("RUSTC_WORKSPACE_WRAPPER");
    compiler.is_some_and(|path| Path::new(&path).ends_with(".ci/compile"))
}

/// Returns the output of `cargo tree` with the features of each package.
fn tree(arguments: &[&str]) -> anyhow::Result<String> {
    let mut tree = cargo(["tree", "--edges", "normal,build,dev", "--prefix", "none"]);
    let output = tree.args(["--format", "{p}|{f}"]).args(arguments).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the cargo that runs this program, with the work tree as its directory.
pub(crate) fn cargo<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(root());
    cargo
}

/// Returns the build of `programs`. Whichever they are, their dependencies have the features that the whole workspace requests, so that another build
/// does not begin anew.
fn build(programs: &[&str]) -> Command {
    let mut build = cargo(["build", "--workspace"]);
    build.args(programs.iter().flat_map(|program| ["--bin", program]));
    build
}
