//! `/images/<digest>.raw.zst`, `.map` and `.bmap`: the files of an image by the SHA-256 of its stored
//! file. Public images of the site are served to everybody, by boot servers; others for a live
//! workflow that names the image: `?workflow=<id>`, which a boot server adds for the workflow's
//! machine.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use futures_util::TryStreamExt as _;
use http::{HeaderMap, header};
use serde::Deserialize;
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

/// The workflow for whose machine a boot server reads.
#[derive(Debug, Deserialize)]
pub(super) struct Reader {
    workflow: Option<String>,
}

/// Sends a file of an image.
pub(super) async fn read(
    State(doors): State<Doors>,
    Path(name): Path<String>,
    Query(Reader { workflow }): Query<Reader>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let missing = || Selector::Id(name.clone()).missing("image");
    let (digest, file) = parse(&name).ok_or_else(missing)?;
    let images = &doors.content.images;
    let is_suspected = workflow.is_some();
    let image = match workflow {
        Some(workflow) => images.of_workflow(&workflow, digest).await?,
        None => images.public_with(digest).await?,
    };
    let image = image.ok_or_else(missing)?;
    let blobs = &doors.content.blobs;
    if is_suspected && headers.get(header::CACHE_CONTROL).is_some_and(|it| it == "no-cache") {
        suspect(blobs, &image, file);
    }
    match file {
        ImageFile::Stored => send(blobs, &image.stored_sha256, &headers).await,
        _ if image.map_sha256.is_empty() => Err(missing().into()),
        ImageFile::Map => send(blobs, &image.map_sha256, &headers).await,
        ImageFile::Bmap => bmap(blobs, &image).await,
    }
}

/// Has the content of `file` compared with its digest: a machine that found wrong bytes asks for others.
fn suspect(blobs: &Blobs, image: &pb::Image, file: ImageFile) {
    let digest = match file {
        ImageFile::Stored => &image.stored_sha256,
        ImageFile::Map | ImageFile::Bmap => &image.map_sha256,
    };
    tracing::warn!(image.id, digest, "a machine found wrong bytes: the content is checked");
    blobs.suspects().add(digest);
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
