//! Commands on bindings of locations: a binding names the subnets and ranges for grants in a location.

use std::collections::HashMap;

use runtime::Channel;
use tinwright::address::v1 as pb;
use tinwright::address::v1::get_location_binding_request::By;
use tinwright::hardware::v1::Location;
use tinwright::{LocationBindingId, Stored as _};
use tonic::Code;

use crate::connect::{Io, View, call};
use crate::output::{self, Format, Row};
use crate::resource::{
    self, ApplyOptions, FromFiles, Names, Query, Resource, ResourceCommand, required,
};
use crate::{failure, input};

/// Commands on bindings of locations.
#[derive(Debug, clap::Subcommand)]
pub enum BindingCommand {
    /// Bind subnets and ranges to a location: its addresses are granted from them
    Create {
        /// The location
        #[arg(value_name = "LOCATION")]
        location: String,
        /// Bind them for this tenant only [default: for all]
        #[arg(long, default_value = "", hide_default_value = true)]
        tenant: String,
        /// Bind them for this group of the tenant only, such as a hub [default: for all]
        #[arg(long, requires = "tenant", default_value = "", hide_default_value = true)]
        group: String,
        /// The bound subnets and ranges
        #[command(flatten)]
        bound: Bound,
        /// Give it this label; may be repeated
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
        labels: Vec<(String, String)>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Replace the subnets, the ranges or the configuration of a binding
    Update {
        /// The binding
        #[arg(value_name = pb::LocationBinding::NAMES)]
        name: String,
        /// The bound subnets and ranges
        #[command(flatten)]
        bound: Bound,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Create the bindings in files, or replace those of the same location, tenant and group
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::LocationBinding>),
}

/// The subnets and ranges that are bound, and settings.
#[derive(Debug, clap::Args)]
pub struct Bound {
    /// Grant from static ranges of this subnet; may be repeated
    #[arg(long = "subnet", value_name = "NAME|ID")]
    subnets: Vec<String>,
    /// Grant from this range, before those of the subnets; may be repeated
    #[arg(long = "range", value_name = "NAME|ID")]
    ranges: Vec<String>,
    /// Settings for doors, as a JSON object without secrets
    #[arg(long, value_name = "JSON")]
    configuration: Option<String>,
}

/// Options that filter a list.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct BindingFilter {
    /// List only bindings of this location
    #[arg(long, value_name = "LOCATION")]
    location: Option<String>,
}

/// Runs `command`.
pub async fn run(command: BindingCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        BindingCommand::Create { location, tenant, group, bound, labels, output } => {
            let mut binding = pb::LocationBinding {
                location_id: Location::find_id(io.channel, &location).await?,
                tenant,
                group,
                labels: labels.into_iter().collect(),
                ..pb::LocationBinding::default()
            };
            bound.write(io.channel, &mut binding).await?;
            resource::print(&[binding.create(io.channel).await?], output, io).await
        }
        BindingCommand::Update { name, bound, output } => {
            let id = pb::LocationBinding::find(io.channel, &name, View::Basic).await?.id;
            let mut binding = pb::LocationBinding { id, ..pb::LocationBinding::default() };
            let paths = bound.write(io.channel, &mut binding).await?;
            resource::print(&[binding.change(io.channel, paths).await?], output, io).await
        }
        BindingCommand::Apply(options) => resource::apply::<pb::LocationBinding>(options, io).await,
        BindingCommand::Resource(command) => resource::run(command, io).await,
    }
}

impl Bound {
    /// Writes what is given into `binding`. Returns the names of its fields.
    async fn write(
        self,
        channel: &Channel,
        binding: &mut pb::LocationBinding,
    ) -> anyhow::Result<Vec<String>> {
        let mut paths = Vec::new();
        if !self.subnets.is_empty() {
            binding.subnet_ids = pb::Subnet::find_all(channel, &self.subnets).await?;
            paths.push("subnet_ids".into());
        }
        if !self.ranges.is_empty() {
            binding.range_ids = pb::Range::find_all(channel, &self.ranges).await?;
            paths.push("range_ids".into());
        }
        if let Some(configuration) = self.configuration {
            binding.configuration = configuration;
            paths.push("configuration".into());
        }
        Ok(paths)
    }
}

impl Row for pb::LocationBinding {
    const COLUMNS: &'static str = "ID:id,LOCATION:location_id,TENANT:tenant,GROUP:group,SUBNETS,\
        RANGES,VERSION:version,AGE:create_time";

    fn cell(&self, column: &str) -> String {
        let ids = if column == "SUBNETS" { &self.subnet_ids } else { &self.range_ids };
        ids.len().to_string()
    }
}

impl Resource for pb::LocationBinding {
    type Filter = BindingFilter;
    const NAMES: &'static str = "LOCATION|ID";

    async fn get(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        let Ok(id) = name.parse::<LocationBindingId>() else {
            return only_binding(channel, name).await;
        };
        let request = pb::GetLocationBindingRequest { by: Some(By::Id(id.to_string())) };
        match call(channel, request).await {
            // It may be the id of a location.
            Err(status) if status.code() == Code::NotFound => {
                only_binding(channel, name).await.map_err(|_| status.into())
            }
            found => required(found?.location_binding),
        }
    }

    async fn names(channel: &Channel, _: &[Self]) -> HashMap<String, String> {
        resource::all_names::<Location>(channel).await
    }

    async fn select(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let location = query.filter.location.as_deref();
        let location_id = Location::find_optional_id(channel, location).await?;
        Ok(pb::ListLocationBindingsRequest { location_id, ..Default::default() })
    }
}

impl FromFiles for pb::LocationBinding {
    async fn resolve(&mut self, names: &Names<'_>) -> anyhow::Result<()> {
        names.resolve::<Location>(&mut self.location_id).await?;
        names.resolve_all::<pb::Subnet>(&mut self.subnet_ids).await?;
        names.resolve_all::<pb::Range>(&mut self.range_ids).await
    }

    /// A binding has no name: location, tenant and group tell it apart.
    async fn stored(&self, channel: &Channel, view: View) -> anyhow::Result<Option<Self>> {
        if !self.id.is_empty() {
            return resource::optional(Self::get(channel, &self.id, view).await);
        }
        let bindings = of_location(channel, &self.location_id).await?;
        let is_same = |it: &Self| {
            it.location_id == self.location_id && it.tenant == self.tenant && it.group == self.group
        };
        Ok(bindings.into_iter().find(is_same))
    }
}

/// Returns the bindings of the location with this id.
async fn of_location(channel: &Channel, id: &str) -> anyhow::Result<Vec<pb::LocationBinding>> {
    let select =
        |request: &mut pb::ListLocationBindingsRequest| request.location_id = id.to_owned();
    Ok(resource::list_all(channel, select).await?)
}

/// Returns the binding of the location `name`, if it has one only.
async fn only_binding(channel: &Channel, name: &str) -> anyhow::Result<pb::LocationBinding> {
    let name = output::referenced::<Location>(name);
    // Without an answer, it may still be the beginning of a binding's id.
    let Ok(location) = Location::get(channel, name, View::Basic).await else {
        return Err(resource::no_name(name, pb::LocationBinding::SINGULAR));
    };
    let mut bindings = of_location(channel, &location.id).await?;
    let none = || failure::Missing(format!("location {name} has no binding"));
    let binding = bindings.pop().ok_or_else(none)?;
    anyhow::ensure!(
        bindings.is_empty(),
        "location {name} has {} bindings: give the id of one",
        bindings.len() + 1
    );
    Ok(binding)
}
