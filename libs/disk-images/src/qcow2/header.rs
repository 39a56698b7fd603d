//! The header of a qcow2 image, and what in it makes the image refer to other files.
//!
//! Lacking such checks were CVE-2024-32498 and CVE-2024-44082: a backing file or an external data
//! file made OpenStack copy files of the host into images.

use crate::format::Format;
use crate::refusal::Refusal;
use crate::text::quoted;

/// The first bytes of an image.
pub(crate) const MAGIC: &[u8] = b"QFI\xfb";

const V2_BYTES: u32 = 72;
const V3_BYTES: u32 = 104;
/// Bits of the incompatible features.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// Bit of the autoclear features: the external data file is a raw image.
const RAW_EXTERNAL_DATA: u64 = 1 << 1;
/// Header extension with the name of the external data file.
const DATA_FILE_NAME: u32 = 0x4441_5441;
/// Sizes of clusters that the format allows, as powers of two.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Maximum size in bytes of the table of the first level, as in QEMU.
const MAX_L1_BYTES: u64 = 32 << 20;
/// Maximum number of header extensions. Usual images have three.
const MAX_EXTENSIONS: usize = 64;

/// The header of an image that does not refer to other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    version: u32,
    pub(super) cluster_bits: u32,
    /// Size of the disk.
    pub(crate) bytes: u64,
    /// Number of entries in the table of the first level.
    pub(super) l1_entries: u32,
    pub(super) l1_offset: u64,
    features: u64,
    compression: u8,
}

impl Header {
    /// Parses the header in `head`, the first bytes of a file of `length` bytes.
    pub(crate) fn parse(head: &[u8], length: u64) -> Result<Self, Refusal> {
        let cut = || Refusal::truncated(Format::Qcow2, length, "the header has no end");
        let word = |at: usize| field(head, at).map(u32::from_be_bytes).ok_or_else(cut);
        let long = |at: usize| field(head, at).map(u64::from_be_bytes).ok_or_else(cut);
        let version = word(4)?;
        if !matches!(version, 2 | 3) {
            return Err(Refusal::unsupported(Format::Qcow2, format!("version {version}")));
        }
        check_backing_file(head, long(8)?, word(16)?)?;
        let (features, autoclear, header_bytes) = match version {
            2 => (0, 0, V2_BYTES),
            _ => (long(72)?, long(88)?, word(100)?),
        };
        check_data_file(head, features, autoclear, header_bytes)?;
        if word(32)? != 0 {
            return Err(Refusal::unsupported(Format::Qcow2, "encryption"));
        }
        if features & CORRUPT != 0 {
            return Err(Refusal::damaged(Format::Qcow2, "it is marked as corrupt"));
        }
        let header = Self {
            version,
            cluster_bits: word(20)?,
            bytes: long(24)?,
            l1_entries: word(36)?,
            l1_offset: long(40)?,
            features,
            // Zero if the header ends before it.
            compression: match header_bytes > V3_BYTES {
                true => head.get(V3_BYTES as usize).copied().ok_or_else(cut)?,
                false => 0,
            },
        };
        header.check_geometry()?;
        Ok(header)
    }

    /// Returns the size of a cluster in bytes.
    pub(super) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// True if an entry of the second level may mark a cluster as zeros.
    pub(super) fn has_zero_flag(&self) -> bool {
        self.version >= 3 && !self.has_subclusters()
    }

    /// True if an entry of the second level has a bitmap of its cluster's 32 parts.
    pub(super) fn has_subclusters(&self) -> bool {
        self.features & EXTENDED_L2 != 0
    }

    /// Returns the size in bytes of an entry of the second level.
    pub(super) fn entry_bytes(&self) -> u64 {
        if self.has_subclusters() { 16 } else { 8 }
    }

    /// Returns the number of bytes of the disk that a table of the second level is for. It fills
    /// one cluster.
    pub(super) fn table_covers(&self) -> u64 {
        (self.cluster() / self.entry_bytes()) * self.cluster()
    }

    /// Returns a feature that the library imago does not read, if the image has one.
    pub(crate) fn unsupported_feature(&self) -> Option<&'static str> {
        match self.features {
            _ if self.compression != 0 => Some("compression by zstd"),
            features if features & COMPRESSION != 0 => Some("a compression type"),
            _ if self.has_subclusters() => Some("extended entries"),
            features if features & DIRTY != 0 => Some("a dirty image"),
            0 => None,
            _ => Some("unknown features"),
        }
    }

    fn check_geometry(&self) -> Result<(), Refusal> {
        let damaged = |reason: String| Err(Refusal::damaged(Format::Qcow2, reason));
        if !CLUSTER_BITS.contains(&self.cluster_bits) {
            return damaged(format!("clusters of 2^{} bytes", self.cluster_bits));
        }
        if self.bytes == 0 {
            return Err(Refusal::Empty { wrapping: None });
        }
        if u64::from(self.l1_entries) * 8 > MAX_L1_BYTES {
            return damaged(format!("{} tables of the second level", self.l1_entries));
        }
        let covered = u64::from(self.l1_entries).saturating_mul(self.table_covers());
        if covered < self.bytes {
            return damaged(format!("tables for {covered} bytes of a disk of {}", self.bytes));
        }
        Ok(())
    }
}

