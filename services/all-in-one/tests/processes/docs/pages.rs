//! The README and the pages below `docs`: their blocks of code, and the commands in these.

use std::path::Path;

/// Languages of blocks whose lines are commands. In the last one they begin with `$ `, and the other lines are output.
pub(crate) const SHELLS: [&str; 2] = ["sh", "console"];

/// A page in Markdown.
pub(crate) struct Page {
    /// Its path in the work tree.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A fenced block of code.
pub(crate) struct Block {
    /// The path of its page.
    pub(crate) page: String,
    /// The heading above it, without `#`; empty if there is none.
    pub(crate) heading: String,
    /// The number of its fence's line.
    pub(crate) line: usize,
    /// The word behind the fence.
    pub(crate) language: String,
    /// Its lines, without the indentation of the fence.
    pub(crate) lines: Vec<String>,
}

/// Returns the README and all pages below `docs`, by path.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned()];
    let root = setup::root();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "md") => {
                    paths.push(path.strip_prefix(root).unwrap().display().to_string());
                }
                false => {}
            }
        }
    }
    paths.sort();
    let read = |path: &String| std::fs::read_to_string(root.join(Path::new(path))).unwrap();
    paths.into_iter().map(|path| Page { text: read(&path), path }).collect()
}

impl Page {
    /// Returns its blocks of code.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut heading = "";
        let mut open: Option<(Block, usize)> = None;
        for (number, line) in self.text.lines().enumerate() {
            let text = line.trim_start();
            let indentation = line.len() - text.len();
            match (&mut open, text.strip_prefix("```")) {
                (Some(_), Some(_)) => blocks.extend(open.take().map(|(block, _)| block)),
                (Some((block, cut)), None) => {
                    block.lines.push(line[indentation.min(*cut)..].to_owned());
                }
                (None, Some(language)) => {
                    let (page, heading) = (self.path.clone(), heading.to_owned());
                    let (line, language) = (number + 1, language.to_owned());
                    let block = Block { page, heading, line, language, lines: Vec::new() };
                    open = Some((block, indentation));
                }
                (None, None) if text.starts_with('#') => heading = text.trim_matches(['#', ' ']),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block of code has no end", self.path);
        blocks
    }

    /// Returns the texts in backquotes outside of blocks, each with the number of its line.
    pub(crate) fn inline_code(&self) -> Vec<(usize, &str)> {
        let mut is_in_block = false;
        let mut found = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_in_block = !is_in_block;
            } else if !is_in_block {
                let code = line.split('`').skip(1).step_by(2);
                found.extend(code.map(|code| (number + 1, code)));
            }
        }
        found
    }
}

impl Block {
    /// True if its lines are commands.
    pub(crate) fn is_shell(&self) -> bool {
        SHELLS.contains(&self.language.as_str())
    }

    /// Returns its commands, each in one line; none if it has no commands.
    pub(crate) fn commands(&self) -> Vec<String> {
        let is_console = self.language == "console";
        let mut commands = Vec::<String>::new();
        let mut continues = false;
        for line in self.lines.iter().filter(|_| self.is_shell()) {
            let text = match (continues, is_console) {
                (false, true) => line.strip_prefix("$ "),
                (true, _) | (false, false) => Some(line.trim()),
            };
            let Some(text) = text.filter(|text| !text.is_empty() && !text.starts_with('#')) else {
                continue;
            };
            let (text, is_continued) =
                text.strip_suffix('\\').map_or((text, false), |text| (text, true));
            match commands.last_mut().filter(|_| continues) {
                Some(command) => *command += text,
                None => commands.push(text.to_owned()),
            }
            continues = is_continued;
        }
        commands
    }
}
