//! Runs all tests, in lanes: three groups of tests run at the same time, since most of them wait for machines, processes and timeouts.
//!
//! ```text
//! machines  restarts, provision, ial, … ──▶ two lanes ┐  a lane whose own groups
//! others    the rest, processes, api ─────▶ one lane  ┘  have begun takes the others'
//! ```

use std::collections::VecDeque;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;
use std::sync::{Mutex, PoisonError};

use hifijson::value::Value;

use crate::json::{self, Json};
use crate::lab;
use crate::suite::{both, cargo};
use crate::times::Times;

/// The tests of the package `rack`, which boot machines, the longest first, in groups whose tests run one after another.
pub(crate) const RACK_TESTS: [&[&str]; 10] = [
    &["provision"],
    &["restarts"],
    &["ial"],
    &["first_screen"],
    &["node"],
    &["enrolment"],
    &["failures"],
    &["imageapi"],
    &["firmware"],
    &["power", "edges", "ial_client", "view"],
];
/// Other tests that take minutes, most of which they wait.
const LONG_TESTS: [&[&str]; 2] = [&["processes"], &["api"]];

/// Index in [`Groups`] of those that boot machines.
const MACHINES: usize = 0;
/// Index of the others.
const OTHERS: usize = 1;
/// The groups that each lane takes first.
const LANES: [usize; 3] = [MACHINES, MACHINES, OTHERS];

/// Groups of tests that are not begun: for each, the arguments of `cargo test` that select it.
type Groups = [VecDeque<Vec<String>>; 2];

/// Runs all tests. Goes on after a failure. Prints the command of a group when it begins, and its output when it ends.
pub(crate) fn run(times: &Times) -> anyhow::Result<()> {
    let left = Mutex::new(groups()?);
    let left = || left.lock().unwrap_or_else(PoisonError::into_inner);
    let lane = |first: usize| {
        let mut result = Ok(());
        loop {
            let Some(group) = next(&mut left(), first) else { break };
            println!("cargo test --workspace {}", group.join(" "));
            let output = times.record(cargo(["test", "--workspace"]).args(group)).output();
            // After Ctrl-C no other tests are begun.
            let is_interrupted = output.as_ref().is_ok_and(|it| it.status.signal().is_some());
            result = both(result, print(output));
            if is_interrupted {
                return result;
            }
        }
        result
    };
    let control_plane = || lab::test(lab::Test::ControlPlane);
    std::thread::scope(|scope| {
        let name = "the control plane in containers";
        let lab = scope.spawn(move || times.measure("lab", name, control_plane));
        let lanes = LANES.map(|first| scope.spawn(move || lane(first)));
        let ended = lanes.into_iter().chain([lab]).map(std::thread::ScopedJoinHandle::join);
        let panicked = |_| Err(anyhow::anyhow!("a panic"));
        ended.map(|result| result.unwrap_or_else(panicked)).fold(Ok(()), both)
    })
}

/// Takes the next group, of those at `first` if one is left.
fn next(groups: &mut Groups, first: usize) -> Option<Vec<String>> {
    let own = groups.get_mut(first).and_then(VecDeque::pop_front);
    own.or_else(|| groups.iter_mut().find_map(VecDeque::pop_front))
}

/// Prints what tests wrote. Fails if one of them failed.
fn print(output: std::io::Result<Output>) -> anyhow::Result<()> {
    let Output { status, stdout, stderr } = output?;
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    err.write_all(&stderr)?;
    out.write_all(&stdout)?;
    anyhow::ensure!(status.success(), "tests failed: {status}");
    Ok(())
}

/// Returns all tests.
fn groups() -> anyhow::Result<Groups> {
    let named = || RACK_TESTS.into_iter().chain(LONG_TESTS).flatten();
    let rest = test_targets()?.into_iter().filter(|test| !named().any(|it| it == test));
    let rest = select(rest).into_iter().chain(["--lib".into(), "--bins".into()]).collect();
    let named = |tests: &[&str]| select(tests.iter().map(|test| (*test).to_owned()));
    let others = [rest, vec!["--doc".into()]].into_iter();
    Ok([
        RACK_TESTS.into_iter().map(named).collect(),
        others.chain(LONG_TESTS.into_iter().map(named)).collect(),
    ])
}

/// Returns the arguments that select the test binaries `tests`.
fn select(tests: impl IntoIterator<Item = String>) -> Vec<String> {
    let arguments = tests.into_iter().flat_map(|test| ["--test".into(), test]);
    ["--no-fail-fast".into()].into_iter().chain(arguments).collect()
}

/// Returns the names of all test binaries but those of unit tests.
fn test_targets() -> anyhow::Result<Vec<String>> {
    let output = cargo(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let workspace = json::parse(std::str::from_utf8(&output.stdout)?)?;
    let packages = json::field(&workspace, "packages").map(json::items).unwrap_or_default();
    let targets = packages.iter().filter_map(|it| json::field(it, "targets")).flat_map(json::items);
    let is_test = |target: &&Json<'_>| {
        let kinds = json::field(target, "kind").map(json::items).unwrap_or_default();
        kinds.iter().any(|kind| matches!(kind, Value::String(kind) if kind == "test"))
    };
    let names = targets.filter(is_test).filter_map(|target| json::text(target, "name"));
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    /// The names of the test binaries that `groups` run.
    fn selected(groups: &Groups) -> Vec<String> {
        let arguments = groups.iter().flatten().flatten().map(|it| it.as_str());
        let names = arguments.filter(|argument| !argument.starts_with("--"));
        names.map(str::to_owned).collect()
    }

    #[test]
    fn each_test_binary_is_in_one_group() {
        let groups = groups().unwrap();
        let names = selected(&groups);
        let distinct: BTreeSet<_> = names.iter().cloned().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        assert_eq!(distinct, test_targets().unwrap().into_iter().collect());
    }

    #[test]
    fn a_lane_takes_its_own_groups_first_and_then_those_of_others() {
        let group = |name: &str| vec![String::from(name)];
        let mut groups: Groups =
            [[group("machine")].into(), [group("first"), group("second")].into()];
        let mut take = |first| next(&mut groups, first).map(|it| it.concat());
        let taken = [OTHERS, MACHINES, MACHINES, OTHERS].map(&mut take);
        let expected = ["first", "machine", "second"].map(|name| Some(name.to_owned()));
        assert_eq!(taken[..3], expected);
        assert_eq!(taken[3], None);
    }
}
