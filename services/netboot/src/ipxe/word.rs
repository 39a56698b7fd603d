//! One word of an iPXE script.

/// A text that iPXE would not read as one word, or not take as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} {reason}")]
pub struct BadWord {
    /// The text.
    pub word: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

/// Returns `text` if iPXE reads it as one word and takes it as it stands.
pub fn check_word(text: &str) -> Result<&str, BadWord> {
    // No early return, so that the compiler tests many octets at a time: every value of a script is checked here.
    let graphic = text.bytes().fold(true, |all, octet| all & octet.is_ascii_graphic());
    let expands = || text.as_bytes().contains(&b'$') && text.contains("${");
    let reason = match text {
        "" => "is empty",
        _ if !graphic => "has a blank or a character outside printable ASCII",
        _ if text.starts_with('#') => "begins with #, as a comment does",
        "||" | "&&" | ";" => "is an operator",
        _ if expands() => "has an expansion",
        _ if text.ends_with('\\') => "ends with a backslash, which joins the next line",
        _ => return Ok(text),
    };
    Err(BadWord { word: text.into(), reason })
}
