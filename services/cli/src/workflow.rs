//! Commands on workflows.

mod logs;
mod progress;
mod table;

use anyhow::Context as _;
use prost::Name as _;
use runtime::Channel;
use tinwright::WorkflowId;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::Template;
use tinwright::workflow::v1::render_template_request::Source;

use crate::confirm;
use crate::connect::{Io, View, call};
use crate::failure::Missing;
use crate::files::Object;
use crate::input;
use crate::output::{Format, Row};
use crate::resource::from_files::{Applied, Apply};
use crate::resource::{self, NoOptions, Query, Resource, ResourceCommand, Target, required};
use crate::tinkerbell::LABEL;

/// Commands on workflows.
#[derive(Debug, clap::Subcommand)]
pub enum WorkflowCommand {
    /// Create a workflow from a template, on a machine
    Create(CreateWorkflow),
    /// End a workflow early; a running action is stopped first
    Cancel(Target<pb::Workflow>),
    /// Confirm that a machine was restarted by hand: workers of its earlier boots are refused
    ConfirmRestart {
        /// The machine
        #[arg(value_name = "NAME|MAC|ADDRESS|ID")]
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
    Resource(ResourceCommand<pb::Workflow, NoOptions, WatchWorkflowOptions>),
}

/// Options of a new workflow.
#[derive(Debug, clap::Args)]
pub struct CreateWorkflow {
    /// Create it from this template
    #[arg(long, value_name = "NAME|ID", required_unless_present = "image")]
    template: Option<String>,
    /// Give the template this image as `.image`; without a template it is written to the root disk, and booted
    #[arg(long, value_name = "NAME|ID")]
    image: Option<String>,
    /// Run it on this machine
    #[arg(long, value_name = "NAME|MAC|ADDRESS|ID")]
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
    /// Write to disks of a machine in use without a question; needed without a terminal
    #[arg(short, long)]
    yes: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Filter of a list.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct WorkflowFilter {
    /// List only workflows of this machine
    #[arg(long, value_name = "NAME|MAC|ADDRESS|ID")]
    hardware: Option<String>,
    /// List only workflows in this state
    #[arg(long)]
    state: Option<ListedState>,
}

/// States of workflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedState {
    /// Waits for its turn on the machine
    Pending = pb::WorkflowState::Pending as isize,
    /// Its machine is being booted
    Preparing = pb::WorkflowState::Preparing as isize,
    /// Its actions run
    Running = pb::WorkflowState::Running as isize,
    /// Its actions have ended, and the boot device is reset
    Post = pb::WorkflowState::Post as isize,
    /// Ended with success
    Success = pb::WorkflowState::Success as isize,
    /// Ended with an error
    Failed = pb::WorkflowState::Failed as isize,
    /// Ended by its time limit
    Timeout = pb::WorkflowState::Timeout as isize,
    /// Ended by an operator
    Cancelled = pb::WorkflowState::Cancelled as isize,
}

/// Options of a watch.
#[derive(Debug, clap::Args)]
pub struct WatchWorkflowOptions {
    /// Show the progress of its actions until it ends; exit with an error unless it succeeds
    #[arg(long, requires = "name")]
    progress: bool,
}

/// Runs `command`.
pub async fn run(command: WorkflowCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        WorkflowCommand::Create(options) => create(options, io).await,
        WorkflowCommand::Cancel(Target { name, output, .. }) => {
            let id = pb::Workflow::find(io.channel, &name, View::Basic).await?.id;
            let workflow = io.call(pb::CancelWorkflowRequest { id }).await?.workflow;
            let ended = workflow.as_ref().filter(|workflow| workflow.is_terminal());
            if let Some(ended) = ended.filter(|it| it.state() != pb::WorkflowState::Cancelled) {
                anyhow::bail!(
                    "too late: workflow {} has ended: {}",
                    ended.id,
                    ended.state().word()
                );
            }
            resource::print(workflow.as_slice(), output, io).await
        }
        WorkflowCommand::ConfirmRestart { hardware } => {
            let hardware_id = Hardware::find_id(io.channel, &hardware).await?;
            let confirmed = io.call(pb::ConfirmRestartRequest { hardware_id }).await?;
            let epoch = confirmed.boot_epoch;
            let waits = match confirmed.workflow {
                Some(_) => "",
                None => "; no workflow waits for it",
            };
            io.print(&format!("restart of {hardware} confirmed: boot epoch {epoch}{waits}"))
        }
        WorkflowCommand::Logs { id, action, follow } => {
            let workflow = pb::Workflow::find(io.channel, &id, View::Basic).await?;
            logs::print(&workflow, action.as_deref(), follow, io).await
        }
        WorkflowCommand::Resource(ResourceCommand::Watch {
            name: Some(id),
            options: WatchWorkflowOptions { progress: true },
            view: _,
        }) => {
            let id = pb::Workflow::find(io.channel, &id, View::Basic).await?.id;
            progress::show(io.channel, &id).await
        }
        WorkflowCommand::Resource(command) => resource::run(command, io).await,
    }
}

