//! Disk images: those of the server, and files for the action `image2disk` without a server.
//!
//! [`server`] has the commands on images of the server. The others write files: fetched from their publishers, or built from a
//! Debian mirror.
//!
//! ```text
//! fetch: checksum file ─▶ download, verify ─▶ raw image ─▶ setting for cloud-init ──┐
//! build: mmdebstrap ─▶ system's settings ─▶ boot loaders ─▶ partitions ─────────────┴─▶ NAME.raw.zst, NAME.raw.zst.sha256
//! ```
//!
//! - [`fetch`], by the library `disk-images`, which knows the publishers, their checksums and formats;
//!   [`cloud_init`]: the setting in an image.
//! - [`build`]: Debian from a mirror, for BIOS and UEFI.
//! - [`stored`]: the files in the directory that boot HTTP serves; [`programs`]: programs of the host; [`interrupt`]: signals that end them.
//! - [`bar`]: progress bars.

pub(crate) mod bar;
mod build;
mod cloud_init;
mod fetch;
mod interrupt;
mod programs;
pub mod server;
mod stored;

use std::io::Write;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use disk_images::catalogue;
use indicatif::HumanBytes;
use reqwest::Url;

use crate::connect::{Connection, Io};
use crate::connected;
use crate::connected_command::ConnectedCommand;
use crate::output::{Table, print_line};

/// Commands for disk images.
#[derive(Debug, clap::Subcommand)]
pub enum ImageCommand {
    /// Commands on images of a server
    #[command(flatten)]
    Server(Box<ConnectedCommand<server::ServerImageCommand>>),
    /// Fetch images from their publishers: to the server, or as files with --files
    Fetch(Box<FetchCommand>),
    /// Commands without a server
    #[command(flatten)]
    Local(LocalImageCommand),
}

/// Commands for files with disk images, without a server.
#[derive(Debug, clap::Subcommand)]
pub enum LocalImageCommand {
    /// List the images of publishers, and which of them a directory has
    Published(PublishedOptions),
    /// Build an image of Debian from a mirror; needs root, mmdebstrap, mtools and e2fsprogs
    Build(Box<BuildOptions>),
}

/// Options of the list of published images.
#[derive(Debug, clap::Args)]
pub struct PublishedOptions {
    /// Show which images are stored in this directory
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

/// Options of a fetch.
#[derive(Debug, clap::Args)]
pub struct FetchCommand {
    /// The server, and the identity of the caller
    #[command(flatten)]
    connection: Connection,
    /// The images, by their names in `tinwright image published`
    #[arg(value_name = "IMAGE", required = true, value_parser = PossibleValuesParser::new(catalogue::names()))]
    images: Vec<String>,
    /// Write IMAGE.raw.zst and IMAGE.raw.zst.sha256 to this directory, which boot HTTP serves by --files, in place of an image of the server
    #[arg(long, value_name = "DIR", conflicts_with_all = ["fetched_image", "image_settings"])]
    files: Option<PathBuf>,
    /// Options of the images of the server
    #[command(flatten)]
    fetched: server::fetch::FetchedImage,
    /// Options of the files
    #[command(flatten)]
    download: FetchOptions,
}

/// Options of files that are downloaded.
#[derive(Debug, clap::Args)]
#[group(id = "fetched_files", multiple = true, requires = "files")]
pub struct FetchOptions {
    /// Download from a mirror with the publisher's directories below this URL
    #[arg(long, value_name = "URL", value_parser = web_url)]
    base_url: Option<Url>,
    /// Allow downloads by HTTP without TLS: then nothing proves that the checksums are the publisher's
    #[arg(long)]
    allow_http: bool,
    /// Also trust the certificate authority in this file (PEM)
    #[arg(id = "image_ca", long = "ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Set this URL of the metadata service in the image
    #[arg(long, value_name = "URL", default_value = cloud_init::METADATA_URL, value_parser = web_url)]
    metadata_url: Url,
    /// Store the image as it is published, without the setting for cloud-init
    #[arg(long, conflicts_with = "metadata_url")]
    as_published: bool,
}

impl FetchCommand {
    /// Fetches the images, and prints them.
    pub async fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let Self { connection, images, files, fetched, download } = self;
        if let Some(files) = files {
            return fetch::run(&images, &files, &download, out).await;
        }
        let run = async |io: &mut Io<'_>| fetched.run(&images, io).await;
        connected(&connection, out, run).await
    }
}

