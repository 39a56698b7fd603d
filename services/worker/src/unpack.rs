//! The second stage of a streaming action: decompresses the file.
//!
//! The first bytes of the file determine its format; the file name does not. They also contain the size of the window, so
//! that a file that needs too much memory is refused before the memory is allocated.

use std::io::{self, Cursor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use reqwest::Url;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use crate::compression::members::{File, Members};
use crate::compression::{Compression, window};
use crate::contents::UnusableContent;
use crate::download::redacted;
use crate::error::Error;

/// The decompressed file.
pub(crate) enum Decompressed {
    /// The file as it is.
    Raw(File),
    /// The content of a compressed file.
    Content(Members),
}

/// The template's setting for decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decompress {
    /// Write the file as it is.
    Never,
    /// Decompress the file if its first bytes are those of a known format.
    IfCompressed,
    /// Refuse a file that is not compressed. The text is the setting that requires compression, for the error.
    Required(&'static str),
}

/// Decompresses one download.
#[derive(Clone, Debug)]
pub(crate) struct Unpacker {
    /// The URL, redacted.
    url: String,
    format: Option<Compression>,
    /// The largest window allowed, in bytes.
    limit: u64,
}

impl Unpacker {
    /// Creates the unpacker of the file at `url` that begins with `head`.
    pub(crate) fn new(url: &Url, head: &[u8], setting: Decompress) -> Result<Self, Error> {
        let format = format(url, head, setting)?;
        let unpacker = Self { url: redacted(url), format, limit: window::limit() };
        let window = format.and_then(|format| format.window(head)).unwrap_or_default();
        if window > unpacker.limit {
            return Err(unpacker.too_large(format!("a window of {} MiB", window.div_ceil(MIB))));
        }
        Ok(unpacker)
    }

    /// True if the file is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.format.is_some()
    }

    /// Returns the decompressed content of `chunks`. `downloaded` counts the bytes taken from them.
    pub(crate) fn open(
        &self,
        chunks: mpsc::Receiver<io::Result<Bytes>>,
        downloaded: Arc<AtomicU64>,
    ) -> Decompressed {
        let file = reader(chunks, downloaded);
        match self.format {
            Some(format) => Decompressed::Content(format.decompress(file, self.limit)),
            None => Decompressed::Raw(file),
        }
    }

    /// Returns the text for the log of `trailing` bytes behind the content, if there are any.
    pub(crate) fn trailing_line(&self, trailing: u64) -> Option<String> {
        let format = self.name();
        (trailing > 0).then(|| format!("ignored {trailing} bytes behind the end of the {format}\n"))
    }

    /// Returns the error for content that is not written.
    pub(crate) fn refused(&self, source: UnusableContent) -> Error {
        Error::Contents { url: self.url.clone(), source: source.into() }
    }

    /// Returns the error for a compressed file without content.
    pub(crate) fn empty(&self) -> Error {
        Error::EmptyImage { url: self.url.clone(), format: self.name() }
    }

    /// Returns the error for a failed read from [`Unpacker::open`]'s reader.
    pub(crate) fn failed(&self, source: io::Error) -> Error {
        // Only the decoder sees the windows of later streams, and it has no error kind for a window above the limit.
        if source.to_string().to_lowercase().contains("memory") {
            return self.too_large("a larger window in a later stream".into());
        }
        Error::Unpack { url: self.url.clone(), format: self.name(), source }
    }

    fn too_large(&self, needed: String) -> Error {
        let (url, limit_mib) = (self.url.clone(), self.limit / MIB);
        Error::Window { url, format: self.name(), needed, limit_mib }
    }

    fn name(&self) -> &'static str {
        self.format.map_or("raw", Compression::name)
    }
}

const MIB: u64 = 1 << 20;

fn format(url: &Url, head: &[u8], setting: Decompress) -> Result<Option<Compression>, Error> {
    match (setting, Compression::of_magic(head)) {
        (Decompress::Never, _) => Ok(None),
        (Decompress::Required(setting), None) => {
            let expected = Compression::of_extension(url.path())
                .map_or("gzip, xz, zstd or bzip2", Compression::name);
            Err(Error::NotPacked { url: redacted(url), expected, setting })
        }
        (Decompress::IfCompressed | Decompress::Required(_), found) => Ok(found),
    }
}

fn reader(mut chunks: mpsc::Receiver<io::Result<Bytes>>, downloaded: Arc<AtomicU64>) -> File {
    let chunks = stream::poll_fn(move |context| chunks.poll_recv(context));
    let counted = chunks.inspect_ok(move |bytes| {
        downloaded.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    });
    Box::pin(StreamReader::new(counted.map_ok(Cursor::new)))
}

impl Decompressed {
    /// Reads into `space`, which is not empty. Returns 0 at the end.
    async fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Raw(file) => file.read(space).await,
            Self::Content(members) => members.read(space).await,
        }
    }

    /// Returns the number of bytes of the file that are no content, once it is read.
    pub(crate) fn trailing_bytes(&self) -> u64 {
        match self {
            Self::Raw(_) => 0,
            Self::Content(members) => members.trailing_bytes(),
        }
    }
}

/// Reads until `space` is full or `file` ends. Returns the number of bytes read.
pub(crate) async fn fill(file: &mut Decompressed, space: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest).await? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0];
    const REQUIRED: Decompress = Decompress::Required("COMPRESSED is true");

    fn chosen(setting: Decompress, url: &str, head: &[u8]) -> Result<Option<Compression>, String> {
        let unpacker = Unpacker::new(&url.parse().unwrap(), head, setting);
        unpacker.map(|unpacker| unpacker.format).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_bytes_determine_the_format_and_the_file_name_does_not() {
        assert_eq!(
            chosen(Decompress::IfCompressed, "http://a/os.img", GZIP),
            Ok(Some(Compression::Gzip))
        );
        assert_eq!(chosen(REQUIRED, "http://a/os.xz", GZIP), Ok(Some(Compression::Gzip)));
        assert_eq!(
            chosen(Decompress::IfCompressed, "http://a/os.img.gz", b"\xeb\x63\x90"),
            Ok(None)
        );
        assert_eq!(chosen(Decompress::Never, "http://a/os.img.gz", GZIP), Ok(None));
    }

    #[test]
    fn a_file_that_must_be_compressed_and_is_not_is_refused() {
        let sentence = |kind| Err(format!("GET http://a/{kind}, although COMPRESSED is true"));
        assert_eq!(
            chosen(REQUIRED, "http://a/os.gz", b"raw"),
            sentence("os.gz: the file is not gzip")
        );
        let any = "os: the file is not gzip, xz, zstd or bzip2";
        assert_eq!(chosen(REQUIRED, "http://a/os", b"raw"), sentence(any));
    }

    #[test]
    fn a_window_above_the_limit_is_refused_from_the_first_bytes() {
        let head = [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0xa8]; // zstd --long=31
        let refused = chosen(Decompress::IfCompressed, "http://a/os", &head).unwrap_err();
        let sentence =
            "GET http://a/os: unpacking this zstd needs a window of 2048 MiB; the limit is";
        assert!(refused.starts_with(sentence), "{refused}");
        assert_eq!(chosen(Decompress::Never, "http://a/os", &head), Ok(None));
    }
}
