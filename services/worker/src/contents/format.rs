//! Formats by their signatures.
//!
//! Two lists: [`of_beginning`] decides before anything else is looked at, because no boot sector
//! begins like that. [`of_file_system`] names what has neither a boot sector nor a partition table;
//! a file system may have the first, and a disk may have signatures of a former one behind the
//! second.

/// A recognised format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    /// Instruction to get a disk image.
    pub(crate) advice: &'static str,
    pub(super) place: Place,
}

/// The place for contents of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Neither disks nor partitions: the content has to be taken out of it first.
    Nowhere,
    /// A partition, but not a whole disk.
    Partition,
}

const CONVERT: &str = "convert it to raw: `qemu-img convert -O raw IN OUT`";
const EXTRACT: &str = "extract the disk image from it";
const DECOMPRESS: &str =
    "decompress it, or compress it with zstd, xz, gzip or bzip2, which this action decompresses";
const ONCE: &str = "compress the image once, and leave out `COMPRESSED: false`, so that this action decompresses it";
const TAR: &str =
    "extract the disk image from it; the action archive2disk extracts files into a file system";
const SIMG: &str = "convert it to raw: `simg2img IN OUT`";
const RESTORE: &str = "restore it to a disk image with the program that made it";
const FETCHED: &str = "look at what the URL returns: it may be an error page or a list of files";
const PARTITION: &str =
    "write it to a partition, or build a disk image with partition table and boot loader";
const KERNEL: &str = "build a disk image with a boot loader, or boot it over the network";
const FLASH: &str = "it is for flash memory without a controller: take the image for disks";
const ISO: &str = "take a hybrid ISO image, boot this one as virtual media, or take a disk image";
const LFS: &str = "serve the file itself: `git lfs pull`";

const fn nowhere(name: &'static str, advice: &'static str) -> Format {
    Format { name, advice, place: Place::Nowhere }
}

const fn partition(name: &'static str, advice: &'static str) -> Format {
    Format { name, advice, place: Place::Partition }
}

const GZIP: Format = nowhere("gzip data", ONCE);
const LZ4: Format = nowhere("lz4 data", DECOMPRESS);
const LZMA: Format = nowhere("lzma data", DECOMPRESS);
const ZSTD: Format = nowhere("zstd data", ONCE);
const ZIP: Format = nowhere("zip archive", EXTRACT);
const RAR: Format = nowhere("rar archive", EXTRACT);
const TAPE: Format = nowhere("tar archive", TAR);
const CPIO: Format = nowhere("cpio archive", EXTRACT);
const WIM: Format = nowhere("Windows image (WIM)", "apply it to a partition of a disk image");
const VMDK: Format = nowhere("vmdk image", CONVERT);
const PARALLELS: Format = nowhere("Parallels image", CONVERT);
const EXT: Format = partition("ext2, ext3 or ext4 file system", PARTITION);
const SQUASHFS: Format = partition("squashfs file system", PARTITION);
const CRAMFS: Format = partition("cramfs file system", PARTITION);
const HFS: Format = partition("HFS+ file system", PARTITION);
const ZFS: Format = partition("ZFS pool", PARTITION);
const LVM: Format = partition("LVM physical volume", PARTITION);
const ARRAY: Format = partition("member of a software RAID (md)", PARTITION);
const UDF: Format = partition("UDF file system", ISO);
const JFFS2: Format = partition("JFFS2 file system", FLASH);
const TEXT: Format = nowhere("text", FETCHED);
const HTML: Format = nowhere("HTML page", FETCHED);

