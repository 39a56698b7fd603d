//! Commands on grants of addresses.

pub mod binding;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::GrantId;
use tinwright::address::v1 as pb;
use tinwright::address::v1::get_grant_request::By;
use tinwright::hardware::v1::Location;
use tinwright::instance::v1::Instance;
use tonic::Code;

use crate::connect::{Io, View, call};
use crate::failure::{self, Missing};
use crate::input;
use crate::output::{Format, ListOutput, Row};
use crate::range::subnet_id;
use crate::resource::{self, ListQuery, Query, Resource, Target, required};

/// Commands on grants of addresses.
#[derive(Debug, clap::Subcommand)]
pub enum AddressCommand {
    /// Grant a free address or block, or the wanted one
    Grant(GrantOptions),
    /// Manage bindings of locations: the subnets and ranges of their addresses
    #[command(subcommand)]
    Binding(binding::BindingCommand),
    /// Confirm pending grants, which else are freed ten minutes after their creation
    Confirm {
        /// The grants
        #[arg(value_name = "ADDRESS|ID", required = true)]
        names: Vec<String>,
    },
    /// Attach a granted address to an instance, and confirm the grant
    Attach(AttachOptions),
    /// Detach granted addresses from their instances
    Detach {
        /// The grants
        #[arg(value_name = "ADDRESS|ID", required = true)]
        names: Vec<String>,
    },
    /// Release grants; their addresses are free after the hold time of the subnet
    Release {
        /// The grants
        #[arg(value_name = "ADDRESS|ID", required = true)]
        names: Vec<String>,
    },
    /// Get one grant
    Get(Target<pb::Grant>),
    /// List grants
    List {
        /// Options of the list
        #[command(flatten)]
        query: ListQuery<GrantFilter>,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
}

/// Options of a new grant.
#[derive(Debug, clap::Args)]
pub struct GrantOptions {
    /// Grant this address, or this block ADDRESS/BITS [default: a free one]
    #[arg(value_name = "BLOCK")]
    block: Option<String>,
    /// Take it from this range
    #[arg(long, value_name = "NAME|ID")]
    range: Option<String>,
    /// Take it from any static range of this subnet
    #[arg(long, value_name = "NAME|ID")]
    subnet: Option<String>,
    /// Take it from what is bound to this location
    #[arg(long, value_name = "LOCATION", conflicts_with_all = ["block", "range", "subnet"])]
    location: Option<String>,
    /// Take it from what is bound for this group of the tenant
    #[arg(long, value_name = "NAME", requires = "location")]
    #[arg(default_value = "", hide_default_value = true)]
    group: String,
    /// Grant an address of this family of the location [default: any]
    #[arg(long, value_name = "FAMILY", requires = "location")]
    family: Option<AddressFamily>,
    /// Grant it to this tenant [default: the site]
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Name what needs it: the same command with the same key prints the same grant
    #[arg(long, default_value = "", hide_default_value = true)]
    key: String,
    /// Give it this label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Leave it pending: confirm it later
    #[arg(long)]
    pending: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AddressFamily {
    /// IPv4
    Ipv4 = pb::AddressFamily::Ipv4 as isize,
    /// IPv6
    Ipv6 = pb::AddressFamily::Ipv6 as isize,
}

/// Options of an attachment.
#[derive(Debug, clap::Args)]
pub struct AttachOptions {
    /// The grant
    #[arg(value_name = "ADDRESS|ID")]
    name: String,
    /// The instance that gets the address
    #[arg(value_name = "INSTANCE")]
    instance: String,
    /// Attach it to this interface [default: the machine's primary one]
    #[arg(long, value_name = "MAC", default_value = "", hide_default_value = true)]
    interface: String,
    /// Let DHCP give it to the interface, in place of the reserved address; IPv4 only
    #[arg(long)]
    primary: bool,
}

/// Options that filter a list.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct GrantFilter {
    /// List only grants that are not confirmed
    #[arg(long)]
    pending: bool,
    /// List only grants of this tenant
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// List only grants in this subnet
    #[arg(long, value_name = "NAME|ID")]
    subnet: Option<String>,
}

/// Runs `command`.
pub async fn run(command: AddressCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        AddressCommand::Grant(options) => grant(options, io).await,
        AddressCommand::Binding(command) => binding::run(command, io).await,
        AddressCommand::Confirm { names } => {
            let confirm = async |grant: &pb::Grant, channel: &Channel| {
                confirm(channel, grant).await?;
                anyhow::Ok("confirmed")
            };
            for_each(&names, confirm, io).await
        }
        AddressCommand::Attach(options) => attach(options, io).await,
        AddressCommand::Detach { names } => {
            let detach = async |grant: &pb::Grant, channel: &Channel| {
                let request = pb::DetachGrantRequest { id: grant.id.clone(), ..Default::default() };
                call(channel, request).await?;
                anyhow::Ok(if grant.attachment.is_some() { "detached" } else { "was not attached" })
            };
            for_each(&names, detach, io).await
        }
        AddressCommand::Release { names } => {
            let release = async |grant: &pb::Grant, channel: &Channel| {
                let request = pb::ReleaseGrantRequest { id: grant.id.clone(), revision: 0 };
                call(channel, request).await?;
                anyhow::Ok("released")
            };
            for_each(&names, release, io).await
        }
        AddressCommand::Get(Target { name, output, .. }) => {
            resource::get::<pb::Grant>(&name, View::Basic, &output, io).await
        }
        AddressCommand::List { query, output } => {
            resource::list::<pb::Grant>(&query, output, io).await
        }
    }
}

