//! Formats by their first and last bytes.
//!
//! The content decides, never a program that probes it, and a name only where the content is
//! silent: a raw disk has no magic. A first sector with the signature of a boot sector and
//! something in it (code or partitions), a GPT header, and an ISO 9660 descriptor count as evidence
//! of a disk. Without it, the caller has to say that the image is raw: by the format, or by a name
//! that ends in `.raw` or `.img`. Text and foreign containers are refused even then.

use crate::format::{Format, Wrapping};
use crate::partitions::mbr::Mbr;
use crate::refusal::Refusal;
use crate::tape;
use crate::text::hexadecimal;
use crate::vhd;

/// Format of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A magic of a supported format.
    Image(Format),
    /// A magic of a supported compression or archive.
    Wrapped(Wrapping),
    /// A magic or text of something else.
    Foreign(&'static str),
    /// A boot sector or partition table.
    Disk,
    /// None of these.
    Unknown,
}

/// Returns the format of a file with these first and last bytes.
pub(crate) fn of(head: &[u8], tail: &[u8]) -> Found {
    if let Some(wrapping) = of_wrapping(head) {
        return Found::Wrapped(wrapping);
    }
    if let Some((_, _, format)) = IMAGES.iter().find(|(at, magic, _)| has(head, *at, magic)) {
        return Found::Image(*format);
    }
    if let Some((_, _, name)) = FOREIGN.iter().find(|(at, magic, _)| has(head, *at, magic)) {
        return Found::Foreign(name);
    }
    if has(head, 257, b"ustar") || tape::is_header(head) {
        Found::Image(Format::Tar)
    } else if is_markup(head) {
        Found::Foreign("an HTML or XML page: the URL may return an error page")
    } else if is_text(head) {
        Found::Foreign("text")
    } else if tail.starts_with(vhd::COOKIE) {
        Found::Image(Format::Vhd)
    } else if is_disk(head) {
        Found::Disk
    } else {
        Found::Unknown
    }
}

/// Returns the format to read a content of `found` with, which is not wrapped.
///
/// `declared` and the file's `name` must not contradict the content. The name is a claim only where
/// the content has no magic: a name of another format means that the file is truncated or damaged.
pub(crate) fn decide(
    found: Found,
    declared: Option<Format>,
    name: &str,
    head: &[u8],
) -> Result<Format, Refusal> {
    let unmarked = |text: &str| match declared.or_else(|| of_extension(name)) {
        None | Some(Format::Raw) => Ok(Format::Raw),
        Some(declared) => Err(Refusal::Contradiction { declared, found: text.into() }),
    };
    match found {
        Found::Image(format) => match declared {
            Some(declared) if declared != format => {
                Err(Refusal::Contradiction { declared, found: format.to_string() })
            }
            _ => Ok(format),
        },
        Found::Wrapped(wrapping) => Err(Refusal::UnsupportedFormat { found: wrapping.to_string() }),
        Found::Foreign(name) => Err(Refusal::UnsupportedFormat { found: name.into() }),
        Found::Disk => unmarked("a raw disk with a boot sector or partition table"),
        Found::Unknown if declared.is_none() && of_extension(name).is_none() => {
            Err(Refusal::UnknownFormat { head: hexadecimal(head) })
        }
        Found::Unknown => unmarked("of an unknown format"),
    }
}

/// Returns `name` without the extension of the outermost wrapping.
pub(crate) fn without_wrapping(name: &str) -> String {
    const SHORT: [(&str, &str); 5] =
        [("tgz", "tar"), ("txz", "tar"), ("tbz2", "tar"), ("tbz", "tar"), ("tzst", "tar")];
    const WRAPPINGS: [&str; 6] = ["gz", "xz", "zst", "zstd", "bz2", "zip"];
    let Some((stem, extension)) = name.rsplit_once('.') else { return name.to_owned() };
    let extension = extension.to_ascii_lowercase();
    match SHORT.iter().find(|(short, _)| *short == extension) {
        Some((_, long)) => format!("{stem}.{long}"),
        None if WRAPPINGS.contains(&&*extension) => stem.to_owned(),
        None => name.to_owned(),
    }
}

/// Returns the format that `name` ends in, extensions of wrappings left out.
pub(crate) fn of_extension(name: &str) -> Option<Format> {
    let inner = without_wrapping(name);
    if inner != name {
        return of_extension(&inner);
    }
    let (_, extension) = name.rsplit_once('.')?;
    match &*extension.to_ascii_lowercase() {
        "img" => Some(Format::Raw),
        other => Format::of_name(other),
    }
}