fn check_backing_file(head: &[u8], offset: u64, length: u32) -> Result<(), Refusal> {
    if offset == 0 {
        return Ok(());
    }
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let rest = head.get(start..).unwrap_or_default();
    let name = rest.get(..length).unwrap_or(rest);
    Err(elsewhere("backing file", quoted(name)))
}

/// Returns an error if a bit or extension says that the data is in another file.
fn check_data_file(
    head: &[u8],
    features: u64,
    autoclear: u64,
    header_bytes: u32,
) -> Result<(), Refusal> {
    let mut rest = head.get(header_bytes as usize..).unwrap_or_default();
    for _ in 0..MAX_EXTENSIONS {
        let (Some(kind), Some(length)) = (field(rest, 0), field(rest, 4)) else { break };
        let kind = u32::from_be_bytes(kind);
        let length = u32::from_be_bytes(length);
        if kind == 0 {
            break;
        }
        let content = rest.get(8..).unwrap_or_default();
        if kind == DATA_FILE_NAME {
            let name = content.get(..length as usize).unwrap_or(content);
            return Err(elsewhere("data file", quoted(name)));
        }
        let padded = usize::try_from(u64::from(length).next_multiple_of(8));
        rest = content.get(padded.unwrap_or(usize::MAX)..).unwrap_or_default();
    }
    match features & EXTERNAL_DATA != 0 || autoclear & RAW_EXTERNAL_DATA != 0 {
        true => Err(elsewhere("data file", "without a name".into())),
        false => Ok(()),
    }
}

fn elsewhere(what: &str, name: String) -> Refusal {
    Refusal::RefersElsewhere { format: Format::Qcow2, what: what.into(), name }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the header of a disk of 1 MiB, with changes at these offsets.
    fn header(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; 4096];
        head[..4].copy_from_slice(MAGIC);
        for (at, value) in [(4, 3_u32), (20, 16), (36, 1), (96, 4), (100, 112)] {
            head[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        for (at, value) in [(24, 1_u64 << 20), (40, 1 << 16)] {
            head[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        for (at, value) in changes {
            head[*at..*at + value.len()].copy_from_slice(value);
        }
        head
    }

    fn refused(changes: &[(usize, &[u8])]) -> String {
        Header::parse(&header(changes), 9999).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_image_is_accepted() {
        let header = Header::parse(&header(&[]), 9999).unwrap();
        assert_eq!((header.bytes, header.cluster()), (1 << 20, 1 << 16));
        assert_eq!(header.unsupported_feature(), None);
    }

    #[test]
    fn a_backing_file_is_refused_with_its_name() {
        let changes: &[(usize, &[u8])] =
            &[(8, &200_u64.to_be_bytes()), (16, &7_u32.to_be_bytes()), (200, b"/etc/pw")];
        let expected = "source: format qcow2: refers to backing file \"/etc/pw\": images that refer to other files are refused";
        assert_eq!(refused(changes), expected);
        // The name may be behind the first bytes.
        assert!(refused(&[(8, &[0xff; 8])]).contains("refers to backing file \"\":"));
    }

    #[test]
    fn an_external_data_file_is_refused() {
        let name: &[(usize, &[u8])] =
            &[(112, b"DATA"), (116, &6_u32.to_be_bytes()), (120, b"/a.raw")];
        assert!(refused(name).contains("refers to data file \"/a.raw\":"));
        assert!(refused(&[(79, &[4])]).contains("refers to data file without a name"));
        assert!(refused(&[(95, &[2])]).contains("refers to data file without a name"));
    }

    #[test]
    fn encryption_corruption_and_other_versions_are_refused() {
        assert!(refused(&[(35, &[2])]).ends_with("encryption: not supported"));
        assert!(refused(&[(79, &[2])]).ends_with("it is marked as corrupt"));
        assert!(refused(&[(7, &[1])]).ends_with("version 1: not supported"));
    }

    #[test]
    fn features_beyond_plain_clusters_are_named() {
        for (at, value, feature) in [
            (104, 1, "compression by zstd"),
            (79, 8, "a compression type"),
            (79, 16, "extended entries"),
            (79, 1, "a dirty image"),
            (72, 1, "unknown features"),
        ] {
            let header = Header::parse(&header(&[(at, &[value])]), 9999).unwrap();
            assert_eq!(header.unsupported_feature(), Some(feature));
        }
    }

    #[test]
    fn an_impossible_geometry_is_refused() {
        assert!(refused(&[(23, &[64])]).ends_with("clusters of 2^64 bytes"));
        assert!(refused(&[(36, &[0xff; 4])]).ends_with("4294967295 tables of the second level"));
        assert!(refused(&[(24, &[0x10])]).contains("tables for 536870912 bytes of a disk of"));
        assert_eq!(refused(&[(24, &[0; 8])]), "source: empty");
    }

    #[test]
    fn a_header_without_its_end_is_truncated() {
        let whole = header(&[]);
        for length in [4, 20, 71, 103] {
            let error = Header::parse(&whole[..length], length as u64).unwrap_err().to_string();
            let expected = format!("source: format qcow2: truncated at byte {length}: ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            at in 0..300_usize,
        ) {
            let _either = Header::parse(&[MAGIC, &[0, 0, 0, 3], &bytes].concat(), 7);
            let _either = Header::parse(&header(&[(at, &bytes)]), 7);
        }
    }
}
