//! `/images/<digest>.raw.zst`, `.map` and `.bmap`: the files of an image by the SHA-256 of its stored
//! file. Only public images of the site are served: boot servers pass them on to everybody.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use futures_util::TryStreamExt as _;
use http::{HeaderMap, header};
use store::records::Selector;
use stored_image::CheckedMap;
use tinwright::image::v1 as pb;

use super::blobs::send;
use super::uploads::Doors;
use crate::blobs::{Blobs, is_digest};
use crate::error::Error;
use crate::objects;

/// A file of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageFile {
    /// The stored file.
    Stored,
    /// Its map.
    Map,
    /// Its map as `bmaptool` reads it.
    Bmap,
}

/// Suffixes of the names of files.
const SUFFIXES: [(&str, ImageFile); 3] =
    [(".raw.zst", ImageFile::Stored), (".map", ImageFile::Map), (".bmap", ImageFile::Bmap)];

/// Sends a file of a public image of the site.
pub(super) async fn read(
    State(doors): State<Doors>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let missing = || Selector::Id(name.clone()).missing("image");
    let (digest, file) = parse(&name).ok_or_else(missing)?;
    let image = doors.content.images.public_with(digest).await?.ok_or_else(missing)?;
    let blobs = &doors.content.blobs;
    match file {
        ImageFile::Stored => send(blobs, &image.stored_sha256, &headers).await,
        _ if image.map_sha256.is_empty() => Err(missing().into()),
        ImageFile::Map => send(blobs, &image.map_sha256, &headers).await,
        ImageFile::Bmap => bmap(blobs, &image).await,
    }
}

/// Returns the digest and the file that `name` names.
fn parse(name: &str) -> Option<(&str, ImageFile)> {
    let named = |&(suffix, file): &(&str, ImageFile)| Some((name.strip_suffix(suffix)?, file));
    SUFFIXES.iter().find_map(named).filter(|(digest, _)| is_digest(digest))
}

/// Renders the map of `image` for `bmaptool`.
async fn bmap(blobs: &Blobs, image: &pb::Image) -> Result<Response, Error> {
    let parts: Vec<_> = blobs.read(&image.map_sha256, None).await?.try_collect().await?;
    let map = CheckedMap::parse(&parts.concat(), image.size_bytes);
    let map = map.map_err(|error| objects::Error::Damaged(image.map_sha256.clone(), error))?;
    let content_type = [(header::CONTENT_TYPE, "application/xml")];
    Ok((content_type, stored_image::bmap(&map)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_a_digest_and_a_suffix() {
        let digest = "0123456789abcdef".repeat(4);
        for (suffix, file) in SUFFIXES {
            let name = format!("{digest}{suffix}");
            assert_eq!(parse(&name), Some((digest.as_str(), file)));
        }
        for name in ["", ".map", "x.map", &format!("{digest}.iso"), &format!("{digest}x.map")] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
