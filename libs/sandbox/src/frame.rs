//! Frames that a job writes to its standard output: a kind, a length of four bytes, the payload.
//!
//! The job is hostile: the reader allocates no more than its limit for the kind.

use std::io::{self, Write};

use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum length of a failure's text. The writer cuts it, the reader refuses a longer one.
const MAX_FAILURE_BYTES: u32 = 8 * 1024;
const PROGRESS: u8 = b'p';
const OUTPUT: u8 = b'o';
const FAILURE: u8 = b'f';

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A number that tells how far the job is.
    Progress(u64),
    /// The result.
    Output(Vec<u8>),
    /// Text of a failure.
    Failure(String),
}

/// Problem of a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// A result longer than the limit is announced.
    OutputTooLong,
    /// The bytes are no frame.
    Malformed,
}

/// Writes one frame.
pub(crate) fn write(mut writer: impl Write, frame: &Frame) -> io::Result<()> {
    let number;
    let (kind, payload): (u8, &[u8]) = match frame {
        Frame::Progress(value) => {
            number = value.to_le_bytes();
            (PROGRESS, &number)
        }
        Frame::Output(bytes) => (OUTPUT, bytes),
        Frame::Failure(text) => (FAILURE, shortened(text).as_bytes()),
    };
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let mut header = vec![kind];
    header.extend(length.to_le_bytes());
    writer.write_all(&header)?;
    writer.write_all(payload)
}

fn shortened(text: &str) -> &str {
    let maximum = usize::try_from(MAX_FAILURE_BYTES).unwrap_or(usize::MAX);
    text.get(..text.floor_char_boundary(maximum)).unwrap_or(text)
}

/// Reads one frame; none at the end of the stream. A frame that is cut short counts as the end.
pub(crate) async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    max_output: u32,
) -> Result<Option<Frame>, Problem> {
    let Ok(kind) = reader.read_u8().await else { return Ok(None) };
    let Ok(length) = reader.read_u32_le().await else { return Ok(None) };
    match kind {
        OUTPUT if length > max_output => return Err(Problem::OutputTooLong),
        PROGRESS if length == 8 => {}
        FAILURE if length <= MAX_FAILURE_BYTES => {}
        OUTPUT => {}
        _ => return Err(Problem::Malformed),
    }
    let mut payload = vec![0; usize::try_from(length).map_err(|_| Problem::Malformed)?];
    if reader.read_exact(&mut payload).await.is_err() {
        return Ok(None);
    }
    Ok(Some(match kind {
        PROGRESS => {
            Frame::Progress(u64::from_le_bytes(payload.try_into().map_err(|_| Problem::Malformed)?))
        }
        OUTPUT => Frame::Output(payload),
        _ => Frame::Failure(String::from_utf8_lossy(&payload).into_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn round_trip(frame: &Frame) -> Result<Option<Frame>, Problem> {
        let mut bytes = Vec::new();
        write(&mut bytes, frame).unwrap();
        read(&mut bytes.as_slice(), 4).await
    }

    #[tokio::test]
    async fn frames_survive_the_pipe() {
        for frame in [
            Frame::Progress(u64::MAX),
            Frame::Output(b"1234".to_vec()),
            Frame::Output(Vec::new()),
            Frame::Failure("no".into()),
        ] {
            let read = round_trip(&frame).await;
            assert_eq!(read, Ok(Some(frame)));
        }
    }

    #[tokio::test]
    async fn a_long_result_is_refused_by_its_header() {
        assert_eq!(read(&mut &b"o\x05\0\0\0"[..], 4).await, Err(Problem::OutputTooLong));
    }

    #[tokio::test]
    async fn other_bytes_are_malformed() {
        for bytes in [&b"x\x05\0\0\0"[..], b"p\x09\0\0\0", b"f\xff\xff\xff\xff"] {
            assert_eq!(read(&mut &*bytes, 4).await, Err(Problem::Malformed));
        }
        assert_eq!(read(&mut &b"o\x04\0\0\0ab"[..], 4).await, Ok(None));
    }

    #[tokio::test]
    async fn a_long_failure_is_cut_at_a_character() {
        let text = "é".repeat(8 * 1024);
        let read = round_trip(&Frame::Failure(text)).await;
        assert_eq!(read, Ok(Some(Frame::Failure("é".repeat(4 * 1024)))));
    }
}
