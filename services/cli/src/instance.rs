//! Commands on instances.
//!
//! - `create`, `reinstall`, `wait`: these commands.

mod create;
mod reinstall;
mod wait;

use std::time::{Duration, SystemTime};

use runtime::Channel;
use tinwright::InstanceId;
use tinwright::hardware::v1::{Hardware, Location, Model};
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::get_instance_request::By;
use tinwright::workflow::v1::Template;

use crate::connect::{Io, View, call};
use crate::failure::Missing;
use crate::output::{self, Row, Table};
use crate::resource::{
    self, ApplyOptions, DeleteOptions, FromFiles, Names, Query, Resource, ResourceCommand, Target,
    Targets, UpdateOptions,
};
use crate::{confirm, failure, hardware, input};
pub use wait::Goal;

/// Commands on instances.
#[derive(Debug, clap::Subcommand)]
pub enum InstanceCommand {
    /// Create instances, which occupy and provision machines: from files or from options
    Create(Box<create::CreateInstance>),
    /// Show what the creation of an instance would do, and change nothing: its machine, template and disk, and what is erased
    Plan(Box<create::PlanInstance>),
    /// Replace instances from files; each must have its id
    Update(UpdateOptions),
    /// Repeat the step that failed: provisioning or deprovisioning
    Retry(Target<pb::Instance>),
    /// Install the machine of an active or failed instance again; what the installation overwrites is lost
    Reinstall(Box<reinstall::ReinstallInstance>),
    /// Restart the machine of an active instance, which keeps its system
    Restart {
        /// The instance
        #[arg(value_name = pb::Instance::NAMES)]
        name: String,
        /// Cut the power at once, without asking the operating system to switch off
        #[arg(long)]
        force: bool,
    },
    /// Wait until an instance reaches a state; fail when it no longer can
    Wait {
        /// The instance
        #[arg(value_name = pb::Instance::NAMES)]
        name: String,
        /// Wait for this state
        #[arg(long = "for", value_name = "STATE", default_value = "active")]
        goal: Goal,
        /// Fail after this time, such as 30m or 2h [default: wait without a limit]
        #[arg(long, value_name = "DURATION", value_parser = input::duration)]
        timeout: Option<Duration>,
    },
    /// Protect instances: deletion, retries of the installation and another system are refused
    Protect(Targets<pb::Instance>),
    /// Remove the protection of instances
    Unprotect(Targets<pb::Instance>),
    /// Create the instances in files, or replace those that have the id, the external id or the machine
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Instance, DeleteInstanceOptions>),
}

/// States of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedState {
    /// Waits for its machine
    Queued = pb::State::Queued as isize,
    /// Its machine is being installed
    Provisioning = pb::State::Provisioning as isize,
    /// Its machine is being installed again
    Reinstalling = pb::State::Reinstalling as isize,
    /// Installed
    Active = pb::State::Active as isize,
    /// The installation failed
    Failed = pb::State::Failed as isize,
    /// Its machine is being cleaned
    Deprovisioning = pb::State::Deprovisioning as isize,
    /// The cleaning failed
    DeprovisionFailed = pb::State::DeprovisionFailed as isize,
    /// Deleted, with --show-deleted
    Deleted = pb::State::Deleted as isize,
}

/// Options of a list, besides labels.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct InstanceFilter {
    /// List only instances in this state
    #[arg(long)]
    state: Option<ListedState>,
    /// List only instances of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// List also instances that were deleted in the last 30 days
    #[arg(long)]
    show_deleted: bool,
}

/// Options of a delete.
#[derive(Debug, clap::Args)]
pub struct DeleteInstanceOptions {
    /// Release the machine without wiping it and without switching it off; it goes to maintenance
    #[arg(long)]
    force: bool,
    /// Wait until the machine is free; fail if cleaning fails
    #[arg(long)]
    wait: bool,
}

/// Runs `command`.
pub async fn run(command: InstanceCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        InstanceCommand::Create(create) => Box::pin(create::run(*create, io)).await,
        InstanceCommand::Plan(plan) => Box::pin(create::plan(*plan, io)).await,
        InstanceCommand::Update(options) => resource::update::<pb::Instance>(options, io).await,
        InstanceCommand::Retry(Target { name, output, .. }) => {
            let id = pb::Instance::find(io.channel, &name, View::Basic).await?.id;
            let retried = io.call(pb::RetryInstanceRequest { id }).await?;
            resource::print(retried.instance.as_slice(), output, io).await
        }
        InstanceCommand::Reinstall(reinstall) => reinstall::run(*reinstall, io).await,
        InstanceCommand::Restart { name, force } => {
            let id = pb::Instance::find(io.channel, &name, View::Basic).await?.id;
            let request = pb::RestartInstanceRequest { id, force, request_id: String::new() };
            let job = io.call(request).await?.power_job_id;
            io.print(&format!("power job {job} restarts the machine"))
        }
        InstanceCommand::Wait { name, goal, timeout } => wait::run(&name, goal, timeout, io).await,
        InstanceCommand::Protect(targets) => resource::protect(targets, true, io).await,
        InstanceCommand::Unprotect(targets) => resource::protect(targets, false, io).await,
        InstanceCommand::Apply(options) => {
            Box::pin(resource::apply::<pb::Instance>(options, io)).await
        }
        InstanceCommand::Resource(command) => resource::run(command, io).await,
    }
}

