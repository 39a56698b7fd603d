//! The sandbox's file tree: an empty tmpfs with read-only system directories and the job's files.
//!
//! The tmpfs becomes the root first, with the host's tree below it at `/oldroot`; sources are bound
//! from there. The host's tree is detached at the end.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::job::Job;
use crate::link::{Fault, InStep};

/// This program, inside the sandbox.
pub(crate) const PROGRAM: &str = "/program";
/// Scratch directory, inside the sandbox.
pub(crate) const SCRATCH: &str = "/scratch";
/// The host's tree, until it is detached.
const OLD_ROOT: &str = "/oldroot";
/// Directory that the tmpfs covers for a moment. Each host with programs has it.
const MOUNT_POINT: &str = "/usr";
/// Space for names and links in the tmpfs.
const ROOT_BYTES: u64 = 1024 * 1024;
/// Directories with programs and libraries. Some of them are links into `/usr`.
pub(crate) const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/bin", "/sbin"];
/// Device files.
pub(crate) const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

const SAFE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const READ_ONLY: MountFlags = SAFE.union(MountFlags::RDONLY);
const INPUT: MountFlags = READ_ONLY.union(MountFlags::NOEXEC);
const WRITABLE: MountFlags = SAFE.union(MountFlags::NOEXEC);
const DEVICE: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC);

/// Makes the sandbox's tree the root of this process, which is in a new mount namespace.
///
/// With `other_user`, the job runs with other ids than this process has now.
pub(crate) fn enter(job: Option<&Job>, other_user: bool) -> Result<(), Fault> {
    // Nothing that is mounted here may appear on the host.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .in_step("making mounts private")?;
    let program = Program::find().in_step("this program's file")?;
    enter_tmpfs(program.bytes + ROOT_BYTES).in_step("entering a tmpfs")?;
    for path in SYSTEM {
        add_system(path).in_step(&format!("adding {path}"))?;
    }
    for device in DEVICES {
        bind(Path::new(device), Path::new(device), DEVICE).in_step(&format!("adding {device}"))?;
    }
    program.add(other_user).in_step("adding this program")?;
    if let Some(job) = job {
        bind(&job.scratch, Path::new(SCRATCH), WRITABLE).in_step("adding the scratch directory")?;
        for (source, target) in &job.read_only {
            bind(source, target, INPUT).in_step(&format!("adding {}", target.display()))?;
        }
    }
    detach_host().in_step("detaching the host's tree")
}

/// Mounts a tmpfs, and makes it the root with the old root below it.
fn enter_tmpfs(bytes: u64) -> io::Result<()> {
    let options = std::ffi::CString::new(format!("mode=755,nr_inodes=1024,size={bytes}"))?;
    mount("tmpfs", MOUNT_POINT, "tmpfs", SAFE, options.as_c_str())?;
    chdir(MOUNT_POINT)?;
    create_directory(Path::new("oldroot"))?;
    pivot_root(".", "oldroot")?;
    Ok(chdir("/")?)
}

fn detach_host() -> io::Result<()> {
    unmount(OLD_ROOT, UnmountFlags::DETACH)?;
    fs::remove_dir(OLD_ROOT)?;
    Ok(mount_remount("/", MountFlags::BIND | READ_ONLY, c"")?)
}

/// Adds a directory of the host, or its link to another one. A host may lack `/lib64`.
fn add_system(path: &str) -> io::Result<()> {
    match fs::symlink_metadata(old(Path::new(path))) {
        Ok(metadata) if metadata.is_symlink() => {
            symlink(fs::read_link(old(Path::new(path)))?, path)
        }
        Ok(_) => bind(Path::new(path), Path::new(path), READ_ONLY),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Path in the host's tree. The source of a bind has no links in it, which would lead elsewhere.
fn old(path: &Path) -> PathBuf {
    Path::new(OLD_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

/// Binds the host's `source` to `target` with `flags`, and all that is mounted below it.
fn bind(source: &Path, target: &Path, flags: MountFlags) -> io::Result<()> {
    let source = old(source);
    if let Some(parent) = target.parent() {
        create_directory(parent)?;
    }
    if fs::metadata(&source)?.is_dir() {
        create_directory(target)?;
    } else {
        File::create(target)?;
    }
    // Not recursive is refused in a user namespace: it would reveal what is below a mount.
    mount_bind_recursive(&source, target)?;
    mounts_at(target)?.iter().try_for_each(|mount| restrict(mount, flags))
}

fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Adds `flags` to a mount. Flags that it has already must be repeated in a user namespace.
fn restrict(mount: &Path, flags: MountFlags) -> io::Result<()> {
    let present = statvfs(mount)?.f_flag;
    let kept = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ]
    .into_iter()
    .filter(|(flag, _)| present.contains(*flag))
    .fold(flags, |flags, (_, flag)| flags | flag);
    Ok(mount_remount(mount, MountFlags::BIND | kept, c"")?)
}

/// Returns the mounts at and below `target`.
fn mounts_at(target: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string(old(Path::new("/proc/self/mountinfo")))?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    Ok(points.filter(|point| point.starts_with(target)).collect())
}

/// Replaces the octal escapes of `/proc/self/mountinfo` (proc(5)).
fn unescape(text: &str) -> PathBuf {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
        .into()
}

/// The file of this program.
struct Program {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Program {
    fn find() -> io::Result<Self> {
        let file = File::open("/proc/self/exe")?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: fs::read_link("/proc/self/exe")?, file, bytes })
    }

    /// Adds the program to the sandbox: its file, or a copy if the job's user cannot reach it.
    fn add(mut self, other_user: bool) -> io::Result<()> {
        let target = Path::new(PROGRAM);
        let opened = self.file.metadata()?;
        let is_executable = !other_user || opened.mode() & 0o001 != 0;
        // The path leads to another file if the program was upgraded while it runs.
        let is_same = fs::metadata(old(&self.path))
            .is_ok_and(|found| (found.dev(), found.ino()) == (opened.dev(), opened.ino()));
        if is_executable && is_same && bind(&self.path, target, READ_ONLY).is_ok() {
            return Ok(());
        }
        let mut copy = File::create(target)?;
        io::copy(&mut self.file, &mut copy)?;
        copy.set_permissions(Permissions::from_mode(0o555))
    }
}
