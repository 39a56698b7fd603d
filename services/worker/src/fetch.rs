//! The first stage of a streaming action: downloads the file and sums it.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::checksum::{Checksum, Mismatch, Sum};
use crate::compression::HEAD;
use crate::download::{AttemptError, Download};
use crate::error::Error;
use crate::progress::{Meter, Phase, Report};

/// Capacity of the channel to the next stage, in chunks as they are read from the connection.
pub(crate) const MAX_QUEUED_CHUNKS: usize = 16;

/// The sum of the downloaded bytes, if one is needed.
pub(crate) struct DownloadSum(Option<Sum>);

impl DownloadSum {
    /// Compares the sum with `expected`.
    pub(crate) fn check(self, expected: Option<&Checksum>) -> Result<(), Mismatch> {
        match (self.0, expected) {
            (Some(sum), Some(expected)) => expected.check(sum, "bytes downloaded"),
            _ => Ok(()),
        }
    }

    /// Returns the sum as a checksum.
    pub(crate) fn sum(self) -> Option<Checksum> {
        self.0.map(Sum::finish)
    }
}

/// Returns a callback that reports to `meter` why a download waits.
pub(crate) fn report_waiting(meter: &Meter) -> impl Fn(&AttemptError, u64) + Sync + '_ {
    move |error, position| {
        let phase = Phase::Waiting(error.to_string());
        meter.report(|| Report { phase, done: position, total: None });
    }
}

/// Returns the first bytes of the file: at least [`HEAD`], unless the file is shorter.
pub(crate) async fn head(
    download: &mut Download<'_>,
    stop: &CancellationToken,
) -> Result<Bytes, Error> {
    let mut head = BytesMut::new();
    while head.len() < HEAD {
        let next = stop.run_until_cancelled(download.next()).await.ok_or(Error::Cancelled)??;
        match next {
            Some(bytes) => head.extend_from_slice(&bytes),
            None => break,
        }
    }
    Ok(head.freeze())
}

/// Sends `head` and the rest of `download` to the next stage. A failure is also sent there, so that it is not mistaken
/// for the end of the file.
pub(crate) async fn run(
    mut download: Download<'_>,
    head: Bytes,
    chunks: mpsc::Sender<io::Result<Bytes>>,
    checksum: Option<&Checksum>,
    stop: &CancellationToken,
) -> Result<DownloadSum, Error> {
    let mut sum = checksum.map(Checksum::sum);
    let mut next = Ok(Some(head));
    while let Ok(Some(bytes)) = next {
        if let Some(sum) = &mut sum {
            sum.update(&bytes);
        }
        if chunks.send(Ok(bytes)).await.is_err() {
            return Ok(DownloadSum(None)); // The next stage failed, and reports the cause.
        }
        let read = stop.run_until_cancelled(download.next()).await;
        next = read.ok_or(Error::Cancelled).and_then(|read| read.map_err(Error::from));
    }
    match next {
        Ok(_) => Ok(DownloadSum(sum)),
        Err(error) => {
            let _closed = chunks.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
            Err(error)
        }
    }
}
