//! Commands on locations.

mod settings;

use std::io::Write;
use std::time::SystemTime;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::hardware::v1 as pb;

use crate::connect::View;
use crate::output::{self, Row};
use crate::resource::{self, ApplyOptions, FromFiles, NoOptions, Resource, ResourceCommand};

/// Commands on locations.
#[derive(Debug, clap::Subcommand)]
pub enum LocationCommand {
    /// Create locations, from files or from options
    Create(Box<settings::CreateLocation>),
    /// Create the locations in files, or replace those that have the id or the name
    Apply(ApplyOptions),
    /// Change the settings that are given
    Update(Box<settings::UpdateLocation>),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Location>),
}

/// Runs `command`.
pub async fn run(
    command: LocationCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        LocationCommand::Create(create) => {
            let (files, location) = create.split();
            let Some(location) = location else {
                return resource::create::<pb::Location>(files, channel, out).await;
            };
            resource::print(&[location.create(channel).await?], files.output, channel, out).await
        }
        LocationCommand::Apply(options) => {
            resource::apply::<pb::Location>(options, channel, out).await
        }
        LocationCommand::Update(update) => {
            let output = update.output();
            let stored = pb::Location::find(channel, update.name(), View::Basic).await?;
            let (location, paths) = update.write(stored)?;
            let updated = location.update(channel, Some(FieldMask { paths })).await?;
            resource::print(&[updated], output, channel, out).await
        }
        LocationCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

impl Row for pb::Location {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "ZONES", "CITY", "COUNTRY", "AGE"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let zones: Vec<_> = self.zones.iter().map(|zone| zone.name.as_str()).collect();
        let geography = self.geography.clone().unwrap_or_default();
        vec![
            self.id.clone(),
            self.name.clone(),
            zones.join(","),
            geography.city,
            geography.country,
            output::age(self.create_time, now),
        ]
    }
}

impl Resource for pb::Location {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "location";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str = "create one with `tinwright location create NAME`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_label(channel, name, view).await
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        resource::delete_by_id(self, channel).await
    }
}

impl FromFiles for pb::Location {}
