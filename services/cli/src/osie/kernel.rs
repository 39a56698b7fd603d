//! Debian's kernel package: which one, fetched by apt, unpacked beside others. Nothing is installed.
//!
//! ```text
//! cache/linux-image-6.1.0-56-amd64_6.1.192-2/    boot/vmlinuz-*  lib/modules/*/    as dpkg and depmod leave it
//! cache/incoming-*/                              on its way there; left behind only by a crash
//! ```
//!
//! A package is unpacked under another name and renamed when it is whole: what has its own name in the cache is never
//! half of something, and two builds at once both end well.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Architecture;

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("apt knows no package {0}: try `apt-get update`")]
    Unknown(String),
    #[error("cannot run {program}{}", hint(program))]
    Start { program: String, source: io::Error },
    #[error("{program} failed: {said}")]
    Failed { program: String, said: String },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("there are {found} kernels in {} (boot/vmlinuz-*), not one", root.display())]
    Kernels { root: PathBuf, found: usize },
    #[error("{} has no modules.dep: run `depmod -b {} {version}`", modules.display(), root.display())]
    Unprepared { modules: PathBuf, root: PathBuf, version: String },
}

fn hint(program: &str) -> &'static str {
    match program {
        "depmod" => ": install kmod",
        "dpkg-deb" => ": install dpkg",
        _ => "",
    }
}

/// An unpacked kernel package.
#[derive(Debug)]
pub(super) struct Kernel {
    /// As the kernel calls itself (`uname -r`).
    pub(super) version: String,
    /// What is booted.
    pub(super) image: PathBuf,
    /// The directory of its modules, and of what depmod says of them.
    pub(super) modules: PathBuf,
}

impl Kernel {
    /// The only kernel below `root`.
    pub(super) fn at(root: &Path) -> Result<Self, Error> {
        let (version, image) = only_image(root)?;
        let modules = root.join("lib/modules").join(&version);
        if !modules.join("modules.dep").exists() {
            return Err(Error::Unprepared { modules, root: root.into(), version });
        }
        Ok(Self { version, image, modules })
    }

    /// The kernel of `package`, or the newest, from `cache` or through apt.
    pub(super) fn fetch(
        package: Option<&str>,
        architecture: Architecture,
        cache: &Path,
    ) -> Result<Self, Error> {
        let package = package.map_or_else(|| newest_known(architecture), |it| Ok(it.into()))?;
        let version = candidate(&package)?;
        let root = cache.join(format!("{package}_{version}"));
        if !root.exists() {
            bring(&package, cache, &root)?;
        }
        Self::at(&root)
    }
}

/// Version and path of the image in `root`'s boot directory.
fn only_image(root: &Path) -> Result<(String, PathBuf), Error> {
    let boot = root.join("boot");
    let wrong = |source| Error::Io { path: boot.clone(), source };
    let mut images = Vec::new();
    if !boot.exists() {
        return Err(Error::Kernels { root: root.into(), found: 0 });
    }
    for entry in std::fs::read_dir(&boot).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        images.extend(name.strip_prefix("vmlinuz-").map(|version| (version.into(), entry.path())));
    }
    match images.len() {
        1 => Ok(images.swap_remove(0)),
        found => Err(Error::Kernels { root: root.into(), found }),
    }
}

/// Downloads and unpacks `package`, and moves it to `root`.
fn bring(package: &str, cache: &Path, root: &Path) -> Result<(), Error> {
    let at = |path: &Path| {
        let path = path.to_owned();
        |source| Error::Io { path, source }
    };
    std::fs::create_dir_all(cache).map_err(at(cache))?;
    let place = tempfile::Builder::new().prefix("incoming-").tempdir_in(cache);
    let place = place.map_err(at(cache))?;
    let mut apt = Command::new("apt-get");
    if rustix::process::geteuid().is_root() {
        apt.args(["-o", "APT::Sandbox::User=root"]); // apt's own user may not write into our directory
    }
    run(apt.args(["-q", "download", package]).current_dir(place.path()))?;
    let unpacked = place.path().join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(downloaded(place.path())?).arg(&unpacked))?;
    let (version, _) = only_image(&unpacked)?;
    run(Command::new("depmod").arg("-b").arg(&unpacked).arg(version))?;
    match std::fs::rename(&unpacked, root) {
        Err(_) if root.exists() => Ok(()), // another build was quicker
        moved => moved.map_err(at(root)),
    }
}

