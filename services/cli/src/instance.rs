//! Commands on instances.

mod create;

use std::io::Write;
use std::time::SystemTime;

use prost_types::FieldMask;
use tinwright::InstanceId;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::get_instance_request::By;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::connect::{Connection, LARGEST, Show, View};
use crate::follow::{self, Watchable};
use crate::hardware;
use crate::noun::{self, Noun, PAGE, Plain, Update, Wanted, Written, answered};
use crate::output::{self, Row, say};

/// Commands on instances.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create instances, which occupy and provision machines: from files or from options
    Create(Box<create::Create>),
    /// Replace instances from files; each must have its id
    Update(Update),
    /// Repeat the step that failed: provisioning or deprovisioning
    Retry {
        /// The instance
        #[arg(value_name = pb::Instance::NAMES)]
        name: String,
        /// Server and output format
        #[command(flatten)]
        show: Show,
    },
    /// Wait until an instance reaches a state; fail when it no longer can
    Wait {
        /// The instance
        #[arg(value_name = pb::Instance::NAMES)]
        name: String,
        /// The state
        #[arg(long = "for", value_name = "STATE", default_value = "active")]
        goal: Goal,
        /// Server
        #[command(flatten)]
        connection: Connection,
    },
    /// Commands that every resource has
    #[command(flatten)]
    Noun(noun::Command<pb::Instance>),
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

/// Options of a delete.
#[derive(Debug, clap::Args)]
pub struct Removal {
    /// Release the machine without wiping it and without switching it off; it goes to maintenance
    #[arg(long)]
    force: bool,
    /// Wait until the machine is free; fail if cleaning fails
    #[arg(long)]
    wait: bool,
}

/// Runs `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Create(create) => create::run(*create, out).await,
        Command::Update(update) => noun::update::<pb::Instance>(update, out).await,
        Command::Retry { name, show } => {
            let channel = show.connection.open().await?;
            let id = pb::Instance::find(&channel, &name, View::Basic).await?.id;
            let retried = client(&channel).retry_instance(pb::RetryInstanceRequest { id }).await?;
            say(out, &output::list(retried.into_inner().instance.as_slice(), show.output)?)
        }
        Command::Wait { name, goal, connection } => {
            let channel = connection.open().await?;
            let id = pb::Instance::find(&channel, &name, View::Basic).await?.id;
            wait(&channel, &id, goal).await?;
            say(out, &format!("instance {id} is {}", goal.word()))
        }
        Command::Noun(command) => noun::run(command, out).await,
    }
}

/// Waits until the instance with `id` has reached `goal`.
pub async fn wait(channel: &Channel, id: &str, goal: Goal) -> anyhow::Result<()> {
    let judge = |seen: Option<pb::Instance>| goal.reached(id, seen.as_ref());
    follow::until(channel, id, judge).await?.map_err(anyhow::Error::msg)
}

impl Goal {
    /// Returns success if the goal is reached, an error if it can no longer be, and nothing while it still can.
    fn reached(self, id: &str, seen: Option<&pb::Instance>) -> Option<Result<(), String>> {
        let Some(instance) = seen else {
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
                Some(Err(format!("instance {id} is being given back")))
            }
            (Self::Active | Self::Failed | Self::Gone, _) => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Failed => "failed",
            Self::Gone => "gone",
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
            state_word(self),
            self.hardware_id.clone(),
            self.ips.first().map_or_else(String::new, |ip| ip.address.clone()),
            output::age(self.create_time, now),
            self.state_reason.clone(),
        ]
    }
}

impl Watchable for pb::Instance {
    type Told = pb::WatchInstancesResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(
        channel: &Channel,
        id: String,
        view: View,
    ) -> Result<Streaming<Self::Told>, Status> {
        let request = pb::WatchInstancesRequest { id, view: view.into() };
        Ok(client(channel).watch_instances(request).await?.into_inner())
    }
}

impl Noun for pb::Instance {
    type Choice = Plain;
    type Sight = Plain;
    type Removal = Removal;
    const NOUN: &'static str = "instance";
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
        answered(found)
    }

    async fn list(channel: &Channel, wanted: Wanted<Plain>) -> anyhow::Result<Vec<Self>> {
        noun::pages(async |page_token| {
            let (labels, view) = (wanted.labels.clone(), wanted.view.into());
            let request = pb::ListInstancesRequest { page_size: PAGE, page_token, labels, view };
            let page = client(channel).list_instances(request).await?.into_inner();
            Ok((page.instances, page.next_page_token))
        })
        .await
    }

    async fn delete(&self, channel: &Channel, removal: &Removal) -> anyhow::Result<()> {
        let Removal { force, wait: patient } = *removal;
        let request = pb::DeleteInstanceRequest { id: self.id.clone(), revision: 0, force };
        client(channel).delete_instance(request).await?;
        if patient { wait(channel, &self.id, Goal::Gone).await } else { Ok(()) }
    }
}

impl Written for pb::Instance {
    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateInstanceRequest { instance: Some(self), request_id: String::new() };
        answered(client(channel).create_instance(request).await?.into_inner().instance)
    }

    async fn update(
        self,
        channel: &Channel,
        update_mask: Option<FieldMask>,
    ) -> anyhow::Result<Self> {
        let request = pb::UpdateInstanceRequest { instance: Some(self), update_mask };
        answered(client(channel).update_instance(request).await?.into_inner().instance)
    }
}

/// Returns the state of `instance` as tables show it, such as `deprovision-failed`.
pub fn state_word(instance: &pb::Instance) -> String {
    output::word(instance.state().as_str_name(), "STATE_")
}

async fn get(channel: &Channel, by: By, view: View) -> Result<Option<pb::Instance>, Status> {
    let request = pb::GetInstanceRequest { by: Some(by), view: view.into() };
    Ok(client(channel).get_instance(request).await?.into_inner().instance)
}

fn client(channel: &Channel) -> InstanceServiceClient<Channel> {
    InstanceServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(state: pb::State) -> pb::Instance {
        pb::Instance {
            state: state.into(),
            state_reason: "no disk".into(),
            ..pb::Instance::default()
        }
    }

    #[test]
    fn waiting_goes_on_while_the_goal_may_still_come() {
        for state in [pb::State::Queued, pb::State::Provisioning] {
            assert_eq!(Goal::Active.reached("a", Some(&seen(state))), None, "{state:?}");
        }
        assert_eq!(Goal::Active.reached("a", Some(&seen(pb::State::Active))), Some(Ok(())));
        assert_eq!(Goal::Gone.reached("a", Some(&seen(pb::State::Deprovisioning))), None);
        assert_eq!(Goal::Gone.reached("a", None), Some(Ok(())));
    }

    #[test]
    fn waiting_ends_with_the_reason_once_the_goal_cannot_come() {
        let told = Goal::Active.reached("a", Some(&seen(pb::State::Failed)));
        let said = "instance a failed: no disk (then: tinwright instance retry a)";
        assert_eq!(told, Some(Err(said.into())));
        assert_eq!(
            Goal::Gone.reached("a", Some(&seen(pb::State::DeprovisionFailed))),
            Some(Err(said.into()))
        );
        assert_eq!(Goal::Active.reached("a", None), Some(Err("instance a is gone".into())));
    }
}
