//! `image upload` and `image import`.

use std::path::PathBuf;

use runtime::Channel;
use tinwright::image::v1 as pb;
use tinwright::image::v1::image_source::Source;
use tonic::Code;

use super::upload::{self, UploadFile};
use super::wait;
use crate::connect::{Io, View};
use crate::output::Format;
use crate::resource::{self, FromFiles as _, Resource as _};
use crate::{failure, input};

/// Options of an upload.
#[derive(Debug, clap::Args)]
pub struct UploadImage {
    /// The file: a disk image, or a tar archive
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the image: letters, digits and inner hyphens, at most 63
    #[arg(long)]
    name: String,
    /// Settings of the image
    #[command(flatten)]
    settings: Settings,
}

/// Options of an import.
#[derive(Debug, clap::Args)]
pub struct ImportImage {
    /// Name of the image: letters, digits and inner hyphens, at most 63; with --published a name in
    /// `tinwright image published`
    name: String,
    /// Download the file at this http or https URL
    #[arg(required_unless_present = "published", conflicts_with = "published")]
    url: Option<String>,
    /// Download the publisher's image, and compare the publisher's checksum
    #[arg(long, conflicts_with_all = ["checksum", "format"])]
    published: bool,
    /// Name of the image [default: the published name, with hyphens for dots]
    #[arg(long = "name", value_name = "NAME", conflicts_with = "url")]
    own_name: Option<String>,
    /// Processor architecture of the published image
    #[arg(long, default_value = "x86_64", value_parser = ["x86_64", "aarch64"])]
    #[arg(conflicts_with = "url")]
    architecture: String,
    /// Settings of the image
    #[command(flatten)]
    settings: Settings,
}

/// Settings of a new image.
#[derive(Debug, clap::Args)]
struct Settings {
    /// Add it to this family; the name of a family stands for its newest ready image [default:
    /// none; with --published the published name, with hyphens for dots]
    #[arg(long)]
    family: Option<String>,
    /// Format of the file [default: by its content]
    #[arg(long, value_parser = ["raw", "qcow2", "vmdk", "vdi", "vhd", "vhdx", "tar"])]
    format: Option<String>,
    /// Compare the file with this checksum, sha256:DIGITS or sha512:DIGITS
    #[arg(long)]
    checksum: Option<String>,
    /// Kind of the content
    #[arg(long, default_value = "disk")]
    kind: Kind,
    /// Let callers of all tenants read it
    #[arg(long)]
    public: bool,
    /// Create it for this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Set its description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Give it this label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Do not wait until the image is ready
    #[arg(long)]
    no_wait: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Kinds of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A disk
    Disk = pb::ImageKind::Disk as isize,
    /// A tar archive of a file system
    Archive = pb::ImageKind::Archive as isize,
}

impl UploadImage {
    /// Creates the image or finds it, sends the file, and prints the image.
    pub(super) async fn run(self, io: &mut Io<'_>) -> anyhow::Result<()> {
        let Self { file, name, settings } = self;
        let file = UploadFile::open(file)?;
        let source = Source::Upload(pb::UploadSource { file_name: file.name() });
        let image = uploading(settings.image(name, source), io.channel).await?;
        upload::send(io.channel, &image, &file).await?;
        let image = match settings.no_wait {
            true => pb::Image::get(io.channel, &image.id, View::Basic).await?,
            false => wait::until_ready(io.channel, &image).await?,
        };
        resource::print(&[image], settings.output, io).await
    }
}

/// Creates `image`. If an image that is being uploaded has the name already, returns that one.
async fn uploading(image: pb::Image, channel: &Channel) -> anyhow::Result<pb::Image> {
    let name = match image.tenant.as_str() {
        "" => image.name.clone(),
        tenant => format!("{tenant}/{}", image.name),
    };
    match image.create(channel).await {
        Err(error) if failure::code(&error) == Some(Code::AlreadyExists) => {
            match pb::Image::get(channel, &name, View::Basic).await {
                Ok(found) if found.state() == pb::ImageState::Uploading => Ok(found),
                Ok(_) | Err(_) => Err(error),
            }
        }
        created => created,
    }
}

impl ImportImage {
    /// Creates the image, and prints it.
    pub(super) async fn run(self, io: &mut Io<'_>) -> anyhow::Result<()> {
        let (image, no_wait, output) = self.split();
        let image = image.create(io.channel).await?;
        let image = match no_wait {
            true => image,
            false => wait::until_ready(io.channel, &image).await?,
        };
        resource::print(&[image], output, io).await
    }

    /// Returns the image that the options describe, true if the command ends at once, and the
    /// format of its output.
    fn split(self) -> (pb::Image, bool, Format) {
        let Self { name, url, published: _, own_name, architecture, mut settings } = self;
        let (no_wait, output) = (settings.no_wait, settings.output.clone());
        let image = match url {
            Some(url) => settings.image(name, Source::Url(pb::UrlSource { url })),
            None => {
                let label = name.replace('.', "-");
                settings.family.get_or_insert_with(|| label.clone());
                let source = pb::PublishedSource { name, architecture };
                settings.image(own_name.unwrap_or(label), Source::Published(source))
            }
        };
        (image, no_wait, output)
    }
}

impl Settings {
    /// Returns the image `name`, with content of `source`.
    fn image(&self, name: String, source: Source) -> pb::Image {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let source = pb::ImageSource {
            source: Some(source),
            checksum: text(&self.checksum),
            format: text(&self.format),
        };
        pb::Image {
            name,
            family: text(&self.family),
            kind: self.kind as i32,
            public: self.public,
            tenant: text(&self.tenant),
            description: text(&self.description),
            labels: self.labels.iter().cloned().collect(),
            source: Some(source),
            ..pb::Image::default()
        }
    }
}
