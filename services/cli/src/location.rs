//! Commands on locations.

mod settings;

use std::io::Write;
use std::time::SystemTime;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::get_location_request::By;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::{LocationId, check};

use crate::connect::View;
use crate::follow::{Watch, Watchable};
use crate::output::{self, Row};
use crate::resource::{
    self, ApplyOptions, FromFiles, NoOptions, PAGE_SIZE, Page, Query, Resource, ResourceCommand,
    required,
};

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

impl Watchable for pb::Location {
    type Response = pb::WatchLocationsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(channel: &Channel, id: String, _: View) -> Watch<Self> {
        Ok(client(channel)
            .watch_locations(pb::WatchLocationsRequest { id, ..Default::default() })
            .await?
            .into_inner())
    }
}

impl Resource for pb::Location {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "location";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str = "create one with `tinwright location create NAME`";

    async fn get(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        let by = match (name.parse::<LocationId>(), check::label(name)) {
            (Ok(id), _) => By::Id(id.to_string()),
            (Err(_), Ok(name)) => By::Name(name),
            (Err(_), Err(_)) => return Err(resource::no_name(name, Self::RESOURCE)),
        };
        let request = pb::GetLocationRequest { by: Some(by) };
        required(client(channel).get_location(request).await?.into_inner().location)
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self> {
        let labels = query.labels();
        let request = pb::ListLocationsRequest {
            page_size: PAGE_SIZE,
            page_token,
            labels,
            ..Default::default()
        };
        let page = client(channel).list_locations(request).await?.into_inner();
        Ok((page.locations, page.next_page_token))
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        let request = pb::DeleteLocationRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_location(request).await?;
        Ok(())
    }
}

impl FromFiles for pb::Location {
    fn name(&self) -> &str {
        &self.name
    }

    fn with_id(self, id: String) -> Self {
        Self { id, revision: 0, ..self }
    }

    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateLocationRequest { location: Some(self), ..Default::default() };
        required(client(channel).create_location(request).await?.into_inner().location)
    }

    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self> {
        let request = pb::UpdateLocationRequest { location: Some(self), update_mask: mask };
        required(client(channel).update_location(request).await?.into_inner().location)
    }
}

fn client(channel: &Channel) -> LocationServiceClient<Channel> {
    LocationServiceClient::new(channel.clone())
}
