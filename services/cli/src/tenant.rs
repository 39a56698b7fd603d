//! Commands on tenants.

use std::io::Write;
use std::time::SystemTime;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::TenantId;
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::get_tenant_request::By;
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;

use crate::connect::View;
use crate::follow::{Watch, Watchable};
use crate::input;
use crate::output::{self, Format, Row};
use crate::resource::{
    self, ApplyOptions, FromFiles, NoOptions, PAGE_SIZE, Page, Query, Resource, ResourceCommand,
    required,
};

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
pub async fn run(
    command: TenantCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        TenantCommand::Create { name, description, labels, output } => {
            let labels = labels.into_iter().collect();
            let tenant = pb::Tenant { name, description, labels, ..pb::Tenant::default() };
            resource::print(&[tenant.create(channel).await?], output, channel, out).await
        }
        TenantCommand::Apply(options) => resource::apply::<pb::Tenant>(options, channel, out).await,
        TenantCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

impl Row for pb::Tenant {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "AGE", "DESCRIPTION"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let age = output::age(self.create_time, now);
        vec![self.id.clone(), self.name.clone(), age, self.description.clone()]
    }
}

impl Watchable for pb::Tenant {
    type Response = pb::WatchTenantsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(channel: &Channel, id: String, _: View) -> Watch<Self> {
        Ok(client(channel)
            .watch_tenants(pb::WatchTenantsRequest { id, ..Default::default() })
            .await?
            .into_inner())
    }
}

impl Resource for pb::Tenant {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "tenant";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str = "create one with `tinwright tenant create NAME`";

    async fn get(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        let by = match name.parse::<TenantId>() {
            Ok(_) => By::Id(name.into()),
            Err(_) => By::Name(name.into()),
        };
        let request = pb::GetTenantRequest { by: Some(by) };
        required(client(channel).get_tenant(request).await?.into_inner().tenant)
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self> {
        let labels = query.labels();
        let request = pb::ListTenantsRequest {
            page_size: PAGE_SIZE,
            page_token,
            labels,
            ..Default::default()
        };
        let page = client(channel).list_tenants(request).await?.into_inner();
        Ok((page.tenants, page.next_page_token))
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        let request = pb::DeleteTenantRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_tenant(request).await?;
        Ok(())
    }
}

impl FromFiles for pb::Tenant {
    fn name(&self) -> &str {
        &self.name
    }

    fn with_id(self, id: String) -> Self {
        Self { id, revision: 0, ..self }
    }

    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateTenantRequest { tenant: Some(self), ..Default::default() };
        required(client(channel).create_tenant(request).await?.into_inner().tenant)
    }

    async fn update(
        self,
        channel: &Channel,
        update_mask: Option<FieldMask>,
    ) -> anyhow::Result<Self> {
        let request = pb::UpdateTenantRequest { tenant: Some(self), update_mask };
        required(client(channel).update_tenant(request).await?.into_inner().tenant)
    }
}

fn client(channel: &Channel) -> TenantServiceClient<Channel> {
    TenantServiceClient::new(channel.clone())
}
