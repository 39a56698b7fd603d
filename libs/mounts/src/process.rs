//! Programs that are run for one answer, with a time limit.

use std::{
    ffi::OsStr,
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::fs::MemfdFlags;

use crate::{Deadline, Error, Result, deadline::poll};

/// Output that is kept, in bytes.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProgramOutput {
    /// Exit status, or `None` after a signal.
    pub(crate) code: Option<i32>,
    /// What it wrote, to standard output and error output, on one line.
    pub(crate) text: String,
}

/// Runs a program to its end, without input and with a `C` locale; kills it at the deadline.
///
/// # Errors
/// [`Error::Missing`] if there is no such program, [`Error::Failed`] if it cannot be run, and at the deadline.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &Path,
    args: &[S],
    deadline: Deadline,
) -> Result<ProgramOutput> {
    let step = format!("run {}", program.display());
    let failed = |error| Error::failed(&step, error);
    // A file instead of pipes: a process that the program leaves behind cannot hold up the reader.
    let memory = rustix::fs::memfd_create("output", MemfdFlags::CLOEXEC);
    let mut output = File::from(memory.map_err(|e| Error::failed(&step, e))?);
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(failed)?).stderr(output.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            return Error::Missing(format!("no program {}", program.display()));
        }
        failed(error)
    })?;
    let ended = poll(deadline, &step, || child.try_wait().map_err(failed));
    if ended.is_err() {
        kill(&mut child);
    }
    let code = ended?.code();
    output.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut bytes = Vec::new();
    output.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(ProgramOutput { code, text: one_line(&String::from_utf8_lossy(&bytes)) })
}

fn kill(child: &mut Child) {
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        tracing::error!(pid = child.id(), %error, "process not ended");
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<ProgramOutput> {
        run(Path::new("/bin/sh"), &["-c", script], Deadline::after(limit))
    }

    #[test]
    fn status_and_both_outputs_come_back_on_one_line() {
        let outcome = shell("echo one; echo two >&2; exit 21", Duration::from_secs(60));
        assert_eq!(outcome, Ok(ProgramOutput { code: Some(21), text: "one two".into() }));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 600", pid.display());
        // Long enough that the program has written its process id.
        let error = shell(&script, Duration::from_secs(2)).unwrap_err();
        assert_eq!(error, Error::expired("run /bin/sh"));
        let process = format!("/proc/{}", std::fs::read_to_string(pid).unwrap().trim());
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn a_program_that_is_not_installed_is_missing() {
        let error = run(Path::new("/no/program"), &["x"], Deadline::after(Duration::ZERO));
        assert_eq!(error, Err(Error::Missing("no program /no/program".into())));
    }
}
