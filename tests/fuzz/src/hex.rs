//! Inputs as people copy them.

use anyhow::Context as _;

/// `bytes` in hex.
pub fn written(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that `text` is in hex.
pub fn read(text: &str) -> anyhow::Result<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    anyhow::ensure!(rest.is_empty(), "hex has two digits an octet");
    let octet = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| !digits.starts_with('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.iter().map(|pair| octet(pair).context("not hex")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(read(&written(&all)).unwrap(), all);
        for wrong in ["0", "0g", "+1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
