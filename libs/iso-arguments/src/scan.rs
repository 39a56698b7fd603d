//! Finds the placeholders and the digest of an image in one pass.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use crate::{PLACEHOLDER_BYTES, hex};

/// Beginning of the placeholder in Tinkerbell's images (`hook.template.yaml` of their installation
/// environment); the rest are letters and digits, too.
pub const PLACEHOLDER: &str = "464vn90e7rbj08xbwdjejmdf4it17c5z";

/// Bytes read at a time.
const CHUNK: usize = 1024 * 1024;

/// Result of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Octets.
    pub size: u64,
    /// SHA-256 in hex.
    pub digest: String,
    /// Offsets of the placeholders, in ascending order.
    pub places: Vec<u64>,
}

/// Scans an image from its beginning to its end. A placeholder begins with `beginning` and has
/// lower-case letters and digits to its end.
pub fn scan(mut image: impl Read, beginning: &str) -> io::Result<Scanned> {
    let (mut digest, mut places) = (Sha256::new(), Vec::new());
    // The end of each chunk is scanned with the next one: it may hold the beginning of a
    // placeholder.
    let (mut seen, mut at) = (Vec::with_capacity(CHUNK + PLACEHOLDER_BYTES), 0);
    loop {
        let kept = seen.len();
        (&mut image).take(CHUNK as u64).read_to_end(&mut seen)?;
        let read = seen.get(kept..).unwrap_or_default();
        if read.is_empty() {
            let size = at + kept as u64;
            return Ok(Scanned { size, digest: hex(&digest.finalize()), places });
        }
        digest.update(read);
        find(&seen, beginning, at, &mut places);
        let done = seen.len().saturating_sub(PLACEHOLDER_BYTES - 1);
        seen.drain(..done);
        at += done as u64;
    }
}

/// Adds the offsets of placeholders that lie wholly in `seen`, which begins at `at`.
fn find(seen: &[u8], beginning: &str, at: u64, places: &mut Vec<u64>) {
    for found in memchr::memmem::find_iter(seen, beginning) {
        let Some(whole) = seen.get(found..found + PLACEHOLDER_BYTES) else { return };
        if whole.iter().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit()) {
            places.push(at + found as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scanned(content: &[u8]) -> Scanned {
        scan(content, "begin0").unwrap()
    }

    fn placeholder() -> Vec<u8> {
        [&b"begin0"[..], &[b'x'; PLACEHOLDER_BYTES - 6]].concat()
    }

    #[test]
    fn placeholders_are_found_wherever_a_chunk_ends() {
        for place in [0, 5, CHUNK - PLACEHOLDER_BYTES, CHUNK - 600, CHUNK - 3, CHUNK, 2 * CHUNK - 1]
        {
            let content = [vec![b'.'; place], placeholder(), vec![b'.'; 100]].concat();
            let found = scanned(&content);
            assert_eq!((found.places, found.size), (vec![place as u64], content.len() as u64));
        }
    }

    #[test]
    fn a_text_that_is_too_short_or_has_other_characters_is_no_placeholder() {
        let short = &placeholder()[..PLACEHOLDER_BYTES - 1];
        assert!(scanned(short).places.is_empty());
        assert!(scanned(&[short, b"."].concat()).places.is_empty());
        let two = [placeholder(), b"--".to_vec(), placeholder()].concat();
        assert_eq!(scanned(&two).places, [0, PLACEHOLDER_BYTES as u64 + 2]);
    }

    #[test]
    fn the_digest_is_that_of_the_image() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(scanned(b"").digest, empty);
    }
}
