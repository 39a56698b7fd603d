//! A loop device without content.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use rustix::fs::{FallocateFlags, fallocate};
use sha2::{Digest as _, Sha256};

/// Size of a piece that is read, in bytes.
const PIECE_BYTES: usize = 4 << 20;

/// A loop device over a file whose space is allocated. It bypasses the page cache. Drop detaches it.
#[derive(Debug)]
pub(super) struct BlankDisk {
    path: String,
    file: File,
    size: u64,
}

impl BlankDisk {
    /// Makes the file `backing` of `size` bytes, and a device over it.
    pub(super) fn new(backing: &Path, size: u64) -> anyhow::Result<Self> {
        let file = File::create_new(backing)?;
        fallocate(&file, FallocateFlags::empty(), 0, size)?;
        let mut command = Command::new("losetup");
        command.args(["--direct-io=on", "--find", "--show"]).arg(backing);
        let output = command.output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "losetup: {error}");
        let path = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Self { path, file, size })
    }

    /// Returns the path of the device.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Zeroes it.
    pub(super) fn blank(&self) -> anyhow::Result<()> {
        fallocate(&self.file, FallocateFlags::ZERO_RANGE, 0, self.size)?;
        self.file.sync_all()?;
        setup::run(Command::new("blockdev").args(["--flushbufs", &self.path]))
    }

    /// Returns the SHA-256 of the content in hexadecimal digits.
    pub(super) fn sha256(&self) -> anyhow::Result<String> {
        setup::run(Command::new("blockdev").args(["--flushbufs", &self.path]))?;
        let file = File::open(&self.path).with_context(|| self.path.clone())?;
        Ok(sha256(file)?)
    }
}

impl Drop for BlankDisk {
    fn drop(&mut self) {
        // The device remains in use if this fails, which losetup prints.
        let _detached = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

fn sha256(mut file: File) -> io::Result<String> {
    let (mut sum, mut piece) = (Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        sum.update(piece.get(..count).unwrap_or_default());
    }
}