/// Signatures with their offsets, for [`of_beginning`]. Of two that match, the first one counts.
const BEGINNINGS: &[(usize, &[u8], Format)] = &[
    // Virtual disks.
    (0, b"QFI\xfb", nowhere("qcow2 image", CONVERT)),
    (0, b"QED\0", nowhere("QED image", CONVERT)),
    (0, b"KDMV", VMDK),
    (0, b"COWD", VMDK),
    (0, b"# Disk DescriptorFile", nowhere("vmdk descriptor", CONVERT)),
    (0, b"vhdxfile", nowhere("vhdx image", CONVERT)),
    // A dynamic image begins with a copy of its footer. A fixed one is a raw image with a footer.
    (0, b"conectix", nowhere("dynamic vhd image", CONVERT)),
    (64, b"\x7f\x10\xda\xbe", nowhere("vdi image", CONVERT)),
    (0, b"WithoutFreeSpace", PARALLELS),
    (0, b"WithouFreSpacExt", PARALLELS),
    (0, b"Bochs Virtual HD Image", nowhere("Bochs image", CONVERT)),
    (0, b"\x3a\xff\x26\xed", nowhere("Android sparse image", SIMG)),
    (0, b"partclone-image", nowhere("partclone image", RESTORE)),
    (0, b"PaRtImAgE-VoLuMe", nowhere("partimage image", RESTORE)),
    (0, b"CrAU", nowhere("Android update payload", EXTRACT)),
    (0, b"MSWIM\0\0\0", WIM),
    (0, b"WLPWM\0\0\0", WIM),
    // Archives.
    (0, b"PK\x03\x04", ZIP),
    (0, b"PK\x05\x06", ZIP),
    (0, b"PK\x07\x08", ZIP),
    (0, b"7z\xbc\xaf\x27\x1c", nowhere("7z archive", EXTRACT)),
    (0, b"Rar!\x1a\x07", RAR),
    (0, b"MSCF\0\0\0\0", nowhere("cabinet archive", EXTRACT)),
    (0, b"xar!", nowhere("xar archive", EXTRACT)),
    (0, b"070701", CPIO),
    (0, b"070702", CPIO),
    (0, b"070707", CPIO),
    (0, b"\xc7\x71", CPIO),
    (0, b"!<arch>\n", nowhere("ar archive or Debian package", EXTRACT)),
    (0, b"\xed\xab\xee\xdb", nowhere("RPM package", EXTRACT)),
    (257, b"ustar", TAPE),
    // Compression.
    (0, b"\x1f\x8b", GZIP),
    (0, b"\xfd7zXZ\0", nowhere("xz data", ONCE)),
    (0, b"\x28\xb5\x2f\xfd", ZSTD),
    (0, b"\x04\x22\x4d\x18", LZ4),
    (0, b"\x02\x21\x4c\x18", LZ4),
    (0, b"\x03\x21\x4c\x18", LZ4),
    (0, b"LZIP", nowhere("lzip data", DECOMPRESS)),
    (0, b"LRZI", nowhere("lrzip data", DECOMPRESS)),
    (0, b"\x89LZO\0\r\n\x1a\n", nowhere("lzop data", DECOMPRESS)),
    (0, b"\x1f\x9d", nowhere("compress data (.Z)", DECOMPRESS)),
    (0, b"\x1f\x1e", nowhere("pack data (.z)", DECOMPRESS)),
    (0, b"\xff\x06\0\0sNaPpY", nowhere("snappy data", DECOMPRESS)),
    // Programs.
    (0x202, b"HdrS", partition("Linux kernel", KERNEL)),
    (56, b"ARM\x64", partition("Linux kernel", KERNEL)),
    (0, b"MZ", partition("EFI program or Linux kernel", KERNEL)),
    (0, b"\x7fELF", partition("ELF program", KERNEL)),
    (0, b"\x27\x05\x19\x56", partition("U-Boot image", KERNEL)),
    (0, b"\xd0\x0d\xfe\xed", partition("device tree or FIT image", KERNEL)),
    (0, b"ANDROID!", partition("Android boot image", KERNEL)),
    // File systems and containers with a signature in place of a boot sector.
    (0, b"hsqs", SQUASHFS),
    (0, b"sqsh", SQUASHFS),
    (0, b"\x45\x3d\xcd\x28", CRAMFS),
    (0, b"\x28\xcd\x3d\x45", CRAMFS),
    (0, b"-rom1fs-", partition("romfs file system", PARTITION)),
    (0, b"XFSB", partition("XFS file system", PARTITION)),
    (32, b"NXSB", partition("APFS container", PARTITION)),
    (0, b"LUKS\xba\xbe", partition("LUKS volume", PARTITION)),
    (0, b"-FVE-FS-", partition("BitLocker volume", PARTITION)),
    (3, b"-FVE-FS-", partition("BitLocker volume", PARTITION)),
    (0, b"UBI#", partition("UBI image", FLASH)),
    (0, b"\x31\x18\x10\x06", partition("UBIFS file system", FLASH)),
    (0, b"\x85\x19\x01\xe0", JFFS2),
    (0, b"\x85\x19\x02\xe0", JFFS2),
    (0, b"\x85\x19\x03\x20", JFFS2),
    // Texts, before the general one.
    (0, b"version https://git-lfs", nowhere("Git LFS pointer", LFS)),
];

