//! Runs a test binary for cargo (`target.runner` in its configuration), and writes its times.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::record::{PROCESSOR, Record, Timed};

/// Arguments by which the tests' harness prints the time of each test.
const ARGUMENTS: [&str; 3] = ["-Z", "unstable-options", "--report-time"];
/// The variable with which the harness of a stable toolchain accepts [`ARGUMENTS`].
///
/// Processes that a test starts inherit it. Only cargo, rustc and build scripts read it: a build
/// with it compiles dependencies again. So a test that starts cargo removes it.
const VARIABLE: &str = "RUSTC_BOOTSTRAP";
/// The variable by which a program of doc tests finds itself, to run each test in a process.
/// Rustdoc sets it unless there is a runner. Without it the program prints a warning.
const DOC_TESTS_VARIABLE: &str = "RUSTDOC_DOCTEST_BIN_PATH";
/// Timeout of the output after the binary's end. A daemon that a test left may keep it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `program` with `arguments`. Writes its times into `folder`. Returns its exit code.
///
/// All test binaries of the workspace have the harness of Rust, which knows [`ARGUMENTS`]. A
/// program that is not named like a test binary runs without them, and no times are written: it
/// has doc tests.
pub(crate) fn run(
    folder: &Path,
    program: &OsStr,
    arguments: &[OsString],
) -> anyhow::Result<ExitCode> {
    let mut command = Command::new(program);
    command.args(arguments);
    let Some(name) = binary_name(Path::new(program)) else {
        return Ok(exit_code(program, command.env(DOC_TESTS_VARIABLE, program).status()?));
    };
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let begin = Instant::now();
    let mut child = command.args(ARGUMENTS).env(VARIABLE, "1").stdout(Stdio::piped()).spawn()?;
    let (sender, times) = channel();
    let stdout = child.stdout.take().context("the output of the tests: missing")?;
    std::thread::spawn(move || copy(stdout, std::io::stdout(), &sender));
    let status = child.wait()?;
    let binary = Timed::new(begin.elapsed(), &label(&package, name));
    let tests = std::iter::from_fn(|| times.recv_timeout(OUTPUT_TIMEOUT).ok()).collect();
    let processor = Timed::new(processor_time_of_children()?, PROCESSOR);
    Record { binary, processor, tests }.save(folder, &format!("{name}-{}", std::process::id()));
    Ok(exit_code(program, status))
}

/// Returns the processor time of the processes that ended and were waited for, and of theirs.
///
/// Source: proc(5), the fields `cutime` and `cstime` of `/proc/self/stat`.
fn processor_time_of_children() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat: no name")?;
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<_, _>>()?;
    Ok(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64))
}

/// Copies `from` to `to`, and sends the time of each test. Stops if `to` is closed.
fn copy(mut from: impl Read, mut to: impl Write, times: &Sender<Timed>) {
    let mut buffer = [0; 8192];
    let mut line = Vec::new();
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        if to.write_all(bytes).and_then(|()| to.flush()).is_err() {
            return;
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") {
                if let Some(time) = test_time(&String::from_utf8_lossy(&line)) {
                    let _timeout_of_the_receiver = times.send(time);
                }
                line.clear();
            }
        }
    }
}

/// Reads a line of the harness, such as `test name ... ok <0.012s>`.
///
/// Output that a process wrote without an end of line may be before it.
fn test_time(line: &str) -> Option<Timed> {
    let (line, seconds) = line.trim_end().strip_suffix("s>")?.rsplit_once(" <")?;
    let (before, result) = line.rsplit_once(" ... ")?;
    let (before, name) = before.trim_end_matches(" - should panic").rsplit_once(' ')?;
    let is_test = before.ends_with("test") && ["ok", "FAILED"].contains(&result);
    is_test.then_some(Timed { seconds: seconds.parse().ok()?, name: name.to_owned() })
}

/// Returns the name of a test binary in `NAME-HASH`, a form that cargo gives to no other program.
fn binary_name(program: &Path) -> Option<&str> {
    let (name, hash) = program.file_name()?.to_str()?.rsplit_once('-')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(name)
}

