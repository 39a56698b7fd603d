//! The folder with the files of a package before they are packed.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::run;

/// The first bytes of a program (elf(5)).
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// A folder of files. Drop removes it.
#[derive(Debug)]
pub(super) struct Stage(PathBuf);

impl Stage {
    /// Creates an empty folder for `purpose` in the folder `output`.
    pub(super) fn new(output: &Path, purpose: &str) -> anyhow::Result<Self> {
        let path = output.join(format!(".{purpose}-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the file `to` in it, after creating its folder.
    fn place(&self, to: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(to);
        fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
        Ok(path)
    }

    /// Copies a file, with its permission to be executed.
    pub(super) fn copy(&self, from: &Path, to: &str) -> anyhow::Result<()> {
        let copied = fs::copy(from, self.place(to)?);
        copied.with_context(|| format!("copying {}", from.display())).map(drop)
    }

    /// Copies a folder with everything in it.
    pub(super) fn copy_folder(&self, from: &Path, to: &str) -> anyhow::Result<()> {
        for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
            let entry = entry?;
            let to = format!("{to}/{}", entry.file_name().to_string_lossy());
            match entry.file_type()?.is_dir() {
                true => self.copy_folder(&entry.path(), &to)?,
                false => self.copy(&entry.path(), &to)?,
            }
        }
        Ok(())
    }

    /// Copies a program, without debug information. It has to be linked statically: it may run on a host with other libraries, or with none.
    pub(super) fn copy_program(&self, from: &Path, to: &str) -> anyhow::Result<()> {
        let mut magic = [0; 4];
        let read = File::open(from).and_then(|mut file| file.read_exact(&mut magic));
        read.with_context(|| format!("reading {}", from.display()))?;
        let path = self.place(to)?;
        if magic != ELF_MAGIC {
            return self.copy(from, to);
        }
        let mut readelf = Command::new("readelf");
        let output = readelf.arg("--dynamic").arg(from).output().context("starting readelf")?;
        let needs_libraries = String::from_utf8_lossy(&output.stdout).contains("(NEEDED)");
        anyhow::ensure!(!needs_libraries, "{} is not linked statically", from.display());
        run(Command::new("strip").arg("-o").arg(&path).arg(from))
    }

    /// Writes a file.
    pub(super) fn write(&self, to: &str, content: &[u8]) -> anyhow::Result<()> {
        Ok(fs::write(self.place(to)?, content)?)
    }

    /// Writes a file that is compressed by gzip, without a time in it.
    pub(super) fn write_compressed(&self, to: &str, content: &[u8]) -> anyhow::Result<()> {
        let file = File::create(self.place(to)?)?;
        let mut gzip = Command::new("gzip");
        gzip.args(["--no-name", "--best", "--stdout"]).stdin(Stdio::piped()).stdout(file);
        let mut process = gzip.spawn().context("starting gzip")?;
        let mut input = process.stdin.take().context("the input of gzip")?;
        input.write_all(content)?;
        drop(input);
        let status = process.wait()?;
        anyhow::ensure!(status.success(), "gzip: {status}");
        Ok(())
    }

    /// Gives each file the mode 0644, or 0755 if it can be executed, and each folder 0755, whatever the umask is.
    pub(super) fn set_modes(&self) -> anyhow::Result<()> {
        set_modes(&self.0)
    }

    /// Returns the size of all files, in KiB, each rounded up, as deb-substvars(5) describes it for Installed-Size.
    pub(super) fn kibibytes(&self) -> anyhow::Result<u64> {
        kibibytes(&self.0)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cargo rack: removing {}: {error}", self.0.display());
        }
    }
}

fn set_modes(path: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(path)?;
    let is_executable = metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0;
    let mode = if is_executable { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            set_modes(&entry?.path())?;
        }
    }
    Ok(())
}

fn kibibytes(path: &Path) -> anyhow::Result<u64> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len().div_ceil(1024));
    }
    let mut sum = 1;
    for entry in fs::read_dir(path)? {
        sum += kibibytes(&entry?.path())?;
    }
    Ok(sum)
}
