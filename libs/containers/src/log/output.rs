//! The image's output on its way to the log: read without blocking the image, limited in rate, and dropped beyond that.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

use super::{Log, LogSettings};

/// Bytes read from the pipe at once.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks read in a row, so that a flood of output does not delay a stop request.
const MAX_CHUNKS: usize = 16;

/// A token bucket over bytes. Once it is empty, everything is dropped until it is half full again: a flood leads to few
/// long gaps with one line each, and not to a line for each chunk.
#[derive(Debug)]
struct RateLimit {
    bytes_per_second: u64,
    burst: u64,
    tokens: u64,
    refilled_at: Instant,
    dropping: bool,
    dropped: u64,
}

/// The treatment of a chunk.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is written. So many bytes before it were dropped since the last chunk that was written.
    Write { dropped: u64 },
    /// It is dropped.
    Drop,
}

impl RateLimit {
    fn new(settings: &LogSettings, now: Instant) -> Self {
        let burst = settings.burst_bytes.max(2 * CHUNK_BYTES as u64);
        let bytes_per_second = settings.bytes_per_second;
        Self {
            bytes_per_second,
            burst,
            tokens: burst,
            refilled_at: now,
            dropping: false,
            dropped: 0,
        }
    }

    fn admit(&mut self, now: Instant, bytes: usize) -> Verdict {
        self.refill(now);
        let bytes = bytes as u64;
        let wanted = if self.dropping { self.burst / 2 } else { bytes };
        self.dropping = self.tokens < wanted;
        if self.dropping {
            self.dropped += bytes;
            return Verdict::Drop;
        }
        self.tokens -= bytes;
        Verdict::Write { dropped: std::mem::take(&mut self.dropped) }
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled_at);
        let earned = u64::try_from(elapsed.as_micros())
            .unwrap_or(u64::MAX)
            .saturating_mul(self.bytes_per_second)
            / 1_000_000;
        if earned > 0 {
            // Fractions of a byte are earned again: the time moves by what the bytes took.
            let micros = earned.saturating_mul(1_000_000).checked_div(self.bytes_per_second);
            self.refilled_at += Duration::from_micros(micros.unwrap_or(0));
            self.tokens = self.tokens.saturating_add(earned).min(self.burst);
        }
    }
}

/// The log of a running container: server lines between the chunks of the image's output.
#[derive(Debug)]
pub(crate) struct Output {
    log: Log,
    pipe: Option<PipeReader>,
    limit: RateLimit,
    at_line_start: bool,
}

impl Output {
    /// The output that arrives on `pipe`, whose reading end does not block.
    pub(crate) fn new(log: Log, pipe: PipeReader, settings: &LogSettings, now: Instant) -> Self {
        Self { log, pipe: Some(pipe), limit: RateLimit::new(settings, now), at_line_start: true }
    }

    /// The pipe, until its writers have closed it.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Appends a line of the server, on a line of its own.
    pub(crate) fn line(&mut self, now: SystemTime, text: &str) {
        let before = if std::mem::replace(&mut self.at_line_start, true) { "" } else { "\n" };
        let line = super::format_line(now, &self.log.source, text);
        // A full disk must not end the container.
        let _written = self.log.append(format!("{before}{line}").as_bytes());
    }

    /// Moves what the pipe holds to the log, `MAX_CHUNKS` at most. False if there may be more.
    pub(crate) fn drain(&mut self, now: Instant, wall_clock: SystemTime) -> bool {
        let mut chunk = [0; CHUNK_BYTES];
        for _ in 0..MAX_CHUNKS {
            let Some(pipe) = &mut self.pipe else { return true };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(length) => self.write(now, wall_clock, &chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => self.pipe = None,
            }
        }
        false
    }

    fn write(&mut self, now: Instant, wall_clock: SystemTime, chunk: &[u8]) {
        let Verdict::Write { dropped } = self.limit.admit(now, chunk.len()) else { return };
        self.report_dropped(wall_clock, dropped);
        if self.log.append(chunk).is_ok() {
            self.at_line_start = chunk.ends_with(b"\n");
        } else {
            self.limit.dropped += chunk.len() as u64;
        }
    }

    /// Closes the pipe, and says how much was dropped since the last line about it.
    pub(crate) fn finish(&mut self, wall_clock: SystemTime) {
        self.pipe = None;
        let dropped = std::mem::take(&mut self.limit.dropped);
        self.report_dropped(wall_clock, dropped);
    }

    fn report_dropped(&mut self, wall_clock: SystemTime, dropped: u64) {
        if dropped > 0 {
            self.line(wall_clock, &format!("output dropped: {dropped} bytes over the limit"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn limit(now: Instant) -> RateLimit {
        let settings = LogSettings {
            bytes_per_second: 1000,
            burst_bytes: 100_000,
            ..LogSettings::new(PathBuf::new())
        };
        RateLimit::new(&settings, now)
    }

    #[test]
    fn a_flood_is_cut_after_the_burst_and_continues_when_half_of_it_is_free() {
        let start = Instant::now();
        let mut limit = limit(start);
        let mut written = 0;
        for _ in 0..20 {
            if limit.admit(start, 10_000) == (Verdict::Write { dropped: 0 }) {
                written += 10_000;
            }
        }
        assert_eq!((written, limit.dropped), (100_000, 100_000));
        assert_eq!(limit.admit(start + Duration::from_secs(49), 10_000), Verdict::Drop);
        let verdict = limit.admit(start + Duration::from_secs(50), 10_000);
        assert_eq!(verdict, Verdict::Write { dropped: 110_000 });
        assert_eq!(
            limit.admit(start + Duration::from_secs(50), 10_000),
            Verdict::Write { dropped: 0 }
        );
    }

    #[test]
    fn frequent_looks_at_the_clock_lose_no_tokens() {
        let start = Instant::now();
        let mut limit = limit(start);
        limit.tokens = 0;
        for step in 1..=10_000 {
            limit.refill(start + Duration::from_micros(step * 100));
        }
        assert_eq!(limit.tokens, 1000);
    }

    #[test]
    fn output_and_server_lines_do_not_share_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1-1.log");
        let settings = LogSettings::new(path.clone());
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut output = Output::new(Log::new(1, &settings), reader, &settings, Instant::now());
        io::Write::write_all(&mut writer, b"half a line").unwrap();
        assert!(output.drain(Instant::now(), SystemTime::UNIX_EPOCH) && output.pipe().is_some());
        output.line(SystemTime::UNIX_EPOCH, "stop requested");
        io::Write::write_all(&mut writer, b"a line\n").unwrap();
        drop(writer);
        assert!(output.drain(Instant::now(), SystemTime::UNIX_EPOCH) && output.pipe().is_none());
        output.line(SystemTime::UNIX_EPOCH, "ended");
        let line = |text| format!("1970/01/01 00:00:00 container(1): {text}\n");
        let expected = format!("half a line\n{}a line\n{}", line("stop requested"), line("ended"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    }
}
