//! Putting the environment together: which files are in it, and where they come from.
//!
//! ```text
//! /init, /etc/udhcpc.sh            our scripts
//! /bin/busybox                     Debian's, static; /init makes its links
//! /bin/tinwright-worker            what all this is for
//! /sbin/mkfs.ext4, mkfs.ext3       Debian's mke2fs, with its libraries: busybox makes ext2 at most
//! /lib/modules/VERSION/            chosen modules, and an index of just these
//! /etc/modules                     those to load at start
//! /etc/ssl/certs/                  whom image servers' certificates may come from
//! ```
//!
//! Programs are taken as they are given: a stripped worker is smaller, but that is for its own build to say.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::archive::Archive;
use super::choice::{GROUPS, When};
use super::kernel::Kernel;
use super::modules::{self, Choice, Index, IndexError};
use super::program;

/// Packs in a second; levels beyond take twenty times as long to save a tenth.
const LEVEL: i32 = 9;

/// Why the environment cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{} is not there: install busybox-static", .0.display())]
    NoBusybox(PathBuf),
    #[error("{} needs a loader and libraries: install busybox-static", .0.display())]
    DynamicBusybox(PathBuf),
    #[error("worker {} needs a loader and libraries: give one that is linked statically", .0.display())]
    DynamicWorker(PathBuf),
    #[error("the libraries of {}", path.display())]
    Libraries { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the initramfs")]
    Pack(#[source] io::Error),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Modules(#[from] modules::Error),
}

/// What the environment is made from.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) kernel: Kernel,
    /// Run once the machine has an address.
    pub(super) worker: PathBuf,
    pub(super) busybox: PathBuf,
    /// Certificates of public authorities, in PEM; left out where there is no such file.
    pub(super) authorities: PathBuf,
    /// What makes ext3 and ext4; left out where there is no such file.
    pub(super) mke2fs: PathBuf,
}

/// An initramfs, packed.
#[derive(Debug)]
pub(super) struct Initramfs {
    pub(super) packed: Vec<u8>,
    /// How many modules are in it.
    pub(super) modules: usize,
    /// Modules it was to have, but the kernel does not.
    pub(super) absent: Vec<&'static str>,
    /// Whether it knows public authorities.
    pub(super) authorities: bool,
    /// Whether it can make ext3 and ext4.
    pub(super) ext4: bool,
}

impl Initramfs {
    /// What `kernel` lacks, with the reason it was wanted, for people.
    pub(super) fn lacks(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let groups =
            GROUPS.iter().flat_map(|group| group.modules.iter().map(|it| (*it, group.reason)));
        groups.filter(|(module, _)| self.absent.contains(module))
    }
}

/// A file that was made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) path: PathBuf,
    /// In bytes.
    pub(super) size: usize,
    /// In hexadecimal.
    pub(super) sha256: String,
}

impl Parts {
    /// All but the kernel, as one archive. The same parts give the same bytes.
    pub(super) fn initramfs(&self) -> Result<Initramfs, Error> {
        let mut tree = Archive::default();
        skeleton(&mut tree);
        self.programs(&mut tree)?;
        let authorities = self.authorities.exists();
        if authorities {
            tree.file("etc/ssl/certs/ca-certificates.crt", read(&self.authorities)?);
        }
        let ext4 = self.mke2fs.exists();
        if ext4 {
            self.formatter(&mut tree)?;
        }
        let index = Index::read(&self.kernel.modules)?;
        let choice = Choice::new(&index, GROUPS)?;
        self.modules(&mut tree, &index, &choice)?;
        let packed = pack(&tree).map_err(Error::Pack)?;
        Ok(Initramfs { packed, modules: choice.len(), absent: choice.absent, authorities, ext4 })
    }

    fn programs(&self, tree: &mut Archive) -> Result<(), Error> {
        if !self.busybox.exists() {
            return Err(Error::NoBusybox(self.busybox.clone()));
        }
        let (busybox, worker) = (read(&self.busybox)?, read(&self.worker)?);
        if program::needs_loader(&busybox) {
            return Err(Error::DynamicBusybox(self.busybox.clone()));
        }
        if program::needs_loader(&worker) {
            return Err(Error::DynamicWorker(self.worker.clone()));
        }
        tree.program("bin/busybox", busybox);
        tree.program("bin/tinwright-worker", worker);
        Ok(())
    }

    /// It makes what the name says that it is called by.
    fn formatter(&self, tree: &mut Archive) -> Result<(), Error> {
        let of_its = |source| Error::Libraries { path: self.mke2fs.clone(), source };
        for library in program::libraries(&self.mke2fs).map_err(of_its)? {
            let place = library.to_string_lossy();
            tree.program(place.trim_start_matches('/'), read(&library)?);
        }
        tree.program("sbin/mkfs.ext4", read(&self.mke2fs)?);
        tree.link("sbin/mkfs.ext3", "mkfs.ext4");
        tree.file("etc/mke2fs.conf", read(Path::new("/etc/mke2fs.conf"))?);
        Ok(())
    }

    fn modules(&self, tree: &mut Archive, index: &Index, choice: &Choice) -> Result<(), Error> {
        let (from, to) = (&self.kernel.modules, format!("lib/modules/{}", self.kernel.version));
        for path in choice.paths(index) {
            tree.file(&format!("{to}/{path}"), read(&from.join(path))?);
        }
        tree.file(&format!("{to}/modules.dep"), choice.dep(index));
        tree.file(&format!("{to}/modules.alias"), choice.alias(index));
        tree.file(&format!("{to}/modules.builtin"), read(&from.join("modules.builtin"))?);
        let always = GROUPS.iter().filter(|group| group.when == When::Always);
        let always = always.flat_map(|group| group.modules).filter(|module| choice.holds(module));
        tree.file("etc/modules", always.map(|module| format!("{module}\n")).collect::<String>());
        Ok(())
    }
}

/// What is the same in every image.
fn skeleton(tree: &mut Archive) {
    for directory in ["dev", "proc", "root", "run", "sbin", "sys", "tmp", "usr/bin", "usr/sbin"] {
        tree.directory(directory);
    }
    tree.program("init", include_str!("init.sh"));
    tree.program("etc/udhcpc.sh", include_str!("udhcpc.sh"));
    tree.link("bin/sh", "busybox");
    tree.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    tree.file("etc/group", "root:x:0:\n");
    tree.file("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
    tree.file("etc/nsswitch.conf", "hosts: files dns\n");
}

/// Compresses on one thread, as several would cut the input where they please.
fn pack(tree: &Archive) -> io::Result<Vec<u8>> {
    let mut packer = zstd::Encoder::new(Vec::new(), LEVEL)?;
    packer.include_checksum(true)?;
    tree.write(&mut packer)?;
    packer.flush()?;
    packer.finish()
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })
}

/// Puts `content` at `path` in one step: who serves this directory never hands out half a file.
pub(super) fn publish(path: PathBuf, content: &[u8]) -> Result<Made, Error> {
    match replace(&path, content) {
        Err(source) => Err(Error::Write { path, source }),
        Ok(()) => {
            let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Made { path, size: content.len(), sha256 })
        }
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
