//! The supported formats, and their names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Format of a disk image or archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Bytes of the disk.
    Raw,
    /// QEMU's format, versions 2 and 3.
    Qcow2,
    /// VMware's format in one file: monolithicSparse and streamOptimized.
    Vmdk,
    /// VirtualBox's format.
    Vdi,
    /// Virtual PC's format: dynamic and fixed.
    Vhd,
    /// Hyper-V's format.
    Vhdx,
    /// Archive of files.
    Tar,
}

/// Compression or archive around an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wrapping {
    /// RFC 1952.
    Gzip,
    /// The .xz file format.
    Xz,
    /// RFC 8878.
    Zstd,
    /// bzip2 0.1 and later.
    Bzip2,
    /// An archive with one image.
    Zip,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Raw, Self::Qcow2, Self::Vmdk, Self::Vdi, Self::Vhd, Self::Vhdx, Self::Tar];

    /// Returns the name in lower case, as in file extensions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
            Self::Tar => "tar",
        }
    }

    /// Returns the format that [`name`](Self::name) returns `name` for.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl Wrapping {
    /// Returns the usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Zip => "zip",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Wrapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
