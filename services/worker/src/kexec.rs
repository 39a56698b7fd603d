//! Goes on with the installed system's kernel, without the firmware in between.
//!
//! ```text
//! mount ─▶ grub.cfg ─▶ kernel and initrds copied into memory ─▶ unmount ─▶ kexec_file_load(2) ─▶ the caller jumps
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `BLOCK_DEVICE` | needed; the partition with kernel and initrd |
//! | `FS_TYPE` | its file system; absent: any this kernel knows |
//! | `KERNEL_PATH` | the kernel; absent: what GRUB would boot |
//! | `INITRD_PATH` | for `KERNEL_PATH`: its initrd, or several, separated by spaces |
//! | `CMD_LINE` | the kernel's arguments; absent, and without `KERNEL_PATH`: those that GRUB would give it |
//! | `GRUBCFG_PATH` | GRUB's configuration; absent: `boot/grub/grub.cfg` |
//!
//! Paths are the file system's own, whether they begin with a slash or not. All that can fail is done before the caller
//! is told to jump: nothing is mounted any more by then.

mod grub;
mod script;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kexec_loader::{KexecError, KexecRequest};
use uuid::Uuid;

use crate::action::{self, Context, joined};
use crate::environment::{self, Environment};
use crate::installed::{Installed, View};
use grub::Boot;

/// Where kernels and initrds are kept until the running kernel has taken them: in memory.
const STAGE: &str = "/run/tinwright/kexec";

const KERNEL: &str = "kernel";
const INITRD: &str = "initrd";

/// Where GRUB reads what it boots.
const GRUBCFG: &str = "boot/grub/grub.cfg";

/// How much of GRUB's configuration is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// What the kernel wants initrds to be aligned to (its Documentation/driver-api/early-userspace/buffer-format.rst).
const ALIGN: u64 = 4;

/// Why there is nothing to jump to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: its default entry boots no Linux", .0.display())]
    NoKernel(PathBuf),
    #[error("cannot load {}", kernel.display())]
    Load { kernel: PathBuf, source: KexecError },
}

impl From<Error> for action::Error {
    fn from(error: Error) -> Self {
        Self::own(error)
    }
}

/// A checked request.
struct Order {
    installed: Installed,
    /// None if GRUB's configuration says what to boot.
    boot: Option<Boot>,
    line: Option<String>,
    config: PathBuf,
}

impl Order {
    fn read(environment: &Environment) -> Result<Self, environment::Error> {
        let installed = Installed {
            disk: environment.required("BLOCK_DEVICE")?.into(),
            fs_type: environment.optional("FS_TYPE").map(str::to_owned),
        };
        let line = environment.optional("CMD_LINE").map(str::to_owned);
        let boot = environment.optional("KERNEL_PATH").map(|kernel| Boot {
            kernel: kernel.into(),
            initrds: environment
                .optional("INITRD_PATH")
                .map(|paths| paths.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            line: String::new(),
        });
        let config = environment.optional("GRUBCFG_PATH").unwrap_or(GRUBCFG).into();
        Ok(Self { installed, boot, line, config })
    }
}

/// Loads the kernel; the caller jumps.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), action::Error> {
    let Order { installed, boot, line, config } = Order::read(environment)?;
    let stage = Stage::open()?;
    let mut copies = stage.copies()?;
    let gathered = installed.visit(View::Root, move || {
        let boot = boot.map_or_else(|| default_boot(&config), Ok)?;
        copies.fill(&boot)?;
        Ok::<_, Error>(boot)
    });
    let boot = gathered.await??;
    if context.stop.is_cancelled() {
        return Err(action::Error::Cancelled);
    }
    let (kernel, initrds) = (boot.kernel, boot.initrds.join(" "));
    // What a template gives an action may hold secrets; what lies on the disk is told.
    let shown = if line.is_some() { "of CMD_LINE" } else { boot.line.as_str() };
    let said = format!("kernel {kernel}, initrd {initrds}, arguments {shown}\n");
    context.progress.output(said.as_bytes());
    let line = line.unwrap_or(boot.line);
    let loaded = joined(tokio::task::spawn_blocking(move || stage.load(line))).await?;
    Ok(loaded.map_err(|source| Error::Load { kernel: kernel.into(), source })?)
}

/// What GRUB would boot according to its configuration at `path`.
fn default_boot(path: &Path) -> Result<Boot, Error> {
    let failed = |source| Error::File { doing: "read", path: path.into(), source };
    let mut config = Vec::new();
    let file = File::open(Path::new("/").join(path)).map_err(failed)?;
    file.take(LONGEST).read_to_end(&mut config).map_err(failed)?;
    let boot = grub::default_boot(&String::from_utf8_lossy(&config));
    boot.ok_or_else(|| Error::NoKernel(path.into()))
}

/// A place for kernel and initrd on their way from the file system to the kernel that runs. It goes when dropped.
#[derive(Debug)]
struct Stage(PathBuf);

/// The files in it, open, since the file system's visitor sees nothing else of what is outside.
#[derive(Debug)]
struct Copies {
    kernel: File,
    initrd: File,
}

impl Stage {
    fn open() -> Result<Self, Error> {
        let path = Path::new(STAGE).join(Uuid::new_v4().to_string());
        let made = fs::create_dir_all(&path);
        made.map_err(|source| Error::File { doing: "make", path: path.clone(), source })?;
        Ok(Self(path))
    }

    fn copies(&self) -> Result<Copies, Error> {
        let file = |name| {
            let path = self.0.join(name);
            File::create(&path).map_err(|source| Error::File { doing: "make", path, source })
        };
        Ok(Copies { kernel: file(KERNEL)?, initrd: file(INITRD)? })
    }

    /// Has the running kernel take them.
    fn load(self, line: String) -> Result<(), KexecError> {
        let initrd = self.0.join(INITRD);
        let initrd = (initrd.metadata()?.len() > 0).then_some(initrd);
        let request = KexecRequest { kernel: self.0.join(KERNEL), initrd, cmdline: line };
        kexec_loader::load_dry(&request)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

impl Copies {
    /// Copies what `boot` names, initrds one behind the other.
    fn fill(&mut self, boot: &Boot) -> Result<(), Error> {
        append(&boot.kernel, &mut self.kernel)?;
        for path in &boot.initrds {
            let length = append(path, &mut self.initrd)?;
            let missing = length.next_multiple_of(ALIGN) - length;
            let padded = io::copy(&mut io::repeat(0).take(missing), &mut self.initrd);
            padded.map_err(|source| Error::File { doing: "copy", path: path.into(), source })?;
        }
        Ok(())
    }
}

/// Copies the file at `path`; how many bytes that were.
fn append(path: &str, to: &mut File) -> Result<u64, Error> {
    let copied = File::open(Path::new("/").join(path)).and_then(|mut from| io::copy(&mut from, to));
    copied.map_err(|source| Error::File { doing: "copy", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initrds_are_put_one_behind_the_other_where_the_kernel_looks_for_them() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = place.path().join(name);
            fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let kernel = file("vmlinuz", "kernel");
        let initrds = vec![file("one", "12345"), file("two", "1234"), file("three", "1")];
        let stage = Stage::open().unwrap();
        let boot = Boot { kernel, initrds, line: String::new() };
        stage.copies().unwrap().fill(&boot).unwrap();
        let read = |name| fs::read(stage.0.join(name)).unwrap();
        assert_eq!(
            (read(KERNEL), read(INITRD)),
            (b"kernel".into(), b"12345\0\0\x001234\x31\0\0\0".into())
        );
        let path = stage.0.clone();
        drop(stage);
        assert!(!path.exists());
    }
}
