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
use tonic::{Code, Status};

use crate::connect::{View, call};
use crate::failure::Missing;
use crate::output::{self, Format, Row, Table, print_line};
use crate::resource::{
    self, ApplyOptions, FromFiles, Names, NoOptions, Protectable, Query, Resource, ResourceCommand,
    UpdateOptions, required,
};
use crate::{failure, hardware, input};
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
    Retry {
        /// The instance
        #[arg(value_name = pb::Instance::NAMES)]
        name: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
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
    Protect {
        /// The instances
        #[arg(value_name = pb::Instance::NAMES, required = true)]
        names: Vec<String>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Remove the protection of instances
    Unprotect {
        /// The instances
        #[arg(value_name = pb::Instance::NAMES, required = true)]
        names: Vec<String>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Create the instances in files, or replace those that have the id, the external id or the machine
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Instance>),
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
pub async fn run(
    command: InstanceCommand,
    channel: &Channel,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    match command {
        InstanceCommand::Create(create) => Box::pin(create::run(*create, channel, out)).await,
        InstanceCommand::Plan(plan) => Box::pin(create::plan(*plan, channel, out)).await,
        InstanceCommand::Update(options) => {
            resource::update::<pb::Instance>(options, channel, out).await
        }
        InstanceCommand::Retry { name, output } => {
            let id = pb::Instance::find(channel, &name, View::Basic).await?.id;
            let retried = call(channel, pb::RetryInstanceRequest { id }).await?;
            resource::print(retried.instance.as_slice(), output, channel, out).await
        }
        InstanceCommand::Reinstall(reinstall) => reinstall::run(*reinstall, channel, out).await,
        InstanceCommand::Restart { name, force } => {
            let id = pb::Instance::find(channel, &name, View::Basic).await?.id;
            let request_id = String::new();
            let request = pb::RestartInstanceRequest { id, force, request_id };
            let job = call(channel, request).await?.power_job_id;
            print_line(out, &format!("power job {job} restarts the machine"))
        }
        InstanceCommand::Wait { name, goal, timeout } => {
            wait::run(&name, goal, timeout, channel, out).await
        }
        InstanceCommand::Protect { names, output } => {
            resource::protect::<pb::Instance>(&names, true, output, channel, out).await
        }
        InstanceCommand::Unprotect { names, output } => {
            resource::protect::<pb::Instance>(&names, false, output, channel, out).await
        }
        InstanceCommand::Apply(options) => {
            Box::pin(resource::apply::<pb::Instance>(options, channel, out)).await
        }
        InstanceCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

impl Row for pb::Instance {
    const COLUMNS: &'static [&'static str] =
        &["ID", "HOSTNAME", "STATE", "HARDWARE", "ADDRESS", "AGE", "REASON"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        row(self, None, now)
    }
}

/// Returns the row of `instance`, which is on `machine`.
fn row(instance: &pb::Instance, machine: Option<&Hardware>, now: SystemTime) -> Vec<String> {
    let of_machine = |value: fn(&Hardware) -> String| machine.map(value).unwrap_or_default();
    let or = |own: String, other: String| if own.is_empty() { other } else { own };
    vec![
        instance.id.clone(),
        or(instance.hostname.clone(), of_machine(hostname)),
        output::with_protection(state_word(instance), instance.protect),
        instance.hardware_id.clone(),
        or(address(instance), of_machine(hardware::address)),
        output::age(instance.create_time, now),
        instance.state_reason.clone(),
    ]
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
    type WatchOptions = NoOptions;
    type DeleteOptions = DeleteInstanceOptions;
    const RESOURCE: &'static str = "instance";
    const NAMES: &'static str = "MACHINE|ADDRESS|ID";
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
            match get(channel, by, view).await {
                Err(status) if status.code() == Code::NotFound => {}
                other => return required(other?),
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
        match get(channel, By::HardwareId(machine.id.clone()), view).await {
            Err(status) if status.code() == Code::NotFound => {
                Err(Missing(format!("machine {} has no instance", machine.title())).into())
            }
            other => required(other?),
        }
    }

    fn matches(&self, filter: &InstanceFilter) -> bool {
        filter.state.is_none_or(|state| state as i32 == self.state)
    }

    /// Its id: another instance may be on a machine whose name is its host name.
    fn reference_name(&self) -> String {
        self.id.clone()
    }

    fn deletion(&self, options: &DeleteInstanceOptions) -> String {
        let what = match (options.force, options.wait) {
            (true, _) => "released without erasing disks; its machine is in maintenance",
            (false, true) => "deleted; its machine is free",
            (false, false) if self.reserve_only => {
                "deleted: its machine was only reserved, and stays as it is"
            }
            (false, false) => {
                "deprovisioning begins: the disks are erased, then the machine is free"
            }
        };
        format!("instance {} {what}", self.title())
    }

    /// Shows the host name and the address of the machine where the instance has none of its own.
    async fn table(channel: &Channel, instances: &[Self], now: SystemTime, _: bool) -> Table {
        let ids = instances.iter().map(|it| it.hardware_id.as_str());
        let machines = hardware::machines(channel, ids).await;
        let row = |instance: &Self| row(instance, machines.get(&instance.hardware_id), now);
        let table = Table::new(Self::COLUMNS, instances.iter().map(row));
        table.with_names(machines.into_iter().map(|(id, machine)| (id, machine.name)).collect())
    }

    async fn select(
        _: &Channel,
        request: &mut Self::List,
        query: &Query<Self>,
    ) -> anyhow::Result<()> {
        let InstanceFilter { tenant, show_deleted, state } = &query.filter;
        request.view = query.view as i32;
        request.tenant = tenant.clone().unwrap_or_default();
        request.show_deleted = *show_deleted;
        request.state = state.map_or(0, |state| state as i32);
        Ok(())
    }

    async fn delete(
        &self,
        channel: &Channel,
        options: &DeleteInstanceOptions,
    ) -> anyhow::Result<()> {
        let force = options.force;
        let request = pb::DeleteInstanceRequest { id: self.id.clone(), revision: 0, force };
        call(channel, request).await?;
        match options.wait {
            true => wait::until(channel, &self.id, &self.title(), Goal::Gone).await,
            false => Ok(()),
        }
    }
}

impl Protectable for pb::Instance {
    fn protection(id: String, protect: bool) -> Self {
        Self { id, protect, ..Self::default() }
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
        let found = get(channel, by, view).await.map_err(Into::into);
        Ok(resource::optional(found)?.flatten())
    }
}

/// Returns the state of `instance` as tables show it, such as `deprovision-failed`.
pub fn state_word(instance: &pb::Instance) -> String {
    output::word(instance.state().as_str_name(), "STATE_")
}

/// Returns the instance of an id, an address or a machine.
pub async fn get(channel: &Channel, by: By, view: View) -> Result<Option<pb::Instance>, Status> {
    let request = pb::GetInstanceRequest { by: Some(by), view: view as i32, show_deleted: false };
    Ok(call(channel, request).await?.instance)
}
