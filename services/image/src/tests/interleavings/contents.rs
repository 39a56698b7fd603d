//! Contents of images, each in several stored forms, as different versions of a compressor make.

use std::sync::LazyLock;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tinwright::image::v1 as pb;

use crate::blobs::hex;

/// Number of contents.
pub(super) const CONTENTS: usize = 3;
/// Number of stored forms of each.
pub(super) const FORMS: usize = 2;
/// Declared size of a stored file. The quota of a tenant has room for two.
const STORED_BYTES: u64 = 400 << 30;

/// A blob.
#[derive(Clone, Debug)]
pub(super) struct TestBlob {
    pub(super) digest: String,
    pub(super) bytes: Bytes,
}

impl TestBlob {
    fn new(text: String) -> Self {
        Self { digest: digest(&text), bytes: text.into() }
    }
}

/// The stored file and the map of each form of each content.
static BLOBS: LazyLock<Vec<[TestBlob; 2]>> = LazyLock::new(|| {
    let forms = (0..CONTENTS).flat_map(|content| (0..FORMS).map(move |form| (content, form)));
    let blobs = |(content, form)| {
        ["stored", "map"].map(|part| TestBlob::new(format!("{part} {content} {form}")))
    };
    forms.map(blobs).collect()
});

/// Digests of the contents.
static DIGESTS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..CONTENTS).map(|content| digest(&format!("disk {content}"))).collect());

/// Returns the blobs of a `form` of `content`.
pub(super) fn blobs(content: usize, form: usize) -> &'static [TestBlob; 2] {
    &BLOBS[content * FORMS + form]
}

/// Returns all blobs.
pub(super) fn all_blobs() -> impl Iterator<Item = &'static TestBlob> {
    BLOBS.iter().flatten()
}

/// Returns the blob `digest`.
pub(super) fn blob(digest: &str) -> &'static TestBlob {
    all_blobs().find(|blob| blob.digest == digest).unwrap()
}

/// Returns the result of a build that stored a `form` of `content`.
pub(super) fn built(content: usize, form: usize) -> pb::BuiltContent {
    let [stored, map] = blobs(content, form);
    pb::BuiltContent {
        stored_bytes: STORED_BYTES,
        sha256: DIGESTS[content].clone(),
        stored_sha256: stored.digest.clone(),
        map_sha256: map.digest.clone(),
        source_sha256: DIGESTS[content].clone(),
        ..pb::BuiltContent::default()
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}