impl Row for pb::Instance {
    const COLUMNS: &'static str = "ID:id,HOSTNAME:hostname,STATE,HARDWARE:hardware_id,ADDRESS,\
        AGE:create_time,REASON:state_reason";

    fn cell(&self, column: &str) -> String {
        match column {
            "STATE" => output::with_protection(output::state(self), self.protect),
            _ => address(self),
        }
    }
}

/// Returns the host name that `machine` gives to an instance without one.
fn hostname(machine: &Hardware) -> String {
    let of_dhcp = machine.interfaces.iter().filter_map(|it| it.dhcp.as_ref());
    let of_dhcp = of_dhcp.map(|dhcp| &dhcp.hostname).find(|name| !name.is_empty());
    of_dhcp.unwrap_or(&machine.name).clone()
}

/// Returns the first address of the instance: of its own, of the granted ones, or of those that its boot gate expects.
fn address(instance: &pb::Instance) -> String {
    let own = instance.ips.first().map(|ip| &ip.address);
    let granted = instance.addresses.first().map(|granted| &granted.address);
    let expected = instance.boot_gate.as_ref().and_then(|gate| gate.initial_ips.first());
    own.or(granted).or(expected).cloned().unwrap_or_default()
}

impl Resource for pb::Instance {
    type Filter = InstanceFilter;
    const NAMES: &'static str = "MACHINE|ADDRESS|ID";
    const OBJECTS: &'static str = "The instances";
    const FIRST: &'static str =
        "create one with `tinwright instance create --hardware MACHINE --template TEMPLATE`";

    /// Finds an instance by its id or address, else by its machine, which may have an address that the instance has not.
    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let own = match (name.parse::<InstanceId>(), name.parse::<std::net::IpAddr>()) {
            (Ok(_), _) => vec![By::Id(name.into()), By::HardwareId(name.into())],
            (_, Ok(_)) => vec![By::Address(name.into())],
            (Err(_), Err(_)) => Vec::new(),
        };
        for by in own {
            if let Some(found) = get(channel, by, view).await? {
                return Ok(found);
            }
        }
        if name.parse::<InstanceId>().is_ok() {
            return Err(Missing(format!("no instance {name}, and none on a machine {name}")).into());
        }
        let machine = Hardware::get(channel, name, View::Basic).await.map_err(|error| {
            match failure::is_not_found(&error) {
                true => Missing(format!("no instance and no machine {name}")).into(),
                false => error,
            }
        })?;
        let found = get(channel, By::HardwareId(machine.id.clone()), view).await?;
        let none = || Missing(format!("machine {} has no instance", machine.title()));
        found.ok_or_else(|| none().into())
    }

    /// Its id: another instance may be on a machine whose name is its host name.
    fn reference_name(&self) -> String {
        self.id.clone()
    }

    /// Shows the host name and the address of the machine where the instance has none of its own.
    async fn table(channel: &Channel, instances: &[Self], now: SystemTime, _: bool) -> Table {
        let ids = instances.iter().map(|it| it.hardware_id.as_str());
        let machines = resource::machines(channel, ids).await;
        let or = |own: String, it: &Self, value: fn(&Hardware) -> String| match own.is_empty() {
            true => machines.get(&it.hardware_id).map(value).unwrap_or_default(),
            false => own,
        };
        let hostnames = instances.iter().map(|it| or(it.hostname.clone(), it, hostname));
        let addresses = instances.iter().map(|it| or(address(it), it, hardware::address));
        let table = Table::of(instances, now);
        let table = table.with_cells("HOSTNAME", hostnames).with_cells("ADDRESS", addresses);
        table.with_names(machines.into_iter().map(|(id, machine)| (id, machine.name)).collect())
    }

    async fn select(_: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let InstanceFilter { tenant, show_deleted, state } = &query.filter;
        Ok(pb::ListInstancesRequest {
            view: query.view as i32,
            tenant: tenant.clone().unwrap_or_default(),
            show_deleted: *show_deleted,
            state: state.map_or(0, |state| state as i32),
            ..Default::default()
        })
    }
}

impl DeleteOptions<pb::Instance> for DeleteInstanceOptions {
    /// An instance that has released its machine is only a record.
    fn loses_data(&self, instances: &[pb::Instance]) -> bool {
        instances.iter().any(|instance| !instance.released)
    }

