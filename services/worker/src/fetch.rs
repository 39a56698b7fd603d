//! The first stage of a streaming action: downloads the file and computes its checksum.

use std::io;

use bytes::{Bytes, BytesMut};
use reqwest::Url;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::checksum::{Checksum, Mismatch, Sum};
use crate::compression::HEAD;
use crate::context::Context;
use crate::download::{AttemptError, Download, RetryPolicy};
use crate::error::Error;
use crate::progress::{Meter, Phase, Report};

/// Capacity of the channel to the next stage, in chunks. A chunk is what one read from the connection returns.
pub(crate) const MAX_QUEUED_CHUNKS: usize = 16;

/// The checksum of the downloaded bytes. None if it is not needed.
pub(crate) struct DownloadSum(Option<Sum>);

impl DownloadSum {
    /// Compares it with `expected`.
    pub(crate) fn check(self, expected: Option<&Checksum>) -> Result<(), Mismatch> {
        match (self.0, expected) {
            (Some(sum), Some(expected)) => expected.check(sum, "bytes downloaded"),
            _ => Ok(()),
        }
    }

    /// Returns the checksum.
    pub(crate) fn sum(self) -> Option<Checksum> {
        self.0.map(Sum::finish)
    }
}

/// Opens the download of `url`, and reads at least [`HEAD`] bytes, unless the file is shorter. Reports the reason of each wait
/// for a retry to `meter`.
pub(crate) async fn open(
    url: Url,
    retry: RetryPolicy,
    meter: &Meter,
    context: &Context,
) -> Result<(Download, Bytes), Error> {
    let meter = meter.clone();
    let on_wait = move |error: &AttemptError, done| {
        let phase = Phase::Waiting(error.to_string());
        meter.report(|| Report { phase, done, total: None });
    };
    let opening = async {
        let mut download = Download::open(&context.roots, url, retry, Box::new(on_wait)).await?;
        let mut head = BytesMut::new();
        while head.len() < HEAD {
            let Some(bytes) = download.next().await? else { break };
            head.extend_from_slice(&bytes);
        }
        Ok((download, head.freeze()))
    };
    context.stop.run_until_cancelled(opening).await.ok_or(Error::Cancelled)?
}

/// The bytes of a file, behind those that were read already.
pub(crate) enum Rest {
    /// They are still downloaded.
    Download(Box<Download>),
    /// They are in memory.
    Memory(std::vec::IntoIter<Bytes>),
}

impl Rest {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Download(download) => Ok(download.next().await?),
            Self::Memory(chunks) => Ok(chunks.next()),
        }
    }
}

/// Sends `head` and `rest` to the next stage. A failure is also sent there, so that it is not mistaken
/// for the end of the file.
pub(crate) async fn run(
    mut rest: Rest,
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
        let read = stop.run_until_cancelled(rest.next()).await;
        next = read.unwrap_or(Err(Error::Cancelled));
    }
    match next {
        Ok(_) => Ok(DownloadSum(sum)),
        Err(error) => {
            let _closed = chunks.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
            Err(error)
        }
    }
}
