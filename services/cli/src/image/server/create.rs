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
use crate::{failure, input, password};

/// Scheme of references to registries.
const OCI: &str = "oci://";

/// Options of an upload.
#[derive(Debug, clap::Args)]
pub struct UploadImage {
    /// The file: a disk image, or a tar archive
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the image: letters, digits and inner hyphens, at most 63
    #[arg(long)]
    name: String,
    /// The file
    #[command(flatten)]
    format: FileFormat,
    /// Settings of the image
    #[command(flatten)]
    settings: Settings,
}

/// Options of an import.
#[derive(Debug, clap::Args)]
pub struct ImportImage {
    /// Name of the image: letters, digits and inner hyphens, at most 63
    name: String,
    /// Download the file at this http or https URL, or the artifact or container image at a
    /// reference such as oci://registry.example.com/lab/debian:12
    url: String,
    /// The registry
    #[command(flatten)]
    registry: RegistryOptions,
    /// The file
    #[command(flatten)]
    format: FileFormat,
    /// Settings of the image
    #[command(flatten)]
    settings: Settings,
}

/// Options of a registry. They are for URLs with oci:// only.
#[derive(Debug, PartialEq, Eq, clap::Args)]
struct RegistryOptions {
    /// Log in to the registry as this user
    #[arg(long, value_name = "NAME")]
    username: Option<String>,
    /// Read the password for the registry, or a token, from this file; - for standard input
    /// [default: a prompt at a terminal, else standard input]
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
    /// Take the image for this architecture, as OCI names it, if there are several [default: amd64]
    #[arg(long, value_name = "NAME")]
    architecture: Option<String>,
    /// Use http in place of https; the server's settings must allow the network of the registry
    #[arg(long)]
    plain_http: bool,
}

/// The content of a file.
#[derive(Debug, clap::Args)]
struct FileFormat {
    /// Format of the file [default: by its content]
    #[arg(long, value_parser = ["raw", "qcow2", "vmdk", "vdi", "vhd", "vhdx", "tar"])]
    format: Option<String>,
    /// Compare the file with this checksum, sha256:DIGITS or sha512:DIGITS
    #[arg(long)]
    checksum: Option<String>,
    /// Kind of the content
    #[arg(long, default_value = "disk")]
    kind: Kind,
}

/// Settings of a new image.
#[derive(Debug, clap::Args)]
#[group(id = "image_settings", multiple = true)]
pub(super) struct Settings {
    /// Add it to this family; the name of a family stands for its newest ready image [default:
    /// none; of a publisher's image the published name, with hyphens for dots]
    #[arg(long)]
    pub(super) family: Option<String>,
    /// Let callers of all tenants read it
    #[arg(long)]
    public: bool,
    /// Leave cloud-init's settings in it as they are; by default an installation sets the site's
    /// metadata service as the data source
    #[arg(long)]
    keep_data_source: bool,
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
    pub(super) no_wait: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub(super) output: Format,
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
        let Self { file, name, format, settings } = self;
        let file = UploadFile::open(file)?;
        let source = Source::Upload(pb::UploadSource { file_name: file.name() });
        let image = format.written(settings.image(name, source));
        let image = uploading(image, io.channel).await?;
        upload::send(io.channel, &image, &file).await?;
        let image = match settings.no_wait {
            true => pb::Image::get(io.channel, &image.id, View::Basic).await?,
            false => wait::until_ready(io.channel, &image).await?,
        };
        resource::print(&[image], settings.output, io).await
    }
}

/// Returns the name by which `image` is found.
pub(crate) fn full_name(image: &pb::Image) -> String {
    match image.tenant.as_str() {
        "" => image.name.clone(),
        tenant => format!("{tenant}/{}", image.name),
    }
}

/// Creates `image`. If an image that is being uploaded has the name already, returns that one.
async fn uploading(image: pb::Image, channel: &Channel) -> anyhow::Result<pb::Image> {
    let name = full_name(&image);
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
        let Self { name, url, registry, format, settings } = self;
        let image = settings.image(name, registry.source(url)?);
        let image = format.written(image).create(io.channel).await?;
        let image = match settings.no_wait {
            true => image,
            false => wait::until_ready(io.channel, &image).await?,
        };
        resource::print(&[image], settings.output, io).await
    }
}

impl RegistryOptions {
    /// Returns the source at `url`. The password is read for a registry only.
    fn source(self, url: String) -> anyhow::Result<Source> {
        let Self { username, password_file, architecture, plain_http } = &self;
        let Some(reference) = url.strip_prefix(OCI) else {
            let is_unset = username.is_none() && architecture.is_none() && !plain_http;
            anyhow::ensure!(is_unset, "options of a registry are for {OCI} only: {url}");
            return Ok(Source::Url(pb::UrlSource { url }));
        };
        let password = match username {
            Some(_) => password::read("of the registry", password_file.as_deref())?,
            None => String::new(),
        };
        Ok(Source::Oci(pb::OciSource {
            reference: reference.to_owned(),
            architecture: architecture.clone().unwrap_or_default(),
            plain_http: *plain_http,
            username: username.clone().unwrap_or_default(),
            password,
            ..pb::OciSource::default()
        }))
    }
}

impl FileFormat {
    /// Returns `image` with the format of its file.
    fn written(self, mut image: pb::Image) -> pb::Image {
        let source = image.source.get_or_insert_default();
        source.checksum = self.checksum.unwrap_or_default();
        source.format = self.format.unwrap_or_default();
        pb::Image { kind: self.kind as i32, ..image }
    }
}

impl Settings {
    /// Returns the image `name`, with content of `source`.
    pub(super) fn image(&self, name: String, source: Source) -> pb::Image {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let source = pb::ImageSource { source: Some(source), ..pb::ImageSource::default() };
        pb::Image {
            name,
            family: text(&self.family),
            public: self.public,
            tenant: text(&self.tenant),
            keep_data_source: self.keep_data_source,
            description: text(&self.description),
            labels: self.labels.iter().cloned().collect(),
            source: Some(source),
            ..pb::Image::default()
        }
    }
}
