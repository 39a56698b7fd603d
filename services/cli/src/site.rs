//! `site export` and `site import`: what a site needs to install machines, taken to another site by
//! a file. The library `site-archive` has the format: a tar with a signed list of its files.
//!
//! ```text
//! images/[TENANT/]NAME/image.json, disk.raw.zst, disk.map    or archive.tar.zst
//! osie/…, loaders/…, files/…                                 files of the boot server
//! objects/KIND.yaml                                          objects, as `tinwright apply` reads them
//! ```
//!
//! - [`export`], [`import`]: the commands.
//! - `image`: an image in an archive, and how it comes into a server; `blob`: content of images.
//! - `folders`: the folders of the boot server; `objects`: objects of the API.

mod blob;
pub mod export;
mod folders;
mod image;
pub mod import;
mod objects;

use crate::connect::Io;

/// Commands that take a site's content to another site.
#[derive(Debug, clap::Subcommand)]
pub enum SiteCommand {
    /// Copy images, objects and files of the boot server to an archive
    Export(Box<export::ExportSite>),
    /// Verify an archive of another site, and store what it has
    Import(Box<import::ImportSite>),
}

/// Runs `command`.
pub async fn run(command: SiteCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        SiteCommand::Export(export) => Box::pin(export.run(io)).await,
        SiteCommand::Import(import) => Box::pin(import.run(io)).await,
    }
}
