//! The second stage: replies in, blocks of the image out.

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

use super::Piece;
use crate::action::Error;
use crate::compression::Compression;
use crate::disk::block::{Block, SIZE};
use crate::download::shown;

/// The blocks' way round: empty ones come back from the disk, full ones go to it.
pub(super) struct Circle {
    pub(super) empties: mpsc::Receiver<Block>,
    pub(super) filled: mpsc::Sender<Piece>,
    /// Counts what was taken of the download.
    pub(super) downloaded: Arc<AtomicU64>,
}

/// How the file at `url` is packed, `None` for not at all: its first bytes say, never its name.
pub(super) fn format(
    compressed: Option<bool>,
    url: &Url,
    head: &[u8],
) -> Result<Option<Compression>, Error> {
    match (compressed, Compression::of_magic(head)) {
        (Some(false), _) => Ok(None),
        (Some(true), None) => {
            let promised = Compression::of_extension(url.path())
                .map_or("gzip, xz, zstd or bzip2", Compression::name);
            Err(Error::NotPacked { at: shown(url), promised })
        }
        (Some(true) | None, found) => Ok(found),
    }
}

/// Fills blocks until the image ends.
pub(super) async fn run(
    replies: mpsc::Receiver<io::Result<Bytes>>,
    format: Option<Compression>,
    mut circle: Circle,
    at_url: String,
) -> Result<(), Error> {
    let failed = |source| Error::Unpack {
        at: at_url.clone(),
        format: format.map_or("raw", Compression::name),
        source,
    };
    let packed = reader(replies, circle.downloaded.clone());
    let mut image: Pin<Box<dyn AsyncRead + Send>> = match format {
        Some(format) => format.unpack(packed),
        None => Box::pin(packed),
    };
    let mut at = 0;
    while let Some(mut block) = circle.empties.recv().await {
        let length = fill(&mut image, block.space(SIZE)).await.map_err(failed)?;
        block.truncate(length);
        if length == 0 {
            return Ok(());
        }
        let downloaded = circle.downloaded.load(Ordering::Relaxed);
        if circle.filled.send(Piece { at, block, downloaded }).await.is_err() {
            break;
        }
        at += length as u64;
    }
    Err(Error::Stopped) // The disk's stage has failed, and says why.
}

fn reader(
    mut replies: mpsc::Receiver<io::Result<Bytes>>,
    counter: Arc<AtomicU64>,
) -> impl AsyncBufRead + Send {
    let replies = stream::poll_fn(move |context| replies.poll_recv(context));
    let counted = replies.inspect_ok(move |bytes| {
        counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    });
    StreamReader::new(counted.map_ok(Cursor::new))
}

/// Reads until `space` is full or the image ends; how many bytes there were.
async fn fill(image: &mut Pin<Box<dyn AsyncRead + Send>>, space: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match image.read(rest).await? {
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

    fn chosen(
        compressed: Option<bool>,
        url: &str,
        head: &[u8],
    ) -> Result<Option<Compression>, String> {
        format(compressed, &url.parse().unwrap(), head).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_bytes_decide_and_never_the_name() {
        assert_eq!(chosen(None, "http://a/os.img", GZIP), Ok(Some(Compression::Gzip)));
        assert_eq!(chosen(Some(true), "http://a/os.xz", GZIP), Ok(Some(Compression::Gzip)));
        assert_eq!(chosen(None, "http://a/os.img.gz", b"\xeb\x63\x90"), Ok(None));
        assert_eq!(chosen(Some(false), "http://a/os.img.gz", GZIP), Ok(None));
    }

    #[test]
    fn what_should_be_packed_and_is_not_is_refused() {
        let sentence = |kind| Err(format!("GET http://a/{kind}, though COMPRESSED is true"));
        assert_eq!(
            chosen(Some(true), "http://a/os.gz", b"raw"),
            sentence("os.gz: the file is not gzip")
        );
        let any = "os: the file is not gzip, xz, zstd or bzip2";
        assert_eq!(chosen(Some(true), "http://a/os", b"raw"), sentence(any));
    }
}
