//! Directories that are served on every link.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use crate::iso::Images;
use crate::site::Site;
use crate::tftp::Directories;

/// Open directories.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) loaders: Directories,
    pub(super) tftp: Directories,
    pub(super) images: Option<Arc<Images>>,
    pub(super) osie: Option<Directories>,
    pub(super) files: Option<Directories>,
}

impl Served {
    pub(super) fn open(site: &Site) -> anyhow::Result<Self> {
        let tftp = site.loaders.iter().chain(&site.serving.tftp_assets);
        let images = site.serving.iso.as_ref().map(Images::open).transpose();
        let files = |path: &PathBuf| {
            let opened = Directories::open([path]);
            opened.with_context(|| format!("the directory of files {}", path.display()))
        };
        Ok(Self {
            loaders: Directories::open(&site.loaders).context("the directories of loaders")?,
            tftp: Directories::open(tftp).context("the directory of TFTP's files")?,
            images: images.context("the directory of images")?.map(Arc::new),
            osie: optional(&site.osie).context("the directory of the OSIE")?,
            files: site.files.as_ref().map(files).transpose()?,
        })
    }
}

/// Opens the directory at `path`, if it exists: the environment may be built before the next start.
fn optional(path: &Path) -> io::Result<Option<Directories>> {
    if path.is_dir() { Directories::open([path]).map(Some) } else { Ok(None) }
}
