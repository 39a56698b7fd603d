//! Commands on models.

mod offers;
mod settings;

use std::collections::BTreeMap;
use std::time::SystemTime;

use runtime::Channel;
use tinwright::hardware::v1 as pb;

use crate::connect::{Io, View, call};
use crate::output::{Row, Table};
use crate::resource::{
    self, ApplyOptions, FileOptions, FromFiles, Names, NoOptions, Resource, ResourceCommand,
    SendOptions, UpdateOptions,
};
use crate::{failure, files};

/// The columns of a list.
const COLUMNS: [&str; 8] =
    ["ID", "NAME", "MACHINES", "FREE", "OCCUPIED", "FAILED", "AGE", "DESCRIPTION"];

/// Commands on models.
#[derive(Debug, clap::Subcommand)]
pub enum ModelCommand {
    /// Create models from files
    Create(settings::CreateModel),
    /// Create the models in files, or replace those that have the id or the name
    Apply(ApplyOptions),
    /// Change settings of a model, or replace models from files; each must have its id
    Update(settings::UpdateModel),
    /// List the models of which machines stand in each location, and the numbers that can be had
    Offers(offers::OffersOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Model>),
}

/// Runs `command`.
pub async fn run(command: ModelCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        ModelCommand::Create(options) => create(options, io).await,
        ModelCommand::Apply(options) => resource::apply::<pb::Model>(options, io).await,
        ModelCommand::Update(options) => update(options, io).await,
        ModelCommand::Offers(options) => offers::list(options, io).await,
        ModelCommand::Resource(command) => resource::run(command, io).await,
    }
}

async fn create(options: settings::CreateModel, io: &mut Io<'_>) -> anyhow::Result<()> {
    let settings::CreateModel { files: FileOptions { files, output }, settings } = options;
    let channel = io.channel;
    let change = async |model: &mut pb::Model| settings.write(channel, model).await.map(drop);
    let created = resource::create_objects(files::read_all(&files), output, change, io);
    created.await?.failures.into_result()
}

async fn update(options: settings::UpdateModel, io: &mut Io<'_>) -> anyhow::Result<()> {
    let settings::UpdateModel { name, files, fields, settings, no_accept_enrolled, output } =
        options;
    let Some(name) = name else {
        anyhow::ensure!(settings.is_empty(), "with --file, give the settings in the file");
        let options = UpdateOptions {
            fields,
            files: FileOptions { files, output },
            send: SendOptions::default(),
        };
        return resource::update::<pb::Model>(options, io).await;
    };
    let mut model = pb::Model::find(io.channel, &name, View::Basic).await?;
    let mut paths = settings.write(io.channel, &mut model).await?;
    if no_accept_enrolled {
        model.accept_enrolled = None;
        paths.push("accept_enrolled".into());
    }
    let updated = pb::Model { revision: 0, ..model }.change(io.channel, paths).await?;
    resource::print(&[updated], output, io).await
}

/// Returns the numbers of machines of all models by the model's id.
async fn counts(channel: &Channel) -> anyhow::Result<BTreeMap<String, pb::ModelCounts>> {
    let counts = resource::pages(async |page_token| {
        // One page of the largest size, so that the server reads all machines once.
        let (page_size, count_machines) = (1000, true);
        let request =
            pb::ListModelsRequest { page_size, page_token, count_machines, ..Default::default() };
        let page = call(channel, request).await?;
        Ok((page.counts.into_iter().collect(), page.next_page_token))
    });
    Ok(counts.await?.into_iter().collect())
}

impl Row for pb::Model {
    const COLUMNS: &'static str = "ID:id,NAME:name,AGE:create_time,DESCRIPTION:description";
}

impl Resource for pb::Model {
    type Filter = NoOptions;
    const FIRST: &'static str = "create one with `tinwright model create -f FILE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_label(channel, name, view).await
    }

    /// Shows the numbers of machines, if the caller may see them.
    async fn table(channel: &Channel, models: &[Self], now: SystemTime, _: bool) -> Table {
        let print = |error: &anyhow::Error| {
            eprintln!("tinwright: without numbers of machines: {}", failure::line(error));
        };
        let Ok(counts) = counts(channel).await.inspect_err(print) else {
            return Table::of(models, now);
        };
        let rows = models.iter().map(|model| {
            let count = counts.get(&model.id).copied().unwrap_or_default();
            let pb::ModelCounts { machines, free, occupied, failed } = count;
            let numbers = [machines, free, occupied, failed].map(|number| number.to_string());
            let mut row = model.row(now);
            row.splice(2..2, numbers);
            row
        });
        Table::new(&COLUMNS, rows)
    }
}

impl FromFiles for pb::Model {
    async fn resolve(&mut self, names: &Names<'_>) -> anyhow::Result<()> {
        match &mut self.accept_enrolled {
            Some(accept) => names.resolve_all::<pb::Location>(&mut accept.location_ids).await,
            None => Ok(()),
        }
    }
}
