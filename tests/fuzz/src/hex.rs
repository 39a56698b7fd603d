//! Inputs as hexadecimal text.

use anyhow::Context as _;

/// Encodes `bytes` in hex.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hex.
pub fn decode(text: &str) -> anyhow::Result<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    anyhow::ensure!(rest.is_empty(), "hex has two digits per byte");
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| !digits.starts_with('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.iter().map(|pair| byte(pair).context("not hex")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_bytes_are_decoded_and_invalid_text_is_refused() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        for wrong in ["0", "0g", "+1"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}
