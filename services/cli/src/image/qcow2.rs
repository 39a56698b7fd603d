//! Raw images of images in QEMU's format qcow2. Images that are raw already are copied.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use imago::file::File as Storage;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder as _};
use indicatif::{HumanBytes, ProgressBar};

use super::stored;

/// The first bytes of a qcow2 file.
const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 2 << 20;
/// Blocks of zeros of this size are left out in the raw image: they are holes of the file.
const HOLE_BYTES: usize = 64 << 10;
/// The largest disk that is unpacked, in bytes. Images of distributions have some GiB.
const MAX_DISK_BYTES: u64 = 256 << 30;

/// Opens the image at `path`. An image that refers to other files, such as a backing file, is refused.
fn open(path: &Path) -> io::Result<FormatAccess<Storage>> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut head)?;
    file.rewind()?;
    let (storage, gate) = (Storage::try_from(file)?, DenyImplicitOpenGate::default());
    Ok(match head == MAGIC {
        true => FormatAccess::new(Qcow2::<Storage>::builder(storage).open(gate)?),
        false => FormatAccess::new(Raw::builder(storage).open(gate)?),
    })
}

/// Writes the raw image of the image at `from` to a new file at `to`, and shows progress in `bar`.
pub(super) fn to_raw(from: &Path, to: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
    let source = open(from).context(
        "the image cannot be read (convert it by qemu-img, and give the server the raw image)",
    )?;
    let size = source.size();
    let (found, limit) = (HumanBytes(size), HumanBytes(MAX_DISK_BYTES));
    anyhow::ensure!(size > 0, "the image is empty");
    anyhow::ensure!(size <= MAX_DISK_BYTES, "the image has a disk of {found}: more than {limit}");
    bar.set_length(size);
    let raw = stored::new_file(to).with_context(|| format!("writing {}", to.display()))?;
    raw.set_len(size).with_context(|| format!("writing {}", to.display()))?;
    let (mut buffer, mut position) = (vec![0; CHUNK_BYTES], 0);
    while position < size {
        let length = usize::try_from(size - position).map_or(CHUNK_BYTES, |it| it.min(CHUNK_BYTES));
        let chunk = buffer.get_mut(..length).unwrap_or_default();
        source.read(&mut *chunk, position).context("reading the downloaded image")?;
        write_sparse(&raw, chunk, position).with_context(|| format!("writing {}", to.display()))?;
        position += length as u64;
        bar.set_position(position);
    }
    Ok(())
}

/// Writes the blocks of `bytes` that are not zero to `file`, at `offset`.
fn write_sparse(file: &File, bytes: &[u8], mut offset: u64) -> io::Result<()> {
    for block in bytes.chunks(HOLE_BYTES) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, offset)?;
        }
        offset += block.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Size of the clusters of [`packed`], in bytes.
    const CLUSTER: usize = 1 << 16;

    /// Returns a qcow2 image, version 3, with the content `raw`: clusters of zeros are not stored, others are compressed (in blocks of RFC
    /// 1951 that are stored), as `qemu-img convert -c` does.
    pub(in crate::image) fn packed(raw: &[u8]) -> Vec<u8> {
        let clusters = raw.len().div_ceil(CLUSTER);
        assert!(clusters <= CLUSTER / 8, "one table of the second level");
        // Header, table of the first level, table of the second level; reference counts are not read.
        let mut image = vec![0; 3 * CLUSTER];
        for (at, value) in [(0, 0x5146_49fb_u32), (4, 3), (20, 16), (36, 1), (96, 4), (100, 104)] {
            image[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        let refcounts = image.len() as u64;
        for (at, value) in [(24, raw.len() as u64), (40, CLUSTER as u64), (48, refcounts)] {
            image[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        image[56..60].copy_from_slice(&1_u32.to_be_bytes());
        let second = (2 * CLUSTER as u64) | (1 << 63);
        image[CLUSTER..CLUSTER + 8].copy_from_slice(&second.to_be_bytes());
        image.resize(4 * CLUSTER, 0);
        for (number, cluster) in raw.chunks(CLUSTER).enumerate() {
            if cluster.iter().all(|byte| *byte == 0) {
                continue;
            }
            let start = image.len();
            let mut content = cluster.to_vec();
            content.resize(CLUSTER, 0);
            for (block, last) in content.chunks(CLUSTER / 2).zip([0, 1]) {
                let length = u16::try_from(block.len()).unwrap();
                image.push(last);
                image.extend(length.to_le_bytes());
                image.extend((!length).to_le_bytes());
                image.extend(block);
            }
            // Bit 62: compressed. Bits 54 to 61: the further sectors that it begins in.
            let sectors = (image.len() - 1) / 512 - start / 512;
            let entry = start as u64 | (sectors as u64) << 54 | 1 << 62;
            let place = 2 * CLUSTER + number * 8;
            image[place..place + 8].copy_from_slice(&entry.to_be_bytes());
        }
        image.resize(image.len().next_multiple_of(512), 0);
        image
    }

    fn converted(image: &[u8]) -> anyhow::Result<Vec<u8>> {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        std::fs::write(&from, image).unwrap();
        to_raw(&from, &to, &ProgressBar::hidden())?;
        Ok(std::fs::read(to).unwrap())
    }

    /// Returns a disk with data, zeros, and an end in the middle of a cluster.
    fn disk() -> Vec<u8> {
        let numbers = (0..1_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes());
        let mut disk: Vec<u8> = numbers.collect();
        disk[100_000..3_000_000].fill(0);
        disk.truncate(3_999_744);
        disk
    }

    #[test]
    fn compressed_and_absent_clusters_are_unpacked() {
        assert!(converted(&packed(&disk())).unwrap() == disk());
    }

    #[test]
    fn a_raw_image_is_copied() {
        assert!(converted(&disk()).unwrap() == disk());
    }

    #[test]
    fn zeros_take_no_room() {
        use std::os::unix::fs::MetadataExt as _;
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        std::fs::write(&from, packed(&disk())).unwrap();
        to_raw(&from, &to, &ProgressBar::hidden()).unwrap();
        let metadata = std::fs::metadata(to).unwrap();
        assert!(metadata.blocks() * 512 < metadata.len() / 2, "{metadata:?}");
    }

    #[test]
    fn damaged_and_dependent_images_are_refused() {
        let good = packed(&disk());
        let mut zstd = good.clone();
        zstd[79] = 8; // another compression, which is not supported
        let mut backed = good.clone();
        backed[8..16].copy_from_slice(&104_u64.to_be_bytes());
        backed[16..20].copy_from_slice(&11_u32.to_be_bytes());
        backed[112..123].copy_from_slice(b"/etc/passwd");
        backed[8..16].copy_from_slice(&112_u64.to_be_bytes());
        for (case, image) in [("zstd", zstd), ("backed", backed), ("cut", good[..60].to_vec())] {
            let error = converted(&image).unwrap_err().to_string();
            assert!(error.starts_with("the image cannot be read"), "{case}: {error}");
        }
        let cut = &good[..good.len() - 70_000];
        assert_eq!(converted(cut).unwrap_err().to_string(), "reading the downloaded image");
        assert_eq!(converted(b"").unwrap_err().to_string(), "the image is empty");
    }
}