/// The package file in `place`.
fn downloaded(place: &Path) -> Result<PathBuf, Error> {
    let wrong = |source| Error::Io { path: place.into(), source };
    let files = std::fs::read_dir(place).map_err(wrong)?.flatten().map(|entry| entry.path());
    files
        .into_iter()
        .find(|path| path.extension() == Some(OsStr::new("deb")))
        .ok_or_else(|| wrong(io::ErrorKind::NotFound.into()))
}

/// The newest of Debian 12's generic kernels, which know more hardware than those for clouds.
fn newest_known(architecture: Architecture) -> Result<String, Error> {
    let (prefix, suffix) = ("linux-image-6.1.0-", format!("-{}", architecture.debian()));
    let pattern = format!("^{prefix}[0-9]+{suffix}$");
    let known = run(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    newest(&known, prefix, &suffix).ok_or_else(|| Error::Unknown(format!("{prefix}NN{suffix}")))
}

/// Of the packages that `apt-cache search` printed, the one with the highest number.
fn newest(printed: &str, prefix: &str, suffix: &str) -> Option<String> {
    let number = |name: &str| -> Option<u32> {
        name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
    };
    let names = printed.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| number(name).is_some()).max_by_key(|name| number(name)).map(str::to_owned)
}

/// The version that apt would download.
fn candidate(package: &str) -> Result<String, Error> {
    let mut show = Command::new("apt-cache");
    let record = match run(show.args(["show", "--no-all-versions", "--", package])) {
        Err(Error::Failed { .. }) => return Err(Error::Unknown(package.into())),
        record => record?,
    };
    let version = record.lines().find_map(|line| line.strip_prefix("Version: "));
    version.map(str::to_owned).ok_or_else(|| Error::Unknown(package.into()))
}

/// What `command` prints; the last line of its complaint if it fails.
fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    // depmod is where only root's PATH leads.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let done = match command.output() {
        Ok(done) => done,
        Err(source) => return Err(Error::Start { program, source }),
    };
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&done.stderr);
    let said = complaint.lines().rfind(|line| !line.trim().is_empty());
    Err(Error::Failed { program, said: said.unwrap_or("it does not say why").trim().into() })
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
        let found = newest(printed, "linux-image-6.1.0-", "-amd64");
        assert_eq!(found.as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(newest("", "linux-image-6.1.0-", "-amd64"), None);
    }

    #[test]
    fn two_kernels_are_one_too_many() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("boot")).unwrap();
        for version in ["1", "2"] {
            std::fs::write(root.path().join(format!("boot/vmlinuz-{version}")), "").unwrap();
        }
        assert!(matches!(Kernel::at(root.path()), Err(Error::Kernels { found: 2, .. })));
    }

    #[test]
    fn a_kernel_without_depmod_s_word_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("boot")).unwrap();
        std::fs::write(root.path().join("boot/vmlinuz-7"), "").unwrap();
        let told = Kernel::at(root.path()).unwrap_err().to_string();
        assert!(told.ends_with(&format!("run `depmod -b {} 7`", root.path().display())), "{told}");
    }

    #[test]
    fn a_package_that_apt_does_not_know_is_named() {
        let cache = tempfile::tempdir().unwrap();
        let asked = Kernel::fetch(Some("linux-image-none"), Architecture::X86_64, cache.path());
        let told = asked.unwrap_err().to_string();
        assert_eq!(told, "apt knows no package linux-image-none: try `apt-get update`");
    }
}
