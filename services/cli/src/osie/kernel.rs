//! Debian's kernel package, downloaded by apt and unpacked into a cache. Nothing is installed.
//!
//! ```text
//! cache/linux-image-6.1.0-56-amd64_6.1.192-2/    boot/vmlinuz-*  lib/modules/*/    as unpacked by dpkg-deb and indexed by depmod
//! cache/incoming-*/                              incomplete; left behind only by a crash
//! ```
//!
//! A package is unpacked under another name and renamed when it is complete: packages in the cache are never incomplete, and
//! two builds at once do not disturb each other.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// Debian 12's generic kernels, which support more hardware than those for clouds. Their number is between the two.
const PACKAGE_PREFIX: &str = "linux-image-6.1.0-";
const PACKAGE_SUFFIX: &str = "-amd64";

/// An unpacked kernel package.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The release, as printed by `uname -r`.
    pub(super) version: String,
    /// The bootable image.
    pub(super) image: PathBuf,
    /// The directory of its modules and of depmod's indexes.
    pub(super) modules: PathBuf,
}

impl Kernel {
    /// Returns the only kernel below `root`.
    pub(super) fn at(root: &Path) -> anyhow::Result<Self> {
        let (version, image) = only_image(root)?;
        let modules = root.join("lib/modules").join(&version);
        anyhow::ensure!(
            modules.join("modules.dep").exists(),
            "{} has no modules.dep: run `depmod -b {} {version}`",
            modules.display(),
            root.display()
        );
        Ok(Self { version, image, modules })
    }

    /// Returns the kernel of `package`, or the newest, from `cache` or through apt.
    pub(super) fn fetch(package: Option<&str>, cache: &Path) -> anyhow::Result<Self> {
        let package = package.map_or_else(newest_available, |package| Ok(package.into()))?;
        let version = candidate(&package)?;
        let root = cache.join(format!("{package}_{version}"));
        if !root.exists() {
            download(&package, cache, &root)?;
        }
        Self::at(&root)
    }
}

/// Returns version and path of the image in `root`'s boot directory.
fn only_image(root: &Path) -> anyhow::Result<(String, PathBuf)> {
    let boot = root.join("boot");
    let mut images = Vec::new();
    for path in if boot.exists() { files(&boot)? } else { Vec::new() } {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        images.extend(name.strip_prefix("vmlinuz-").map(|it| (it.to_owned(), path.clone())));
    }
    let (found, root) = (images.len(), root.display());
    let only = images.pop().filter(|_| found == 1);
    only.with_context(|| format!("{found} kernels in {root} (boot/vmlinuz-*), not one"))
}

fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory);
    let paths = entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    paths.with_context(|| directory.display().to_string())
}

/// Downloads and unpacks `package`, and moves it to `root`.
fn download(package: &str, cache: &Path, root: &Path) -> anyhow::Result<()> {
    let place = std::fs::create_dir_all(cache)
        .and_then(|()| tempfile::Builder::new().prefix("incoming-").tempdir_in(cache))
        .with_context(|| cache.display().to_string())?;
    let mut apt = Command::new("apt-get");
    if rustix::process::geteuid().is_root() {
        apt.args(["-o", "APT::Sandbox::User=root"]); // apt's own user may not write into our directory
    }
    run(apt.args(["-q", "download", package]).current_dir(place.path()))?;
    let mut downloaded = files(place.path())?.into_iter();
    let package = downloaded.find(|path| path.extension() == Some(OsStr::new("deb")));
    let package = package.with_context(|| format!("{}: no package", place.path().display()))?;
    let unpacked = place.path().join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked))?;
    let (version, _) = only_image(&unpacked)?;
    run(Command::new("depmod").arg("-b").arg(&unpacked).arg(version))?;
    match std::fs::rename(&unpacked, root) {
        Err(_) if root.exists() => Ok(()), // another build was faster
        moved => moved.with_context(|| root.display().to_string()),
    }
}

/// Returns the newest generic kernel package that apt knows.
fn newest_available() -> anyhow::Result<String> {
    let pattern = format!("^{PACKAGE_PREFIX}[0-9]+{PACKAGE_SUFFIX}$");
    let found = run(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    newest(&found).with_context(|| unknown(&format!("{PACKAGE_PREFIX}NN{PACKAGE_SUFFIX}")))
}

/// Returns the package with the highest number in the output of `apt-cache search`.
fn newest(printed: &str) -> Option<String> {
    let number = |name: &str| -> Option<u32> {
        name.strip_prefix(PACKAGE_PREFIX)?.strip_suffix(PACKAGE_SUFFIX)?.parse().ok()
    };
    let names = printed.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| number(name).is_some()).max_by_key(|name| number(name)).map(str::to_owned)
}

/// Returns the version that apt would download.
fn candidate(package: &str) -> anyhow::Result<String> {
    let mut show = Command::new("apt-cache");
    let record = run(show.args(["show", "--no-all-versions", "--", package])).or_else(|error| {
        if error.is::<CommandFailed>() { Ok(String::new()) } else { Err(error) }
    })?;
    let version = record.lines().find_map(|line| line.strip_prefix("Version: "));
    version.map(str::to_owned).with_context(|| unknown(package))
}

fn unknown(package: &str) -> String {
    format!("apt knows no package {package}: try `apt-get update`")
}

/// A command that ended with an error.
#[derive(Debug, thiserror::Error)]
#[error("{program} failed: {reason}")]
struct CommandFailed {
    program: String,
    reason: String,
}

/// Runs `command` and returns its output. The error has the last line on standard error.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    // depmod is in a directory that is only in root's PATH.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let hint = match program.as_str() {
        "depmod" => ": install kmod",
        "dpkg-deb" => ": install dpkg",
        _ => "",
    };
    let output = command.output().with_context(|| format!("cannot run {program}{hint}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reason = errors.lines().rfind(|line| !line.trim().is_empty());
    let reason = reason.unwrap_or("no error message").trim().into();
    Err(CommandFailed { program, reason }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_has_the_highest_number() {
        let printed = "linux-image-6.1.0-9-amd64 - Linux 6.1\n\
                       linux-image-6.1.0-56-amd64 - Linux 6.1\n\
                       linux-image-6.1.0-57-cloud-amd64 - Linux 6.1\n\
                       linux-image-6.1.0-47-amd64 - Linux 6.1\n";
        let found = newest(printed);
        assert_eq!(found.as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn several_kernels_are_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("boot")).unwrap();
        for version in ["1", "2"] {
            std::fs::write(root.path().join(format!("boot/vmlinuz-{version}")), "").unwrap();
        }
        let error = Kernel::at(root.path()).unwrap_err().to_string();
        assert!(error.starts_with("2 kernels in "), "{error}");
    }

    #[test]
    fn without_modules_dep_the_error_recommends_depmod() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("boot")).unwrap();
        std::fs::write(root.path().join("boot/vmlinuz-7"), "").unwrap();
        let error = Kernel::at(root.path()).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("run `depmod -b {} 7`", root.path().display())),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_package_is_named() {
        let cache = tempfile::tempdir().unwrap();
        let result = Kernel::fetch(Some("linux-image-none"), cache.path());
        let error = result.unwrap_err().to_string();
        assert_eq!(error, "apt knows no package linux-image-none: try `apt-get update`");
    }
}
