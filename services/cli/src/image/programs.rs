//! Programs of the host, which are run with the directories of system programs in PATH.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Directories that may only be in root's PATH.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Lines of standard error that an error quotes.
const MAX_QUOTED_LINES: usize = 3;

/// A program, and the package of Debian that has it.
pub(super) type Program = (&'static str, &'static str);

/// Returns the directories of programs.
fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path).collect::<Vec<_>>();
    own.into_iter().chain(SYSTEM_DIRECTORIES.map(PathBuf::from)).collect()
}

/// Fails if one of `programs` is missing, and names the packages that have them.
pub(super) fn require(programs: &[Program]) -> anyhow::Result<()> {
    let directories = directories();
    let is_missing =
        |program: &&Program| !directories.iter().any(|it| it.join(program.0).is_file());
    let (names, packages): (Vec<_>, Vec<_>) = programs.iter().filter(is_missing).copied().unzip();
    let mut packages = packages;
    packages.dedup();
    let (names, packages) = (names.join(", "), packages.join(" "));
    anyhow::ensure!(names.is_empty(), "missing programs: {names}: install {packages}");
    Ok(())
}

/// Returns a command that finds system programs, prints English, and whose outputs can be read.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::join_paths(directories()).unwrap_or_else(|_| OsString::from("/usr/sbin"));
    command.env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Fails if `program`, which has ended, failed. The error has its last lines on standard error.
pub(super) fn check(program: &str, output: &Output) -> anyhow::Result<()> {
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} failed: {}", last_lines(&errors));
    Ok(())
}

/// Runs `command` to its end, and returns both of its outputs.
#[cfg(test)]
pub(super) fn run(command: &mut Command) -> anyhow::Result<(String, String)> {
    let output = command.output()?;
    check(&command.get_program().to_string_lossy(), &output)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

/// Returns the last lines of `text` with content, in one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(MAX_QUOTED_LINES)..).unwrap_or_default();
    if last.is_empty() { "no error message".into() } else { last.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        let programs = [
            ("sh", "dash"),
            ("no-such-program", "a-package"),
            ("no-such-other", "a-package"),
            ("nor-this", "another"),
        ];
        let error = require(&programs).unwrap_err().to_string();
        let expected =
            "missing programs: no-such-program, no-such-other, nor-this: install a-package another";
        assert_eq!(error, expected);
        require(&[("sh", "dash"), ("mke2fs", "e2fsprogs")]).unwrap();
    }

    #[test]
    fn the_error_of_a_program_has_its_last_lines() {
        let script = "echo one >&2; echo >&2; echo two >&2; echo three >&2; echo four >&2; exit 3";
        let error = run(command("sh").args(["-c", script])).unwrap_err().to_string();
        assert_eq!(error, "sh failed: two; three; four");
        let error = run(command("sh").args(["-c", "exit 1"])).unwrap_err().to_string();
        assert_eq!(error, "sh failed: no error message");
        assert_eq!(run(command("sh").args(["-c", "echo 1"])).unwrap().0, "1\n");
    }
}
