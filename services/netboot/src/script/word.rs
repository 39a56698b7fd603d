//! One word of an iPXE script.

use std::{fmt, str::FromStr};

/// Text that iPXE reads as one word and takes as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(String);

/// Why a text is not a word.
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

impl Word {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Word {
    type Err = BadWord;

    fn from_str(text: &str) -> Result<Self, BadWord> {
        let bad = |why: fn(String) -> BadWord| Err(why(text.into()));
        match text {
            "" => Err(BadWord::Empty),
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => bad(BadWord::Character),
            _ if text.starts_with('#') => bad(BadWord::Comment),
            "||" | "&&" | ";" => bad(BadWord::Operator),
            _ if text.contains("${") => bad(BadWord::Expansion),
            _ if text.ends_with('\\') => bad(BadWord::Continuation),
            _ => Ok(Self(text.into())),
        }
    }
}
