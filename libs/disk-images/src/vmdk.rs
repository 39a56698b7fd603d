//! The header and descriptor of VMware's images (Virtual Disk Format 5.0), as far as they may refer
//! to other files.
//!
//! A descriptor is a text with one line for each extent. It names files: `RW 4192256 FLAT
//! "/etc/shadow" 0` would make a copy of that file. Only an image with one sparse extent is
//! accepted: the file itself. The header is read here, before any program opens the image, since
//! opening it opens its extents.

use crate::format::Format;
use crate::refusal::Refusal;
use crate::text::quoted;

/// The first bytes of a descriptor that is a file of its own.
pub(crate) const DESCRIPTOR: &[u8] = b"# Disk DescriptorFile";

const SECTOR: u64 = 512;
const CAPACITY_AT: usize = 12;
const DESCRIPTOR_OFFSET_AT: usize = 28;
const DESCRIPTOR_SIZE_AT: usize = 36;
/// Place that QEMU reads as the descriptor, whatever the header says.
const USUAL_DESCRIPTOR: std::ops::Range<u64> = SECTOR..SECTOR + 20 * SECTOR;
/// Maximum size of a descriptor in sectors. Usual ones have 20.
const MAX_DESCRIPTOR_SECTORS: u64 = 64;
/// Types of images in one file with a sparse extent.
const TYPES: [&str; 2] = ["monolithicSparse", "streamOptimized"];

/// Returns the size of the disk in bytes if the image that begins with `head` is one sparse extent.
pub(crate) fn check(head: &[u8]) -> Result<u64, Refusal> {
    if head.starts_with(DESCRIPTOR) {
        let end = head.iter().position(|byte| *byte == 0).unwrap_or(head.len());
        check_descriptor(head.get(..end).unwrap_or_default())?;
        return Err(elsewhere("extent", "in a descriptor file"));
    }
    let number = |at: usize| {
        let bytes = head.get(at..).and_then(<[u8]>::first_chunk).copied();
        bytes.map(u64::from_le_bytes)
    };
    let fields = (number(CAPACITY_AT), number(DESCRIPTOR_OFFSET_AT), number(DESCRIPTOR_SIZE_AT));
    let (Some(capacity), Some(offset), Some(sectors)) = fields else {
        return Err(Refusal::truncated(Format::Vmdk, head.len() as u64, "the header has no end"));
    };
    // A capacity of 0 makes QEMU take the extents from the descriptor.
    if capacity == 0 {
        return Err(elsewhere("extents", "in place of a capacity"));
    }
    if offset == 0 || sectors == 0 {
        return Err(Refusal::unsupported(Format::Vmdk, "an extent of a split image"));
    }
    if sectors > MAX_DESCRIPTOR_SECTORS {
        let feature = format!("a descriptor of {sectors} sectors");
        return Err(Refusal::unsupported(Format::Vmdk, feature));
    }
    let start = offset.saturating_mul(SECTOR);
    for place in [start..start.saturating_add(sectors * SECTOR), USUAL_DESCRIPTOR] {
        check_descriptor(text(head, place))?;
    }
    check_type(text(head, start..start.saturating_add(sectors * SECTOR)))?;
    capacity.checked_mul(SECTOR).ok_or_else(|| Refusal::damaged(Format::Vmdk, "its capacity"))
}

/// Returns the text in `head` at `place`, up to its end or the first zero byte.
fn text(head: &[u8], place: std::ops::Range<u64>) -> &[u8] {
    let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(head.len());
    let bytes = head.get(bound(place.start)..bound(place.end)).unwrap_or_default();
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns an error unless `descriptor` names at most one extent, a sparse one, and no parent.
fn check_descriptor(descriptor: &[u8]) -> Result<(), Refusal> {
    if let Some(parent) = lines(descriptor).find_map(|it| value(it, b"parentFileNameHint")) {
        return Err(elsewhere("parent disk", &quoted(parent)));
    }
    let mut extents = 0;
    for line in lines(descriptor) {
        if value(line, b"parentCID").is_some_and(|id| !id.eq_ignore_ascii_case(b"ffffffff")) {
            return Err(elsewhere("parent disk", &quoted(line)));
        }
        let Some(kind) = extent_kind(line) else { continue };
        extents += 1;
        if kind != b"SPARSE" || extents > 1 {
            return Err(elsewhere("extent", &quoted(line)));
        }
    }
    Ok(())
}

fn check_type(descriptor: &[u8]) -> Result<(), Refusal> {
    let kind = lines(descriptor).find_map(|line| value(line, b"createType")).unwrap_or_default();
    let is_supported = TYPES.iter().any(|it| it.as_bytes() == kind);
    let feature = || format!("type {}", quoted(kind));
    if is_supported { Ok(()) } else { Err(Refusal::unsupported(Format::Vmdk, feature())) }
}

fn lines(descriptor: &[u8]) -> impl Iterator<Item = &[u8]> {
    descriptor.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii)
}

