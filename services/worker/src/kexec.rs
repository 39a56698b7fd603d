//! Boots the installed system's kernel without going through firmware.
//!
//! ```text
//! mount ─▶ grub.cfg ─▶ kernel and initrds copied into memory ─▶ unmount ─▶ kexec_file_load(2) ─▶ the caller jumps to it
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `BLOCK_DEVICE` | required; the partition with kernel and initrd |
//! | `FS_TYPE` | its file system; default: any that the kernel supports |
//! | `KERNEL_PATH` | the kernel; default: that of GRUB's default entry |
//! | `INITRD_PATH` | for `KERNEL_PATH`: its initrd, or several, separated by spaces |
//! | `CMD_LINE` | the kernel's arguments; default without `KERNEL_PATH`: those of GRUB's default entry |
//! | `GRUBCFG_PATH` | GRUB's configuration; default: `boot/grub/grub.cfg` |
//!
//! Paths are relative to the file system's root directory, with or without a leading slash. Before the caller jumps to the
//! kernel, everything that can fail is done, and the file system is unmounted.

mod grub;
mod script;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kexec_loader::{KexecError, KexecRequest};
use tempfile::TempDir;

use crate::context::Context;
use crate::environment::{self, Environment};
use crate::error::{self, joined};
use crate::mounted_root::{TargetFilesystem, View};
use grub::BootEntry;

/// Directory in memory for copies of kernel and initrds, until the running kernel has loaded them.
const STAGING_ROOT: &str = "/run/tinwright/kexec";

const KERNEL: &str = "kernel";
const INITRD: &str = "initrd";

/// Default path of GRUB's configuration.
const GRUBCFG: &str = "boot/grub/grub.cfg";

/// Maximum number of bytes read from GRUB's configuration.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Alignment in bytes that the kernel requires of initrds (its Documentation/driver-api/early-userspace/buffer-format.rst).
const ALIGN: u64 = 4;

/// The kernel cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {operation} {}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: its default entry does not boot Linux", .0.display())]
    NoKernel(PathBuf),
    #[error("cannot load {}", kernel.display())]
    Load { kernel: PathBuf, source: KexecError },
}

impl crate::error::StepError for Error {}

/// The parsed variables of the action.
struct KexecOptions {
    filesystem: TargetFilesystem,
    /// `None`: the default entry of GRUB's configuration is booted.
    boot: Option<BootEntry>,
    line: Option<String>,
    config: PathBuf,
}

impl KexecOptions {
    fn parse(environment: &Environment) -> Result<Self, environment::Error> {
        let filesystem = TargetFilesystem::parse(environment, "BLOCK_DEVICE")?;
        let line = environment.optional("CMD_LINE").map(str::to_owned);
        let initrds = environment.optional("INITRD_PATH").unwrap_or_default();
        let boot = environment.optional("KERNEL_PATH").map(|kernel| BootEntry {
            kernel: kernel.into(),
            initrds: initrds.split_whitespace().map(str::to_owned).collect(),
            line: String::new(),
        });
        let config = environment.optional("GRUBCFG_PATH").unwrap_or(GRUBCFG).into();
        Ok(Self { filesystem, boot, line, config })
    }
}

/// Loads the kernel. The caller jumps to it.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), error::Error> {
    let KexecOptions { filesystem, boot, line, config } = KexecOptions::parse(environment)?;
    let staging = StagingDirectory::create()?;
    let mut files = staging.create_files()?;
    let copied = filesystem.with_mounted(View::Root, move || {
        let boot = boot.map_or_else(|| default_boot(&config), Ok)?;
        files.copy_from(&boot)?;
        Ok::<_, Error>(boot)
    });
    let boot = copied.await??;
    if context.stop.is_cancelled() {
        return Err(error::Error::Cancelled);
    }
    let (kernel, initrds) = (boot.kernel, boot.initrds.join(" "));
    // Arguments from the template may contain secrets, so only arguments from the disk are logged.
    let arguments = if line.is_some() { "of CMD_LINE" } else { boot.line.as_str() };
    let message = format!("kernel {kernel}, initrd {initrds}, arguments {arguments}\n");
    context.progress.output(message.as_bytes());
    let line = line.unwrap_or(boot.line);
    let loaded = joined(tokio::task::spawn_blocking(move || staging.load(line))).await?;
    Ok(loaded.map_err(|source| Error::Load { kernel: kernel.into(), source })?)
}

