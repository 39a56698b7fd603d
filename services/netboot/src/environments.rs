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

    /// Returns the `names` that cannot be served. Blocks for some reads of the directory.
    pub fn missing(&self, names: Vec<String>) -> Vec<String> {
        let directories = self.open();
        let is_missing = |name: &String| !directories.as_ref().is_some_and(|it| it.contains(name));
        names.into_iter().filter(is_missing).collect()
    }

    /// Returns why no machine can boot the worker's environment, if so. Blocks as [`missing`](Self::missing) does.
    pub fn problem(&self) -> Option<String> {
        let directory = self.path.display();
        (!self.is_complete(WORKER_FILES)).then(|| {
            format!(
                "no in-memory environment in {directory}: machines cannot be provisioned; run `tinwright osie build --output {directory}`"
            )
        })
    }

    /// Returns why no machine can boot as a node, if so. Blocks as [`missing`](Self::missing) does.
    pub fn node_problem(&self) -> Option<String> {
        let directory = self.path.display();
        (!self.is_complete(NODE_FILES)).then(|| {
            format!(
                "no in-memory environment of nodes in {directory}: instances with an image stack cannot boot; run `tinwright osie build --output {directory} --flavour node`"
            )
        })
    }

    /// True if the directory has both files of an environment for some architecture.
    fn is_complete(&self, [kernel, initramfs]: [&str; 2]) -> bool {
        let names = self.open().and_then(|it| it.names().ok()).unwrap_or_default();
        let is_of_node = |name: &str| NODE_FILES.iter().any(|prefix| name.starts_with(prefix));
        let wants_node = is_of_node(kernel);
        let kernels = names.iter().filter(|name| is_of_node(name) == wants_node);
        let mut architectures = kernels.filter_map(|name| name.strip_prefix(kernel));
        architectures.any(|of| names.contains(&[initramfs, of].concat()))
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
        let directory = environments.path().display().to_string();
        assert!(problem.contains(&format!("no in-memory environment in {directory}: ")));
        assert!(problem.ends_with(&format!("`tinwright osie build --output {directory}`")));
        std::fs::create_dir(environments.path()).unwrap();
        for name in ["vmlinuz-x86_64", "vmlinuz-node-x86_64", "initramfs-node-x86_64"] {
            std::fs::write(environments.path().join(name), "x").unwrap();
        }
        assert_eq!(environments.missing(names()), ["initramfs-x86_64"]);
        assert!(environments.problem().is_some());
        assert_eq!(environments.node_problem(), None);
        std::fs::remove_file(environments.path().join("initramfs-node-x86_64")).unwrap();
        let problem = environments.node_problem().unwrap();
        assert!(problem.starts_with("no in-memory environment of nodes in "), "{problem}");
        assert!(problem.ends_with(&format!("--output {directory} --flavour node`")), "{problem}");
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
