//! Files of times: a line for a test binary, one for its processor time, then a line for each of its tests.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;

/// The extension of the files.
const EXTENSION: &str = "times";
/// The name on the line of the processor time.
pub(super) const PROCESSOR: &str = "processor";

/// A name and a duration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) seconds: f64,
    pub(super) name: String,
}

/// Times of a test binary and of its tests.
#[derive(Debug, PartialEq)]
pub(super) struct Record {
    pub(super) binary: Timed,
    /// The processor time of the binary, and of what it started and waited for.
    pub(super) processor: Timed,
    pub(super) tests: Vec<Timed>,
}

impl Timed {
    pub(super) fn new(duration: Duration, name: &str) -> Self {
        Self { seconds: duration.as_secs_f64(), name: name.to_owned() }
    }
}

impl Record {
    /// Writes the file `name` in `folder`. Prints an error: tests do not fail because of it.
    pub(super) fn save(&self, folder: &Path, name: &str) {
        let path = folder.join(format!("{name}.{EXTENSION}"));
        if let Err(error) = std::fs::write(&path, self.to_string()) {
            eprintln!("cargo rack: writing {}: {error}", path.display());
        }
    }
}

/// Reads the files in `folder`.
pub(super) fn read_all(folder: &Path) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            let record = std::fs::read_to_string(&path)?.parse();
            records.push(record.with_context(|| path.display().to_string())?);
        }
    }
    Ok(records)
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.seconds, self.name)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        [&self.binary, &self.processor]
            .into_iter()
            .chain(&self.tests)
            .try_for_each(|timed| writeln!(f, "{timed}"))
    }
}

impl FromStr for Timed {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let (seconds, name) = line.split_once(' ').with_context(|| format!("no name: {line:?}"))?;
        let seconds = seconds.parse().with_context(|| format!("not seconds: {seconds:?}"))?;
        Ok(Self { seconds, name: name.to_owned() })
    }
}

impl FromStr for Record {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        let mut next = || lines.next().context("a line is missing")?.parse();
        let (binary, processor) = (next()?, next()?);
        Ok(Self { binary, processor, tests: lines.map(str::parse).collect::<anyhow::Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let timed = |millis, name| Timed::new(Duration::from_millis(millis), name);
        let tests = vec![timed(1250, "the control plane"), timed(0, "b::c")];
        let (binary, processor) = (timed(2000, "rack/node"), timed(1500, PROCESSOR));
        let record = Record { binary, processor, tests };
        record.save(folder.path(), "node-17");
        std::fs::write(folder.path().join("runner"), "a program").unwrap();
        assert_eq!(read_all(folder.path()).unwrap(), [record]);
    }
}
