//! The kinds of images and builds, and the indexes of their records.
//!
//! ```text
//! image/image/<id>                             the record of an image
//! image/image-name/<tenant>/<name>             ─▶ id; of an image of the site: <name>
//! image/image-family/<tenant>/<family>/<id>    ─▶ id; of the site: <family>/<id>
//! image/image-blob/<digest>/<id>               ─▶ id: the images that have a blob
//! image/build/<id>                             the record of a build
//! image/build-live/live/<id>                   ─▶ id: builds that have not ended
//! ```

use nouns::{Served, Viewer};
use store::records::{Index, Kind};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::secret::Secrets as _;
use tinwright::{BuildId, ImageId};

use crate::owner;

/// The index of images by name.
pub(crate) const NAME_INDEX: &str = "image-name";
/// The index of images by family.
pub(crate) const FAMILY_INDEX: &str = "image-family";
/// The index of images by blob.
pub(crate) const BLOB_INDEX: &str = "image-blob";
/// The index of builds that have not ended.
pub(crate) const LIVE_INDEX: &str = "build-live";
/// The only value of that index.
pub(crate) const LIVE: &str = "live";

/// The kind of images.
#[derive(Debug)]
pub enum ImageKind {}

impl Kind for ImageKind {
    type Record = pb::Image;
    type Id = ImageId;
    const KIND: &'static str = "image";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX, FAMILY_INDEX, BLOB_INDEX];

    fn indexes(image: &pb::Image) -> Vec<Index> {
        let name = Index::unique(NAME_INDEX, of_tenant(&image.tenant, &image.name));
        let family = (!image.family.is_empty())
            .then(|| Index::shared(FAMILY_INDEX, of_tenant(&image.tenant, &image.family)));
        let blobs = blobs_of(image).map(|digest| Index::shared(BLOB_INDEX, digest));
        [Some(name), family].into_iter().flatten().chain(blobs).collect()
    }

    fn warning(image: &pb::Image) -> &str {
        let is_damaged = image.state() == ImageState::Damaged;
        if is_damaged { &image.state_reason } else { "" }
    }
}

impl Served for ImageKind {
    fn is_visible(viewer: &Viewer, image: &pb::Image) -> bool {
        owner::is_visible(image, viewer.tenant.as_ref())
    }

    fn show(viewer: &Viewer, image: pb::Image) -> pb::Image {
        owner::shown(image, viewer.tenant.as_ref())
    }
}

/// Returns the digests of the blobs that `image` has.
pub(crate) fn blobs_of(image: &pb::Image) -> impl Iterator<Item = &str> {
    let digests = [image.stored_sha256.as_str(), image.map_sha256.as_str()];
    digests.into_iter().filter(|digest| !digest.is_empty())
}

/// Returns a value of an index of which each tenant has its own. No name has a slash.
pub(crate) fn of_tenant(tenant: &str, name: &str) -> String {
    if tenant.is_empty() { name.to_owned() } else { format!("{tenant}/{name}") }
}

/// The kind of builds.
#[derive(Debug)]
pub enum BuildKind {}

impl Kind for BuildKind {
    type Record = pb::Build;
    type Id = BuildId;
    const KIND: &'static str = "build";
    const INDEXES: &'static [&'static str] = &[LIVE_INDEX];

    fn indexes(build: &pb::Build) -> Vec<Index> {
        match build.is_terminal() {
            true => Vec::new(),
            false => vec![Index::shared(LIVE_INDEX, LIVE)],
        }
    }

    fn name(build: &pb::Build) -> &str {
        &build.image_name
    }
}

impl Served for BuildKind {
    /// Only builders get the secrets of a source.
    fn show(_viewer: &Viewer, build: pb::Build) -> pb::Build {
        build.without_secrets()
    }
}
