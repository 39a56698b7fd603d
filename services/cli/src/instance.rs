//! Commands on instances.

mod create;
mod reinstall;

use std::time::SystemTime;

use clap::ValueEnum as _;
use prost_types::FieldMask;
use tinwright::InstanceId;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::get_instance_request::By;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::connect::{MAX_MESSAGE_BYTES, View};
use crate::follow::{self, Watch, Watchable};
use crate::hardware;
use crate::output::{self, Format, Row, print_line, print_list};
use crate::resource::{
    self, FromFiles, NoOptions, PAGE_SIZE, Page, Protectable, Query, Resource, ResourceCommand,
    UpdateOptions, required,
};

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
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Instance>),
}

/// States to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// Installed
    Active,
    /// Provisioning or deprovisioning failed
    Failed,
    /// Deleted, and the machine is free
    Gone,
}

/// Options of a list, besides labels.
#[derive(Debug, Default, clap::Args)]
pub struct InstanceFilter {
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
        InstanceCommand::Create(create) => create::run(*create, channel, out).await,
        InstanceCommand::Plan(plan) => create::plan(*plan, channel, out).await,
        InstanceCommand::Update(options) => {
            resource::update::<pb::Instance>(options, channel, out).await
        }
        InstanceCommand::Retry { name, output } => {
            let id = pb::Instance::find(channel, &name, View::Basic).await?.id;
            let retried = client(channel).retry_instance(pb::RetryInstanceRequest { id }).await?;
            print_list(out, retried.into_inner().instance.as_slice(), output)
        }
        InstanceCommand::Reinstall(reinstall) => reinstall::run(*reinstall, channel, out).await,
        InstanceCommand::Restart { name, force } => {
            let id = pb::Instance::find(channel, &name, View::Basic).await?.id;
            let request_id = String::new();
            let request = pb::RestartInstanceRequest { id, force, request_id };
            let job = client(channel).restart_instance(request).await?.into_inner().power_job_id;
            print_line(out, &format!("power job {job} restarts the machine"))
        }
        InstanceCommand::Wait { name, goal } => {
            let id = pb::Instance::find(channel, &name, View::Basic).await?.id;
            wait(channel, &id, goal).await?;
            let word = goal.to_possible_value();
            let word = word.as_ref().map_or("", |word| word.get_name());
            print_line(out, &format!("instance {id} is {word}"))
        }
        InstanceCommand::Protect { names, output } => {
            resource::protect::<pb::Instance>(&names, true, output, channel, out).await
        }
        InstanceCommand::Unprotect { names, output } => {
            resource::protect::<pb::Instance>(&names, false, output, channel, out).await
        }
        InstanceCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

/// Waits until the instance with `id` has reached `goal`.
async fn wait(channel: &Channel, id: &str, goal: Goal) -> anyhow::Result<()> {
    follow::until(channel, id, |instance| goal.reached(id, instance.as_ref())).await
}

impl Goal {
    /// Returns success if the goal is reached, an error if it can no longer be, and nothing while it still can.
    fn reached(self, id: &str, instance: Option<&pb::Instance>) -> Option<Result<(), String>> {
        let Some(instance) = instance else {
            let gone = || format!("instance {id} is gone");
            return Some(if self == Self::Gone { Ok(()) } else { Err(gone()) });
        };
        let stuck = || {
            let reason = &instance.state_reason;
            format!("instance {id} failed: {reason} (then: tinwright instance retry {id})")
        };
        use pb::State::{Active, DeprovisionFailed, Deprovisioning, Failed};
        match (self, instance.state()) {
            (Self::Active, Active) | (Self::Failed, Failed | DeprovisionFailed) => Some(Ok(())),
            (Self::Active, Failed | DeprovisionFailed) | (Self::Gone, DeprovisionFailed) => {
                Some(Err(stuck()))
            }
            (Self::Active, Deprovisioning) => {
                Some(Err(format!("instance {id} is being deprovisioned")))
            }
            (Self::Active | Self::Failed | Self::Gone, _) => None,
        }
    }
}

impl Row for pb::Instance {
    const COLUMNS: &'static [&'static str] =
        &["ID", "HOSTNAME", "STATE", "HARDWARE", "ADDRESS", "AGE", "REASON"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        vec![
            self.id.clone(),
            self.hostname.clone(),
            output::with_protection(state_word(self), self.protect),
            self.hardware_id.clone(),
            address(self),
            output::age(self.create_time, now),
            self.state_reason.clone(),
        ]
    }
}

/// Returns the first address of the instance: of its own, of the granted ones, or of those that its boot gate expects.
fn address(instance: &pb::Instance) -> String {
    let own = instance.ips.first().map(|ip| &ip.address);
    let granted = instance.addresses.first().map(|granted| &granted.address);
    let expected = instance.boot_gate.as_ref().and_then(|gate| gate.initial_ips.first());
    own.or(granted).or(expected).cloned().unwrap_or_default()
}