    async fn question(&self, instances: &[pb::Instance], channel: &Channel) -> String {
        let ids = instances.iter().map(|instance| instance.hardware_id.as_str());
        let machines = resource::machines(channel, ids).await;
        let now = runtime::Clock::system().wall();
        let question = |instance: &pb::Instance| {
            if instance.released {
                return format!("Delete instance {}?", instance.title());
            }
            let machine = machines.get(&instance.hardware_id);
            let name = machine.map_or(instance.hardware_id.clone(), Resource::title);
            let in_use = confirm::in_use(&name, instance, now);
            match (self.force || instance.reserve_only, has_clean_up(instance, machine)) {
                (true, _) => format!("Release {in_use} without erasing its disks?"),
                (false, true) => format!("Run the clean-up template on {in_use}?"),
                (false, false) => format!("Erase all disks of {in_use}?"),
            }
        };
        instances.iter().map(question).collect::<Vec<_>>().join(" ")
    }

    async fn delete(&self, instance: &pb::Instance, channel: &Channel) -> anyhow::Result<()> {
        let (id, force) = (instance.id.clone(), self.force);
        call(channel, pb::DeleteInstanceRequest { id, revision: 0, force }).await?;
        match self.wait {
            true => wait::until(channel, &instance.id, &instance.title(), Goal::Gone).await,
            false => Ok(()),
        }
    }

    fn deletion(&self, instance: &pb::Instance) -> String {
        let what = match (self.force, self.wait) {
            _ if instance.released => "deleted: it occupied no machine any more",
            (true, _) => "released without erasing disks; its machine is in maintenance",
            (false, true) => "deleted; its machine is free",
            (false, false) if instance.reserve_only => {
                "deleted: its machine was only reserved, and stays as it is"
            }
            (false, false) => {
                "deprovisioning begins: the disks are erased, then the machine is free"
            }
        };
        format!("instance {} {what}", instance.title())
    }
}

impl FromFiles for pb::Instance {
    async fn resolve(&mut self, names: &Names<'_>) -> anyhow::Result<()> {
        names.resolve::<Hardware>(&mut self.hardware_id).await?;
        names.resolve::<Template>(&mut self.template_id).await?;
        names.resolve::<Template>(&mut self.deprovision_template_id).await?;
        if let Some(placement) = &mut self.placement {
            names.resolve::<Location>(&mut placement.location_id).await?;
            names.resolve::<Model>(&mut placement.model_id).await?;
        }
        Ok(())
    }

    /// Returns no name: another host name does not make another instance.
    fn file_name(&self) -> &str {
        ""
    }

    /// An instance has no name of its own: its machine has at most one.
    async fn stored(&self, channel: &Channel, view: View) -> anyhow::Result<Option<Self>> {
        let by = if !self.id.is_empty() {
            By::Id(self.id.clone())
        } else if !self.external_id.is_empty() {
            let (tenant, external_id) = (self.tenant.clone(), self.external_id.clone());
            By::ExternalId(pb::ExternalId { tenant, external_id })
        } else if !self.hardware_id.is_empty() {
            By::HardwareId(self.hardware_id.clone())
        } else {
            anyhow::bail!(
                "without hardware_id it needs an external_id: each apply would take another machine"
            );
        };
        get(channel, by, view).await
    }
}

/// True if a template of its own cleans the machine of `instance`.
fn has_clean_up(instance: &pb::Instance, machine: Option<&Hardware>) -> bool {
    let policy = machine.and_then(|machine| machine.policy.as_ref());
    !instance.deprovision_template_id.is_empty()
        || policy.is_some_and(|policy| !policy.deprovision_template_id.is_empty())
}

/// Returns the instance of an id, an address or a machine, if there is one.
pub async fn get(channel: &Channel, by: By, view: View) -> anyhow::Result<Option<pb::Instance>> {
    let request = pb::GetInstanceRequest { by: Some(by), view: view as i32, show_deleted: false };
    let found = call(channel, request).await.map_err(Into::into);
    Ok(resource::optional(found)?.and_then(|found| found.instance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_instances_that_occupy_machines_lose_data_when_they_are_deleted() {
        let options = DeleteInstanceOptions { force: false, wait: false };
        let named = |hostname: &str, released| pb::Instance {
            hostname: hostname.into(),
            hardware_id: "node-1".into(),
            released,
            ..pb::Instance::default()
        };
        let instances = [named("web-1", true), named("web-2", false)];
        assert!(options.loses_data(&instances) && !options.loses_data(&instances[..1]));
        let question = options.question(&instances, &Channel::unconnected()).await;
        let expected = "Delete instance web-1? Erase all disks of node-1 (web-2, in use for )?";
        assert_eq!(question, expected);
    }
}
