//! Checks, without building anything, that each crate can be built, linted and tested alone.
//!
//! Cargo enables the union of the features that the crates of one build request of a dependency. So a crate that uses a feature
//! which only other crates request compiles in the workspace, but not with `cargo test -p`. This check requires each direct
//! dependency to have the same features in both builds. Compiling each crate alone would take a quarter of an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Packages, their optional features, and words. A crate needs the features only if its source contains one of the words.
const OPTIONAL_FEATURES: [(&str, &[&str], &[&str]); 8] = [
    ("tokio", &["test-util"], &["start_paused", "time::pause", "time::advance", "time::resume"]),
    ("store", &["testing"], &["open_syncing"]),
    ("rand", &["alloc", "std", "sys_rng"], &["rand::rng()", "rand::random", "SysRng"]),
    ("nix", &["ioctl"], &["ioctl"]),
    ("rustix", &["termios"], &["termios"]),
    ("tower", &["retry", "timeout"], &["tower::retry", "tower::timeout"]),
    ("serde", &["alloc"], &[]), // a part of its feature `std`
    ("serde_json", &["raw_value"], &["RawValue"]),
];

/// The features of packages, by `name version`.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Fails if a crate uses features of its dependencies that only other crates request.
pub(crate) fn check(mut tree: impl FnMut(&[&str]) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let together = features(&tree(&["--workspace", "--depth", "1"])?);
    let mut missing = Vec::new();
    for line in tree(&["--workspace", "--depth", "0"])?.lines().filter(|line| !line.is_empty()) {
        let (name, folder) = member(line);
        let sources = sources(&folder)?;
        for (package, alone) in features(&tree(&["--package", name, "--depth", "1"])?) {
            let others = together.get(&package).into_iter().flatten();
            let needed = others.filter(|feature| {
                !alone.contains(*feature) && is_needed(&package, feature, &sources)
            });
            missing.extend(needed.map(|feature| format!("{name}: {package} {feature}")));
        }
    }
    anyhow::ensure!(
        missing.is_empty(),
        "only other crates request these features; list them in the workspace's dependencies: {}",
        missing.join(", ")
    );
    Ok(())
}

/// Reads lines of the form `name version (path)|feature,feature`.
fn features(tree: &str) -> Features {
    let mut features = Features::new();
    for line in tree.lines() {
        let Some((package, list)) = line.trim_end_matches(" (*)").split_once('|') else { continue };
        let package = package.split(" (").next().unwrap_or(package).to_owned();
        let list = list.split(',').filter(|feature| !feature.is_empty());
        features.entry(package).or_default().extend(list.map(str::to_owned));
    }
    features
}

/// Returns name and folder of the workspace member on `line`.
fn member(line: &str) -> (&str, String) {
    let name = line.split(' ').next().unwrap_or(line);
    let folder = line.split_once(" (").and_then(|(_, rest)| rest.split_once(')'));
    (name, folder.map_or(String::new(), |(folder, _)| folder.to_owned()))
}

/// True unless `feature` is optional, and `sources` do not use it.
fn is_needed(package: &str, feature: &str, sources: &str) -> bool {
    let name = package.split(' ').next().unwrap_or(package);
    let optional = OPTIONAL_FEATURES
        .iter()
        .find(|(of, features, _)| *of == name && features.contains(&feature));
    optional.is_none_or(|(_, _, words)| words.iter().any(|word| sources.contains(word)))
}

/// Returns all Rust code of the crate in `folder`, without workspace members below it.
fn sources(folder: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    for part in ["src", "tests", "benches", "examples"] {
        append(&Path::new(folder).join(part), &mut text)?;
    }
    Ok(text)
}

fn append(path: &Path, text: &mut String) -> anyhow::Result<()> {
    if path.join("Cargo.toml").exists() {
        return Ok(());
    }
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            append(&entry?.path(), text)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        text.push_str(&fs::read_to_string(path)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(arguments: &[&str]) -> anyhow::Result<String> {
        Ok(match arguments {
            ["--workspace", "--depth", "0"] => "a v1.0.0 (/nowhere)|\n",
            ["--workspace", ..] => {
                "a v1.0.0 (/nowhere)|\nserde v1.0.0|derive,std\nserde v1.0.0|rc (*)\n"
            }
            _ => "a v1.0.0 (/nowhere)|\nserde v1.0.0|derive,std\n",
        }
        .to_owned())
    }

    #[test]
    fn a_feature_that_only_other_crates_request_is_found() {
        let error = check(tree).unwrap_err().to_string();
        assert!(error.ends_with("a: serde v1.0.0 rc"), "{error}");
    }

    #[test]
    fn an_optional_feature_is_needed_if_it_is_used() {
        assert!(!is_needed("tokio v1.0.0", "test-util", "#[tokio::test]"));
        assert!(is_needed("tokio v1.0.0", "test-util", "#[tokio::test(start_paused = true)]"));
        assert!(is_needed("tokio v1.0.0", "net", ""));
    }
}
