//! Splits the command of a container into words.
//!
//! Words end at blanks, tabs and newlines, except inside a quoted part, `[...]` or `{...}`. Quotation marks stay in the word
//! unless [`Quotes::Strip`] is asked for: programs that clients run today depend on it.

use serde::{Deserialize, Serialize};

/// Treatment of quotation marks around a whole word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quotes {
    /// They stay in the word.
    #[default]
    Keep,
    /// One pair is removed from a word that is quoted as a whole.
    Strip,
}

/// A reason why a command cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommand {
    /// There is no word in it.
    #[error("the command is empty")]
    Empty,
    /// `execve` cannot pass a NUL character.
    #[error("the command contains a NUL character")]
    Nul,
}

/// Quotation marks (Unicode property `Quotation_Mark`) with another mark as their end.
const PAIRS: [(char, char); 13] = [
    ('\u{00AB}', '\u{00BB}'),
    ('\u{2018}', '\u{2019}'),
    ('\u{201A}', '\u{2019}'),
    ('\u{201B}', '\u{2019}'),
    ('\u{201C}', '\u{201D}'),
    ('\u{201E}', '\u{201D}'),
    ('\u{201F}', '\u{201D}'),
    ('\u{2039}', '\u{203A}'),
    ('\u{300C}', '\u{300D}'),
    ('\u{300E}', '\u{300F}'),
    ('\u{301D}', '\u{301E}'),
    ('\u{FE41}', '\u{FE42}'),
    ('\u{FF62}', '\u{FF63}'),
];

/// Splits `command` into the program and its arguments.
///
/// A quoted part begins with any Unicode quotation mark, and ends with the same mark or the one that closes it. Brackets
/// nest, and do not count inside a quoted part. A part without an end reaches to the end of the command.
///
/// # Errors
/// [`InvalidCommand`] if there is no word, or a NUL character.
pub fn split_command(command: &str, quotes: Quotes) -> Result<Vec<String>, InvalidCommand> {
    if command.contains('\0') {
        return Err(InvalidCommand::Nul);
    }
    let mut nesting = Nesting::default();
    let is_separator = |c: char| !nesting.advance(c) && matches!(c, ' ' | '\t' | '\n');
    let words: Vec<String> = command
        .split(is_separator)
        .filter(|word| !word.is_empty())
        .map(|word| match quotes {
            Quotes::Keep => word.to_owned(),
            Quotes::Strip => strip_quotes(word).to_owned(),
        })
        .collect();
    if words.is_empty() { Err(InvalidCommand::Empty) } else { Ok(words) }
}

/// The quoted part or the brackets that the current character is in.
#[derive(Default)]
struct Nesting {
    quote: Option<char>,
    closing_brackets: Vec<char>,
}

impl Nesting {
    /// Moves past `c`. True if `c` belongs to a quoted part or to brackets.
    fn advance(&mut self, c: char) -> bool {
        let inside = self.quote.is_some() || !self.closing_brackets.is_empty();
        match (self.quote, c) {
            (Some(open), _) if closes(open, c) => self.quote = None,
            (Some(_), _) => {}
            (None, '[') => self.closing_brackets.push(']'),
            (None, '{') => self.closing_brackets.push('}'),
            (None, _) if self.closing_brackets.last() == Some(&c) => {
                self.closing_brackets.pop();
            }
            (None, _) if is_quotation_mark(c) => self.quote = Some(c),
            (None, _) => {}
        }
        inside
    }
}

/// `word` without its quotation marks, if the first one's end is the last character.
fn strip_quotes(word: &str) -> &str {
    let mut characters = word.char_indices();
    let Some((_, open)) = characters.next().filter(|(_, c)| is_quotation_mark(*c)) else {
        return word;
    };
    match characters.find(|(_, c)| closes(open, *c)) {
        Some((end, close)) if end + close.len_utf8() == word.len() => &word[open.len_utf8()..end],
        Some(_) | None => word,
    }
}

