//! Text for errors: bytes of a file made printable and short, and sizes for people.

use std::fmt;

/// Maximum number of characters that an error quotes of a file.
const MAX_QUOTED_CHARS: usize = 200;

/// Returns `bytes` in quotation marks, on one line, with control characters escaped. A long text is
/// cut.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", printable(bytes))
}

/// Returns `bytes` on one line, with control characters escaped. A long text is cut.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..4 * MAX_QUOTED_CHARS).unwrap_or(bytes));
    let mut shown = String::new();
    let mut count = 0;
    for letter in text.chars() {
        let escaped: String = letter.escape_debug().collect();
        // Apostrophes need no escape between quotation marks.
        let escaped = if letter == '\'' { "'" } else { &escaped };
        count += escaped.chars().count();
        if count > MAX_QUOTED_CHARS {
            shown.push('…');
            break;
        }
        shown.push_str(escaped);
    }
    shown
}

/// Returns the first bytes of a file in hexadecimal.
pub(crate) fn hexadecimal(head: &[u8]) -> String {
    const SHOWN_BYTES: usize = 16;
    let bytes = head.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<_>>().join(" ")
}

/// A number of bytes with a binary unit, such as `1.50 GiB`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let Some(power) = self.0.checked_ilog2().map(|bits| bits / 10).filter(|it| *it > 0) else {
            return write!(f, "{} B", self.0);
        };
        let unit = UNITS.get(power as usize - 1).unwrap_or(&"EiB");
        let value = self.0 as f64 / (1_u64 << (10 * power)) as f64;
        write!(f, "{value:.2} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_and_changes_of_direction_are_escaped() {
        assert_eq!(quoted(b"a\n\x1b[31m'\"\xff"), "\"a\\n\\u{1b}[31m'\\\"\u{fffd}\"");
        assert_eq!(quoted("\u{202e}ab".as_bytes()), "\"\\u{202e}ab\"");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(printable(&[b'x'; 1000]), format!("{}…", "x".repeat(200)));
        assert_eq!(printable(&[b'x'; 200]), "x".repeat(200));
    }

    #[test]
    fn sizes_have_binary_units() {
        let shown = |bytes| Size(bytes).to_string();
        assert_eq!([shown(0), shown(1023), shown(1024)], ["0 B", "1023 B", "1.00 KiB"]);
        assert_eq!([shown(3 << 29), shown(4 << 50)], ["1.50 GiB", "4.00 PiB"]);
        assert_eq!(shown(u64::MAX), "16.00 EiB");
    }

    proptest! {
        #[test]
        fn every_text_is_one_short_line(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let shown = printable(&bytes);
            prop_assert!(shown.chars().count() <= MAX_QUOTED_CHARS + 1);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
