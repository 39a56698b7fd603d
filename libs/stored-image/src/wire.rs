//! Encoded maps, and how many blocks they declare.
//!
//! An empty block takes two bytes of a message, and forty of memory. A message of the maximum size
//! could ask for more than a gigabyte, so blocks are counted before the message is decoded.

use prost::Message as _;

use crate::error::Error;
use tinwright::image::v1 as pb;

/// Maximum size of an encoded map in bytes.
pub const MAX_MAP_BYTES: usize = 64 << 20;

/// Number of the field with blocks.
const BLOCKS_FIELD: usize = 6;

/// Decodes a map with at most `max_blocks` blocks.
pub(crate) fn decode(bytes: &[u8], max_blocks: usize) -> Result<pb::Map, Error> {
    let invalid =
        |problem, value: usize| Error::Map { field: "size", problem, value: value as u64 };
    if bytes.len() > MAX_MAP_BYTES {
        return Err(invalid(format!("the limit is {MAX_MAP_BYTES} bytes"), bytes.len()));
    }
    let count = blocks(bytes)?;
    if count > max_blocks {
        let problem = format!("the limit is {max_blocks} blocks");
        return Err(Error::Map { field: "blocks", problem, value: count as u64 });
    }
    Ok(pb::Map::decode(bytes)?)
}

/// Counts the blocks of an encoded map.
fn blocks(bytes: &[u8]) -> Result<usize, Error> {
    let mut rest = bytes;
    let mut count = 0;
    while !rest.is_empty() {
        let at = (bytes.len() - rest.len()) as u64;
        let key = prost::decode_length_delimiter(&mut rest)?;
        if key >> 3 == BLOCKS_FIELD {
            count += 1;
        }
        rest = after_value(key & 7, rest)?.ok_or_else(|| Error::Map {
            field: "encoding",
            problem: "truncated, or a wire type that maps do not have, at byte".into(),
            value: at,
        })?;
    }
    Ok(count)
}

/// Returns the bytes after a value, or nothing if the value is truncated or in a group.
fn after_value(wire_type: usize, bytes: &[u8]) -> Result<Option<&[u8]>, Error> {
    let mut rest = bytes;
    let length = match wire_type {
        0 => {
            prost::decode_length_delimiter(&mut rest)?;
            0
        }
        1 => 8,
        2 => prost::decode_length_delimiter(&mut rest)?,
        5 => 4,
        _ => return Ok(None),
    };
    Ok(rest.get(length..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_empty_blocks_is_refused_before_it_is_decoded() {
        let error = decode(&[0x32, 0].repeat(32 << 20), 1000).unwrap_err().to_string();
        assert_eq!(error, "map: blocks: the limit is 1000 blocks: 33554432");
    }

    #[test]
    fn a_message_over_the_limit_is_refused() {
        let error = decode(&vec![0; MAX_MAP_BYTES + 1], 1000).unwrap_err().to_string();
        assert_eq!(error, "map: size: the limit is 67108864 bytes: 67108865");
    }

    #[test]
    fn values_of_unknown_fields_are_skipped() {
        let unknown = [
            &[0x78, 0xff, 0x01][..], // varint
            &[0x79, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x7a, 2, 0x32, 0x32],
            &[0x7d, 1, 2, 3, 4],
            &[0x32, 0],
        ];
        assert_eq!(blocks(&unknown.concat()).unwrap(), 1);
        assert_eq!(decode(&unknown.concat(), 1).unwrap().blocks.len(), 1);
    }

    #[test]
    fn truncated_values_and_groups_are_refused() {
        for bytes in [&[0x32, 5, 1][..], &[0x79, 1], &[0x7d], &[0x7b, 0x7c], &[0x80]] {
            assert!(blocks(bytes).is_err(), "{bytes:?}");
        }
    }
}
