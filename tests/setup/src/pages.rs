//! The README and the pages below `docs`: their blocks of code, and the commands in these.
//!
//! A test that types commands of the documents gets them by [`typed`], so that they cannot differ.

/// Languages of blocks whose lines are commands. In the last one they begin with `$ `, and the other lines are output.
pub const SHELLS: [&str; 2] = ["sh", "console"];

/// A page in Markdown.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its path in the work tree.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A fenced block of code.
#[derive(Clone, Debug)]
pub struct Block {
    /// The path of its page.
    pub page: String,
    /// The heading above it, without `#`; empty if there is none.
    pub heading: String,
    /// The number of its fence's line.
    pub line: usize,
    /// The word behind the fence.
    pub language: String,
    /// Its lines, without the indentation of the fence.
    pub lines: Vec<String>,
}

/// Returns the blocks of commands below a heading of a page, which is a path in the work tree, for a test that types them. The test of all
/// documents finds this call in the source of that test.
///
/// # Panics
/// If there is no such block, or a page cannot be read.
pub fn typed(page: &str, heading: &str) -> Vec<Block> {
    let found = pages().into_iter().find(|it| it.path == page);
    let mut found = found.map(|page| page.blocks()).unwrap_or_default();
    found.retain(|block| block.heading == heading && block.is_shell());
    assert!(!found.is_empty(), "{page} has no commands below the heading {heading}");
    found
}

/// Returns the README and all pages below `docs`, by path.
///
/// # Panics
/// If one cannot be read.
pub fn pages() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned()];
    let root = crate::root();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder of documents can be read") {
            let path = entry.expect("the folder of documents can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "md") => {
                    let inner = path.strip_prefix(root).expect("the folder is in the work tree");
                    paths.push(inner.display().to_string());
                }
                false => {}
            }
        }
    }
    paths.sort();
    let read =
        |path: &String| std::fs::read_to_string(root.join(path)).expect("the page can be read");
    paths.into_iter().map(|path| Page { text: read(&path), path }).collect()
}

impl Page {
    /// Returns its blocks of code.
    ///
    /// # Panics
    /// If the last one has no end.
    pub fn blocks(&self) -> Vec<Block> {
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
    pub fn inline_code(&self) -> Vec<(usize, &str)> {
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
    pub fn is_shell(&self) -> bool {
        SHELLS.contains(&self.language.as_str())
    }

    /// Returns its commands, each in one line; none if it has no commands.
    pub fn commands(&self) -> Vec<String> {
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
