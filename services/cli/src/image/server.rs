//! Commands on images of the server.
//!
//! - [`create`]: uploads and imports; [`fetch`]: images of publishers; [`upload`]: sends a file, by tus; [`wait`]: shows the work on
//!   an image until it is ready.
//! - [`update`]: changes of the settings. [`sign`]: signatures.

pub(crate) mod create;
pub(super) mod fetch;
mod sign;
mod update;
pub(crate) mod upload;
pub(crate) mod wait;

use indicatif::HumanBytes;
use runtime::Channel;
use tinwright::image::v1 as pb;

use crate::connect::{Io, View};
use crate::output::{self, Row};
use crate::resource::{self, FromFiles, Query, Resource, ResourceCommand};

/// Commands on images of the server.
#[derive(Debug, clap::Subcommand)]
pub enum ServerImageCommand {
    /// Create an image from a file; the same command goes on with an interrupted upload
    Upload(Box<create::UploadImage>),
    /// Create an image that the server downloads from a URL or from an OCI registry
    Import(Box<create::ImportImage>),
    /// Change the settings that are given
    Update(Box<update::UpdateImage>),
    /// Add a signature to an image, so that machines with its key install it
    Sign(Box<sign::SignImage>),
    /// Verify that an image is signed by one of the given keys
    Verify(Box<sign::VerifyImage>),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Image>),
}

/// States of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedImageState {
    /// Its content is being uploaded
    Uploading = pb::ImageState::Uploading as isize,
    /// The server downloads, converts and stores its content
    Processing = pb::ImageState::Processing as isize,
    /// Its content is stored
    Ready = pb::ImageState::Ready as isize,
    /// It has no content
    Failed = pb::ImageState::Failed as isize,
    /// A part of its content is missing or changed
    Damaged = pb::ImageState::Damaged as isize,
}

/// Options of a list, besides labels.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct ImageFilter {
    /// List only images of this family
    #[arg(long, value_name = "FAMILY")]
    family: Option<String>,
    /// List only images in this state
    #[arg(long)]
    state: Option<ListedImageState>,
    /// List only images with this name, of any tenant
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// List only images of this tenant
    #[arg(long)]
    tenant: Option<String>,
}

/// Runs `command`.
pub async fn run(command: ServerImageCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        ServerImageCommand::Upload(upload) => Box::pin(upload.run(io)).await,
        ServerImageCommand::Import(import) => Box::pin(import.run(io)).await,
        ServerImageCommand::Update(update) => {
            let output = update.output.clone();
            let stored = find_by_own_name(io.channel, &update.name).await?;
            let (image, paths) = update.write(stored)?;
            resource::print(&[image.change(io.channel, paths).await?], output, io).await
        }
        ServerImageCommand::Sign(sign) => Box::pin(sign.run(io)).await,
        ServerImageCommand::Verify(verify) => Box::pin(verify.run(io)).await,
        ServerImageCommand::Resource(command) => {
            if let ResourceCommand::Delete { names, .. } = &command {
                for name in names {
                    resource::optional(find_by_own_name(io.channel, name).await)?;
                }
            }
            resource::run(command, io).await
        }
    }
}

/// Returns the image `name`. The name of a family is an error: another image may be its newest one
/// by now.
async fn find_by_own_name(channel: &Channel, name: &str) -> anyhow::Result<pb::Image> {
    let image = pb::Image::find(channel, name, View::Basic).await?;
    let label = output::referenced::<pb::Image>(name).rsplit('/').next().unwrap_or(name);
    let is_family = image.family.eq_ignore_ascii_case(label);
    anyhow::ensure!(
        !is_family || image.name.eq_ignore_ascii_case(label),
        "{name} is a family: give the name of one of its images, such as {}",
        image.name
    );
    Ok(image)
}

impl Row for pb::Image {
    const COLUMNS: &'static str =
        "ID:id,NAME:name,FAMILY:family,STATE,SIZE,TENANT:tenant,AGE:create_time,REASON";

    fn cell(&self, column: &str) -> String {
        match column {
            "STATE" => output::with_protection(output::state(self), self.protect),
            "SIZE" if self.size_bytes == 0 => String::new(),
            "SIZE" => HumanBytes(self.size_bytes).to_string(),
            _ if self.state_reason.is_empty() => step(self),
            _ => self.state_reason.clone(),
        }
    }
}

/// Returns the present step of the build, and its progress.
fn step(image: &pb::Image) -> String {
    match image.progress {
        Some(pb::ImageProgress { current_bytes, total_bytes }) if total_bytes > 0 => {
            format!("{} {} of {}", image.step, HumanBytes(current_bytes), HumanBytes(total_bytes))
        }
        Some(_) | None => image.step.clone(),
    }
}

impl Resource for pb::Image {
    type Filter = ImageFilter;
    const NAMES: &'static str = "NAME|FAMILY|ID";
    const OBJECTS: &'static str = "The images";
    const FIRST: &'static str = "create one with `tinwright image import NAME URL`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }

    async fn select(_: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let ImageFilter { family, state, name, tenant } = &query.filter;
        Ok(pb::ListImagesRequest {
            family: family.clone().unwrap_or_default(),
            state: state.map_or(0, |state| state as i32),
            name: name.clone().unwrap_or_default(),
            tenant: tenant.clone().unwrap_or_default(),
            ..Default::default()
        })
    }
}

impl FromFiles for pb::Image {}
