//! Commands on models.

mod offers;
mod settings;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::SystemTime;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::hardware::v1 as pb;

use crate::connect::{View, call};
use crate::failure;
use crate::output::{self, Row, Table};
use crate::resource::{
    self, ApplyOptions, FromFiles, Names, NoOptions, Resource, ResourceCommand, from_files,
};

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
pub async fn run(
    command: ModelCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        ModelCommand::Create(options) => create(options, channel, out).await,
        ModelCommand::Apply(options) => resource::apply::<pb::Model>(options, channel, out).await,
        ModelCommand::Update(options) => update(options.split()?, channel, out).await,
        ModelCommand::Offers(options) => offers::list(options, channel, out).await,
        ModelCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

async fn create(
    settings::CreateModel { files, settings }: settings::CreateModel,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let change = async |model: &mut pb::Model| settings.write(channel, model).await.map(drop);
    from_files::create_with(files, change, channel, out).await?.into_result()
}

async fn update(
    update: settings::Update,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (name, settings, no_accept_enrolled, output) = match update {
        settings::Update::Files(files) => {
            return resource::update::<pb::Model>(files, channel, out).await;
        }
        settings::Update::Settings { name, settings, no_accept_enrolled, output } => {
            (name, settings, no_accept_enrolled, output)
        }
    };
    let mut model = pb::Model::find(channel, &name, View::Basic).await?;
    let mut paths = settings.write(channel, &mut model).await?;
    if no_accept_enrolled {
        model.accept_enrolled = None;
        paths.push("accept_enrolled".into());
    }
    anyhow::ensure!(!paths.is_empty(), "nothing to change: give a setting");
    let mask = Some(FieldMask { paths });
    let updated = pb::Model { revision: 0, ..model }.update(channel, mask).await?;
    resource::print(&[updated], output, channel, out).await
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
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "AGE", "DESCRIPTION"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let age = output::age(self.create_time, now);
        vec![self.id.clone(), self.name.clone(), age, self.description.clone()]
    }
}

impl Resource for pb::Model {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "model";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str = "create one with `tinwright model create -f FILE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_label(channel, name, view).await
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        resource::delete_by_id(self, channel).await
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
            let [id, name, age, description] =
                [&model.id, &model.name, &output::age(model.create_time, now), &model.description]
                    .map(Clone::clone);
            [id, name].into_iter().chain(numbers).chain([age, description]).collect()
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
