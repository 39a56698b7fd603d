//! The language of grub.cfg (GRUB manual, "Writing full configuration files directly"), as far as it tells what is
//! booted: words, quotes, variables, blocks and conditions.

use std::iter::Peekable;
use std::str::Chars;
use std::vec::IntoIter;

/// How deep conditions and blocks may be in each other; what is deeper is read as if it were not.
const DEEPEST: usize = 32;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// The value of a variable; without quotes around it, it may be several words, or none.
    Variable {
        name: String,
        quoted: bool,
    },
}

/// What stands between spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    /// Whether it has quotes, and so is a word even if nothing is in it.
    pub(super) quoted: bool,
}

/// A command and its arguments.
pub(super) type Command = Vec<Word>;

/// What a script consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Command(Command),
    /// Conditions, each with what is done if it is the first that holds; what is done if none does.
    If(Vec<(Vec<Statement>, Vec<Statement>)>, Vec<Statement>),
    /// A command with a block behind it.
    Block(Command, Vec<Statement>),
}

impl Word {
    /// What it says, if it is nothing but letters.
    fn plain(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] if !self.quoted => Some(text),
            _ => None,
        }
    }

    fn letter(&mut self, letter: char) {
        if let Some(Piece::Text(text)) = self.pieces.last_mut() {
            text.push(letter);
        } else {
            self.pieces.push(Piece::Text(letter.into()));
        }
    }

    fn is_nothing(&self) -> bool {
        self.pieces.is_empty() && !self.quoted
    }
}

/// The statements of `text`. There is no text that has none: what makes no sense is passed over.
pub(super) fn read(text: &str) -> Vec<Statement> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut statements = parser.statements(0);
    // The end of something that never began.
    while parser.tokens.next().is_some() {
        statements.extend(parser.statements(0));
    }
    statements
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// Of a line or of a command in one.
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let (mut letters, mut tokens, mut word) =
        (text.chars().peekable(), Vec::new(), Word::default());
    while let Some(letter) = letters.next() {
        match letter {
            '#' if word.is_nothing() => {
                while letters.next_if(|letter| *letter != '\n').is_some() {}
            }
            '\\' => match letters.next() {
                None | Some('\n') => {}
                Some(letter) => word.letter(letter),
            },
            '\'' => {
                word.quoted = true;
                letters.by_ref().take_while(|it| *it != '\'').for_each(|it| word.letter(it));
            }
            '"' => quoted(&mut letters, &mut word),
            '$' => variable(&mut letters, &mut word, false),
            '\n' | ';' => {
                tokens.extend(finished(&mut word));
                tokens.push(Token::End);
            }
            letter if letter.is_whitespace() => tokens.extend(finished(&mut word)),
            letter => word.letter(letter),
        }
    }
    tokens.extend(finished(&mut word));
    tokens
}

fn finished(word: &mut Word) -> Option<Token> {
    let word = std::mem::take(word);
    (!word.is_nothing()).then_some(Token::Word(word))
}

/// Reads up to the second of two quotation marks.
fn quoted(letters: &mut Peekable<Chars<'_>>, word: &mut Word) {
    word.quoted = true;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return,
            '$' => variable(letters, word, true),
            '\\' => match letters.next_if(|letter| matches!(letter, '$' | '"' | '\\' | '\n')) {
                Some('\n') => {}
                Some(letter) => word.letter(letter),
                None => word.letter('\\'),
            },
            letter => word.letter(letter),
        }
    }
}

/// Reads a variable's name, behind its dollar sign.
fn variable(letters: &mut Peekable<Chars<'_>>, word: &mut Word, quoted: bool) {
    let name: String = if letters.next_if_eq(&'{').is_some() {
        letters.by_ref().take_while(|letter| *letter != '}').collect()
    } else {
        let part = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        std::iter::from_fn(|| letters.next_if(part)).collect()
    };
    match name.is_empty() {
        true => word.letter('$'),
        false => word.pieces.push(Piece::Variable { name, quoted }),
    }
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
}

impl Parser {
    /// The next word, if it is a plain one.
    fn next_plain(&mut self) -> Option<&str> {
        match self.tokens.peek() {
            Some(Token::Word(word)) => word.plain(),
            _ => None,
        }
    }

    /// Passes over the next word if it is `word`; whether it was.
    fn pass(&mut self, word: &str) -> bool {
        let is = self.next_plain() == Some(word);
        if is {
            self.tokens.next();
        }
        is
    }

    /// All statements up to the end of what they are in, which is left to the caller.
    fn statements(&mut self, depth: usize) -> Vec<Statement> {
        let mut statements = Vec::new();
        loop {
            while self.tokens.next_if_eq(&Token::End).is_some() {}
            if self.tokens.peek().is_none()
                || matches!(self.next_plain(), Some("}" | "then" | "elif" | "else" | "fi"))
            {
                return statements;
            }
            if depth < DEEPEST && self.pass("if") {
                statements.push(self.condition(depth + 1));
                continue;
            }
            let command = self.command();
            if self.pass("{") && depth < DEEPEST {
                let body = self.statements(depth + 1);
                self.pass("}");
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
            self.pass("then");
            branches.push((condition, self.statements(depth)));
            if !self.pass("elif") {
                break;
            }
        }
        let otherwise = if self.pass("else") { self.statements(depth) } else { Vec::new() };
        self.pass("fi");
        Statement::If(branches, otherwise)
    }

    fn command(&mut self) -> Command {
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

    /// The words of a script of one command, variables with a dollar sign, quoted ones with two.
    fn words(text: &str) -> Vec<String> {
        let statements = read(text);
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
        let statements = read(text);
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
    fn what_never_began_ends_nothing() {
        assert_eq!(read("} fi\na; } b").len(), 2);
    }

    #[test]
    fn however_deep_it_is_it_is_read() {
        let _statements = read(&"if a; then x { ".repeat(10_000));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reading_panic(text in "\\PC{0,60}|[ifthenlse{};\n$'\"\\\\ ]{0,60}") {
            let _statements = read(&text);
        }
    }
}