async fn create(options: CreateWorkflow, io: &mut Io<'_>) -> anyhow::Result<()> {
    let CreateWorkflow { template, hardware, values, labels, occupied_by, netboot, .. } = options;
    let (image, yes, output) = (options.image, options.yes, options.output);
    let mode = if netboot { pb::boot_options::Mode::Netboot } else { Default::default() };
    let occupied_by = match occupied_by {
        Some(name) => Instance::find(io.channel, &name, View::Basic).await?.id,
        None => String::new(),
    };
    let template_id = match template {
        Some(name) => Template::find_id(io.channel, &name).await?,
        None => String::new(),
    };
    let request = pb::CreateWorkflowRequest {
        template_id,
        hardware_id: Hardware::find_id(io.channel, &hardware).await?,
        values: values.into_iter().collect(),
        labels: labels.into_iter().collect(),
        occupied_by,
        image_id: image.unwrap_or_default(),
        boot_options: Some(pb::BootOptions { mode: mode.into(), power_off_after: false }),
        ..pb::CreateWorkflowRequest::default()
    };
    confirm_writes(io.channel, &request, yes).await?;
    let created = io.call(request).await?;
    resource::print(created.workflow.as_slice(), output, io).await
}

/// Passes unless the workflow of `request` writes to disks of a machine in use and `yes` is not given: then the question has to be
/// answered with yes.
async fn confirm_writes(
    channel: &Channel,
    request: &pb::CreateWorkflowRequest,
    yes: bool,
) -> anyhow::Result<()> {
    // Without an occupant the server refuses the workflow on a machine in use.
    if yes || request.occupied_by.is_empty() {
        return Ok(());
    }
    let rendered = call(channel, rendering(request)).await?;
    if rendered.actions.iter().all(leaves_disks) {
        return Ok(());
    }
    let machine = Hardware::find(channel, &request.hardware_id, View::Basic).await?.title();
    let instance = Instance::find(channel, &request.occupied_by, View::Basic).await?;
    let in_use = confirm::in_use(&machine, &instance, runtime::Clock::system().wall());
    confirm::require(&question(&rendered.erasures, &in_use), false)
}

/// Returns the request for what the workflow of `request` would run: with the root disk of the occupant, as in the workflow.
fn rendering(request: &pb::CreateWorkflowRequest) -> pb::RenderTemplateRequest {
    let source = match request.template_id.as_str() {
        "" => Source::TemplateData(request.template_data.clone()),
        id => Source::TemplateId(id.to_owned()),
    };
    pb::RenderTemplateRequest {
        source: Some(source),
        hardware_id: request.hardware_id.clone(),
        values: request.values.clone(),
        occupied_by: request.occupied_by.clone(),
        image_id: request.image_id.clone(),
    }
}

/// Returns the question before a workflow with these `erasures` writes to disks of the machine `in_use`.
fn question(erasures: &[pb::PlannedErasure], in_use: &str) -> String {
    match erasures {
        [] => format!("Write to disks of {in_use}?"),
        erasures => format!("Erase {} of {in_use}?", confirm::erased(erasures)),
    }
}

/// True if `action` writes to no disk.
fn leaves_disks(action: &pb::Action) -> bool {
    ["kexec", "poweroff", "reboot", "slurp"].contains(&actions::short_name(&action.image))
}

