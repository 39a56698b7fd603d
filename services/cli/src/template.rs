//! Commands on templates.
//!
//! A template's file is the template itself, with its placeholders; or our message, which may also have id, name and labels,
//! and has the template as its `data`.
//!
//! - [`actions`]: the built-in actions. [`render`]: what a template would run on a machine.

mod actions;
mod render;

use std::path::PathBuf;

use runtime::Channel;
use tinwright::requests::Labels;
use tinwright::workflow::v1 as pb;

use crate::connect::{Io, View, call};
use crate::files::{self, Object};
use crate::input;
use crate::output::{Format, Row};
use crate::resource::{
    self, ApplyOptions, DeleteOptions, FileOptions, FromFiles, NoOptions, Query, Resource,
    ResourceCommand,
};

/// Commands on templates.
#[derive(Debug, clap::Subcommand)]
pub enum TemplateCommand {
    /// Create templates: each file is a template, or our message with one as data
    Create {
        /// Give the template this name, in place of that in the file
        #[arg(long)]
        name: Option<String>,
        /// The files
        #[command(flatten)]
        files: FileOptions,
    },
    /// Print what a template would run on a machine, and store nothing
    Render(render::RenderOptions),
    /// Print the built-in actions with their variables
    Actions(actions::ActionsOptions),
    /// Replace a template's YAML; workflows that were made from it do not change
    Update {
        /// The template
        #[arg(value_name = pb::Template::NAMES)]
        name: String,
        /// Read the YAML from this file; - for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Create the templates in files, or replace those that have the id or the name
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Template, DeleteTemplateOptions>),
}

/// Runs `command`.
pub async fn run(command: TemplateCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        TemplateCommand::Create { name: None, files } => {
            resource::create::<pb::Template>(files, io).await
        }
        TemplateCommand::Create { name: Some(name), files } => create_named(&name, files, io).await,
        TemplateCommand::Render(options) => render::run(options, io).await,
        TemplateCommand::Actions(options) => actions::run(options, io.out),
        TemplateCommand::Update { name, file, output } => {
            let data = input::text(&file)?;
            let found = pb::Template::find(io.channel, &name, View::Full).await?;
            let replaced = pb::Template { data, ..found }.update(io.channel, None).await?;
            resource::print(&[replaced], output, io).await
        }
        TemplateCommand::Apply(options) => resource::apply::<pb::Template>(options, io).await,
        TemplateCommand::Resource(command) => resource::run(command, io).await,
    }
}

/// Creates the only template in files under the name `name`.
async fn create_named(
    name: &str,
    FileOptions { files, output }: FileOptions,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let objects = files::read_all(&files);
    // Objects that cannot be read are reported first: nothing is created then.
    anyhow::ensure!(
        objects.len() == 1 || objects.iter().any(Result::is_err),
        "--name is for one template, and the files have {}",
        objects.len()
    );
    let rename = async |template: &mut pb::Template| {
        template.name = name.to_owned();
        anyhow::Ok(())
    };
    resource::create_objects(objects, output, rename, io).await?.failures.into_result()
}

/// Options of a deletion.
#[derive(Debug, clap::Args)]
pub struct DeleteTemplateOptions {
    /// Delete the template also while instances or machines refer to it
    #[arg(long)]
    force: bool,
}

impl DeleteOptions<pb::Template> for DeleteTemplateOptions {
    async fn delete(&self, template: &pb::Template, channel: &Channel) -> anyhow::Result<()> {
        let (id, force) = (template.id.clone(), self.force);
        call(channel, pb::DeleteTemplateRequest { id, revision: 0, force }).await?;
        Ok(())
    }
}

impl Row for pb::Template {
    const COLUMNS: &'static str = "ID:id,NAME:name,AGE:create_time,CHANGED:update_time";
}

impl Resource for pb::Template {
    type Filter = NoOptions;
    const FIRST: &'static str = "create one with `tinwright template create -f FILE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }

    async fn select(_: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        Ok(pb::ListTemplatesRequest { view: query.view as i32, ..Default::default() })
    }

    /// Returns the YAML as its author wrote it.
    async fn describe(&self, _: &Channel) -> anyhow::Result<String> {
        Ok(self.data.clone())
    }
}

impl FromFiles for pb::Template {
    /// A document that is not our message is the template itself.
    fn read(object: &Object) -> anyhow::Result<Self> {
        match &object.text {
            Some(text) if is_template(object) => Ok(Self {
                name: files::template_name(text).unwrap_or_default(),
                data: text.trim_start_matches('\n').into(),
                ..Self::default()
            }),
            Some(_) | None => object.message(),
        }
    }

    /// Templates with the same text are one. Another text may be a new version of it.
    fn is_same(&self, stored: &Self) -> Option<bool> {
        (!self.data.is_empty() && self.data == stored.data).then_some(true)
    }

    fn labels_mut(&mut self) -> Option<&mut Labels> {
        Some(&mut self.labels)
    }

    /// Lists are without data, which no template can be without.
    fn adopt(&mut self, stored: &Self) {
        if self.data.is_empty() {
            self.data.clone_from(&stored.data);
        }
    }
}

/// True for a template itself: our message has one as its data.
pub(crate) fn is_template(object: &Object) -> bool {
    object.kind().is_none() && object.value.get("data").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> pb::Template {
        let objects = crate::files::parse("a.yaml", text).unwrap();
        pb::Template::read(&objects[0]).unwrap()
    }

    #[test]
    fn a_template_differs_from_a_message_that_has_one() {
        let template = "version: \"0.1\"\nname: a # first\ntasks: []\n";
        let (read_template, message) = (read(template), read("name: b\ndata: |\n  tasks: []\n"));
        assert_eq!((read_template.name.as_str(), read_template.data.as_str()), ("a", template));
        assert_eq!((message.name.as_str(), message.data.as_str()), ("b", "tasks: []\n"));
        let unrendered = "name: \"c\"\ntasks:\n{{ range .X }}\n  - {{ . }}\n{{ end }}";
        assert_eq!(
            (read(unrendered).name.as_str(), read(unrendered).data.as_str()),
            ("c", unrendered)
        );
        assert_eq!(read("name: \"{{ .x }}\"\ntasks: []\n").name, "");
    }
}