/// Returns `package/binary`, or the package alone for the unit tests of its library.
fn label(package: &str, binary: &str) -> String {
    match package.replace('-', "_") == binary {
        true => package.to_owned(),
        false => format!("{package}/{binary}"),
    }
}

/// Returns the exit code that a shell gives for `status`. Prints a signal: cargo does not see it.
fn exit_code(program: &OsStr, status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    if let Some(signal) = status.signal() {
        eprintln!("cargo rack: {}: {status}", program.display());
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::sources;

    fn time(line: &str) -> Option<(f64, String)> {
        test_time(line).map(|it| (it.seconds, it.name))
    }

    #[test]
    fn the_time_of_a_test_is_read_with_its_name() {
        let expected = Some((1.25, "a::b".to_owned()));
        assert_eq!(time("test a::b ... ok <1.250s>\n"), expected);
        assert_eq!(time("test a::b ... FAILED <1.250s>\n"), expected);
        assert_eq!(time("test a::b - should panic ... ok <1.250s>\n"), expected);
        assert_eq!(time("output of a processtest a::b ... ok <1.250s>\n"), expected);
    }

    #[test]
    fn other_lines_have_no_time() {
        for line in [
            "test a::b ... ok\n",
            "test a::b ... ignored, takes hours\n",
            "test a::b ... ignored, needs a <1s>\n",
            "test a::b has been running for over 60 seconds\n",
            "test result: ok. 5 passed; 0 failed; 0 ignored; finished in 0.02s\n",
            "an element <0.1s>\n",
            "test a::b ... ok <fasts>\n",
            "\n",
        ] {
            assert_eq!(time(line), None, "{line}");
        }
    }

    #[test]
    fn output_is_copied_unchanged_and_lines_are_read_across_chunks() {
        /// A pipe that has a few bytes at a time.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(&mut buffer[..3])
            }
        }
        let text = b"\nrunning 2 tests\ntest a ... ok <0.500s>\n\xff\ntest b ... ok <1.000s>\n...";
        let mut copied = Vec::new();
        let (sender, times) = channel();
        copy(Slow(text), &mut copied, &sender);
        drop(sender);
        assert_eq!(copied, text);
        let names: Vec<_> = times.iter().map(|it| it.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn test_binaries_are_recognized_by_their_name() {
        let name = |path| binary_name(Path::new(path));
        assert_eq!(name("/target/debug/deps/power_cut-0123456789abcdef"), Some("power_cut"));
        assert_eq!(name("/tmp/rustdoctest/rust_out"), None);
        assert_eq!(name("/target/debug/cargo-rack"), None);
        assert_eq!(label("node-agent", "node_agent"), "node-agent");
        assert_eq!(label("node-agent", "program"), "node-agent/program");
    }

    /// Another harness does not know the arguments. `cargo test` runs no benches.
    #[test]
    fn every_test_binary_has_the_harness_of_rust() {
        for (path, text) in sources::files("toml") {
            for section in text.split("\n[").filter(|it| it.contains("harness = false")) {
                let is_bench = section.starts_with("[bench]]") && !section.contains("test = true");
                assert!(is_bench, "{}: [{section}", path.display());
            }
        }
    }

    #[test]
    fn tests_that_start_cargo_do_so_without_the_variable() {
        let forms =
            [format!("env_remove({VARIABLE:?})"), format!("var_os({VARIABLE:?}).is_none()")];
        let starts_cargo = |text: &str| {
            ["env!(\"CARGO\")", "var_os(\"CARGO\")"].iter().any(|it| text.contains(it))
        };
        let files = sources::files("rs")
            .into_iter()
            .filter(|(path, text)| !path.starts_with("tests/setup") && starts_cargo(text));
        let files: Vec<_> = files.collect();
        assert!(!files.is_empty());
        for (path, text) in files {
            let has_form = forms.iter().any(|form| text.contains(form));
            assert!(has_form, "{}: none of {forms:?}", path.display());
        }
    }
}
