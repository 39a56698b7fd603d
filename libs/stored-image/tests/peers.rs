//! The stored form and the bmap, read by the programs that others read them with.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stored_image::{CheckedMap, EncoderSettings, bmap, store};
use tempfile::TempDir;

/// A raw disk with holes, and its stored form in files.
struct Files {
    place: TempDir,
    raw: Vec<u8>,
    map: CheckedMap,
}

impl Files {
    /// Stores a disk of `length` bytes with the given pieces of data.
    fn stored(length: usize, pieces: &[(usize, &[u8])]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let disk = File::create_new(place.path().join("disk.raw")).unwrap();
        disk.set_len(length as u64).unwrap();
        let mut raw = vec![0; length];
        for (at, piece) in pieces {
            disk.write_all_at(piece, *at as u64).unwrap();
            raw[*at..*at + piece.len()].copy_from_slice(piece);
        }
        let disk = File::open(place.path().join("disk.raw")).unwrap();
        let out = File::create_new(place.path().join("disk.raw.zst")).unwrap();
        let settings = EncoderSettings::default();
        let image = store(&disk, length as u64, out, &settings, |_| ()).unwrap();
        Self { place, raw, map: image.map }
    }

    /// A disk of three and a half blocks: text, a hole, and a short block with a few bytes.
    fn of_blocks() -> Self {
        let text = b"boot sector ".repeat(30_000);
        Self::stored((14 << 20) + 777, &[(0, &text), ((9 << 20) + 3, b"root"), (14 << 20, b"end")])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Copies the disk to a new file with `bmaptool`, after a change to the bmap.
    fn bmaptool(&self, source: &str, change: impl FnOnce(String) -> String) -> Output {
        std::fs::write(self.path("disk.bmap"), change(bmap(&self.map))).unwrap();
        let mut command = Command::new("bmaptool");
        command.arg("copy").arg("--bmap").arg(self.path("disk.bmap"));
        run(command.arg(self.path(source)).arg(self.path("copy.raw")))
    }
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn unpacked(path: &Path) -> Vec<u8> {
    let output = run(Command::new("zstd").arg("-dc").arg(path));
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn zstd_decompresses_a_stored_image() {
    let files = Files::of_blocks();
    assert!(unpacked(&files.path("disk.raw.zst")) == files.raw);
    let tested = run(Command::new("zstd").arg("-tq").arg(files.path("disk.raw.zst")));
    assert!(tested.status.success(), "{tested:?}");
}

#[test]
fn zstd_decompresses_tiny_images() {
    for (length, pieces) in [(0, &[][..]), (1, &[]), (1, &[(0, &b"x"[..])]), (4097, &[])] {
        let files = Files::stored(length, pieces);
        assert_eq!(unpacked(&files.path("disk.raw.zst")), files.raw, "{length} bytes");
    }
}

#[test]
fn bmaptool_copies_the_disk() {
    let files = Files::of_blocks();
    for source in ["disk.raw", "disk.raw.zst"] {
        let output = files.bmaptool(source, |bmap| bmap);
        assert!(output.status.success(), "{source}: {output:?}");
        assert!(std::fs::read(files.path("copy.raw")).unwrap() == files.raw, "{source}");
        std::fs::remove_file(files.path("copy.raw")).unwrap();
    }
}

#[test]
fn bmaptool_copies_disks_with_little_data() {
    for (length, pieces) in [(1, &[(0, &b"x"[..])][..]), (4 << 20, &[]), (5000, &[])] {
        let files = Files::stored(length, pieces);
        let output = files.bmaptool("disk.raw.zst", |bmap| bmap);
        assert!(output.status.success(), "{length} bytes: {output:?}");
        assert!(std::fs::read(files.path("copy.raw")).unwrap() == files.raw, "{length} bytes");
    }
}

#[test]
fn bmaptool_refuses_a_changed_bmap() {
    let change = |bmap: String| bmap.replace("<ImageSize> 14680841", "<ImageSize> 14680842");
    let output = Files::of_blocks().bmaptool("disk.raw", change);
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("checksum"), "{output:?}");
}

#[test]
fn bmaptool_refuses_a_changed_disk() {
    let files = Files::of_blocks();
    let disk = File::options().write(true).open(files.path("disk.raw")).unwrap();
    disk.write_all_at(b"R", (9 << 20) + 3).unwrap();
    let output = files.bmaptool("disk.raw", |bmap| bmap);
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("checksum"), "{output:?}");
}
