//! Collects the files of the initramfs.
//!
//! ```text
//! /init, /etc/*.sh                 our scripts
//! /bin/busybox                     Debian's, static; our scripts make its links
//! /bin/tinwright-worker            the worker; in images for nodes /bin/tinwright-node, the node agent
//! /sbin/mkfs.ext4, mkfs.ext3       Debian's mke2fs, with its libraries: busybox makes ext2 at most; not for nodes
//! /sbin/iscsid, iscsiadm           Debian's open-iscsi, with its libraries; for nodes only
//! /lib/modules/VERSION/            the included modules, and an index of only these
//! /etc/modules                     modules to load at start
//! /etc/ssl/certs/                  certificate authorities for image servers
//! /etc/tinwright/image-keys        keys of which images need a signature, if there are any; not for nodes
//! ```
//!
//! Programs are included unchanged: stripping worker and node agent is up to their own build.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use image_signature::KEYS_PATH;
use sha2::{Digest as _, Sha256};

use super::archive::Archive;
use super::flavour::Flavour;
use super::kernel::Kernel;
use super::module_groups;
use super::modules::{Index, ModuleSet};
use super::program;

/// Packs in a second; higher levels take twenty times as long to save a tenth.
const ZSTD_LEVEL: i32 = 9;

/// The sources of the initramfs.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) flavour: Flavour,
    pub(super) kernel: Kernel,
    /// The program that the machine runs: worker or node agent.
    pub(super) program: PathBuf,
    pub(super) busybox: PathBuf,
    /// Certificates of public authorities, in PEM; may be missing.
    pub(super) authorities: PathBuf,
    /// The program that makes ext3 and ext4; may be missing.
    pub(super) mke2fs: PathBuf,
    /// The directory of iscsid and iscsiadm.
    pub(super) open_iscsi: PathBuf,
    /// Files of public keys, one after another: the worker installs only images that one of them
    /// signed. Empty: all images.
    pub(super) image_keys: String,
}

/// A packed initramfs.
#[derive(Debug)]
pub(super) struct Initramfs {
    flavour: Flavour,
    pub(super) packed: Vec<u8>,
    /// Number of modules in it.
    pub(super) modules: usize,
    /// Modules that are missing in the kernel.
    missing: Vec<&'static str>,
    /// True if it has the certificates of public authorities.
    pub(super) authorities: bool,
    /// True if it can make ext3 and ext4, or does not have to.
    pub(super) ext4: bool,
}

impl Initramfs {
    /// Returns modules that are missing in the kernel, with the reasons for including them.
    pub(super) fn missing_modules(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        module_groups::all(self.flavour).filter(|(module, _)| self.missing.contains(module))
    }
}

/// A file that was written.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) path: PathBuf,
    /// In bytes.
    pub(super) size: usize,
    /// In hexadecimal.
    pub(super) sha256: String,
}

impl Inputs {
    /// Builds the initramfs.
    pub(super) fn initramfs(&self) -> anyhow::Result<Initramfs> {
        let mut tree = Archive::default();
        add_constant_files(&mut tree);
        self.flavour.add_scripts(&mut tree);
        self.add_static_programs(&mut tree)?;
        let authorities = self.authorities.exists();
        if authorities {
            tree.file("etc/ssl/certs/ca-certificates.crt", read(&self.authorities)?);
        }
        if !self.image_keys.is_empty() {
            tree.file(KEYS_PATH, self.image_keys.as_str());
        }
        let ext4 = match self.flavour {
            Flavour::Install => self.add_mke2fs(&mut tree)?,
            Flavour::Node => self.add_open_iscsi(&mut tree).map(|()| true)?,
        };
        let index = Index::read(&self.kernel.modules)?;
        let names = module_groups::all(self.flavour).map(|(module, _)| module);
        let modules = ModuleSet::new(&index, names)?;
        self.add_modules(&mut tree, &index, &modules)?;
        let packed = pack(&tree).context("the initramfs")?;
        let (modules, missing) = (modules.len(), modules.missing);
        Ok(Initramfs { flavour: self.flavour, packed, modules, missing, authorities, ext4 })
    }

