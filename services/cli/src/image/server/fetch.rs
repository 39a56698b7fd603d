//! `image fetch` without a directory: images of publishers, which the server downloads.

use std::time::SystemTime;

use prost_types::Timestamp;
use runtime::Channel;
use tinwright::image::v1 as pb;
use tinwright::image::v1::image_source::Source;
use tonic::Code;

use super::create::Settings;
use super::wait;
use crate::connect::{Io, View};
use crate::failure;
use crate::resource::{self, FromFiles as _, Resource as _};

/// Length of a date as `YYYY-MM-DD`.
const DATE_BYTES: usize = 10;

/// Options of images that the server downloads from their publishers.
#[derive(Debug, clap::Args)]
#[group(id = "fetched_image", multiple = true)]
pub(in crate::image) struct FetchedImage {
    /// Name of the image [default: the published name and the date, such as debian-12-20261130]
    #[arg(long = "name", value_name = "NAME")]
    own_name: Option<String>,
    /// Processor architecture of the published image
    #[arg(long, default_value = "x86_64", value_parser = ["x86_64", "aarch64"])]
    architecture: String,
    /// Settings of the image
    #[command(flatten)]
    settings: Settings,
}

impl FetchedImage {
    /// Has the server fetch the images with these published names, and prints them.
    pub(in crate::image) async fn run(
        mut self,
        names: &[String],
        io: &mut Io<'_>,
    ) -> anyhow::Result<()> {
        let is_one = names.len() == 1 || self.own_name.is_none();
        anyhow::ensure!(is_one, "--name is for one image: fetch the others by themselves");
        let (own_family, now) = (self.settings.family.take(), runtime::Clock::system().wall());
        let mut images = Vec::new();
        for published in names {
            let image = self.image(published, own_family.as_deref(), now);
            images.push(created(image, io.channel).await?);
        }
        if !self.settings.no_wait {
            for image in &mut images {
                *image = wait::until_ready(io.channel, image).await?;
            }
        }
        resource::print(&images, self.settings.output.clone(), io).await
    }

    /// Returns the image with the published name `published`, of today.
    fn image(&self, published: &str, family: Option<&str>, now: SystemTime) -> pb::Image {
        let label = published.replace('.', "-");
        let date = Timestamp::from(now).to_string();
        let date: String = date.chars().take(DATE_BYTES).filter(|it| *it != '-').collect();
        let name = self.own_name.clone().unwrap_or_else(|| format!("{label}-{date}"));
        let architecture = self.architecture.clone();
        let source = pb::PublishedSource { name: published.to_owned(), architecture };
        let family = family.map_or(label, str::to_owned);
        pb::Image { family, ..self.settings.image(name, Source::Published(source)) }
    }
}

/// Creates `image`. If it was created before, returns that one.
async fn created(image: pb::Image, channel: &Channel) -> anyhow::Result<pb::Image> {
    let (name, source) = (super::create::full_name(&image), image.source.clone());
    match image.create(channel).await {
        Err(error) if failure::code(&error) == Some(Code::AlreadyExists) => {
            let found = pb::Image::get(channel, &name, View::Basic).await;
            let is_same = |found: &pb::Image| {
                found.source == source && found.state() != pb::ImageState::Failed
            };
            found.ok().filter(is_same).ok_or(error)
        }
        created => created,
    }
}
