//! An archive whose digest is signed: it is extracted once the whole file is checked.
//!
//! A digest is known at the end of a file, and extracting while the file arrives would write what
//! nobody signed. A tar has no map, and a second download could be of another file. So the file
//! stays in memory until then.

use bytes::Bytes;
use image_signature::SignedImage;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::checksum::Checksum;
use crate::compression::window::free_memory;
use crate::download::Download;
use crate::error;
use crate::fetch::Rest;
use crate::image_keys;

/// A file that does not fit into memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "GET {url}: the file stays in memory until it is checked; the limit is {limit_mib} MiB, half of the free memory"
)]
pub(crate) struct TooLarge {
    url: String,
    limit_mib: u64,
}

impl error::StepError for TooLarge {}

/// Downloads the rest of the file at `url` behind `head`, if the file is the one that was signed.
pub(super) async fn check(
    signed: &SignedImage,
    url: &str,
    mut download: Download,
    head: &Bytes,
    stop: &CancellationToken,
) -> Result<Rest, error::Error> {
    let limit = free_memory().map_or(u64::MAX, |free| free / 2);
    let too_large = || TooLarge { url: url.to_owned(), limit_mib: limit >> 20 };
    let (mut sum, mut chunks, mut bytes) = (Sha256::new(), Vec::new(), head.len() as u64);
    sum.update(head);
    loop {
        if bytes.max(download.length().unwrap_or_default()) > limit {
            return Err(too_large().into());
        }
        let next = stop.run_until_cancelled(download.next()).await;
        let Some(chunk) = next.ok_or(error::Error::Cancelled)?? else { break };
        sum.update(&chunk);
        bytes += chunk.len() as u64;
        chunks.push(chunk);
    }
    let found = Checksum::sha256(sum.finalize().into());
    let differs = |source| image_keys::Error::Differs { url: url.to_owned(), source };
    signed.require_stored(found.hex()).map_err(differs)?;
    Ok(Rest::Memory(chunks.into_iter()))
}