/// Creates the workflow in `object`, which has the form of its creation, unless one of its name was created before: a workflow is never
/// run twice for one object.
pub(crate) async fn apply(object: &Object, apply: &Apply<'_>) -> anyhow::Result<Applied> {
    let label = object.label(pb::Workflow::NAME);
    apply_one(object, apply).await.with_context(|| format!("{}: {label}", object.position))
}

async fn apply_one(object: &Object, apply: &Apply<'_>) -> anyhow::Result<Applied> {
    let channel = apply.names.channel;
    let applied = |word| Ok(Applied { word, ..Applied::default() });
    if let Some(id) = object.key("id") {
        // As `get -o yaml` prints it. Nothing of it can be changed.
        pb::Workflow::get(channel, id, View::Basic).await?;
        return applied("unchanged");
    }
    let name = object.key("name").context("it has neither an id nor a name")?;
    let labels = [(LABEL.to_owned(), name.to_owned())].into();
    let request = pb::ListWorkflowsRequest { labels, page_size: 1, ..Default::default() };
    if !call(channel, request).await?.workflows.is_empty() {
        return applied("unchanged");
    }
    if object.key("ended").is_some() {
        return applied("skipped: it has ended, or is disabled");
    }
    let mut request: pb::CreateWorkflowRequest = object.without(&["name"]).message()?;
    request.labels.insert(LABEL.to_owned(), name.to_owned());
    apply.names.resolve::<Template>(&mut request.template_id).await?;
    apply.names.resolve::<Hardware>(&mut request.hardware_id).await?;
    if !apply.options.dry_run {
        confirm_writes(channel, &request, apply.options.yes).await?;
        call(channel, request).await?;
    }
    applied("created")
}

impl Row for pb::Workflow {
    const COLUMNS: &'static str = "ID:id,TEMPLATE:template_name,STATE:state,HARDWARE:hardware_id,\
        ACTIONS,AGE:create_time,REASON:state_reason";

    fn cell(&self, _: &str) -> String {
        let done = self.actions.iter().filter(|action| action.state() == pb::ActionState::Success);
        format!("{}/{}", done.count(), self.actions.len())
    }
}

impl Resource for pb::Workflow {
    type Filter = WorkflowFilter;
    const NAMES: &'static str = "ID";
    const FIRST: &'static str = "instances create them, and `tinwright workflow create --template TEMPLATE --hardware MACHINE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        if name.parse::<WorkflowId>().is_err() {
            return Err(Missing(format!("no workflow {name}")).into());
        }
        let request = pb::GetWorkflowRequest { id: name.to_owned(), view: view as i32 };
        required(call(channel, request).await?.workflow)
    }

    async fn select(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let WorkflowFilter { hardware, state } = &query.filter;
        let hardware_id = Hardware::find_optional_id(channel, hardware.as_deref()).await?;
        let (view, state) = (query.view as i32, state.map_or(0, |state| state as i32));
        Ok(pb::ListWorkflowsRequest { hardware_id, view, state, ..Default::default() })
    }

    async fn describe(&self, _: &Channel) -> anyhow::Result<String> {
        Ok(table::workflow(self, runtime::Clock::system().wall()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_the_disks_that_are_known() {
        let disks = vec!["/dev/sdb".to_owned()];
        let erasure = pb::PlannedErasure { disks, ..pb::PlannedErasure::default() };
        assert_eq!(question(&[erasure], "node-1"), "Erase /dev/sdb of node-1?");
        assert_eq!(question(&[], "node-1"), "Write to disks of node-1?");
    }

    #[test]
    fn a_workflow_is_rendered_for_the_occupant_that_it_names() {
        let request = pb::CreateWorkflowRequest {
            template_data: "tasks: []".into(),
            hardware_id: "m".into(),
            values: [("url".to_owned(), "u".to_owned())].into(),
            occupied_by: "i".into(),
            ..pb::CreateWorkflowRequest::default()
        };
        let rendering = rendering(&request);
        assert_eq!(rendering.source, Some(Source::TemplateData("tasks: []".into())));
        assert_eq!((rendering.hardware_id.as_str(), rendering.occupied_by.as_str()), ("m", "i"));
        assert_eq!(rendering.values, request.values);
    }
}