/// Options of a build.
#[derive(Debug, clap::Args)]
pub struct BuildOptions {
    /// The release of Debian
    #[arg(default_value = build::DEBIAN_12, value_parser = PossibleValuesParser::new(build::releases()))]
    release: String,
    /// Write NAME.raw.zst and NAME.raw.zst.sha256 to this directory, which the server serves by --files
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
    /// Name of the image [default: the release]
    #[arg(long, value_parser = stored::image_name)]
    name: Option<String>,
    /// Install from this mirror: a URL, or a line `deb URL SUITE COMPONENT…`; may be repeated; the installed system uses it, too
    /// [default: deb.debian.org with the updates and security updates]
    #[arg(long = "mirror", value_name = "URL")]
    mirrors: Vec<String>,
    /// Trust mirrors that are signed by a key in this file [default: Debian's keys on this host]
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    /// Install packages of these components of the mirror
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "main")]
    components: Vec<String>,
    /// Also install this package; may be repeated
    #[arg(long = "package", value_name = "NAME", value_delimiter = ',')]
    packages: Vec<String>,
    /// Install this package of a kernel
    #[arg(long, value_name = "NAME", default_value = "linux-image-amd64")]
    kernel: String,
    /// Add these parameters to the kernel's command line
    #[arg(long, value_name = "TEXT", default_value = "console=tty0 console=ttyS0,115200")]
    kernel_parameters: String,
    /// Size of the root file system in MiB; cloud-init enlarges it to the machine's disk
    #[arg(long, value_name = "MIB", default_value_t = 3072, value_parser = clap::value_parser!(u64).range(512..=1 << 20))]
    size: u64,
    /// Set this URL of the metadata service in the image
    #[arg(long, value_name = "URL", default_value = cloud_init::METADATA_URL, value_parser = web_url)]
    metadata_url: Url,
}

/// Runs `command`, and prints the images that it stored or found.
pub async fn run(command: LocalImageCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        LocalImageCommand::Published(options) => print_line(out, &published(&options)?),
        LocalImageCommand::Build(options) => build::run(&options, out).await,
    }
}

/// Renders the table of the published images.
fn published(options: &PublishedOptions) -> anyhow::Result<String> {
    let row = |image: &catalogue::PublishedImage| {
        let publisher = image.base.trim_start_matches("https://").split('/').next();
        let file = stored::file_name(image.name);
        [image.name, image.system, publisher.unwrap_or_default(), &file].map(str::to_owned).into()
    };
    let columns = ["NAME", "SYSTEM", "PUBLISHER", "FILE"];
    let mut table = Table::new(&columns, catalogue::IMAGES.iter().map(row));
    if let Some(files) = &options.files {
        let stored = |image: &catalogue::PublishedImage| {
            let bytes = stored::Target::new(files, image.name).stored_bytes()?;
            Ok(vec![bytes.map_or_else(String::new, |bytes| HumanBytes(bytes).to_string())])
        };
        let cells: anyhow::Result<Vec<_>> = catalogue::IMAGES.iter().map(stored).collect();
        table = table.with_columns(&["STORED"], cells?.into_iter());
    }
    Ok(table.render(false, true))
}

/// Parses a URL with `https` or `http`.
fn web_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    match url.scheme() {
        "https" | "http" => Ok(url),
        _ => Err("neither https:// nor http://".into()),
    }
}

#[cfg(test)]
mod tests;
