//! Commands on tenants.

use runtime::Channel;
use tinwright::identity::v1 as pb;

use crate::connect::{Io, View};
use crate::input;
use crate::output::{Format, Row};
use crate::resource::{self, ApplyOptions, FromFiles, NoOptions, Resource, ResourceCommand};

/// The largest limit of the images of a tenant in GiB: 1 EiB.
const MAX_GIB: u64 = 1 << 30;

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
        /// Let it have at most this many images [default: 500]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        max_images: Option<u64>,
        /// Let its images have at most this size in all, in GiB [default: 1024]
        #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=MAX_GIB))]
        max_image_gib: Option<u64>,
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
        TenantCommand::Create { name, description, max_images, max_image_gib, labels, output } => {
            let labels = labels.into_iter().collect();
            let image_quota = quota(max_images, max_image_gib);
            let tenant =
                pb::Tenant { name, description, labels, image_quota, ..pb::Tenant::default() };
            resource::print(&[tenant.create(io.channel).await?], output, io).await
        }
        TenantCommand::Apply(options) => resource::apply::<pb::Tenant>(options, io).await,
        TenantCommand::Resource(command) => resource::run(command, io).await,
    }
}

/// Returns the limits that are given.
fn quota(max_images: Option<u64>, max_gib: Option<u64>) -> Option<pb::ImageQuota> {
    max_images.or(max_gib)?;
    let max_bytes = max_gib.map_or(0, |gib| gib << 30);
    Some(pb::ImageQuota { max_images: max_images.unwrap_or(0), max_bytes })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_not_given_are_the_defaults() {
        assert_eq!(quota(None, None), None);
        let quota = |images, gib| quota(images, gib).map(|it| (it.max_images, it.max_bytes));
        assert_eq!(quota(Some(3), None), Some((3, 0)));
        assert_eq!(quota(None, Some(2)), Some((0, 2 << 30)));
        assert_eq!(quota(Some(3), Some(MAX_GIB)), Some((3, 1 << 60)));
    }
}