/// Calls `change` with each of the grants, and prints the word for what it did.
async fn for_each(
    names: &[String],
    change: impl AsyncFn(&pb::Grant, &Channel) -> anyhow::Result<&'static str>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    for name in names {
        let grant = pb::Grant::find(io.channel, name, View::Basic).await?;
        let done = change(&grant, io.channel).await?;
        io.print(&format!("grant {} of {} {done}", grant.id, grant.block))?;
    }
    Ok(())
}

/// Grants what `options` say, and confirms it unless it is to be pending.
async fn grant(options: GrantOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    let GrantOptions { block, range, subnet, location, group, family, .. } = options;
    let GrantOptions { tenant, key, labels, pending, output, .. } = options;
    let range_id = match range {
        None => String::new(),
        Some(name) => {
            let range = pb::Range::find(io.channel, &name, View::Basic).await;
            range.map_err(with_tenant_hint)?.id
        }
    };
    let subnet_id = subnet_id(io.channel, subnet.as_deref()).await.map_err(with_tenant_hint)?;
    let wanted = pb::Grant {
        block: block.unwrap_or_default(),
        range_id,
        subnet_id,
        location_id: Location::find_optional_id(io.channel, location.as_deref()).await?,
        group,
        family: family.map_or(0, |family| family as i32),
        tenant,
        key,
        labels: labels.into_iter().collect(),
        ..pb::Grant::default()
    };
    let request = pb::CreateGrantRequest { grant: Some(wanted) };
    let mut granted = required(io.call(request).await?.grant)?;
    if !pending {
        // It stays pending for a while.
        let text = || format!("grant {} of {} is pending", granted.id, granted.block);
        granted = confirm(io.channel, &granted).await.with_context(text)?;
    }
    resource::print(&[granted], output, io).await
}

/// Replaces the refusal of a caller that may not read subnets and ranges by what it can name in place of them.
fn with_tenant_hint(error: anyhow::Error) -> anyhow::Error {
    let text =
        "this caller may not read subnets and ranges: a tenant names --location or an address";
    match failure::code(&error) == Some(Code::PermissionDenied) {
        true => anyhow::anyhow!(text),
        false => error,
    }
}

async fn attach(options: AttachOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    let AttachOptions { name, instance, interface, primary } = options;
    let grant = pb::Grant::find(io.channel, &name, View::Basic).await?;
    let instance_id = Instance::find(io.channel, &instance, View::Basic).await?.id;
    let attachment = Some(pb::Attachment { instance_id, mac: interface, primary });
    let request = pb::AttachGrantRequest { id: grant.id, attachment };
    let pb::Grant { id, block, attachment, .. } = required(io.call(request).await?.grant)?;
    let pb::Attachment { instance_id, mac, .. } = attachment.unwrap_or_default();
    io.print(&format!("grant {id} of {block} attached to {mac} of instance {instance_id}"))
}

async fn confirm(channel: &Channel, grant: &pb::Grant) -> anyhow::Result<pb::Grant> {
    let request = pb::ConfirmGrantRequest { id: grant.id.clone(), use_only: false };
    required(call(channel, request).await?.grant)
}

impl Row for pb::Grant {
    const COLUMNS: &'static str = "ID:id,BLOCK:block,STATE:state,INSTANCE:attachment.instance_id,\
        TENANT:tenant,KEY:key,AGE:create_time,ENDS:due_time";
}

impl Resource for pb::Grant {
    type Filter = GrantFilter;
    const NAMES: &'static str = "ADDRESS|ID";
    const FIRST: &'static str = "grant one with `tinwright address grant --subnet SUBNET`";

    async fn get(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        let by = match name.parse::<GrantId>() {
            Ok(_) => By::Id(name.into()),
            Err(_) if name.contains(['.', ':']) => By::Block(name.into()),
            // It may be the beginning of an id.
            Err(_) => {
                let text = format!("{name:?} is neither an address nor the id of a grant");
                return Err(Missing(text).into());
            }
        };
        let request = pb::GetGrantRequest { by: Some(by) };
        required(call(channel, request).await?.grant)
    }

    async fn select(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let GrantFilter { tenant, subnet, pending } = &query.filter;
        let state = if *pending { pb::GrantState::Pending } else { pb::GrantState::Unspecified };
        let subnet_id = subnet_id(channel, subnet.as_deref()).await?;
        let (tenant, state) = (tenant.clone(), state.into());
        Ok(pb::ListGrantsRequest { tenant, subnet_id, state, ..Default::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;

    #[test]
    fn a_caller_that_may_not_read_ranges_is_told_what_a_tenant_names() {
        let refused = with_tenant_hint(Status::permission_denied("no").into()).to_string();
        assert!(refused.ends_with("a tenant names --location or an address"), "{refused}");
        let missing = with_tenant_hint(Status::not_found("no range a").into());
        assert_eq!(failure::line(&missing), "no range a");
    }
}
