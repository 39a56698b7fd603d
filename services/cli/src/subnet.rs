//! Commands on subnets.

use std::time::Duration;

use runtime::Channel;
use tinwright::address::v1 as pb;

use crate::connect::{Io, View};
use crate::input;
use crate::output::{Format, Row};
use crate::resource::{self, ApplyOptions, FromFiles, NoOptions, Resource, ResourceCommand};

/// Commands on subnets.
#[derive(Debug, clap::Subcommand)]
pub enum SubnetCommand {
    /// Create a subnet
    Create {
        /// Its name: lower-case letters, digits and inner hyphens, at most 63
        name: String,
        /// Its network, such as 198.51.100.0/24 or 2001:db8::/48
        #[arg(value_name = "ADDRESS/BITS")]
        cidr: String,
        /// Its settings
        #[command(flatten)]
        settings: Settings,
        /// Give it this label; may be repeated
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
        labels: Vec<(String, String)>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Change the settings that are given
    Update {
        /// The subnet
        #[arg(value_name = "NAME|ID")]
        name: String,
        /// Rename it
        #[arg(long = "rename", value_name = "NAME")]
        new_name: Option<String>,
        /// Its settings
        #[command(flatten)]
        settings: Settings,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Create the subnets in files, or replace those that have the id or the name
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Subnet>),
}

/// Settings of a subnet.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Set the default gateway
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<String>,
    /// Never grant this address or range FIRST-LAST; may be repeated
    #[arg(long = "exclude", value_name = "ADDRESSES")]
    excluded: Vec<String>,
    /// Hold a released address back for this time, such as 10m or 1d [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = input::duration)]
    hold: Option<Duration>,
    /// Allow each tenant this many grants; 0 for any number [default: 0]
    #[arg(long, value_name = "COUNT")]
    quota: Option<i64>,
    /// Allow this tenant so many grants, in place of --quota, and 0 for none; TENANT= without a count ends that; may be repeated. Other
    /// tenants keep theirs
    #[arg(long = "tenant-quota", value_name = "TENANT=COUNT", value_parser = quota)]
    tenant_quotas: Vec<(String, Option<i64>)>,
    /// Refuse to delete the subnet, or allow it again
    #[arg(long, value_name = "BOOL")]
    protect: Option<bool>,
}

/// Parses the quota of a tenant; without a number, it has none of its own.
fn quota(text: &str) -> Result<(String, Option<i64>), String> {
    let (tenant, count) = input::pair(text)?;
    if count.is_empty() {
        return Ok((tenant, None));
    }
    let count = count.parse().map_err(|_| format!("{count:?} is not a number"))?;
    Ok((tenant, Some(count)))
}

impl Settings {
    /// Writes the settings that are given into `subnet`. Returns the names of their fields.
    fn write(self, subnet: &mut pb::Subnet) -> anyhow::Result<Vec<String>> {
        let Self { gateway, excluded, hold, quota, tenant_quotas, protect } = self;
        let is_given = [
            ("gateway", gateway.is_some()),
            ("excluded", !excluded.is_empty()),
            ("hold", hold.is_some()),
            ("quota", quota.is_some()),
            ("tenant_quotas", !tenant_quotas.is_empty()),
            ("protect", protect.is_some()),
        ];
        subnet.gateway = gateway.unwrap_or_default();
        subnet.excluded = excluded;
        subnet.hold = hold.map(TryInto::try_into).transpose()?;
        subnet.quota = quota.unwrap_or_default();
        for (tenant, count) in tenant_quotas {
            match count {
                Some(count) => subnet.tenant_quotas.insert(tenant, count),
                None => subnet.tenant_quotas.remove(&tenant),
            };
        }
        subnet.protect = protect.unwrap_or_default();
        Ok(is_given.into_iter().filter(|it| it.1).map(|it| it.0.to_owned()).collect())
    }
}

/// Runs `command`.
pub async fn run(command: SubnetCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        SubnetCommand::Create { name, cidr, settings, labels, output } => {
            let labels = labels.into_iter().collect();
            let mut subnet = pb::Subnet { name, cidr, labels, ..pb::Subnet::default() };
            settings.write(&mut subnet)?;
            resource::print(&[subnet.create(io.channel).await?], output, io).await
        }
        SubnetCommand::Update { name, new_name, settings, output } => {
            let stored = pb::Subnet::find(io.channel, &name, View::Basic).await?;
            let (subnet, paths) = changed(stored, new_name, settings)?;
            resource::print(&[subnet.change(io.channel, paths).await?], output, io).await
        }
        SubnetCommand::Apply(options) => resource::apply::<pb::Subnet>(options, io).await,
        SubnetCommand::Resource(command) => resource::run(command, io).await,
    }
}

/// Returns `subnet` with the settings that are given, and the names of their fields. With quotas of tenants it is changed at its revision
/// only: those of other tenants are those that were read.
fn changed(
    mut subnet: pb::Subnet,
    new_name: Option<String>,
    settings: Settings,
) -> anyhow::Result<(pb::Subnet, Vec<String>)> {
    if settings.tenant_quotas.is_empty() {
        subnet.revision = 0;
    }
    let mut paths = settings.write(&mut subnet)?;
    if let Some(name) = new_name {
        subnet.name = name;
        paths.push("name".into());
    }
    Ok((subnet, paths))
}

impl Row for pb::Subnet {
    const COLUMNS: &'static str = "ID:id,NAME:name,NETWORK:cidr,GATEWAY:gateway,PROTECTED:protect,\
        AGE:create_time";
}

impl Resource for pb::Subnet {
    type Filter = NoOptions;
    const FIRST: &'static str = "create one with `tinwright subnet create NAME ADDRESS/BITS`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }
}

impl FromFiles for pb::Subnet {}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct SettingsLine {
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(line: &str) -> Settings {
        SettingsLine::try_parse_from(["update"].into_iter().chain(line.split(' ')))
            .unwrap()
            .settings
    }

    #[test]
    fn quotas_of_other_tenants_stay_and_are_those_that_were_read() {
        let quotas = [("acme".to_owned(), 5), ("old".to_owned(), 1)];
        let stored = pb::Subnet { revision: 7, tenant_quotas: quotas.into(), ..Default::default() };
        let change = settings("--tenant-quota new=3 --tenant-quota old=");
        let (subnet, paths) = changed(stored.clone(), None, change).unwrap();
        let expected = [("acme".to_owned(), 5), ("new".to_owned(), 3)].into();
        assert_eq!((subnet.tenant_quotas, subnet.revision), (expected, 7));
        assert_eq!(paths, ["tenant_quotas"]);
        let (subnet, paths) = changed(stored, Some("lan".into()), settings("--quota 2")).unwrap();
        assert_eq!((subnet.name.as_str(), subnet.quota, subnet.revision), ("lan", 2, 0));
        assert_eq!(paths, ["quota", "name"]);
    }
}
