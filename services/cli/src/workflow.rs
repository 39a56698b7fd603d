//! Commands on workflows.

mod logs;
mod progress;
mod table;

use std::time::SystemTime;

use tinwright::instance::v1::Instance;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::transport::Channel;

use crate::connect::{MAX_MESSAGE_BYTES, View};
use crate::follow::{Watch, Watchable};
use crate::output::{self, Format, Row, print_list};
use crate::resource::{
    self, ListQuery, NoOptions, PAGE_SIZE, Page, Query, Resource, ResourceCommand, required,
};
use crate::{hardware, input, template};

/// Commands on workflows.
#[derive(Debug, clap::Subcommand)]
pub enum WorkflowCommand {
    /// Create a workflow from a template, on a machine
    Create(CreateWorkflow),
    /// End a workflow early; a running action is stopped first
    Cancel {
        /// The workflow
        #[arg(value_name = pb::Workflow::NAMES)]
        id: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Confirm that a machine was restarted by hand: workers of its earlier boots are refused
    ConfirmRestart {
        /// The machine
        #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
        hardware: String,
    },
    /// Print the logs of actions
    Logs {
        /// The workflow
        #[arg(value_name = pb::Workflow::NAMES)]
        id: String,
        /// Print only the log of this action: its name, TASK/NAME or id
        action: Option<String>,
        /// Continue until the workflow, or the action, has ended
        #[arg(short, long)]
        follow: bool,
    },
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Workflow>),
}

/// Options of a new workflow.
#[derive(Debug, clap::Args)]
pub struct CreateWorkflow {
    /// Create it from this template
    #[arg(long, value_name = "NAME|ID")]
    template: String,
    /// Run it on this machine
    #[arg(long, value_name = "ID|NAME|MAC|ADDRESS")]
    hardware: String,
    /// Set the value of a placeholder of the template; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair)]
    values: Vec<(String, String)>,
    /// Add a label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Create it although this instance occupies the machine
    #[arg(long, value_name = Instance::NAMES)]
    occupied_by: Option<String>,
    /// First boot the machine from the network, by its BMC
    #[arg(long)]
    netboot: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Filter of a list.
#[derive(Debug, clap::Args)]
pub struct WorkflowFilter {
    /// List only workflows of this machine
    #[arg(long, value_name = "ID|NAME|MAC|ADDRESS")]
    hardware: Option<String>,
}

/// Options of a watch.
#[derive(Debug, clap::Args)]
pub struct WatchWorkflowOptions {
    /// Show the progress of its actions until it ends; exit with an error unless it succeeds
    #[arg(long, requires = "name")]
    progress: bool,
}

/// Runs `command`.
pub async fn run(
    command: WorkflowCommand,
    channel: &Channel,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    match command {
        WorkflowCommand::Create(options) => create(options, channel, out).await,
        WorkflowCommand::Cancel { id, output } => {
            let request = pb::CancelWorkflowRequest { id };
            let cancelled = client(channel).cancel_workflow(request).await?.into_inner();
            print_list(out, cancelled.workflow.as_slice(), output)
        }
        WorkflowCommand::ConfirmRestart { hardware } => {
            let hardware_id = hardware::id(channel, &hardware).await?;
            let request = pb::ConfirmRestartRequest { hardware_id };
            let confirmed = client(channel).confirm_restart(request).await?.into_inner();
            Ok(writeln!(out, "boot epoch {}", confirmed.boot_epoch)?)
        }
        WorkflowCommand::Logs { id, action, follow } => {
            logs::print(channel, &id, action.as_deref(), follow, out).await
        }
        WorkflowCommand::Resource(ResourceCommand::Watch {
            name: Some(id),
            options: WatchWorkflowOptions { progress: true },
            view: _,
        }) => progress::show(channel, &id).await,
        WorkflowCommand::Resource(ResourceCommand::List { query, output }) => {
            let hardware = Some(hardware::id_or_all(channel, query.filter.hardware).await?);
            let query = ListQuery { filter: WorkflowFilter { hardware }, ..query };
            let command = ResourceCommand::<pb::Workflow>::List { query, output };
            resource::run(command, channel, out).await
        }
        WorkflowCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

async fn create(
    options: CreateWorkflow,
    channel: &Channel,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    let CreateWorkflow { template, hardware, values, labels, occupied_by, netboot, output } =
        options;
    let mode = if netboot { pb::boot_options::Mode::Netboot } else { Default::default() };
    let occupied_by = match occupied_by {
        Some(name) => Instance::find(channel, &name, View::Basic).await?.id,
        None => String::new(),
    };
    let request = pb::CreateWorkflowRequest {
        template_id: template::id(channel, &template).await?,
        hardware_id: hardware::id(channel, &hardware).await?,
        values: values.into_iter().collect(),
        labels: labels.into_iter().collect(),
        occupied_by,
        boot_options: Some(pb::BootOptions { mode: mode.into(), power_off_after: false }),
        ..pb::CreateWorkflowRequest::default()
    };
    let created = client(channel).create_workflow(request).await?.into_inner();
    print_list(out, created.workflow.as_slice(), output)
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
    type Response = pb::WatchWorkflowsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(channel: &Channel, id: String, view: View) -> Watch<Self> {
        let request = pb::WatchWorkflowsRequest { id, view: view as i32, only_live: false };
        Ok(client(channel).watch_workflows(request).await?.into_inner())
    }
}

impl Resource for pb::Workflow {
    type Filter = WorkflowFilter;
    type WatchOptions = WatchWorkflowOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "workflow";
    const NAMES: &'static str = "ID";

    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let request = pb::GetWorkflowRequest { id: name.to_owned(), view: view as i32 };
        required(client(channel).get_workflow(request).await?.into_inner().workflow)
    }

    /// The filter has the id of a machine, or an empty one.
    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self> {
        let request = pb::ListWorkflowsRequest {
            page_size: PAGE_SIZE,
            page_token,
            labels: query.labels.iter().cloned().collect(),
            hardware_id: query.filter.hardware.clone().unwrap_or_default(),
            view: query.view as i32,
        };
        let page = client(channel).list_workflows(request).await?.into_inner();
        Ok((page.workflows, page.next_page_token))
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        let request = pb::DeleteWorkflowRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_workflow(request).await?;
        Ok(())
    }

    async fn describe(&self, _: &Channel) -> anyhow::Result<String> {
        Ok(table::workflow(self, runtime::Clock::system().wall()))
    }
}

fn client(channel: &Channel) -> WorkflowServiceClient<Channel> {
    WorkflowServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
}
