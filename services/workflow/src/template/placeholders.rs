//! The placeholders of a text: whether it is YAML before they are rendered, and which values they use.
//!
//! A placeholder inside a quoted text, a comment or a block (`|`) does not change how the YAML around it is read. Any other is *loose*: the text
//! may become YAML only by rendering.

use std::collections::{BTreeMap, BTreeSet};

/// The words with which a placeholder begins that renders a part of the text repeatedly, or not at all.
const CONTROLS: [&str; 8] = ["if", "range", "with", "else", "end", "define", "block", "template"];

/// Stands for a loose placeholder in [`loose_with`], where no template has it.
pub(super) const OPEN: char = '¤';

/// The loose placeholders of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loose {
    /// There are none: the text is YAML as it is, or never.
    None,
    /// Each stands for a value in its line.
    Values {
        /// The text with a mark in the place of each.
        text: String,
        /// Their lines, from 1.
        lines: BTreeSet<usize>,
    },
    /// At least one stands for whole lines, or for a part of the text that is rendered repeatedly or not at all.
    Parts,
}

/// Finds the loose placeholders in `text`.
pub(super) fn loose(text: &str) -> Loose {
    loose_with(text, '0')
}

/// Does the same, with `mark` in the place of each one that stands for a value.
pub(super) fn loose_with(text: &str, mark: char) -> Loose {
    let mut scanner = Scanner { mark, quote: None, block: None };
    let (mut replaced, mut lines, mut number) = (String::new(), BTreeSet::new(), 0);
    let mut rest = text;
    while !rest.is_empty() {
        number += 1;
        // A placeholder may go over several lines.
        let end = line_end(rest);
        let (line, after) = rest.split_at(end);
        match scanner.line(line) {
            Line::Plain => replaced.push_str(line),
            Line::Values(values) => {
                lines.insert(number);
                replaced.push_str(&values);
            }
            Line::Part => return Loose::Parts,
        }
        number += line.trim_end_matches('\n').matches('\n').count();
        rest = after;
    }
    if lines.is_empty() { Loose::None } else { Loose::Values { text: replaced, lines } }
}

/// Returns the end of the first line of `text`, with its line break; one in a placeholder does not end it.
fn line_end(text: &str) -> usize {
    let mut from = 0;
    loop {
        let left = text.get(from..).unwrap_or_default();
        let Some(end) = left.find('\n') else { return text.len() };
        match left.find("{{") {
            Some(open) if open < end => match left.get(open..).unwrap_or_default().find("}}") {
                Some(close) => from += open + close + 2,
                None => return text.len(),
            },
            Some(_) | None => return from + end + 1,
        }
    }
}

/// The state between two lines.
struct Scanner {
    /// It is put in the place of a loose placeholder.
    mark: char,
    /// The quote of the text that has begun.
    quote: Option<char>,
    /// The indentation of the line that began a block.
    block: Option<usize>,
}

/// A line of a text.
enum Line {
    /// It has no loose placeholder.
    Plain,
    /// It, with the mark in the place of each loose placeholder.
    Values(String),
    /// It has a loose placeholder that is more than a value.
    Part,
}

impl Scanner {
    fn line(&mut self, line: &str) -> Line {
        let content = line.trim_end_matches('\n').trim_end_matches('\r');
        let indentation = content.len() - content.trim_start().len();
        if let Some(of_block) = self.block {
            if content.trim().is_empty() || indentation > of_block {
                return Line::Plain;
            }
            self.block = None;
        }
        let scanned = self.scan(line, content);
        if self.quote.is_none() && begins_block(content) {
            self.block = Some(indentation);
        }
        scanned
    }

    /// Reads a line that is not in a block.
    fn scan(&mut self, line: &str, content: &str) -> Line {
        let (mut replaced, mut is_loose, mut before) = (String::new(), false, ' ');
        let mut rest = line;
        while let Some(letter) = rest.chars().next() {
            let length = match rest.starts_with("{{") {
                true => rest.find("}}").map_or(rest.len(), |close| close + 2),
                false => letter.len_utf8(),
            };
            let (piece, after) = rest.split_at(length);
            rest = after;
            if piece.len() <= letter.len_utf8() {
                if self.quote.is_none() && letter == '#' && before.is_whitespace() {
                    replaced.push_str(piece);
                    replaced.push_str(rest);
                    break;
                }
                self.read(letter, before);
                replaced.push(letter);
                before = letter;
                continue;
            }
            // Inside of quotes, only the same quotes end the text for YAML.
            if self.quote.is_some_and(|quote| !piece.contains(quote)) {
                replaced.push_str(piece);
                continue;
            }
            if is_part(piece) || content.trim() == piece {
                return Line::Part;
            }
            is_loose = true;
            replaced.push(self.mark);
            before = self.mark;
        }
        if is_loose { Line::Values(replaced) } else { Line::Plain }
    }

