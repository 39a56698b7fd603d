//! Commands on grants of addresses.

pub mod binding;

use std::io::Write;
use std::time::SystemTime;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::GrantId;
use tinwright::address::v1 as pb;
use tinwright::address::v1::get_grant_request::By;
use tinwright::hardware::v1::Location;
use tinwright::instance::v1::Instance;
use tonic::Code;

use crate::connect::{View, call};
use crate::failure::{self, Missing};
use crate::input;
use crate::output::{self, Format, ListOutput, Row, print_line};
use crate::range::subnet_id;
use crate::resource::{self, ListQuery, NoOptions, Query, Resource, ResourceCommand, required};

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
    Get {
        /// The grant
        #[arg(value_name = "ADDRESS|ID")]
        name: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
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
pub async fn run(
    command: AddressCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        AddressCommand::Grant(options) => grant(options, channel, out).await,
        AddressCommand::Binding(command) => binding::run(command, channel, out).await,
        AddressCommand::Confirm { names } => {
            for name in names {
                let grant = pb::Grant::find(channel, &name, View::Basic).await?;
                confirm(channel, &grant).await?;
                print_line(out, &format!("grant {} of {} confirmed", grant.id, grant.block))?;
            }
            Ok(())
        }
        AddressCommand::Attach(options) => attach(options, channel, out).await,
        AddressCommand::Detach { names } => {
            for name in names {
                let grant = pb::Grant::find(channel, &name, View::Basic).await?;
                let request = pb::DetachGrantRequest { id: grant.id.clone(), ..Default::default() };
                call(channel, request).await?;
                let done = if grant.attachment.is_some() { "detached" } else { "was not attached" };
                print_line(out, &format!("grant {} of {} {done}", grant.id, grant.block))?;
            }
            Ok(())
        }
        AddressCommand::Release { names } => {
            for name in names {
                let grant = pb::Grant::find(channel, &name, View::Basic).await?;
                grant.delete(channel, &NoOptions {}).await?;
                print_line(out, &format!("grant {} of {} released", grant.id, grant.block))?;
            }
            Ok(())
        }
        AddressCommand::Get { name, output } => {
            let get = ResourceCommand::<pb::Grant>::Get { name, view: View::Basic, output };
            resource::run(get, channel, out).await
        }
        AddressCommand::List { query, output } => {
            let list = ResourceCommand::<pb::Grant>::List { query, output };
            resource::run(list, channel, out).await
        }
    }
}

/// Grants what `options` say, and confirms it unless it is to be pending.
async fn grant(
    options: GrantOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let GrantOptions { block, range, subnet, location, group, family, .. } = options;
    let GrantOptions { tenant, key, labels, pending, output, .. } = options;
    let range_id = match range {
        None => String::new(),
        Some(name) => {
            pb::Range::find(channel, &name, View::Basic).await.map_err(with_tenant_hint)?.id
        }
    };
    let wanted = pb::Grant {
        block: block.unwrap_or_default(),
        range_id,
        subnet_id: subnet_id(channel, subnet.as_deref()).await.map_err(with_tenant_hint)?,
        location_id: Location::find_optional_id(channel, location.as_deref()).await?,
        group,
        family: family.map_or(0, |family| family as i32),
        tenant,
        key,
        labels: labels.into_iter().collect(),
        ..pb::Grant::default()
    };
    let request = pb::CreateGrantRequest { grant: Some(wanted) };
    let granted = required(call(channel, request).await?.grant)?;
    let granted = if pending { granted } else { confirmed(channel, granted).await? };
    resource::print(std::slice::from_ref(&granted), output, channel, out).await
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

async fn attach(
    options: AttachOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let AttachOptions { name, instance, interface, primary } = options;
    let grant = pb::Grant::find(channel, &name, View::Basic).await?;
    let instance_id = Instance::find(channel, &instance, View::Basic).await?.id;
    let attachment = Some(pb::Attachment { instance_id, mac: interface, primary });
    let request = pb::AttachGrantRequest { id: grant.id, attachment };
    let attached = required(call(channel, request).await?.grant)?;
    let has = attached.attachment.clone().unwrap_or_default();
    let text = format!(
        "grant {} of {} attached to {} of instance {}",
        attached.id, attached.block, has.mac, has.instance_id
    );
    print_line(out, &text)
}

/// Returns `grant` once it is confirmed. An error names it: it stays pending for a while.
async fn confirmed(channel: &Channel, grant: pb::Grant) -> anyhow::Result<pb::Grant> {
    let pending = || format!("grant {} of {} is pending", grant.id, grant.block);
    confirm(channel, &grant).await.with_context(pending)
}

async fn confirm(channel: &Channel, grant: &pb::Grant) -> anyhow::Result<pb::Grant> {
    let request = pb::ConfirmGrantRequest { id: grant.id.clone(), use_only: false };
    required(call(channel, request).await?.grant)
}

impl Row for pb::Grant {
    const COLUMNS: &'static [&'static str] =
        &["ID", "BLOCK", "STATE", "INSTANCE", "TENANT", "KEY", "AGE", "ENDS"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let state = output::word(self.state().as_str_name(), "GRANT_STATE_");
        let [id, block, tenant, key] =
            [&self.id, &self.block, &self.tenant, &self.key].map(Clone::clone);
        let (age, ends) =
            (output::age(self.create_time, now), output::time_until(self.due_time, now));
        let instance =
            self.attachment.as_ref().map_or_else(String::new, |it| it.instance_id.clone());
        vec![id, block, state, instance, tenant, key, age, ends]
    }
}

impl Resource for pb::Grant {
    type Filter = GrantFilter;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "grant";
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

    async fn select(
        channel: &Channel,
        request: &mut Self::List,
        query: &Query<Self>,
    ) -> anyhow::Result<()> {
        let GrantFilter { tenant, subnet, pending } = &query.filter;
        request.tenant.clone_from(tenant);
        request.subnet_id = subnet_id(channel, subnet.as_deref()).await?;
        if *pending {
            request.set_state(pb::GrantState::Pending);
        }
        Ok(())
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        let request = pb::ReleaseGrantRequest { id: self.id.clone(), revision: 0 };
        call(channel, request).await?;
        Ok(())
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
