//! Parser of grub.cfg (GRUB manual, "Writing full configuration files directly"): words, quotes, variables, blocks and
//! conditions.

use std::iter::Peekable;
use std::str::Chars;
use std::vec::IntoIter;

/// Maximum nesting of conditions and blocks; deeper ones are flattened.
const MAX_DEPTH: usize = 32;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// The value of a variable. Unquoted, it may expand to several words, or none.
    Variable {
        name: String,
        quoted: bool,
    },
}

/// Text between spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    /// True if the word has quotes. A quoted word exists even if it is empty.
    pub(super) quoted: bool,
}

/// A command and its arguments.
pub(super) type Words = Vec<Word>;

/// A statement of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Command(Words),
    /// Conditions with their bodies, and the body of `else`. The body of the first true condition is run.
    If(Vec<(Vec<Statement>, Vec<Statement>)>, Vec<Statement>),
    /// A command followed by a block.
    Block(Words, Vec<Statement>),
}

impl Word {
    /// Returns the text of a word without quotes and variables.
    fn plain(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] if !self.quoted => Some(text),
            _ => None,
        }
    }

    fn push(&mut self, letter: char) {
        if let Some(Piece::Text(text)) = self.pieces.last_mut() {
            text.push(letter);
        } else {
            self.pieces.push(Piece::Text(letter.into()));
        }
    }

    fn is_absent(&self) -> bool {
        self.pieces.is_empty() && !self.quoted
    }
}

/// Parses `text`. Syntax errors are skipped.
pub(super) fn parse(text: &str) -> Vec<Statement> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut statements = parser.statements(0);
    // Tokens remain after an `end` keyword without a beginning.
    while parser.tokens.next().is_some() {
        statements.extend(parser.statements(0));
    }
    statements
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// The end of a command.
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let (mut letters, mut tokens, mut word) =
        (text.chars().peekable(), Vec::new(), Word::default());
    while let Some(letter) = letters.next() {
        match letter {
            '#' if word.is_absent() => while letters.next_if(|letter| *letter != '\n').is_some() {},
            '\\' => match letters.next() {
                None | Some('\n') => {}
                Some(letter) => word.push(letter),
            },
            '\'' => {
                word.quoted = true;
                letters.by_ref().take_while(|it| *it != '\'').for_each(|it| word.push(it));
            }
            '"' => quoted(&mut letters, &mut word),
            '$' => variable(&mut letters, &mut word, false),
            '\n' | ';' => {
                tokens.extend(finished(&mut word));
                tokens.push(Token::End);
            }
            letter if letter.is_whitespace() => tokens.extend(finished(&mut word)),
            letter => word.push(letter),
        }
    }
    tokens.extend(finished(&mut word));
    tokens
}

fn finished(word: &mut Word) -> Option<Token> {
    let word = std::mem::take(word);
    (!word.is_absent()).then_some(Token::Word(word))
}

/// Parses up to the closing quotation mark.
fn quoted(letters: &mut Peekable<Chars<'_>>, word: &mut Word) {
    word.quoted = true;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return,
            '$' => variable(letters, word, true),
            '\\' => match letters.next_if(|letter| matches!(letter, '$' | '"' | '\\' | '\n')) {
                Some('\n') => {}
                Some(letter) => word.push(letter),
                None => word.push('\\'),
            },
            letter => word.push(letter),
        }
    }
}

/// Parses the name of a variable, after the dollar sign.
fn variable(letters: &mut Peekable<Chars<'_>>, word: &mut Word, quoted: bool) {
    let name: String = if letters.next_if_eq(&'{').is_some() {
        letters.by_ref().take_while(|letter| *letter != '}').collect()
    } else {
        let part = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        std::iter::from_fn(|| letters.next_if(part)).collect()
    };
    match name.is_empty() {
        true => word.push('$'),
        false => word.pieces.push(Piece::Variable { name, quoted }),
    }
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
}

impl Parser {
    /// Returns the next word, if it is plain text.
    fn next_plain(&mut self) -> Option<&str> {
        match self.tokens.peek() {
            Some(Token::Word(word)) => word.plain(),
            _ => None,
        }
    }

