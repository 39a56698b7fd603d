//! The first stage of whatever streams a file from a web server: what the server sends, summed.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::action::Error;
use crate::checksum::{Checksum, Mismatch, Sum};
use crate::compression::HEAD;
use crate::download::{Download, Trouble};
use crate::progress::{Meter, Phase, Report};

/// Replies waiting for the next stage, each of what one read of a connection gives.
pub(crate) const REPLIES: usize = 16;

/// The sum of all that was downloaded, where one is wanted.
pub(crate) struct Fetched(Option<Sum>);

impl Fetched {
    /// Whether it is the sum that `wanted` says.
    pub(crate) fn check(self, wanted: Option<&Checksum>) -> Result<(), Mismatch> {
        match (self.0, wanted) {
            (Some(sum), Some(wanted)) => wanted.check(sum, "bytes downloaded"),
            _ => Ok(()),
        }
    }

    /// The sum itself.
    pub(crate) fn sum(self) -> Option<Checksum> {
        self.0.map(Sum::finish)
    }
}

/// Tells `meter` what a download waits for.
pub(crate) fn waiting(meter: &Meter) -> impl Fn(&Trouble, u64) + Sync + '_ {
    move |trouble, position| {
        let phase = Phase::Waiting(trouble.to_string());
        meter.report(|| Report { phase, done: position, total: None });
    }
}

/// The first bytes of the file, [`HEAD`] of them at least unless it ends before.
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

/// Hands on `head` and the rest of `download`. A failure goes to the next stage too, lest it take it for the end.
pub(crate) async fn run(
    mut download: Download<'_>,
    head: Bytes,
    replies: mpsc::Sender<io::Result<Bytes>>,
    checksum: Option<&Checksum>,
    stop: &CancellationToken,
) -> Result<Fetched, Error> {
    let mut sum = checksum.map(Checksum::sum);
    let mut next = Ok(Some(head));
    while let Ok(Some(bytes)) = next {
        if let Some(sum) = &mut sum {
            sum.update(&bytes);
        }
        if replies.send(Ok(bytes)).await.is_err() {
            return Ok(Fetched(None)); // The next stage has failed, and says why.
        }
        let read = stop.run_until_cancelled(download.next()).await;
        next = read.ok_or(Error::Cancelled).and_then(|read| read.map_err(Error::from));
    }
    match next {
        Ok(_) => Ok(Fetched(sum)),
        Err(error) => {
            let _gone = replies.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
            Err(error)
        }
    }
}
