//! The password of a BMC or of a registry: from a file, from standard input, or from a prompt at a terminal.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::input;

/// Reads the password `owner`, such as "of the BMC", from `file`, where `-` is standard input. Without a file, a terminal is asked for it.
pub(crate) fn read(owner: &str, file: Option<&Path>) -> anyhow::Result<String> {
    let stdin = Path::new("-");
    let is_typed = file.is_none_or(|file| file == stdin) && std::io::stdin().is_terminal();
    let password = match is_typed {
        true => prompt(owner)?,
        false => input::text(file.unwrap_or(stdin))?,
    };
    let password = without_line_end(password);
    let place = file.filter(|file| *file != stdin).map(|file| file.display().to_string());
    let place = place.unwrap_or_else(|| "standard input".into());
    anyhow::ensure!(!password.is_empty(), "{place} holds no password");
    Ok(password)
}

/// Asks for the password. The terminal does not show it.
fn prompt(owner: &str) -> anyhow::Result<String> {
    let hidden = Hidden::new()?;
    eprint!("Password {owner}: ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("reading the password")?;
    drop(hidden);
    eprintln!();
    Ok(line)
}

/// A terminal that does not show what is typed, until drop.
struct Hidden;

impl Hidden {
    fn new() -> anyhow::Result<Self> {
        let status = Command::new("stty").arg("-echo").status();
        let status = status.context("running stty, so that the terminal hides the password")?;
        anyhow::ensure!(status.success(), "the terminal cannot hide the password: use a file");
        Ok(Self)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _shown = Command::new("stty").arg("echo").status();
    }
}

/// Returns `text` without the final line break of editors and `echo`; other spaces may be part of the password.
fn without_line_end(text: String) -> String {
    let line = text.strip_suffix('\n').unwrap_or(&text);
    line.strip_suffix('\r').unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_end_of_line_is_not_part_of_a_password() {
        for text in ["s3cret ", "s3cret \n", "s3cret \r\n"] {
            assert_eq!(without_line_end(text.into()), "s3cret ");
        }
        assert_eq!(without_line_end("a\n\n".into()), "a\n");
    }
}
