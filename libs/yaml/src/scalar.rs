//! The forms of texts and numbers.
//!
//! A text stands without quotes only if its characters are on a short list, and no reader has
//! another meaning for it. The patterns are those of YAML 1.1's types, of YAML 1.2's core schema,
//! and of what PyYAML, Psych and go-yaml read besides. Where the patterns of readers nearly match a
//! text, it is quoted.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::str::Lines;

use serde_json::Number;

/// Words that a reader takes for true, false or null. Psych disregards their case.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
/// Characters of a text without quotes, besides letters, digits and spaces. A comma, a colon or a
/// bracket would end the text in flow style.
const PLAIN_PUNCTUATION: &str = "-_./@+=()~";
/// Largest number that readers with floating-point numbers only, those of JavaScript, read
/// unchanged: 2^53 - 1.
const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;

/// Returns `text` as one line: without quotes if no reader misreads it so.
pub(crate) fn inline(text: &str) -> Cow<'_, str> {
    if is_plain(text) { text.into() } else { quoted(text).into() }
}

/// Returns a key as one line.
pub(crate) fn key(text: &str) -> Cow<'_, str> {
    match text {
        // Psych merges the value into the mapping although the key is in quotes, unless it has a
        // tag.
        "<<" => "!!str \"<<\"".into(),
        _ => inline(text),
    }
}

/// Returns the header and the lines of `text` as a literal block. None for a text that is readable
/// in one line, and for one that some reader would not keep.
pub(crate) fn literal(text: &str) -> Option<(&'static str, Lines<'_>)> {
    let first = text.chars().next()?;
    // The indentation of the first line is that of the block, and has to be readable from it.
    let begins_with_text = !matches!(first, ' ' | '\t' | '\n');
    // The last newline is one: how many more are kept has to be said in the header, and readers
    // differ.
    let has_one_end = !text.ends_with("\n\n");
    let has_blank_line = text.lines().any(|line| !line.is_empty() && line.trim().is_empty());
    // One line with both kinds of quotes would need escapes.
    let is_line = needs_escapes(text) && text.contains('\'') && text.chars().all(is_visible);
    let is_lines =
        text.contains('\n') && text.chars().all(|c| matches!(c, '\n' | '\t') || is_visible(c));
    let is_literal = begins_with_text && has_one_end && !has_blank_line && (is_line || is_lines);
    is_literal.then(|| (if text.ends_with('\n') { "|" } else { "|-" }, text.lines()))
}

/// Returns a number in a form that every reader takes for this number. An integer that JavaScript's
/// numbers cannot hold becomes a text.
pub(crate) fn number(number: &Number) -> String {
    let text = number.to_string();
    if number.is_f64() {
        return float(&text);
    }
    let magnitude = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
    if magnitude.is_some_and(|it| it <= MAX_EXACT_INTEGER) { text } else { quoted(&text) }
}

/// Returns a floating-point number with a point, and with a sign in its exponent: YAML 1.1 takes
/// `1e3` and `1.0e3` for texts.
fn float(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, ""));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    match exponent.as_bytes().first() {
        None => format!("{mantissa}{point}"),
        Some(b'-' | b'+') => format!("{mantissa}{point}e{exponent}"),
        Some(_) => format!("{mantissa}{point}e+{exponent}"),
    }
}

/// True if every reader takes `text` without quotes for itself.
fn is_plain(text: &str) -> bool {
    let begins_plain = text.starts_with(|c: char| is_letter_or_digit(c) || matches!(c, '/' | '_'));
    let is_allowed = |c: char| c == ' ' || is_letter_or_digit(c) || PLAIN_PUNCTUATION.contains(c);
    begins_plain
        && !text.ends_with(' ')
        && text.chars().all(|c| is_allowed(c) && !folds_to_ascii(c))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && !resembles_number(text)
}

/// True for a letter or digit that readers of YAML 1.1 accept as it is: older ones refuse those
/// beyond U+FFFF.
fn is_letter_or_digit(c: char) -> bool {
    c <= '\u{ffff}' && c.is_alphanumeric()
}

/// True for a character beyond ASCII that case folding turns into letters of ASCII (Unicode,
/// CaseFolding.txt): the long s, the Kelvin sign, and ligatures. Psych takes `ye\u{17f}` for `yes`.
fn folds_to_ascii(c: char) -> bool {
    matches!(c, '\u{17f}' | '\u{212a}' | '\u{fb00}'..='\u{fb06}')
}

/// True for a text in which a reader might see a number or a date. Texts with a sign or a point in
/// front, a comma or a colon are quoted in any case.
fn resembles_number(text: &str) -> bool {
    // go-yaml takes `0_x1f` for 31: it looks for a number in what is left without underscores.
    let text = text.to_ascii_lowercase().replace('_', "");
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    match text.as_bytes() {
        [b'0', b'x' | b'o' | b'b', rest @ ..] => {
            rest.iter().all(|byte| byte.is_ascii_hexdigit() || b".+-p".contains(byte))
        }
        all @ [b'0'..=b'9', ..] => {
            // An IPv4 address has three points, a number one.
            text.matches('.').count() < 2
                && all.iter().all(|byte| is_digit(byte) || b".+-etz".contains(byte))
        }
        // npm's yaml takes `e1` for a number with an exponent.
        [b'e', rest @ ..] => rest.iter().all(|byte| is_digit(byte) || b"+-".contains(byte)),
        _ => false,
    }
}

/// Returns `text` in quotes: in single ones if it needs escapes in double ones, which are hard to
/// read, and wrong in the placeholders of a template.
fn quoted(text: &str) -> String {
    if needs_escapes(text) && !text.contains('\'') && text.chars().all(is_visible) {
        return format!("'{text}'");
    }
    escaped(text)
}

/// True for a text with characters that are visible, and are escaped in double quotes.
fn needs_escapes(text: &str) -> bool {
    text.contains(['"', '\\'])
}

/// Returns `text` in double quotes.
fn escaped(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        let code = u32::from(c);
        let _infallible = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            _ if is_visible(c) => write!(quoted, "{c}"),
            ..='\u{ffff}' => write!(quoted, "\\u{code:04x}"),
            // Not as a pair of surrogates, as in JSON: YAML has no pairs.
            _ => write!(quoted, "\\U{code:08x}"),
        };
    }
    quoted.push('"');
    quoted
}

/// True for a character that every reader accepts as it is, and that people see. Line breaks other
/// than the newline, byte order marks and what YAML forbids are not.
fn is_visible(c: char) -> bool {
    let has_glyph = || c.escape_debug().len() == 1 && !c.is_whitespace();
    matches!(c, ' '..='~')
        || !c.is_ascii() && (is_letter_or_digit(c) || c <= '\u{ffff}' && has_glyph())
}
