//! Conversions of images that other programs made: qemu-img, gzip, xz, zstd, bzip2, zip and tar.
#![allow(clippy::unwrap_used, missing_docs)]

mod corpus;
mod hostile;
mod layers;
mod mutated;
mod truncated;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use disk_images::{Format, Job, Kind, Limits, Refusal, Report, convert};

/// Options of qemu-img for each kind of image, with the format and the extension of its name.
const IMAGES: [(&str, &[&str], Format, &str); 13] = [
    ("raw", &["-O", "raw"], Format::Raw, "raw"),
    ("qcow2", &["-O", "qcow2"], Format::Qcow2, "qcow2"),
    ("qcow2-v2", &["-O", "qcow2", "-o", "compat=0.10,cluster_size=4k"], Format::Qcow2, "qcow2"),
    ("qcow2-c", &["-O", "qcow2", "-c"], Format::Qcow2, "img"),
    ("qcow2-zstd", &["-O", "qcow2", "-c", "-o", "compression_type=zstd"], Format::Qcow2, "img"),
    ("qcow2-l2", &["-O", "qcow2", "-o", "extended_l2=on"], Format::Qcow2, "qcow2"),
    ("vmdk", &["-O", "vmdk"], Format::Vmdk, "vmdk"),
    ("vmdk-s", &["-O", "vmdk", "-o", "subformat=streamOptimized"], Format::Vmdk, "vmdk"),
    ("vdi", &["-O", "vdi"], Format::Vdi, "vdi"),
    ("vdi-static", &["-O", "vdi", "-o", "static=on"], Format::Vdi, "vdi"),
    ("vhd", &["-O", "vpc", "-o", "force_size=on"], Format::Vhd, "vhd"),
    ("vhd-f", &["-O", "vpc", "-o", "force_size=on,subformat=fixed"], Format::Vhd, "vhd"),
    ("vhdx", &["-O", "vhdx"], Format::Vhdx, "vhdx"),
];

/// A directory with images, and one for conversions.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        // A comma has a meaning for QEMU.
        std::fs::create_dir(place.path().join("wo,rk")).unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn work(&self) -> PathBuf {
        self.path("wo,rk")
    }

    /// Writes a file.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Makes the image `kind` of [`IMAGES`] of the raw disk at `raw`.
    fn image(&self, kind: &str, raw: &Path) -> PathBuf {
        let (_, options, _, extension) = IMAGES.iter().find(|(name, ..)| *name == kind).unwrap();
        let path = self.path(&format!("{kind}.{extension}"));
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-f", "raw"]).args(*options).arg(raw).arg(&path);
        run(&mut command);
        path
    }

    fn job(&self, source: &Path) -> Job {
        Job {
            source: source.to_owned(),
            work: self.work(),
            name: source.file_name().unwrap().to_str().unwrap().to_owned(),
            declared: None,
            kind: Kind::Disk,
            limits: Limits::default(),
        }
    }

    fn convert(&self, source: &Path) -> Result<Report, String> {
        self.run(&self.job(source))
    }

    /// Runs `job`. Nothing but the content is left in the directory of conversions.
    fn run(&self, job: &Job) -> Result<Report, String> {
        let converted = convert(job, &mut |_| {}).map_err(one_line);
        let left = std::fs::read_dir(self.work()).unwrap().map(|entry| entry.unwrap().path());
        let expected = converted.iter().map(|report| report.content.clone()).collect::<Vec<_>>();
        assert_eq!(left.collect::<Vec<_>>(), expected, "{converted:?}");
        converted
    }

    /// Returns the refusal of `source`.
    fn refused(&self, source: &Path) -> String {
        self.convert(source).unwrap_err()
    }
}

/// Returns the text of `refusal`, which is one line of printable characters.
fn one_line(refusal: Refusal) -> String {
    let text = refusal.to_string();
    assert!(!text.chars().any(char::is_control) && text.chars().count() < 600, "{text:?}");
    text
}

/// Runs `command` to its end.
fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}");
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns `count` bytes that do not compress, by a generator that `seed` starts.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Returns a disk of `bytes` bytes with a boot sector, islands of data, and data at its end.
fn disk(bytes: usize) -> Vec<u8> {
    let mut disk = vec![0; bytes];
    for island in 0..24 {
        let random = noise(island, 16);
        let number =
            |at: usize| u32::from_le_bytes(random[at..at + 4].try_into().unwrap()) as usize;
        let length = 1 + number(0) % (bytes / 100);
        let start = number(8) % (bytes - length);
        disk[start..start + length].copy_from_slice(&noise(100 + island, length));
    }
    disk[..512].copy_from_slice(&noise(1000, 512));
    // No partition: the boot indicators are not valid.
    disk[446..510].fill(0x41);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[bytes - 700..].copy_from_slice(&noise(1001, 700));
    disk
}

/// Asserts that the content of `report` is `disk`, with holes, and removes it.
fn assert_content(report: &Report, disk: &[u8], case: &str) {
    let content = std::fs::read(&report.content).unwrap();
    assert_eq!(content.len(), disk.len(), "{case}");
    assert!(content == disk, "{case}: another content");
    assert_eq!(report.size_bytes, disk.len() as u64, "{case}");
    let room = std::fs::metadata(&report.content).unwrap().blocks() * 512;
    let data = disk.chunks(4096).filter(|block| block.iter().any(|it| *it != 0)).count() as u64;
    // Programs and file systems may fill up to 64 KiB around data.
    assert!(room < disk.len() as u64 / 2 && room <= data * 4096 * 3, "{case}: {room} of {data}");
    std::fs::remove_file(&report.content).unwrap();
}
