//! Downloads the map of an image, and checks it.

use bytes::BytesMut;
use image_signature::SignedImage;
use stored_image::{CheckedMap, MAX_MAP_BYTES};

use super::error::Error;
use crate::checksum::Checksum;
use crate::context::Context;
use crate::disk::block::SIZE;
use crate::download::redacted;
use crate::error::Error as ActionError;
use crate::fetch;
use crate::image_keys;
use crate::image2disk::options::{ImageOptions, MapOptions};
use crate::progress::Meter;

/// Returns the map at `source`. Refuses another one than that of the checksum, and one for another
/// file than `options` name.
pub(super) async fn run(
    options: &ImageOptions,
    source: &MapOptions,
    meter: &Meter,
    context: &Context,
) -> Result<CheckedMap, ActionError> {
    let bytes = download(options, source, meter, context).await?;
    let url = redacted(&source.url);
    let mut sum = source.checksum.sum();
    sum.update(&bytes);
    source
        .checksum
        .check(sum, "bytes downloaded")
        .map_err(|source| ActionError::Checksum { url: url.clone(), source })?;
    let map = CheckedMap::parse(&bytes, u64::MAX)
        .map_err(|source| Error::Map { url: url.clone(), source })?;
    check_sizes(&map, &url)?;
    if let Some(signed) = &options.signed {
        signed
            .require(&named(&map, signed))
            .map_err(|source| image_keys::Error::Differs { url: url.clone(), source })?;
        let line = format!("the signature of {} is valid\n", signed.name);
        context.progress.output(line.as_bytes());
    }
    let stored = Checksum::sha256(map.stored_sha256().0);
    let checked = options.checksum.as_ref().map(|it| it.require(stored, "bytes of the map's file"));
    checked.transpose().map_err(|source| ActionError::Checksum { url, source })?;
    Ok(map)
}

/// Returns the image that `map` is of. Its name and the digest of the map are those that were signed.
fn named(map: &CheckedMap, signed: &SignedImage) -> SignedImage {
    SignedImage {
        name: signed.name.clone(),
        size_bytes: map.size_bytes(),
        sha256: map.sha256().to_string(),
        stored_sha256: map.stored_sha256().to_string(),
        map_sha256: signed.map_sha256.clone(),
    }
}

async fn download(
    options: &ImageOptions,
    source: &MapOptions,
    meter: &Meter,
    context: &Context,
) -> Result<BytesMut, ActionError> {
    let retry = options.retry.clone();
    let (mut download, head) = fetch::open(source.url.clone(), retry, meter, context).await?;
    let mut bytes = BytesMut::from(head);
    loop {
        if bytes.len() > MAX_MAP_BYTES {
            let url = redacted(&source.url);
            return Err(Error::MapTooLarge { url, limit: MAX_MAP_BYTES }.into());
        }
        let next = context.stop.run_until_cancelled(download.next()).await;
        match next.ok_or(ActionError::Cancelled)?? {
            Some(next) => bytes.extend_from_slice(&next),
            None => return Ok(bytes),
        }
    }
}

/// Refuses an empty image, and blocks that are larger than the buffers here.
fn check_sizes(map: &CheckedMap, url: &str) -> Result<(), ActionError> {
    let url = || url.to_owned();
    if map.size_bytes() == 0 {
        return Err(ActionError::EmptyImage { url: url(), format: "map" });
    }
    let block_bytes = map.block_bytes();
    if usize::try_from(block_bytes).is_ok_and(|bytes| bytes <= SIZE) {
        return Ok(());
    }
    Err(Error::BlockBytes { url: url(), limit: SIZE, block_bytes }.into())
}
