//! Runs of zeros.

/// Zeros that are compared or hashed at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// True if all bytes of `content` are zero. Slices are compared instead of bytes: that is `memcmp`,
/// fast in every build profile.
pub(crate) fn is_all(content: &[u8]) -> bool {
    content.chunks(ZEROS.len()).all(|chunk| Some(chunk) == ZEROS.get(..chunk.len()))
}

/// Returns `bytes` zeros in pieces.
pub(crate) fn chunks(bytes: u64) -> impl Iterator<Item = &'static [u8]> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
        left -= length as u64;
        ZEROS.get(..length).filter(|chunk| !chunk.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_anywhere_is_found() {
        for length in [1, 65_536, 65_537, 140_000] {
            let mut content = vec![0; length];
            assert!(is_all(&content));
            for at in [0, length / 2, length - 1] {
                content[at] = 1;
                assert!(!is_all(&content), "{at} of {length}");
                content[at] = 0;
            }
        }
    }

    #[test]
    fn chunks_have_the_requested_length() {
        for bytes in [0, 1, 65_536, 65_537, 1 << 20] {
            assert_eq!(chunks(bytes).map(<[u8]>::len).sum::<usize>() as u64, bytes);
        }
    }
}
