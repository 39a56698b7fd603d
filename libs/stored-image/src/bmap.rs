//! The map in the format bmap 2.0, for `bmaptool copy`.

use std::fmt::Write as _;

use crate::digest::Digest;
use crate::map::{CheckedMap, MapBlock};

/// Size of a block of the bmap in bytes. Blocks of the map are multiples of it.
const BMAP_BLOCK_BYTES: u64 = 4096;
/// Stands for the checksum of the file while the checksum is computed.
const NO_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Renders the map as a bmap: a range with a checksum for each block that is not all zeros.
///
/// `bmaptool` 3.6 fails with a division by zero for a disk of no bytes.
pub fn bmap(map: &CheckedMap) -> String {
    let text = render(map);
    let checksum = Digest::of(text.as_bytes()).to_string();
    text.replacen(NO_CHECKSUM, &checksum, 1) // ahead of all other values with 64 digits
}

/// Renders the bmap with zeros in place of its own checksum.
fn render(map: &CheckedMap) -> String {
    let size = map.size_bytes();
    let blocks = size.div_ceil(BMAP_BLOCK_BYTES);
    let mut mapped = 0;
    let mut ranges = String::new();
    for MapBlock { raw, digest, .. } in map.blocks() {
        let Some(digest) = digest else { continue };
        let first = raw.start / BMAP_BLOCK_BYTES;
        let end = raw.end.div_ceil(BMAP_BLOCK_BYTES);
        mapped += end - first;
        // Writing to a string does not fail.
        let _ =
            writeln!(ranges, r#"        <Range chksum="{digest}"> {first}-{} </Range>"#, end - 1);
    }
    format!(
        r#"<?xml version="1.0" ?>
<bmap version="2.0">
    <ImageSize> {size} </ImageSize>
    <BlockSize> {BMAP_BLOCK_BYTES} </BlockSize>
    <BlocksCount> {blocks} </BlocksCount>
    <MappedBlocksCount> {mapped} </MappedBlocksCount>
    <ChecksumType> sha256 </ChecksumType>
    <BmapFileChecksum> {NO_CHECKSUM} </BmapFileChecksum>
    <BlockMap>
{ranges}    </BlockMap>
</bmap>
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn blocks_with_data_are_ranges_and_zeros_are_not() {
        let (_, _, map) = samples::stored();
        let text = bmap(&map);
        let digest = |index| map.block(index).unwrap().digest.unwrap();
        for line in [
            "<ImageSize> 262145 </ImageSize>".to_owned(),
            "<BlocksCount> 65 </BlocksCount>".into(),
            "<MappedBlocksCount> 49 </MappedBlocksCount>".into(),
            format!(r#"<Range chksum="{}"> 0-15 </Range>"#, digest(0)),
            format!(r#"<Range chksum="{}"> 48-63 </Range>"#, digest(3)),
            format!(r#"<Range chksum="{}"> 64-64 </Range>"#, digest(4)),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert_eq!(text.matches("<Range").count(), 4);
    }

    #[test]
    fn the_checksum_is_of_the_file_with_zeros_in_its_place() {
        let text = bmap(&samples::stored().2);
        let at = text.find("<BmapFileChecksum> ").unwrap() + "<BmapFileChecksum> ".len();
        let without = [&text[..at], NO_CHECKSUM, &text[at + 64..]].concat();
        assert_eq!(text[at..at + 64], Digest::of(without.as_bytes()).to_string());
    }
}
