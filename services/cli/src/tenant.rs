//! Commands on tenants.

use runtime::Channel;
use tinwright::identity::v1 as pb;

use crate::connect::{Io, View};
use crate::input;
use crate::output::{Format, Row};
use crate::resource::{self, ApplyOptions, FromFiles, NoOptions, Resource, ResourceCommand};

/// Commands on tenants.
#[derive(Debug, clap::Subcommand)]
pub enum TenantCommand {
    /// Create a tenant
    Create {
        /// Its name: lower-case letters, digits and inner hyphens, at most 63
        name: String,
        /// Describe it for people
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        description: String,
        /// Give it this label; may be repeated
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
        labels: Vec<(String, String)>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Create the tenants in files, or replace those that have the id or the name
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Tenant>),
}

/// Runs `command`.
pub async fn run(command: TenantCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        TenantCommand::Create { name, description, labels, output } => {
            let labels = labels.into_iter().collect();
            let tenant = pb::Tenant { name, description, labels, ..pb::Tenant::default() };
            resource::print(&[tenant.create(io.channel).await?], output, io).await
        }
        TenantCommand::Apply(options) => resource::apply::<pb::Tenant>(options, io).await,
        TenantCommand::Resource(command) => resource::run(command, io).await,
    }
}

impl Row for pb::Tenant {
    const COLUMNS: &'static str = "ID:id,NAME:name,AGE:create_time,DESCRIPTION:description";
}

impl Resource for pb::Tenant {
    type Filter = NoOptions;
    const FIRST: &'static str = "create one with `tinwright tenant create NAME`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }
}

impl FromFiles for pb::Tenant {}