    fn add_static_programs(&self, tree: &mut Archive) -> anyhow::Result<()> {
        let (busybox, program) = (self.busybox.display(), self.program.display());
        anyhow::ensure!(self.busybox.exists(), "{busybox} is missing: install busybox-static");
        let (name, noun) = (self.flavour.program(), self.flavour.program_noun());
        let named = format!("{noun} {program}");
        for (path, place, subject, hint) in [
            (&self.busybox, "busybox", busybox.to_string(), "install busybox-static"),
            (&self.program, name, named, "give one that is linked statically"),
        ] {
            let content = read(path)?;
            let is_static = !program::needs_loader(&content);
            anyhow::ensure!(is_static, "{subject} needs a loader and libraries: {hint}");
            tree.program(&format!("bin/{place}"), content);
        }
        Ok(())
    }

    /// Adds mke2fs, which picks the file system from `argv[0]`, and so is linked as mkfs.ext3 and mkfs.ext4. Returns false without it.
    fn add_mke2fs(&self, tree: &mut Archive) -> anyhow::Result<bool> {
        if !self.mke2fs.exists() {
            return Ok(false);
        }
        add_with_libraries(tree, &self.mke2fs, "sbin/mkfs.ext4")?;
        tree.link("sbin/mkfs.ext3", "mkfs.ext4");
        tree.file("etc/mke2fs.conf", read(Path::new("/etc/mke2fs.conf"))?);
        Ok(true)
    }

    fn add_open_iscsi(&self, tree: &mut Archive) -> anyhow::Result<()> {
        for name in ["iscsid", "iscsiadm"] {
            let path = self.open_iscsi.join(name);
            anyhow::ensure!(path.exists(), "{} is missing: install open-iscsi", path.display());
            add_with_libraries(tree, &path, &format!("sbin/{name}"))?;
        }
        Ok(())
    }

    fn add_modules(
        &self,
        tree: &mut Archive,
        index: &Index,
        modules: &ModuleSet<'_>,
    ) -> anyhow::Result<()> {
        let (from, to) = (&self.kernel.modules, format!("lib/modules/{}", self.kernel.version));
        for path in modules.paths(index) {
            tree.file(&format!("{to}/{path}"), read(&from.join(path))?);
        }
        tree.file(&format!("{to}/modules.dep"), modules.dep(index));
        tree.file(&format!("{to}/modules.alias"), modules.alias(index));
        tree.file(&format!("{to}/modules.builtin"), read(&from.join("modules.builtin"))?);
        let at_start = module_groups::at_start(self.flavour);
        let at_start = at_start.filter(|module| modules.contains(module));
        tree.file("etc/modules", at_start.map(|module| format!("{module}\n")).collect::<String>());
        Ok(())
    }
}

/// Adds the files that are the same in every image.
fn add_constant_files(tree: &mut Archive) {
    for directory in ["dev", "proc", "root", "run", "sbin", "sys", "tmp", "usr/bin", "usr/sbin"] {
        tree.directory(directory);
    }
    tree.link("bin/sh", "busybox");
    tree.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    tree.file("etc/group", "root:x:0:\n");
    tree.file("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
    tree.file("etc/nsswitch.conf", "hosts: files dns\n");
}

/// Adds the program at `path` as `place`, and its loader and libraries where it looks for them.
fn add_with_libraries(tree: &mut Archive, path: &Path, place: &str) -> anyhow::Result<()> {
    let libraries = program::libraries(path);
    for library in libraries.with_context(|| format!("libraries of {}", path.display()))? {
        tree.program(library.to_string_lossy().trim_start_matches('/'), read(&library)?);
    }
    tree.program(place, read(path)?);
    Ok(())
}

/// Compresses `tree` on one thread: several threads would make the output depend on their timing.
fn pack(tree: &Archive) -> io::Result<Vec<u8>> {
    let mut packer = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
    packer.include_checksum(true)?;
    packer.write_all(&tree.bytes()?)?;
    packer.finish()
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces the file at `path` by `content` atomically: a server of this directory never sends half a file.
pub(super) fn publish(path: PathBuf, content: &[u8]) -> anyhow::Result<Published> {
    replace(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Published { path, size: content.len(), sha256 })
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
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