/// Signatures with their offsets, for [`of_file_system`].
const FILE_SYSTEMS: &[(usize, &[u8], Format)] = &[
    (1080, b"\x53\xef", EXT),
    (512, b"\x57\x45\x56\x82", partition("BSD disk label", PARTITION)),
    (65_600, b"_BHRfS_M", partition("btrfs file system", PARTITION)),
    (1024, b"\x10\x20\xf5\xf2", partition("F2FS file system", PARTITION)),
    (1024, b"\xe2\xe1\xf5\xe0", partition("EROFS file system", PARTITION)),
    (32_768, b"JFS1", partition("JFS file system", PARTITION)),
    (65_588, b"ReIsEr", partition("ReiserFS file system", PARTITION)),
    (1024, b"H+", HFS),
    (1024, b"HX", HFS),
    (4086, b"SWAPSPACE2", partition("swap space", PARTITION)),
    (512, b"LABELONE", LVM),
    (0, b"LABELONE", LVM),
    (1024, b"LABELONE", LVM),
    (1536, b"LABELONE", LVM),
    (4096, b"\xfc\x4e\x2b\xa9", ARRAY),
    (0, b"\xfc\x4e\x2b\xa9", ARRAY),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", partition("bcache or bcachefs volume", PARTITION)),
    (131_072, b"\x0c\xb1\xba\0\0\0\0\0", ZFS),
    (131_072, b"\0\0\0\0\0\xba\xb1\x0c", ZFS),
    (ISO_SIGNATURE, b"CD001", partition("ISO 9660 file system without a boot sector", ISO)),
    (ISO_SIGNATURE, b"BEA01", UDF),
    (ISO_SIGNATURE, b"NSR02", UDF),
    (3, b"NTFS    ", partition("NTFS file system without a boot sector", PARTITION)),
    (3, b"EXFAT   ", partition("exFAT file system", PARTITION)),
    (54, b"FAT1", partition("FAT file system without a boot sector", PARTITION)),
    (82, b"FAT32", partition("FAT file system without a boot sector", PARTITION)),
];

/// Offset of the first volume descriptor of an ISO image (ECMA-119 §8).
const ISO_DESCRIPTOR: usize = 32_768;
/// Offset of the signature in the first volume descriptor.
const ISO_SIGNATURE: usize = ISO_DESCRIPTOR + 1;
/// Offset and length of the descriptor's part for applications (ECMA-119 §8.4), where implantisomd5
/// puts a checksum.
const ISO_APPLICATION_USE: (usize, usize) = (ISO_DESCRIPTOR + 883, 512);
/// Bytes of a header of a tar (POSIX.1-2017, pax, "ustar Interchange Format").
const TAR_HEADER_BYTES: usize = 512;
/// Number of bytes that are compared to recognise a text.
const TEXT_BYTES: usize = 512;
/// Beginnings of pages and documents, in lower case.
const MARKUP: [&[u8]; 4] = [b"<!doctype", b"<html", b"<head", b"<body"];

/// A test of the first bytes for a format without a fixed signature.
type Test = fn(&[u8]) -> bool;

