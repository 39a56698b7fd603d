//! The log file of a container: `<id>-<unix seconds at creation>.log`, with lines of the server and raw output of the image.
//!
//! Daemon and supervisor both append to it, each write on a descriptor of its own, so that nothing is kept open and a
//! rotation by one of them is noticed by the other. A file that would grow over its limit is renamed to `….log.1` first,
//! replacing the older one: a log never occupies more than twice its limit. If two processes rotate at the same moment,
//! the older part may be lost.

pub(crate) mod output;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The log file of a container and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// The file.
    pub path: PathBuf,
    /// The greatest size of the file and of its predecessor, in bytes.
    pub max_bytes: u64,
    /// The image's output that is written in the long run, in bytes per second.
    pub bytes_per_second: u64,
    /// The image's output that is written at once after a quiet time, in bytes.
    pub burst_bytes: u64,
}

impl LogSettings {
    /// The usual limits: 8 MiB a file, 256 KiB/s with bursts of 1 MiB.
    pub fn new(path: PathBuf) -> Self {
        Self { path, max_bytes: 8 << 20, bytes_per_second: 256 << 10, burst_bytes: 1 << 20 }
    }
}

/// The name of the log file of container `id`, created at `created`.
pub fn file_name(id: u64, created: SystemTime) -> String {
    format!("{id}-{}.log", unix_seconds(created))
}

/// Seconds since the Unix epoch; 0 for a time before it.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// `text` as a line of `source`, such as `2026/11/25 20:11:06 container(45): starting container`, in UTC. Control
/// characters in `text` become blanks, as it may come from the image.
pub(crate) fn format_line(now: SystemTime, source: &str, text: &str) -> String {
    let now = OffsetDateTime::from(now);
    let date = format!("{:04}/{:02}/{:02}", now.year(), u8::from(now.month()), now.day());
    let time = format!("{:02}:{:02}:{:02}", now.hour(), now.minute(), now.second());
    let text = text.replace(char::is_control, " ");
    format!("{date} {time} {source}: {text}\n")
}

/// A log file.
#[derive(Clone, Debug)]
pub struct Log {
    source: String,
    path: PathBuf,
    max_bytes: u64,
}

impl Log {
    /// The log of container `id`; the file is created with the first line.
    pub fn new(id: u64, settings: &LogSettings) -> Self {
        Self {
            source: format!("container({id})"),
            path: settings.path.clone(),
            max_bytes: settings.max_bytes,
        }
    }

    /// Appends `text` as a line of the server.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn line(&self, now: SystemTime, text: &str) -> io::Result<()> {
        self.append(format_line(now, &self.source, text).as_bytes())
    }

    /// Appends `bytes` as they are, after rotating a file that would become too large.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open()?;
        let size = file.metadata()?.len();
        if size > 0 && size.saturating_add(bytes.len() as u64) > self.max_bytes {
            fs::rename(&self.path, rotated(&self.path))?;
            file = self.open()?;
        }
        file.write_all(bytes)
    }

    fn open(&self) -> io::Result<File> {
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(no_links)
            .open(&self.path)
    }

    /// Removes the file and its predecessor.
    ///
    /// # Errors
    /// A file exists and cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        for path in [self.path.clone(), rotated(&self.path)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The path of the older file.
fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Removes the log files in `directory` that were last written more than `retention` before `now`, except those in `used`,
/// and returns how many that were. Other files are left alone.
///
/// # Errors
/// The directory cannot be read.
pub fn remove_expired(
    directory: &Path,
    now: SystemTime,
    retention: Duration,
    used: &[PathBuf],
) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(directory)? {
        let (path, metadata) = match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let expired = metadata
            .modified()
            .is_ok_and(|time| now.duration_since(time).is_ok_and(|age| age > retention));
        let is_used = used.iter().any(|log| *log == path || rotated(log) == path);
        if metadata.is_file()
            && is_log(&path)
            && expired
            && !is_used
            && fs::remove_file(&path).is_ok()
        {
            removed += 1;
        }
    }
    Ok(removed)
}

/// True if the path's last part is `<digits>-<digits>.log`, with `.1` or without.
fn is_log(path: &Path) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.strip_suffix(".1").unwrap_or(name).strip_suffix(".log");
    stem.and_then(|stem| stem.split_once('-'))
        .is_some_and(|(id, seconds)| digits(id) && digits(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn log(directory: &Path, max_bytes: u64) -> Log {
        let path = directory.join("logs").join(file_name(45, at(1_732_100_455)));
        Log::new(45, &LogSettings { max_bytes, ..LogSettings::new(path) })
    }

    #[test]
    fn lines_have_the_time_in_utc_and_the_container() {
        let directory = tempfile::tempdir().unwrap();
        let log = log(directory.path(), 1000);
        log.line(at(1_732_100_455), "container created").unwrap();
        log.line(at(951_782_399), "end: a\nb\x1b[2J").unwrap();
        let text = fs::read_to_string(directory.path().join("logs/45-1732100455.log")).unwrap();
        let first = "2024/11/20 11:00:55 container(45): container created\n";
        assert_eq!(text, format!("{first}2000/02/28 23:59:59 container(45): end: a b [2J\n"));
    }

    #[test]
    fn a_log_never_occupies_more_than_two_files_of_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let log = log(directory.path(), 1000);
        for _ in 0..50 {
            log.append(&[b'a'; 300]).unwrap();
        }
        log.append(b"last\n").unwrap();
        let mut sizes: Vec<(String, u64)> = fs::read_dir(directory.path().join("logs"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
            })
            .collect();
        sizes.sort();
        assert_eq!(
            sizes,
            [("45-1732100455.log".to_owned(), 605), ("45-1732100455.log.1".to_owned(), 900)]
        );
        log.remove().unwrap();
        assert_eq!(fs::read_dir(directory.path().join("logs")).unwrap().count(), 0);
        log.remove().unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let log = log(directory.path(), 1000);
        fs::create_dir(directory.path().join("logs")).unwrap();
        let target = directory.path().join("target");
        std::os::unix::fs::symlink(&target, directory.path().join("logs/45-1732100455.log"))
            .unwrap();
        assert!(log.append(b"a").is_err() && !target.exists());
    }

    #[test]
    fn only_expired_logs_that_nobody_uses_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, seconds| {
            let file = File::create(directory.path().join(name)).unwrap();
            file.set_modified(at(seconds)).unwrap();
        };
        for name in ["1-10.log", "1-10.log.1", "2-10.log", "2-10.log.1", "other.log", "3-10.txt"] {
            write(name, 1000);
        }
        write("4-10.log", 1051);
        let used = [directory.path().join("2-10.log")];
        let removed =
            remove_expired(directory.path(), at(1100), Duration::from_secs(50), &used).unwrap();
        assert_eq!(removed, 2);
        let mut left: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["2-10.log", "2-10.log.1", "3-10.txt", "4-10.log", "other.log"]);
    }
}