/// Returns the value in `line` if it sets `key`, without quotation marks.
fn value<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let begins = line.get(..key.len()).is_some_and(|it| it.eq_ignore_ascii_case(key));
    let rest = line.get(key.len()..).filter(|_| begins)?.trim_ascii();
    let value = rest.strip_prefix(b"=")?.trim_ascii();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    Some(value.strip_suffix(b"\"").unwrap_or(value))
}

/// Returns the kind in a line of an extent: access, sectors, kind, file.
fn extent_kind(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let access = words.next()?;
    let is_extent = [&b"RW"[..], b"RDONLY", b"NOACCESS"].contains(&access);
    let kind = words.nth(1).filter(|_| is_extent)?;
    Some(kind)
}

fn elsewhere(what: &str, name: &str) -> Refusal {
    Refusal::RefersElsewhere { format: Format::Vmdk, what: what.into(), name: name.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXTENT: &str = "RW 100 SPARSE \"a.vmdk\"";

    fn image(capacity: u64, descriptor: &str) -> Vec<u8> {
        let mut image = vec![0; 64 << 10];
        image[..4].copy_from_slice(b"KDMV");
        for (at, value) in [(12, capacity), (28, 1), (36, 20)] {
            image[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        image[512..512 + descriptor.len()].copy_from_slice(descriptor.as_bytes());
        image
    }

    fn checked(capacity: u64, lines: &[&str]) -> Result<u64, String> {
        let lines = ["# Disk DescriptorFile", "CID=1"].iter().chain(lines).copied();
        let descriptor = lines.collect::<Vec<_>>().join("\n");
        check(&image(capacity, &descriptor)).map_err(|error| error.to_string())
    }

    #[test]
    fn one_sparse_extent_is_accepted() {
        for kind in TYPES {
            let kind = format!("createType=\"{kind}\"");
            assert_eq!(checked(100, &["parentCID=ffffffff", &kind, EXTENT]), Ok(51_200));
        }
    }

    #[test]
    fn other_files_are_refused_with_their_names() {
        let sparse = "createType=\"monolithicSparse\"";
        let flat = "RW 100 FLAT \"/etc/shadow\" 0";
        for (lines, part) in [
            (&[sparse, flat][..], "refers to extent \"RW 100 FLAT \\\"/etc/shadow\\\" 0\":"),
            (&[sparse, EXTENT, "RW 9 SPARSE \"b\""], "refers to extent \"RW 9 SPARSE"),
            (&[sparse, EXTENT, "parentFileNameHint=\"/a\""], "refers to parent disk \"/a\":"),
            (&[sparse, EXTENT, "parentCID=12345678"], "refers to parent disk \"parentCID=12"),
            (&[sparse, EXTENT, " parentfilenamehint = /a"], "refers to parent disk \"/a\":"),
        ] {
            let error = checked(100, lines).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
            assert!(error.ends_with(": images that refer to other files are refused"), "{error}");
        }
    }

    #[test]
    fn extents_in_place_of_a_capacity_are_refused() {
        let error = checked(0, &["createType=\"monolithicSparse\"", EXTENT]).unwrap_err();
        assert!(error.contains("refers to extents in place of a capacity"), "{error}");
    }

    #[test]
    fn a_descriptor_file_is_refused() {
        let text = "# Disk DescriptorFile\ncreateType=\"monolithicFlat\"\nRW 8 FLAT \"a-flat\" 0\n";
        let error = check(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("refers to extent \"RW 8 FLAT \\\"a-flat\\\" 0\""), "{error}");
        let error = check(b"# Disk DescriptorFile\n").unwrap_err().to_string();
        assert!(error.contains("refers to extent in a descriptor file"), "{error}");
    }

    #[test]
    fn other_types_and_split_images_are_not_supported() {
        let error = checked(100, &["createType=\"vmfs\"", EXTENT]).unwrap_err();
        assert_eq!(error, "source: format vmdk: type \"vmfs\": not supported");
        let mut split = image(100, "");
        split[28..44].fill(0);
        let error = check(&split).unwrap_err().to_string();
        assert_eq!(error, "source: format vmdk: an extent of a split image: not supported");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_check_panic(
            mut header in prop::collection::vec(any::<u8>(), 0..80),
            text in "(parentCID|RW|=| |[0-9]|\"|\n|FLAT|\\PC){0,60}",
        ) {
            header.splice(0..0, *b"KDMV");
            let mut whole = image(1, &text);
            whole[..header.len()].copy_from_slice(&header);
            for head in [&header, &whole] {
                let _either = check(head);
            }
            let _either = check(&[DESCRIPTOR, text.as_bytes()].concat());
        }
    }
}
