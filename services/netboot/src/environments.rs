//! The directory of in-memory environments: their kernels and initramfs, as `tinwright osie build` writes them.
//!
//! It is looked at whenever it is needed. An environment that is built while the server runs is served at once, and a machine
//! that waits for it boots on: its script repeats its requests.

use std::path::{Path, PathBuf};

use crate::tftp::{Directories, DiskFile, FileError};

/// The beginnings of the names of an environment's files; the architecture follows.
pub(crate) const WORKER_FILES: [&str; 2] = ["vmlinuz-", "initramfs-"];
/// The same for the environment of nodes.
pub(crate) const NODE_FILES: [&str; 2] = ["vmlinuz-node-", "initramfs-node-"];

/// A directory of environments, which may be absent or incomplete.
#[derive(Clone, Debug)]
pub struct Environments {
    path: PathBuf,
}

impl Environments {
    /// The environments in the directory at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file `name`.
    pub async fn find_file(&self, name: &str) -> Result<DiskFile, FileError> {
        let own = self.clone();
        let opened = tokio::task::spawn_blocking(move || own.open()).await;
        let directories = opened.ok().flatten().ok_or(FileError::NotFound)?;
        directories.find_file(name.to_owned()).await
    }

    /// Returns those of `names` that cannot be served. Blocks for some reads of the directory.
    pub fn missing(&self, names: Vec<String>) -> Vec<String> {
        let directories = self.open();
        let is_missing = |name: &String| !directories.as_ref().is_some_and(|it| it.contains(name));
        names.into_iter().filter(is_missing).collect()
    }

    /// Returns why no machine can boot the worker's environment, if so. Blocks as [`missing`](Self::missing) does.
    pub fn problem(&self) -> Option<String> {
        let names = self.open().and_then(|it| it.names().ok()).unwrap_or_default();
        let [kernel, initramfs] = WORKER_FILES;
        let architectures = names.iter().filter_map(|name| name.strip_prefix(kernel));
        let is_complete =
            |of: &str| !of.starts_with("node-") && names.contains(&[initramfs, of].concat());
        let is_there = architectures.into_iter().any(is_complete);
        (!is_there).then(|| {
            let directory = self.path.display();
            format!(
                "no in-memory environment in {directory}: machines cannot be provisioned; run `tinwright osie build --output {directory}`"
            )
        })
    }

    /// Returns the command that builds the environment with the file `name`, if the program can build it.
    pub(crate) fn build_command(&self, name: &str) -> Option<String> {
        let is_of = |files: [&str; 2]| files.iter().any(|prefix| name.starts_with(prefix));
        let flavour = match (is_of(NODE_FILES), is_of(WORKER_FILES)) {
            (true, _) => " --flavour node",
            (false, true) => "",
            (false, false) => return None,
        };
        Some(format!("tinwright osie build --output {}{flavour}", self.path.display()))
    }

    /// Opens the directory; none if there is no such directory.
    fn open(&self) -> Option<Directories> {
        Directories::open([&self.path]).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn an_environment_that_is_built_later_is_found() {
        let root = tempfile::tempdir().unwrap();
        let environments = Environments::new(root.path().join("osie"));
        let names = || ["vmlinuz-x86_64", "initramfs-x86_64"].map(str::to_owned).to_vec();
        assert_eq!(environments.missing(names()), names());
        assert!(environments.find_file("vmlinuz-x86_64").await.is_err());
        let problem = environments.problem().unwrap();
        let directory = environments.path().display();
        assert!(problem.contains(&format!("no in-memory environment in {directory}: ")));
        assert!(problem.ends_with(&format!("`tinwright osie build --output {directory}`")));
        std::fs::create_dir(environments.path()).unwrap();
        for name in ["vmlinuz-x86_64", "vmlinuz-node-x86_64", "initramfs-node-x86_64"] {
            std::fs::write(environments.path().join(name), "x").unwrap();
        }
        assert_eq!(environments.missing(names()), ["initramfs-x86_64"]);
        assert!(environments.problem().is_some());
        std::fs::write(environments.path().join("initramfs-x86_64"), "x").unwrap();
        assert_eq!((environments.missing(names()), environments.problem()), (Vec::new(), None));
        assert_eq!(environments.find_file("initramfs-x86_64").await.unwrap().size, 1);
    }

    #[test]
    fn the_command_builds_the_environment_of_the_file() {
        let environments = Environments::new("/osie");
        let build = "tinwright osie build --output /osie";
        for (name, command) in [
            ("vmlinuz-x86_64", Some(build.to_owned())),
            ("initramfs-node-x86_64", Some(format!("{build} --flavour node"))),
            ("own-kernel", None),
        ] {
            assert_eq!(environments.build_command(name), command, "{name}");
        }
    }
}
