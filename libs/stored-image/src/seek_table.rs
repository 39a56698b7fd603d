//! Seek table of the seekable zstd format, version 0.1.0.
//!
//! The table is a skippable frame (RFC 8878 §3.1.2) at the end of the file, so decompressors pass
//! over it. It has the sizes of each frame, then a footer with the number of frames. Checksums are
//! left out of it: each frame has one of its own.

/// Magic of the skippable frame.
const FRAME_MAGIC: u32 = 0x184D_2A5E;
/// Magic at the end of the table.
const FOOTER_MAGIC: u32 = 0x8F92_EAB1;
/// Bytes of the skippable frame's header: magic and size.
const HEADER_BYTES: u64 = 8;
/// Bytes of an entry: compressed and raw size of a frame.
const ENTRY_BYTES: u64 = 8;
/// Bytes of the footer: number of frames, descriptor, magic.
const FOOTER_BYTES: u64 = 9;
/// Descriptor of a table without checksums.
const DESCRIPTOR: u8 = 0;

/// Returns the size in bytes of the table of `frames` frames.
pub(crate) fn bytes(frames: usize) -> u64 {
    HEADER_BYTES + frames as u64 * ENTRY_BYTES + FOOTER_BYTES
}

/// Encodes the table of frames with the given compressed and raw sizes.
pub(crate) fn encode(frames: &[(u32, u32)]) -> Vec<u8> {
    // The maximum number of blocks of a map keeps both numbers in 32 bits.
    let content = u32::try_from(bytes(frames.len()) - HEADER_BYTES).unwrap_or(u32::MAX);
    let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
    let sizes = frames.iter().flat_map(|(compressed, raw)| [*compressed, *raw]);
    let mut table: Vec<u8> =
        [FRAME_MAGIC, content].into_iter().chain(sizes).flat_map(u32::to_le_bytes).collect();
    table.extend(count.to_le_bytes());
    table.push(DESCRIPTOR);
    table.extend(FOOTER_MAGIC.to_le_bytes());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_layout_of_the_format() {
        let expected = [
            &[0x5e, 0x2a, 0x4d, 0x18, 25, 0, 0, 0][..], // skippable frame of 25 bytes
            &[0x01, 0x02, 0, 0, 0, 0, 0x40, 0],
            &[7, 0, 0, 0, 1, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f],
        ];
        let table = encode(&[(0x201, 4 << 20), (7, 1)]);
        assert_eq!(table, expected.concat());
        assert_eq!(table.len() as u64, bytes(2));
    }
}
