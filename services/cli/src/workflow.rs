//! Commands on workflows.

mod logs;
mod progress;
mod table;

use std::io::Write;
use std::time::SystemTime;

use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::connect::{Connection, LARGEST, Show, View};
use crate::follow::Watchable;
use crate::noun::{self, Noun, PAGE, Plain, Wanted, answered};
use crate::output::{self, Format, Row, say};
use crate::{hardware, input, template};

/// Commands on workflows.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create a workflow from a template, on a machine
    Create(Create),
    /// End a workflow early; a running action is stopped first
    Cancel {
        /// Id of the workflow
        #[arg(value_name = pb::Workflow::NAMES)]
        id: String,
        /// Connection and output
        #[command(flatten)]
        show: Show,
    },
    /// Print the logs of actions
    Logs {
        /// Id of the workflow
        #[arg(value_name = pb::Workflow::NAMES)]
        id: String,
        /// Only this action: its name, TASK/NAME or id
        action: Option<String>,
        /// Continue until the workflow, or the action, has ended
        #[arg(short, long)]
        follow: bool,
        /// Connection
        #[command(flatten)]
        connection: Connection,
    },
    /// Commands of every resource
    #[command(flatten)]
    Noun(noun::Command<pb::Workflow>),
}

/// A new workflow.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// The template
    #[arg(long, value_name = "NAME|ID")]
    template: String,
    /// The machine
    #[arg(long, value_name = "ID|NAME|MAC|ADDRESS")]
    hardware: String,
    /// Value for a placeholder of the template; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair)]
    values: Vec<(String, String)>,
    /// Label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// First boot the machine from the network, by its BMC
    #[arg(long)]
    netboot: bool,
    /// Connection and output
    #[command(flatten)]
    show: Show,
}

/// Selects workflows of a list.
#[derive(Debug, clap::Args)]
pub struct Choice {
    /// Only of this machine
    #[arg(long, value_name = "ID|NAME|MAC|ADDRESS")]
    hardware: Option<String>,
}

/// Options of a watch.
#[derive(Debug, clap::Args)]
pub struct Sight {
    /// Show the progress of its actions until it ends; exit with an error unless it succeeds
    #[arg(long, requires = "name")]
    progress: bool,
}

/// Runs `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Create(options) => create(options, out).await,
        Command::Cancel { id, show } => {
            let channel = show.connection.open().await?;
            let cancelled =
                client(&channel).cancel_workflow(pb::CancelWorkflowRequest { id }).await?;
            say(out, &output::list(cancelled.into_inner().workflow.as_slice(), show.output)?)
        }
        Command::Logs { id, action, follow, connection } => {
            logs::print(&connection.open().await?, &id, action.as_deref(), follow, out).await
        }
        Command::Noun(noun::Command::Watch {
            name: Some(id),
            sight: Sight { progress: true },
            view: _,
            connection,
        }) => progress::show(&connection.open().await?, &id).await,
        Command::Noun(command) => noun::run(command, out).await,
    }
}

async fn create(options: Create, out: &mut dyn Write) -> anyhow::Result<()> {
    let Create { template, hardware, values, labels, netboot, show } = options;
    let channel = show.connection.open().await?;
    let mode = if netboot { pb::boot_options::Mode::Netboot } else { Default::default() };
    let request = pb::CreateWorkflowRequest {
        template_id: template::id(&channel, &template).await?,
        hardware_id: hardware::id(&channel, &hardware).await?,
        values: values.into_iter().collect(),
        labels: labels.into_iter().collect(),
        boot_options: Some(pb::BootOptions { mode: mode.into(), power_off_after: false }),
        ..pb::CreateWorkflowRequest::default()
    };
    let made = client(&channel).create_workflow(request).await?.into_inner().workflow;
    say(out, &output::list(made.as_slice(), show.output)?)
}

impl Row for pb::Workflow {
    const COLUMNS: &'static [&'static str] =
        &["ID", "TEMPLATE", "STATE", "HARDWARE", "ACTIONS", "AGE", "REASON"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let done = self.actions.iter().filter(|action| action.state() == pb::ActionState::Success);
        vec![
            self.id.clone(),
            self.template_name.clone(),
            table::state(self.state()),
            self.hardware_id.clone(),
            format!("{}/{}", done.count(), self.actions.len()),
            output::age(self.create_time, now),
            self.state_reason.clone(),
        ]
    }
}

impl Watchable for pb::Workflow {
    type Told = pb::WatchWorkflowsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(
        channel: &Channel,
        id: String,
        view: View,
    ) -> Result<Streaming<Self::Told>, Status> {
        let request = pb::WatchWorkflowsRequest { id, view: view.into() };
        Ok(client(channel).watch_workflows(request).await?.into_inner())
    }
}

impl Noun for pb::Workflow {
    type Choice = Choice;
    type Sight = Sight;
    type Removal = Plain;
    const NOUN: &'static str = "workflow";
    const NAMES: &'static str = "ID";

    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let request = pb::GetWorkflowRequest { id: name.to_owned(), view: view.into() };
        answered(client(channel).get_workflow(request).await?.into_inner().workflow)
    }

    async fn list(channel: &Channel, wanted: Wanted<Choice>) -> anyhow::Result<Vec<Self>> {
        let hardware_id = match &wanted.choice.hardware {
            Some(name) => hardware::id(channel, name).await?,
            None => String::new(),
        };
        noun::pages(async |page_token| {
            let request = pb::ListWorkflowsRequest {
                page_size: PAGE,
                page_token,
                labels: wanted.labels.clone(),
                hardware_id: hardware_id.clone(),
                view: wanted.view.into(),
            };
            let page = client(channel).list_workflows(request).await?.into_inner();
            Ok((page.workflows, page.next_page_token))
        })
        .await
    }

    async fn delete(&self, channel: &Channel, _: &Plain) -> anyhow::Result<()> {
        let request = pb::DeleteWorkflowRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_workflow(request).await?;
        Ok(())
    }

    fn shown(&self, format: Format) -> anyhow::Result<String> {
        match format {
            Format::Table => Ok(table::workflow(self, SystemTime::now())),
            Format::Json | Format::Yaml => output::one(self, format),
        }
    }
}

fn client(channel: &Channel) -> WorkflowServiceClient<Channel> {
    WorkflowServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST)
}