/// Returns the default entry of GRUB's configuration at `path`.
fn default_boot(path: &Path) -> Result<BootEntry, Error> {
    let failed = |source| Error::File { operation: "read", path: path.into(), source };
    let mut config = Vec::new();
    let file = File::open(Path::new("/").join(path)).map_err(failed)?;
    file.take(MAX_CONFIG_BYTES).read_to_end(&mut config).map_err(failed)?;
    let boot = grub::default_boot(&String::from_utf8_lossy(&config));
    boot.ok_or_else(|| Error::NoKernel(path.into()))
}

/// A directory for copies of kernel and initrd. Removed when dropped.
#[derive(Debug)]
struct StagingDirectory(TempDir);

/// The files in the staging directory. They are opened before the change of root, after which their paths do not exist.
#[derive(Debug)]
struct StagedFiles {
    kernel: File,
    initrd: File,
}

impl StagingDirectory {
    fn create() -> Result<Self, Error> {
        let created = fs::create_dir_all(STAGING_ROOT).and_then(|()| TempDir::new_in(STAGING_ROOT));
        let failed =
            |source| Error::File { operation: "create", path: STAGING_ROOT.into(), source };
        created.map(Self).map_err(failed)
    }

    fn create_files(&self) -> Result<StagedFiles, Error> {
        let file = |name| {
            let path = self.0.path().join(name);
            File::create(&path).map_err(|source| Error::File { operation: "create", path, source })
        };
        Ok(StagedFiles { kernel: file(KERNEL)?, initrd: file(INITRD)? })
    }

    /// Loads kernel and initrd into the running kernel.
    fn load(self, line: String) -> Result<(), KexecError> {
        let initrd = self.0.path().join(INITRD);
        let initrd = (initrd.metadata()?.len() > 0).then_some(initrd);
        let request = KexecRequest { kernel: self.0.path().join(KERNEL), initrd, cmdline: line };
        kexec_loader::load_dry(&request)
    }
}

impl StagedFiles {
    /// Copies kernel and initrds of `boot`, the initrds concatenated.
    fn copy_from(&mut self, boot: &BootEntry) -> Result<(), Error> {
        append(&boot.kernel, &mut self.kernel)?;
        for path in &boot.initrds {
            let length = append(path, &mut self.initrd)?;
            let padding = length.next_multiple_of(ALIGN) - length;
            let padded = io::copy(&mut io::repeat(0).take(padding), &mut self.initrd);
            padded.map_err(|source| Error::File {
                operation: "copy",
                path: path.into(),
                source,
            })?;
        }
        Ok(())
    }
}

/// Appends the file at `path`. Returns the bytes copied.
fn append(path: &str, to: &mut File) -> Result<u64, Error> {
    let copied = File::open(Path::new("/").join(path)).and_then(|mut from| io::copy(&mut from, to));
    copied.map_err(|source| Error::File { operation: "copy", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initrds_are_concatenated_and_aligned() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let kernel = file("vmlinuz", "kernel");
        let initrds = vec![file("one", "12345"), file("two", "1234"), file("three", "1")];
        let staging = StagingDirectory::create().unwrap();
        let boot = BootEntry { kernel, initrds, line: String::new() };
        staging.create_files().unwrap().copy_from(&boot).unwrap();
        let read = |name| fs::read(staging.0.path().join(name)).unwrap();
        assert_eq!(
            (read(KERNEL), read(INITRD)),
            (b"kernel".into(), b"12345\0\0\x001234\x31\0\0\0".into())
        );
        let path = staging.0.path().to_owned();
        drop(staging);
        assert!(!path.exists());
    }
}
