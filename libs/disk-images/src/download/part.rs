//! The beginning of a file that is downloaded.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{CONTENT_RANGE, HeaderMap};
use reqwest::{Response, StatusCode};
use rustix::fs::OFlags;

use super::{AttemptError, Error, Observer};
use crate::checksums::{self, Checksum, Sum};
use crate::text::Size;

/// Maximum size of an image in bytes.
const MAX_IMAGE_BYTES: u64 = 64 << 30;

/// The beginning of a file that is downloaded.
pub struct Part {
    path: PathBuf,
    file: File,
    /// Bytes that the file has.
    length: u64,
    /// Bytes that came from the server since this command began.
    received: u64,
    /// The sum of the bytes that the file has.
    sum: Sum,
    expected: Checksum,
    observer: Box<dyn Observer>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, length, received, .. } = self;
        let mut part = f.debug_struct("Part");
        part.field("path", path).field("length", length).field("received", received);
        part.finish_non_exhaustive()
    }
}

impl Part {
    /// Opens the part at `path`, or makes an empty one. The complete file shall have the checksum
    /// `expected`.
    pub fn open(
        path: PathBuf,
        expected: Checksum,
        observer: Box<dyn Observer>,
    ) -> Result<Self, Error> {
        let opening = |source| Error::Part { path: path.clone(), source };
        // A link that somebody else made is not followed.
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = File::options();
        options.read(true).append(true).create(true).custom_flags(no_links);
        let mut file = options.open(&path).map_err(opening)?;
        let mut sum = expected.sum();
        let length = checksums::add(&mut sum, &mut file).map_err(opening)?;
        observer.position(length);
        Ok(Self { path, file, length, received: 0, sum, expected, observer })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// True if the body of `response` is to be appended; false if the part is the whole file
    /// already. A part that does not fit is emptied.
    pub(super) fn fits(&mut self, response: &Response) -> Result<bool, AttemptError> {
        match response.status() {
            StatusCode::OK => self.empty()?,
            StatusCode::PARTIAL_CONTENT if range_start(response.headers()) == Some(self.length) => {
            }
            StatusCode::RANGE_NOT_SATISFIABLE if self.length > 0 => {
                // RFC 9110 §15.5.17: `bytes */LENGTH`.
                let whole = response.headers().get(CONTENT_RANGE);
                let whole = whole.and_then(|value| value.to_str().ok()?.strip_prefix("bytes */"));
                if whole.and_then(|length| length.parse().ok()) == Some(self.length) {
                    return Ok(false);
                }
                return Err(self.does_not_fit()?);
            }
            StatusCode::PARTIAL_CONTENT => return Err(self.does_not_fit()?),
            status => return Err(AttemptError::status(status)),
        }
        if let Some(rest) = response.content_length() {
            self.observer.total(self.length.saturating_add(rest));
        }
        Ok(true)
    }

    fn does_not_fit(&mut self) -> io::Result<AttemptError> {
        self.empty()?;
        Ok(AttemptError::new(Error::OtherFile, false))
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.length, self.sum) = (0, self.expected.sum());
        self.observer.position(0);
        Ok(())
    }

    pub(super) fn append(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), AttemptError> {
        let bytes = bytes.as_ref();
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        let count = bytes.len() as u64;
        (self.length, self.received) = (self.length + count, self.received + count);
        self.observer.position(self.length);
        match self.length > MAX_IMAGE_BYTES {
            true => Err(AttemptError::new(Error::TooLarge(MAX_IMAGE_BYTES), true)),
            false => Ok(()),
        }
    }

    /// Tells the observer that the download goes on after `delay`.
    pub(super) fn pause(&self, error: &Error, delay: Duration) {
        let length = Size(self.length);
        let seconds = delay.as_secs_f64();
        let text = format!("interrupted after {length} ({error}): goes on in {seconds:.0} s");
        self.observer.interrupted(&text);
    }

    /// Returns the path of the complete file if its checksum is right; else removes the file.
    pub(super) fn verified(self) -> Result<PathBuf, Error> {
        let Self { path, file, length, sum, expected, .. } = self;
        let actual = sum.finish();
        let is_right = actual == expected;
        let done = if is_right { file.sync_all() } else { std::fs::remove_file(&path) };
        match done {
            Err(source) => Err(Error::Part { path, source }),
            Ok(()) if is_right => Ok(path),
            Ok(()) => Err(Error::Checksum { bytes: length, actual, expected }),
        }
    }

    /// Returns the error of an interrupted download. A part without content is removed.
    pub(super) fn interrupted(&self, error: Error) -> Error {
        if self.length == 0 {
            drop(std::fs::remove_file(&self.path));
            return error;
        }
        Error::Interrupted { bytes: self.length, source: Box::new(error) }
    }
}

/// Returns the position at which a partial response begins (RFC 9110 §14.4).
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_range_is_read() {
        for (value, start) in [
            ("bytes 5-9/10", Some(5)),
            ("bytes 0-0/*", Some(0)),
            ("bytes */10", None),
            ("lines 5-9/10", None),
            ("", None),
        ] {
            let headers = [(CONTENT_RANGE, value.parse().unwrap())].into_iter().collect();
            assert_eq!(range_start(&headers), start, "{value}");
        }
        assert_eq!(range_start(&HeaderMap::new()), None);
    }
}