/// Returns the wrapping of a file that begins with `head`.
fn of_wrapping(head: &[u8]) -> Option<Wrapping> {
    match head {
        [0x1f, 0x8b, 8, ..] => Some(Wrapping::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Wrapping::Xz),
        // RFC 8878 §3.1.2: a skippable frame may come first.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Wrapping::Zstd),
        // The magic of a block, or of the footer of an empty file, follows.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Some(Wrapping::Bzip2),
        // An entry, an empty archive, or the first part of a split one.
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] | [b'P', b'K', 7, 8, ..] => {
            Some(Wrapping::Zip)
        }
        _ => None,
    }
}

/// Magics of images, with their offsets.
const IMAGES: [(usize, &[u8], Format); 6] = [
    (0, crate::qcow2::header::MAGIC, Format::Qcow2),
    (0, b"KDMV", Format::Vmdk),
    (0, crate::vmdk::DESCRIPTOR, Format::Vmdk),
    (0, b"vhdxfile", Format::Vhdx),
    // A dynamic image begins with a copy of its footer. A fixed one has the footer only.
    (0, vhd::COOKIE, Format::Vhd),
    (64, b"\x7f\x10\xda\xbe", Format::Vdi),
];

/// Magics of files that are no disks, with their offsets. No boot sector begins like these.
const FOREIGN: [(usize, &[u8], &str); 30] = [
    (0, b"QED\0", "QED image: convert it to qcow2"),
    (0, b"COWD", "vmdk of ESX (COWD): export it as OVF"),
    (0, b"WithoutFreeSpace", "Parallels image"),
    (0, b"WithouFreSpacExt", "Parallels image"),
    (0, b"Bochs Virtual HD Image", "Bochs image"),
    (0, b"\x3a\xff\x26\xed", "Android sparse image: convert it by simg2img"),
    (0, b"partclone-image", "partclone image"),
    (0, b"PaRtImAgE-VoLuMe", "partimage image"),
    (0, b"CrAU", "Android update payload"),
    (0, b"MSWIM\0\0\0", "Windows image (WIM)"),
    (0, b"WLPWM\0\0\0", "Windows image (WIM)"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (0, b"Rar!\x1a\x07", "rar archive"),
    (0, b"MSCF\0\0\0\0", "cabinet archive"),
    (0, b"xar!", "xar archive"),
    (0, b"070701", "cpio archive"),
    (0, b"070702", "cpio archive"),
    (0, b"070707", "cpio archive"),
    (0, b"\xc7\x71", "cpio archive"),
    (0, b"!<arch>\n", "ar archive or Debian package"),
    (0, b"\xed\xab\xee\xdb", "RPM package"),
    (0, b"\x04\x22\x4d\x18", "lz4 data"),
    (0, b"LZIP", "lzip data"),
    (0, b"LRZI", "lrzip data"),
    (0, b"\x89LZO\0\r\n\x1a\n", "lzop data"),
    (0, b"\x1f\x9d", "compress data (.Z)"),
    (0, b"\xff\x06\0\0sNaPpY", "snappy data"),
    (0, b"\x7fELF", "ELF program"),
    (0, b"hsqs", "squashfs file system"),
    (0, b"version https://git-lfs", "Git LFS pointer: serve the file itself"),
];

fn has(head: &[u8], at: usize, magic: &[u8]) -> bool {
    head.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

/// True if firmware or an operating system may find a boot sector or partition table in `head`.
fn is_disk(head: &[u8]) -> bool {
    let has_gpt = [512, 4096].iter().any(|sector| has(head, *sector, b"EFI PART"));
    let has_record =
        Mbr::parse(head).is_some_and(|it| it.has_boot_code() || !it.partitions().is_empty());
    let has_volume_descriptor = has(head, 32_769, b"CD001"); // ECMA-119 §8
    has_gpt || has_record || has_volume_descriptor
}

/// True for a document or page.
fn is_markup(head: &[u8]) -> bool {
    const TAGS: [&[u8]; 5] = [b"<!doctype", b"<html", b"<head", b"<body", b"<?xml"];
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    TAGS.iter().any(|tag| text.get(..tag.len()).is_some_and(|it| it.eq_ignore_ascii_case(tag)))
}

/// True for text in UTF-8, such as an error message or a script.
fn is_text(head: &[u8]) -> bool {
    const TEXT_BYTES: usize = 512;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn boot_sector(code: &[u8]) -> Vec<u8> {
        let mut sector = vec![0; 1024];
        sector[..code.len()].copy_from_slice(code);
        sector[510..512].copy_from_slice(&[0x55, 0xaa]);
        sector
    }

    fn decided(head: &[u8], declared: Option<Format>, name: &str) -> Result<Format, String> {
        let found = of(head, &head[head.len().saturating_sub(512)..]);
        decide(found, declared, name, head).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_boot_sector_with_code_is_evidence_of_a_disk() {
        assert_eq!(decided(&boot_sector(&[0xeb, 0x63]), None, ""), Ok(Format::Raw));
        // The signature alone is no evidence.
        assert!(decided(&boot_sector(&[]), None, "").is_err());
    }

    #[test]
    fn a_gpt_a_partition_and_an_iso_descriptor_are_evidence_of_a_disk() {
        let with = |at: usize, bytes: &[u8]| {
            let mut head = vec![0; 64 << 10];
            head[at..at + bytes.len()].copy_from_slice(bytes);
            head
        };
        let mut partition = boot_sector(&[]);
        partition[450] = 0x83;
        partition[458] = 1;
        for head in
            [with(512, b"EFI PART"), with(4096, b"EFI PART"), with(32_769, b"CD001"), partition]
        {
            assert_eq!(decided(&head, None, ""), Ok(Format::Raw));
        }
        assert!(decided(&with(1024, b"EFI PART"), None, "").is_err());
    }

    #[test]
    fn a_content_without_magic_is_raw_only_if_it_is_called_so() {
        let zeros = [0; 4096];
        let error = decided(&zeros, None, "disk.bin").unwrap_err();
        assert!(error.starts_with("source: unknown format: begins with 00 00"), "{error}");
        for name in ["a.raw", "A.IMG", "a.img.gz", "a.raw.zst.zip"] {
            assert_eq!(decided(&zeros, None, name), Ok(Format::Raw), "{name}");
        }
        assert_eq!(decided(&zeros, Some(Format::Raw), ""), Ok(Format::Raw));
    }

    #[test]
    fn a_declaration_that_contradicts_the_content_is_refused() {
        for (head, declared, found) in [
            (b"QFI\xfb\0\0\0\x03".to_vec(), Format::Raw, "qcow2"),
            (b"KDMV\x01\0\0\0".to_vec(), Format::Qcow2, "vmdk"),
            (boot_sector(b"\xeb"), Format::Vhd, "a raw disk with a boot sector or partition table"),
            (vec![7; 4096], Format::Qcow2, "of an unknown format"),
        ] {
            let error = decided(&head, Some(declared), "").unwrap_err();
            let expected = format!("source: declared format {declared}: the content is {found}");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_disk_with_the_name_of_another_format_is_refused() {
        // The footer of a fixed VHD is missing: the file is cut.
        let error = decided(&boot_sector(b"\xeb"), None, "disk.vhd").unwrap_err();
        assert!(error.starts_with("source: declared format vhd: the content is"), "{error}");
        // A magic counts more than a name.
        assert_eq!(decided(b"KDMV\x01\0\0\0", None, "disk.qcow2"), Ok(Format::Vmdk));
    }

    #[test]
    fn pages_text_and_foreign_containers_are_refused_even_if_declared_raw() {
        let mut cases = vec![
            b"<!DOCTYPE html>\n<title>404</title>".to_vec(),
            b"  <HTML>".to_vec(),
            b"not found\n".to_vec(),
        ];
        cases.extend(FOREIGN.iter().map(|(at, magic, _)| [&vec![1; *at], *magic].concat()));
        for head in cases {
            let error = decided(&head, Some(Format::Raw), "a.raw").unwrap_err();
            assert!(error.starts_with("source: unsupported format: "), "{error}");
        }
    }

    #[test]
    fn extensions_of_wrappings_are_left_out_of_names() {
        for (name, inner) in [
            ("a.img.gz", "a.img"),
            ("a.tgz", "a.tar"),
            ("a.qcow2.XZ.zip", "a.qcow2.XZ"),
            ("gz", "gz"),
            ("a", "a"),
        ] {
            assert_eq!(without_wrapping(name), inner, "{name}");
        }
        assert_eq!(of_extension("a.tar.xz"), Some(Format::Tar));
        assert_eq!(of_extension("a.qcow2.XZ.zip"), Some(Format::Qcow2));
        assert_eq!(of_extension("a.txt"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_detection_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..1024),
            at in 0..IMAGES.len(),
            name in "\\PC{0,20}",
        ) {
            for head in [bytes.clone(), [IMAGES[at].1, &bytes].concat()] {
                let _either = decide(of(&head, &bytes), None, &name, &head);
            }
        }
    }
}
