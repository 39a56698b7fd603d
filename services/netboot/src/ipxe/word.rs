//! One word of an iPXE script.

/// Text that iPXE reads as one word and takes as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a>(&'a str);

/// Reason for which a text is not a word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWord {
    /// It would vanish.
    #[error("it is empty")]
    Empty,
    /// It would be split, or not be text at all.
    #[error("{0:?} has a blank or a character outside printable ASCII")]
    Character(String),
    /// It would begin a comment.
    #[error("{0:?} begins with #")]
    Comment(String),
    /// It would separate commands.
    #[error("{0:?} is an operator")]
    Operator(String),
    /// It would be replaced by a setting.
    #[error("{0:?} holds an expansion")]
    Expansion(String),
    /// It would join the next line.
    #[error("{0:?} ends with a backslash")]
    Continuation(String),
}

impl<'a> Word<'a> {
    /// The text.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for Word<'a> {
    type Error = BadWord;

    fn try_from(text: &'a str) -> Result<Self, BadWord> {
        let bad = |why: fn(String) -> BadWord| Err(why(text.into()));
        // No early return, so that the compiler tests many octets at a time: every value of a script is checked here.
        let graphic = text.bytes().fold(true, |all, octet| all & octet.is_ascii_graphic());
        let expands = || text.as_bytes().contains(&b'$') && text.contains("${");
        match text {
            "" => Err(BadWord::Empty),
            _ if !graphic => bad(BadWord::Character),
            _ if text.starts_with('#') => bad(BadWord::Comment),
            "||" | "&&" | ";" => bad(BadWord::Operator),
            _ if expands() => bad(BadWord::Expansion),
            _ if text.ends_with('\\') => bad(BadWord::Continuation),
            _ => Ok(Self(text)),
        }
    }
}
