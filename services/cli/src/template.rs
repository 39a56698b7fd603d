//! Commands on templates.
//!
//! A template's file is the template itself, with its placeholders; or our message, which may also have id, name and labels,
//! and has the template as its `data`.
//!
//! - [`actions`]: the built-in actions. [`render`]: what a template would run on a machine.

mod actions;
mod render;

use std::path::PathBuf;
use std::time::SystemTime;

use runtime::Channel;
use tinwright::workflow::v1 as pb;

use crate::connect::{View, call};
use crate::files::{self, Object};
use crate::input;
use crate::output::{self, Format, Row};
use crate::resource::{
    self, ApplyOptions, FileOptions, FromFiles, NoOptions, Query, Resource, ResourceCommand,
    from_files,
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
    Resource(ResourceCommand<pb::Template>),
}

/// Runs `command`.
pub async fn run(
    command: TemplateCommand,
    channel: &Channel,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    match command {
        TemplateCommand::Create { name: None, files } => {
            resource::create::<pb::Template>(files, channel, out).await
        }
        TemplateCommand::Create { name: Some(name), files } => {
            create_named(&name, files, channel, out).await
        }
        TemplateCommand::Render(options) => render::run(options, channel, out).await,
        TemplateCommand::Actions(options) => actions::run(options, out),
        TemplateCommand::Update { name, file, output } => {
            let data = input::text(&file)?;
            let found = pb::Template::find(channel, &name, View::Full).await?;
            let replaced = pb::Template { data, ..found }.update(channel, None).await?;
            resource::print(&[replaced], output, channel, out).await
        }
        TemplateCommand::Apply(options) => {
            resource::apply::<pb::Template>(options, channel, out).await
        }
        TemplateCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

/// Creates the only template in files under the name `name`.
async fn create_named(
    name: &str,
    FileOptions { files, output }: FileOptions,
    channel: &Channel,
    out: &mut dyn std::io::Write,
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
    let sent = from_files::create_objects(objects, output, rename, channel, out);
    sent.await?.into_result()
}

/// Options of a deletion.
#[derive(Debug, clap::Args)]
pub struct DeleteTemplateOptions {
    /// Delete the template also while instances or machines refer to it
    #[arg(long)]
    force: bool,
}

impl Row for pb::Template {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "AGE", "CHANGED"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let ages = [self.create_time, self.update_time].map(|time| output::age(time, now));
        [self.id.clone(), self.name.clone()].into_iter().chain(ages).collect()
    }
}

impl Resource for pb::Template {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = DeleteTemplateOptions;
    const RESOURCE: &'static str = "template";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str = "create one with `tinwright template create -f FILE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }

    async fn select(
        _: &Channel,
        request: &mut Self::List,
        query: &Query<Self>,
    ) -> anyhow::Result<()> {
        request.view = query.view as i32;
        Ok(())
    }

    async fn delete(
        &self,
        channel: &Channel,
        options: &DeleteTemplateOptions,
    ) -> anyhow::Result<()> {
        let (id, force) = (self.id.clone(), options.force);
        let request = pb::DeleteTemplateRequest { id, revision: 0, force };
        call(channel, request).await?;
        Ok(())
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