impl Watchable for pb::Instance {
    type Response = pb::WatchInstancesResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(channel: &Channel, id: String, view: View) -> Watch<Self> {
        let request = pb::WatchInstancesRequest { id, view: view as i32 };
        Ok(client(channel).watch_instances(request).await?.into_inner())
    }
}

impl Resource for pb::Instance {
    type Filter = InstanceFilter;
    type WatchOptions = NoOptions;
    type DeleteOptions = DeleteInstanceOptions;
    const RESOURCE: &'static str = "instance";
    const NAMES: &'static str = "ID|ADDRESS|MACHINE";

    /// Finds an instance by its id or address, else by its machine.
    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let by = match (name.parse::<InstanceId>(), name.parse::<std::net::IpAddr>()) {
            (Ok(_), _) => By::Id(name.into()),
            (_, Ok(_)) => By::Address(name.into()),
            (Err(_), Err(_)) => By::HardwareId(hardware::id(channel, name).await?),
        };
        let found = match get(channel, by.clone(), view).await {
            Err(status) if status.code() == Code::NotFound && matches!(by, By::Id(_)) => {
                get(channel, By::HardwareId(name.into()), view).await.map_err(|_| status)?
            }
            other => other?,
        };
        required(found)
    }

    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self> {
        let (labels, view) = (query.labels.iter().cloned().collect(), query.view as i32);
        let InstanceFilter { tenant, show_deleted } = &query.filter;
        let (tenant, show_deleted) = (tenant.clone().unwrap_or_default(), *show_deleted);
        let page_size = PAGE_SIZE;
        let request =
            pb::ListInstancesRequest { page_size, page_token, labels, view, show_deleted, tenant };
        let page = client(channel).list_instances(request).await?.into_inner();
        Ok((page.instances, page.next_page_token))
    }

    async fn delete(
        &self,
        channel: &Channel,
        options: &DeleteInstanceOptions,
    ) -> anyhow::Result<()> {
        let force = options.force;
        let request = pb::DeleteInstanceRequest { id: self.id.clone(), revision: 0, force };
        client(channel).delete_instance(request).await?;
        if options.wait { wait(channel, &self.id, Goal::Gone).await } else { Ok(()) }
    }
}

impl Protectable for pb::Instance {
    fn protection(id: String, protect: bool) -> Self {
        Self { id, protect, ..Self::default() }
    }
}

impl FromFiles for pb::Instance {
    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateInstanceRequest { instance: Some(self), ..Default::default() };
        required(client(channel).create_instance(request).await?.into_inner().instance)
    }

    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self> {
        let request = pb::UpdateInstanceRequest { instance: Some(self), update_mask: mask };
        required(client(channel).update_instance(request).await?.into_inner().instance)
    }
}

/// Returns the state of `instance` as tables show it, such as `deprovision-failed`.
pub fn state_word(instance: &pb::Instance) -> String {
    output::word(instance.state().as_str_name(), "STATE_")
}

/// Returns the instance of an id, an address or a machine.
pub async fn get(channel: &Channel, by: By, view: View) -> Result<Option<pb::Instance>, Status> {
    let request = pb::GetInstanceRequest { by: Some(by), view: view as i32, show_deleted: false };
    Ok(client(channel).get_instance(request).await?.into_inner().instance)
}

fn client(channel: &Channel) -> InstanceServiceClient<Channel> {
    InstanceServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(state: pb::State) -> pb::Instance {
        pb::Instance {
            state: state.into(),
            state_reason: "no disk".into(),
            ..pb::Instance::default()
        }
    }

    #[test]
    fn waiting_continues_while_the_goal_is_reachable() {
        for state in [pb::State::Queued, pb::State::Provisioning, pb::State::Reinstalling] {
            assert_eq!(Goal::Active.reached("a", Some(&instance(state))), None, "{state:?}");
        }
        assert_eq!(Goal::Active.reached("a", Some(&instance(pb::State::Active))), Some(Ok(())));
        assert_eq!(Goal::Gone.reached("a", Some(&instance(pb::State::Deprovisioning))), None);
        assert_eq!(Goal::Gone.reached("a", None), Some(Ok(())));
    }

    #[test]
    fn waiting_ends_with_the_reason_once_the_goal_is_unreachable() {
        let result = Goal::Active.reached("a", Some(&instance(pb::State::Failed)));
        let error = "instance a failed: no disk (then: tinwright instance retry a)";
        assert_eq!(result, Some(Err(error.into())));
        assert_eq!(
            Goal::Gone.reached("a", Some(&instance(pb::State::DeprovisionFailed))),
            Some(Err(error.into()))
        );
        assert_eq!(Goal::Active.reached("a", None), Some(Err("instance a is gone".into())));
    }
}
