//! Commands on locations.

mod settings;

use runtime::Channel;
use tinwright::hardware::v1 as pb;

use crate::connect::{Io, View};
use crate::output::Row;
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
pub async fn run(command: LocationCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        LocationCommand::Create(create) => {
            let (files, location) = create.split();
            let Some(location) = location else {
                return resource::create::<pb::Location>(files, io).await;
            };
            resource::print(&[location.create(io.channel).await?], files.output, io).await
        }
        LocationCommand::Apply(options) => resource::apply::<pb::Location>(options, io).await,
        LocationCommand::Update(update) => {
            let output = update.output.clone();
            let stored = pb::Location::find(io.channel, &update.name, View::Basic).await?;
            let (location, paths) = update.write(stored)?;
            resource::print(&[location.change(io.channel, paths).await?], output, io).await
        }
        LocationCommand::Resource(command) => resource::run(command, io).await,
    }
}

impl Row for pb::Location {
    const COLUMNS: &'static str = "ID:id,NAME:name,ZONES:zones.name,CITY:geography.city,\
        COUNTRY:geography.country,AGE:create_time";
}

impl Resource for pb::Location {
    type Filter = NoOptions;
    const FIRST: &'static str = "create one with `tinwright location create NAME`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_label(channel, name, view).await
    }
}

impl FromFiles for pb::Location {}
