//! The Debian packages that each base image of the Dockerfile has to have.

use std::collections::{BTreeMap, BTreeSet};

/// Packages by the base image's build argument, such as `BASE`.
pub(super) type Packages = BTreeMap<String, BTreeSet<String>>;

/// The program that installs packages in the Dockerfile.
const INSTALLER: &str = "sh /install.sh ";

/// Returns the packages that the stages of `dockerfile` install into each base image.
pub(super) fn packages(dockerfile: &str) -> Packages {
    let joined = dockerfile.replace("\\\n", " ");
    let mut stages = BTreeMap::new();
    let (mut base, mut packages) = (String::new(), Packages::new());
    for line in joined.lines() {
        if let Some((image, stage)) = from(line) {
            let argument = image.trim_start_matches("${").trim_end_matches('}');
            base = stages.get(image).cloned().unwrap_or_else(|| argument.to_owned());
            stages.insert(stage.to_owned(), base.clone());
        }
        if let Some((_, list)) = line.split_once(INSTALLER) {
            let list = list.split("&&").next().unwrap_or(list).split_whitespace();
            packages.entry(base.clone()).or_default().extend(list.map(str::to_owned));
        }
    }
    packages
}

/// Reads a line of the form `FROM image AS stage`.
fn from(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("FROM ")?.split_once(" AS ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_those_of_the_base_of_each_stage() {
        let dockerfile = "FROM ${BASE} AS one\nRUN --mount=type=bind sh /install.sh curl \\\n    ipxe && true\n\
            FROM one AS two\nUSER root\nRUN sh /install.sh zstd\nFROM ${TOOLS_BASE} AS three\nRUN sh /install.sh fdisk\n";
        let found = packages(dockerfile);
        let list = |base: &str| found[base].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(list("BASE"), ["curl", "ipxe", "zstd"]);
        assert_eq!(list("TOOLS_BASE"), ["fdisk"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn the_dockerfile_has_three_bases() {
        let text = std::fs::read_to_string(setup::root().join("Dockerfile")).unwrap();
        let found = packages(&text);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["BASE", "SYSTEM_BASE", "TOOLS_BASE"]);
        assert!(found["BASE"].contains("etcd-server") && found["BASE"].contains("ipxe"));
    }
}