    /// Skips the next word if it is `word`. Returns true if it was.
    fn skip(&mut self, word: &str) -> bool {
        let is = self.next_plain() == Some(word);
        if is {
            self.tokens.next();
        }
        is
    }

    /// Parses statements up to the end of the enclosing block, which is left to the caller.
    fn statements(&mut self, depth: usize) -> Vec<Statement> {
        let mut statements = Vec::new();
        loop {
            while self.tokens.next_if_eq(&Token::End).is_some() {}
            if self.tokens.peek().is_none()
                || matches!(self.next_plain(), Some("}" | "then" | "elif" | "else" | "fi"))
            {
                return statements;
            }
            if depth < MAX_DEPTH && self.skip("if") {
                statements.push(self.condition(depth + 1));
                continue;
            }
            let command = self.command();
            if self.skip("{") && depth < MAX_DEPTH {
                let body = self.statements(depth + 1);
                self.skip("}");
                statements.push(Statement::Block(command, body));
            } else if !command.is_empty() {
                statements.push(Statement::Command(command));
            }
        }
    }

    fn condition(&mut self, depth: usize) -> Statement {
        let mut branches = Vec::new();
        loop {
            let condition = self.statements(depth);
            self.skip("then");
            branches.push((condition, self.statements(depth)));
            if !self.skip("elif") {
                break;
            }
        }
        let otherwise = if self.skip("else") { self.statements(depth) } else { Vec::new() };
        self.skip("fi");
        Statement::If(branches, otherwise)
    }

    fn command(&mut self) -> Words {
        let mut command = Vec::new();
        while !matches!(self.next_plain(), Some("{" | "}")) {
            let Some(Token::Word(word)) = self.tokens.next_if(|it| *it != Token::End) else {
                break;
            };
            command.push(word);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the words of a script of one command: variables with a dollar sign, quoted ones with two.
    fn words(text: &str) -> Vec<String> {
        let statements = parse(text);
        let [Statement::Command(command)] = statements.as_slice() else { panic!("{statements:?}") };
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, quoted } => {
                format!("{}{name}", if *quoted { "$$" } else { "$" })
            }
        };
        command.iter().map(|word| word.pieces.iter().map(piece).collect()).collect()
    }

    #[test]
    fn words_are_split_as_grub_splits_them() {
        assert_eq!(
            words(r"menuentry 'Debian GNU/Linux' --x"),
            ["menuentry", "Debian GNU/Linux", "--x"]
        );
        assert_eq!(words(r#"set a="b \"c\" $d\$" # e"#), ["set", r#"a=b "c" $$d$"#]);
        assert_eq!(words("linux\t($root)/x${y}z \\\n\t quiet"), ["linux", "($root)/x$yz", "quiet"]);
        assert_eq!(words(r"echo a\ b '' \'"), ["echo", "a b", "", "'"]);
    }

    #[test]
    fn blocks_and_conditions_are_nested() {
        let text =
            "if [ a ]; then x; elif b\nthen\ny\nelse z; fi\nmenu 'm' {\n entry {\n l\n }\n}\nend";
        let statements = parse(text);
        let [
            Statement::If(branches, otherwise),
            Statement::Block(head, body),
            Statement::Command(_),
        ] = statements.as_slice()
        else {
            panic!("{statements:?}")
        };
        assert_eq!((branches.len(), otherwise.len(), head.len()), (2, 1, 2));
        assert!(matches!(body.as_slice(), [Statement::Block(_, inner)] if inner.len() == 1));
    }

    #[test]
    fn an_end_keyword_without_a_beginning_is_skipped() {
        assert_eq!(parse("} fi\na; } b").len(), 2);
    }

    #[test]
    fn any_depth_is_parsed() {
        let _statements = parse(&"if a; then x { ".repeat(10_000));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}|[ifthenlse{};\n$'\"\\\\ ]{0,60}") {
            let _statements = parse(&text);
        }
    }
}
