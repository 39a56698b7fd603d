//! Commands on ranges of subnets.

use std::collections::HashMap;

use runtime::Channel;
use tinwright::address::v1 as pb;

use crate::connect::{Io, View};
use crate::input;
use crate::output::{Format, Row};
use crate::resource::{self, ApplyOptions, FromFiles, Names, Query, Resource, ResourceCommand};

/// Commands on ranges.
#[derive(Debug, clap::Subcommand)]
pub enum RangeCommand {
    /// Create a range of a subnet
    Create {
        /// Its name: lower-case letters, digits and inner hyphens, at most 63
        name: String,
        /// Its first and last address
        #[arg(value_name = "FIRST-LAST", value_parser = first_and_last)]
        addresses: (String, String),
        /// Create it in this subnet
        #[arg(long, value_name = "NAME|ID")]
        subnet: String,
        /// Keep its addresses for leases of DHCP, in place of grants. The server leases the ranges in its setting `subnets`
        #[arg(long)]
        dynamic: bool,
        /// Grant blocks with this prefix length [default: single addresses]
        #[arg(long, value_name = "BITS", default_value = "0", hide_default_value = true)]
        prefix_length: u32,
        /// Give it this label; may be repeated
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
        labels: Vec<(String, String)>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Create the ranges in files, or replace those that have the id or the name
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Range>),
}

/// Options that filter a list.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct RangeFilter {
    /// List only ranges of this subnet
    #[arg(long, value_name = "NAME|ID")]
    subnet: Option<String>,
}

/// Parses the first and the last address of a range.
fn first_and_last(text: &str) -> Result<(String, String), String> {
    let wrong = "not of the form FIRST-LAST, such as 192.0.2.32-192.0.2.63";
    let (first, last) = text.split_once('-').ok_or(wrong)?;
    Ok((first.trim().into(), last.trim().into()))
}

/// Runs `command`.
pub async fn run(command: RangeCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        RangeCommand::Create {
            name,
            addresses: (first, last),
            subnet,
            dynamic,
            prefix_length,
            labels,
            output,
        } => {
            let kind = if dynamic { pb::RangeKind::Dynamic } else { pb::RangeKind::Static };
            let range = pb::Range {
                name,
                subnet_id: pb::Subnet::find(io.channel, &subnet, View::Basic).await?.id,
                first,
                last,
                kind: kind.into(),
                prefix_length,
                labels: labels.into_iter().collect(),
                ..pb::Range::default()
            };
            resource::print(&[range.create(io.channel).await?], output, io).await
        }
        RangeCommand::Apply(options) => resource::apply::<pb::Range>(options, io).await,
        RangeCommand::Resource(command) => resource::run(command, io).await,
    }
}

impl Row for pb::Range {
    const COLUMNS: &'static str = "ID:id,NAME:name,SUBNET:subnet_id,FIRST:first,LAST:last,\
        KIND:kind,BITS:prefix_length,AGE:create_time";
}

impl Resource for pb::Range {
    type Filter = RangeFilter;
    const FIRST: &'static str =
        "create one with `tinwright range create NAME FIRST-LAST --subnet SUBNET`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }

    async fn names(channel: &Channel, _: &[Self]) -> HashMap<String, String> {
        resource::all_names::<pb::Subnet>(channel).await
    }

    async fn select(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let subnet_id = subnet_id(channel, query.filter.subnet.as_deref()).await?;
        Ok(pb::ListRangesRequest { subnet_id, ..Default::default() })
    }
}

impl FromFiles for pb::Range {
    async fn resolve(&mut self, names: &Names<'_>) -> anyhow::Result<()> {
        names.resolve::<pb::Subnet>(&mut self.subnet_id).await
    }
}

/// Returns the id of the subnet with this name; empty for none.
pub(crate) async fn subnet_id(channel: &Channel, name: Option<&str>) -> anyhow::Result<String> {
    match name {
        None => Ok(String::new()),
        Some(name) => Ok(pb::Subnet::find(channel, name, View::Basic).await?.id),
    }
}