/// True if `c` ends a part that `open` began.
fn closes(open: char, c: char) -> bool {
    c == open || PAIRS.contains(&(open, c))
}

/// True if `c` has the Unicode property `Quotation_Mark` (PropList.txt, Unicode 16).
fn is_quotation_mark(c: char) -> bool {
    matches!(c,
        '"' | '\'' | '«' | '»' | '\u{2018}'..='\u{201F}' | '‹' | '›' | '\u{2E42}' | '\u{300C}'..='\u{300F}'
        | '\u{301D}'..='\u{301F}' | '\u{FE41}'..='\u{FE44}' | '\u{FF02}' | '\u{FF07}' | '\u{FF62}' | '\u{FF63}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(command: &str, kept: &[&str], stripped: &[&str]) {
        assert_eq!(split_command(command, Quotes::Keep).unwrap(), kept, "{command}");
        assert_eq!(split_command(command, Quotes::Strip).unwrap(), stripped, "{command}");
    }

    #[test]
    fn words_end_at_blanks_outside_quotes_and_brackets() {
        let same = |command, words: &[&str]| check(command, words, words);
        same("/sbin/init", &["/sbin/init"]);
        same(" a\tb\n\n c ", &["a", "b", "c"]);
        same("a [b c] d", &["a", "[b c]", "d"]);
        same("a {b {c d} e} f", &["a", "{b {c d} e}", "f"]);
        same("a [b {c ] d} e] f", &["a", "[b {c ] d} e]", "f"]);
        same("a] b} c", &["a]", "b}", "c"]);
        same("a [b c", &["a", "[b c"]);
        same("a [\"]\" b] c", &["a", "[\"]\" b]", "c"]);
        same("--x=\"a b\"c d", &["--x=\"a b\"c", "d"]);
        same("it's a", &["it's a"]);
        same("a\u{a0}b\rc", &["a\u{a0}b\rc"]);
    }

    #[test]
    fn quotes_stay_unless_they_are_stripped() {
        check("sh -c \"a b\"", &["sh", "-c", "\"a b\""], &["sh", "-c", "a b"]);
        check("sh -c 'a \"b\" c'", &["sh", "-c", "'a \"b\" c'"], &["sh", "-c", "a \"b\" c"]);
        check("a “b c” d", &["a", "“b c”", "d"], &["a", "b c", "d"]);
        check("a “b c“ d", &["a", "“b c“", "d"], &["a", "b c", "d"]);
        check("a «b c» „d e”", &["a", "«b c»", "„d e”"], &["a", "b c", "d e"]);
        check("a \"\" b", &["a", "\"\"", "b"], &["a", "", "b"]);
        check("\"a\"b\"c\"", &["\"a\"b\"c\""], &["\"a\"b\"c\""]);
        check("''a''", &["''a''"], &["''a''"]);
        check("\"[a b", &["\"[a b"], &["\"[a b"]);
    }

    #[test]
    fn a_command_without_words_or_with_nul_is_invalid() {
        assert_eq!(split_command(" \t\n", Quotes::Keep), Err(InvalidCommand::Empty));
        assert_eq!(split_command("", Quotes::Strip), Err(InvalidCommand::Empty));
        assert_eq!(split_command("a\0b", Quotes::Keep), Err(InvalidCommand::Nul));
    }

    proptest! {
        #[test]
        fn splitting_removes_nothing_but_separators(command in "[ab \t\n\"'\\[\\]{}«»“”]{0,40}") {
            let words = split_command(&command, Quotes::Keep).unwrap_or_default();
            let without = |text: &str| text.replace([' ', '\t', '\n'], "");
            prop_assert_eq!(without(&words.concat()), without(&command));
            let mut rest = command.as_str();
            for word in &words {
                let at = rest.find(word.as_str());
                prop_assert!(at.is_some());
                rest = &rest[at.unwrap_or(0) + word.len()..];
            }
        }
    }
}
