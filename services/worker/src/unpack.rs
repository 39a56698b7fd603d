//! The second stage of whatever streams a file from a web server: out of how it is packed.
//!
//! Its first bytes say how that is, never its name; and they say what memory it takes, before any of it is taken.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use reqwest::Url;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use crate::action::Error;
use crate::compression::{Compression, window};
use crate::download::shown;

/// What is unpacked, as it comes.
pub(crate) type Unpacked = Pin<Box<dyn AsyncRead + Send>>;

/// What a template says of how a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It is to be taken as it comes.
    AsItComes,
    /// It is to be unpacked if it is packed.
    IfPacked,
    /// It must be packed, since that is what the template says in these words.
    Packed(&'static str),
}

/// How a download is packed.
#[derive(Clone, Debug)]
pub(crate) struct Packing {
    /// Where it comes from, without secrets.
    at: String,
    format: Option<Compression>,
    /// The largest window allowed, in bytes.
    limit: u64,
}

impl Packing {
    /// How the file at `url` that begins with `head` is packed.
    pub(crate) fn of(url: &Url, head: &[u8], wish: Wish) -> Result<Self, Error> {
        let format = format(url, head, wish)?;
        let packing = Self { at: shown(url), format, limit: window::limit() };
        let window = format.and_then(|format| format.window(head)).unwrap_or_default();
        if window > packing.limit {
            return Err(packing.too_large(format!("a window of {} MiB", window.div_ceil(MIB))));
        }
        Ok(packing)
    }

    /// Whether it is packed at all.
    pub(crate) fn is_packed(&self) -> bool {
        self.format.is_some()
    }

    /// What comes out of `replies`, of which `taken` counts the bytes.
    pub(crate) fn open(
        &self,
        replies: mpsc::Receiver<io::Result<Bytes>>,
        taken: Arc<AtomicU64>,
    ) -> Unpacked {
        let packed = reader(replies, taken);
        match self.format {
            Some(format) => format.unpack(packed, self.limit),
            None => Box::pin(packed),
        }
    }

    /// That what [`Packing::open`] gave failed with `source`.
    pub(crate) fn failed(&self, source: io::Error) -> Error {
        // Of a stream behind the first one only the unpacker knows the window; it has no kind of error for it.
        if source.to_string().to_lowercase().contains("memory") {
            return self.too_large("a larger window in a later part".into());
        }
        Error::Unpack { at: self.at.clone(), format: self.name(), source }
    }

    fn too_large(&self, needs: String) -> Error {
        let (at, limit) = (self.at.clone(), self.limit / MIB);
        Error::Window { at, format: self.name(), needs, limit }
    }

    fn name(&self) -> &'static str {
        self.format.map_or("raw", Compression::name)
    }
}

const MIB: u64 = 1 << 20;

fn format(url: &Url, head: &[u8], wish: Wish) -> Result<Option<Compression>, Error> {
    match (wish, Compression::of_magic(head)) {
        (Wish::AsItComes, _) => Ok(None),
        (Wish::Packed(said), None) => {
            let promised = Compression::of_extension(url.path())
                .map_or("gzip, xz, zstd or bzip2", Compression::name);
            Err(Error::NotPacked { at: shown(url), promised, said })
        }
        (Wish::IfPacked | Wish::Packed(_), found) => Ok(found),
    }
}

fn reader(
    mut replies: mpsc::Receiver<io::Result<Bytes>>,
    taken: Arc<AtomicU64>,
) -> impl AsyncBufRead + Send {
    let replies = stream::poll_fn(move |context| replies.poll_recv(context));
    let counted = replies.inspect_ok(move |bytes| {
        taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    });
    StreamReader::new(counted.map_ok(Cursor::new))
}

/// Reads until `space` is full or `file` ends; how many bytes there were.
pub(crate) async fn fill(file: &mut Unpacked, space: &mut [u8]) -> io::Result<usize> {
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
    const PACKED: Wish = Wish::Packed("COMPRESSED is true");

    fn chosen(wish: Wish, url: &str, head: &[u8]) -> Result<Option<Compression>, String> {
        let packing = Packing::of(&url.parse().unwrap(), head, wish);
        packing.map(|packing| packing.format).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_bytes_decide_and_never_the_name() {
        assert_eq!(chosen(Wish::IfPacked, "http://a/os.img", GZIP), Ok(Some(Compression::Gzip)));
        assert_eq!(chosen(PACKED, "http://a/os.xz", GZIP), Ok(Some(Compression::Gzip)));
        assert_eq!(chosen(Wish::IfPacked, "http://a/os.img.gz", b"\xeb\x63\x90"), Ok(None));
        assert_eq!(chosen(Wish::AsItComes, "http://a/os.img.gz", GZIP), Ok(None));
    }

    #[test]
    fn what_should_be_packed_and_is_not_is_refused() {
        let sentence = |kind| Err(format!("GET http://a/{kind}, though COMPRESSED is true"));
        assert_eq!(
            chosen(PACKED, "http://a/os.gz", b"raw"),
            sentence("os.gz: the file is not gzip")
        );
        let any = "os: the file is not gzip, xz, zstd or bzip2";
        assert_eq!(chosen(PACKED, "http://a/os", b"raw"), sentence(any));
    }

    #[test]
    fn a_window_that_no_machine_has_room_for_is_refused_by_its_first_bytes() {
        let head = [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0xa8]; // zstd --long=31
        let refused = chosen(Wish::IfPacked, "http://a/os", &head).unwrap_err();
        let sentence = "GET http://a/os: unpacking this zstd takes a window of 2048 MiB, and";
        assert!(refused.starts_with(sentence), "{refused}");
        assert_eq!(chosen(Wish::AsItComes, "http://a/os", &head), Ok(None));
    }
}