    /// Follows the quotes. An apostrophe inside of a word is none.
    fn read(&mut self, letter: char, before: char) {
        match self.quote {
            // A backslash escapes in double quotes only.
            Some('"') if letter == '"' && before != '\\' => self.quote = None,
            Some('\'') if letter == '\'' => self.quote = None,
            None if matches!(letter, '"' | '\'') => {
                let begins = before.is_whitespace() || matches!(before, '[' | '{' | ',' | ':');
                self.quote = begins.then_some(letter);
            }
            Some(_) | None => {}
        }
    }
}

/// True if the value of this line is a block in the lines that follow.
fn begins_block(line: &str) -> bool {
    let last = line.split_whitespace().next_back().unwrap_or_default();
    let is_sign = last.starts_with(['|', '>']);
    is_sign && last.chars().skip(1).all(|c| matches!(c, '-' | '+') || c.is_ascii_digit())
}

/// True if `placeholder` stands for more than a value.
fn is_part(placeholder: &str) -> bool {
    let inner = inner(placeholder);
    let word = inner.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    CONTROLS.contains(&word) || inner.starts_with("/*") || inner.contains(":=")
}

/// Returns the text between the braces.
fn inner(placeholder: &str) -> &str {
    let inner = placeholder.strip_prefix("{{").unwrap_or(placeholder);
    let inner = inner.strip_suffix("}}").unwrap_or(inner);
    inner.trim_matches(['-', ' ', '\t', '\n'])
}

/// Returns the name in the line `name: …` of a template that is not YAML yet, if it has one without placeholders.
pub fn top_level_name(text: &str) -> Option<&str> {
    let value = text.lines().find_map(|line| line.strip_prefix("name:"))?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    let value = value.trim_matches(['"', '\'']);
    (!value.is_empty() && !value.contains("{{")).then_some(value)
}

/// Returns the names of those `values` that no placeholder in `texts` uses, each with the name that may be meant. If a placeholder uses all values
/// at once (`{{ toYaml . }}`), none is unused.
pub fn unused_values(texts: &[&str], values: &BTreeMap<String, String>) -> Vec<String> {
    let placeholders: Vec<_> = texts.iter().flat_map(|text| placeholders(text)).collect();
    if placeholders.iter().any(|it| uses_all(it)) {
        return Vec::new();
    }
    let names: BTreeSet<_> = placeholders.iter().flat_map(|it| fields(it)).collect();
    let free: Vec<_> = names.into_iter().filter(|name| !values.contains_key(*name)).collect();
    let unused = values.keys().filter(|key| !placeholders.iter().any(|it| has_word(it, key)));
    let describe = |key: &String| match actions::suggest(key, free.iter().copied()) {
        Some(meant) => format!("{key} (did you mean {meant}?)"),
        None => key.clone(),
    };
    unused.map(describe).collect()
}