/// Returns the format of what begins with `head`, if no disk begins like that.
pub(super) fn of_beginning(head: &[u8]) -> Option<Format> {
    let others: [(Test, Format); 6] = [
        (is_bzip2, nowhere("bzip2 data", ONCE)),
        (is_skippable_frame, ZSTD),
        (is_tar, TAPE),
        (is_lzma, LZMA),
        (is_html, HTML),
        (is_text, TEXT),
    ];
    of(BEGINNINGS, head)
        .or_else(|| others.into_iter().find(|(is_it, _)| is_it(head)).map(|(_, format)| format))
}

/// Returns the file system or volume that begins with `head`, if it is known.
pub(super) fn of_file_system(head: &[u8]) -> Option<Format> {
    of(FILE_SYSTEMS, head)
}

/// True for an ISO image.
pub(super) fn is_iso(head: &[u8]) -> bool {
    head.get(ISO_SIGNATURE..).is_some_and(|rest| rest.starts_with(b"CD001"))
}

/// True for an ISO image with a checksum over its sectors, the partition table among them.
pub(super) fn has_implanted_checksum(head: &[u8]) -> bool {
    let (at, length) = ISO_APPLICATION_USE;
    let text = head.get(at..).and_then(|rest| rest.get(..length)).unwrap_or_default();
    is_iso(head) && text.windows(10).any(|window| window == b"ISO MD5SUM")
}

fn of(table: &[(usize, &[u8], Format)], head: &[u8]) -> Option<Format> {
    let matches = |at: usize, magic| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    table.iter().find(|(at, magic, _)| matches(*at, magic)).map(|(_, _, format)| *format)
}

fn is_bzip2(head: &[u8]) -> bool {
    matches!(head, [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..])
}

/// True for a frame that decoders of zstd and lz4 skip (RFC 8878 §3.1.2).
fn is_skippable_frame(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// True for the header of a tar without the magic of POSIX: its checksum is right.
fn is_tar(head: &[u8]) -> bool {
    const SUM: std::ops::Range<usize> = 148..156;
    let Some(header) = head.get(..TAR_HEADER_BYTES) else { return false };
    let written = header.get(SUM).and_then(|text| std::str::from_utf8(text).ok());
    let written = written.map(|text| text.trim_matches([' ', '\0']));
    let Some(Ok(written)) = written.map(|octal| u32::from_str_radix(octal, 8)) else {
        return false;
    };
    let counted =
        |(at, byte): (usize, &u8)| u32::from(if SUM.contains(&at) { b' ' } else { *byte });
    header.first().is_some_and(|byte| *byte != 0)
        && header.iter().enumerate().map(counted).sum::<u32>() == written
}

/// True for the header of the format before xz, which has no magic: properties, a usual size of the
/// dictionary, and the size of the content.
fn is_lzma(head: &[u8]) -> bool {
    let [0x5d, rest @ ..] = head else { return false };
    let Some((dictionary, rest)) = rest.split_first_chunk() else { return false };
    let Some(size) = rest.first_chunk() else { return false };
    let dictionary = u32::from_le_bytes(*dictionary);
    let size = u64::from_le_bytes(*size);
    (dictionary >= 1 << 12) && dictionary.count_ones() <= 2 && (size == u64::MAX || size < 1 << 40)
}

fn is_html(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    MARKUP.iter().any(|tag| text.get(..tag.len()).is_some_and(|it| it.eq_ignore_ascii_case(tag)))
}

/// True for text in UTF-8, such as an error message, JSON, XML or a script.
fn is_text(head: &[u8]) -> bool {
    let begin = head.get(..TEXT_BYTES).unwrap_or(head);
    let is_printed =
        |byte: u8| byte >= b' ' && byte != 0x7f || matches!(byte, b'\t'..=b'\r' | 0x1b);
    // The last character may be cut.
    let is_utf8 = match std::str::from_utf8(begin) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    };
    !begin.is_empty() && is_utf8 && begin.iter().all(|byte| is_printed(*byte))
}