/// Returns the placeholders in `text`, without their braces.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split("{{").skip(1);
    pieces.map(|piece| inner(piece.split("}}").next().unwrap_or_default()))
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// True if `placeholder` has the word `key`, in quotes or not.
fn has_word(placeholder: &str, key: &str) -> bool {
    placeholder.match_indices(key).any(|(at, _)| {
        let before = placeholder.get(..at).and_then(|text| text.chars().next_back());
        let after = placeholder.get(at + key.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// True if `placeholder` has a dot or dollar sign of its own.
fn uses_all(placeholder: &str) -> bool {
    let code = without_texts(placeholder);
    let mut words = code.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '|'));
    words.any(|word| matches!(word, "." | "$"))
}

/// Returns the names of the values in `placeholder`: `img` of `.img.url`.
fn fields(placeholder: &str) -> Vec<&str> {
    let starts = placeholder.match_indices('.').filter(|(at, _)| {
        let before = placeholder.get(..*at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| is_word(c) || c == ')')
    });
    let names = starts.map(|(at, _)| {
        let rest = placeholder.get(at + 1..).unwrap_or_default();
        rest.split(|c: char| !is_word(c)).next().unwrap_or_default()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns `placeholder` with its literal texts emptied.
fn without_texts(placeholder: &str) -> String {
    let (mut code, mut quote) = (String::new(), None);
    for letter in placeholder.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '`' | '\'') => quote = Some(letter),
            None => code.push(letter),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Option<(String, Vec<usize>)> {
        match loose(text) {
            Loose::Values { text, lines } => Some((text, lines.into_iter().collect())),
            Loose::None | Loose::Parts => None,
        }
    }

    #[test]
    fn placeholders_in_quotes_comments_and_blocks_are_not_loose() {
        for text in [
            "a: \"{{ .x }}\"\nb: '{{ .y }}' # {{ .z }}\n",
            "a: it's {{\n",
            "# don't {{ .x }}\na: 1\n",
            "a: |\n  {{ if .x }}\n  b\n  {{ end }}\n\n  c: \"{{ .x }}\nd: [\"{{ .x }}\", '{{ .y }}']\n",
            "a: \"{{ if eq .x `b` }}c{{ end }}\"\n",
            "a: \"one\n  {{ .x }}\n  two\"\n",
        ] {
            if !text.ends_with("{{\n") {
                assert_eq!(loose(text), Loose::None, "{text}");
            }
        }
    }

    #[test]
    fn a_value_outside_of_quotes_is_replaced_in_its_line() {
        let found = values("name: a\nurl: {{ .img }}\nb: x-{{ .a }}-{{ .b }}\n").unwrap();
        assert_eq!(found, ("name: a\nurl: 0\nb: x-0-0\n".to_owned(), vec![2, 3]));
        let found = values("a: it's {{ .x }}\n").unwrap();
        assert_eq!(found.0, "a: it's 0\n");
        let inner = values("a: \"{{ default \"x\" .y }}\"\nb: 1\n").unwrap();
        assert_eq!(inner.0, "a: \"0\"\nb: 1\n");
        assert_eq!(values("a: {{ .x\n  }}\nb: {{ .y }}\n").unwrap().1, [1, 3]);
    }

    #[test]
    fn lines_and_controls_are_parts() {
        for text in [
            "a:\n{{ range .x }}\n  - b\n{{ end }}\n",
            "a:\n  {{ toYaml .x }}\n",
            "a: {{ if .x }}1{{ end }}\n",
            "{{- /* a comment */ -}}\na: 1\n",
            "{{ $x := .y }}\n",
        ] {
            assert_eq!(loose(text), Loose::Parts, "{text}");
        }
    }

    #[test]
    fn the_name_is_read_from_a_text_that_is_no_yaml() {
        assert_eq!(top_level_name("version: 1\nname: debian # 12\n {{ x"), Some("debian"));
        assert_eq!(top_level_name("tasks:\n  name: a\n"), None);
        assert_eq!(top_level_name("name: \"{{ .x }}\"\n"), None);
        assert_eq!(top_level_name("name: 'a'\n"), Some("a"));
    }

    fn unused(text: &str, values: &[&str]) -> Vec<String> {
        let values = values.iter().map(|key| ((*key).to_owned(), String::new())).collect();
        unused_values(&[text], &values)
    }

    #[test]
    fn a_value_that_no_placeholder_names_is_unused() {
        assert_eq!(
            unused("{{ .img }} {{ .image.url }}", &["imag", "image"]),
            ["imag (did you mean img?)"]
        );
        assert_eq!(unused("img {{ .x }}", &["img", "x"]), ["img"]);
        assert_eq!(unused("{{ get . \"img\" }}", &["img"]), [""; 0]);
        assert_eq!(unused("{{ index .hardware \"a\" }}", &["something"]), ["something"]);
        assert_eq!(unused("{{ range . }}{{ end }}", &["img"]), [""; 0]);
        assert_eq!(unused("{{ $.a }} {{ default \". $\" .b }}", &["a", "b", "c"]), ["c"]);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_line_is_lost(text in "([a-z\"'#:|\\-\n ]|\\{\\{|\\}\\}|é){0,80}") {
            if let Loose::Values { text: replaced, lines } = loose(&text) {
                prop_assert!(lines.iter().all(|line| *line <= text.split('\n').count()));
                prop_assert!(replaced.len() <= text.len());
            }
            let _names = unused(&text, &["a", "é"]);
            let _name = top_level_name(&text);
        }
    }
}
