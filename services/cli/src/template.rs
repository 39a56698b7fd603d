//! Commands on templates.
//!
//! A template's file is the template itself, with its placeholders; or our message, which may also have id, name and labels,
//! and has the template as its `data`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use prost_types::FieldMask;
use tinwright::TemplateId;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::get_template_request::By;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tonic::transport::Channel;

use crate::connect::{MAX_MESSAGE_BYTES, View};
use crate::follow::{Watch, Watchable};
use crate::input;
use crate::output::{self, Format, Row, print_list};
use crate::resource::{
    self, FileOptions, FromFiles, NoOptions, PAGE_SIZE, Page, Query, Resource, ResourceCommand,
    required,
};

/// Commands on templates.
#[derive(Debug, clap::Subcommand)]
pub enum TemplateCommand {
    /// Create templates: each file is a template, or our message with one as data
    Create(FileOptions),
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
        TemplateCommand::Create(files) => {
            resource::create::<pb::Template>(files, channel, out).await
        }
        TemplateCommand::Update { name, file, output } => {
            let data = input::text(&file)?;
            let found = pb::Template::find(channel, &name, View::Full).await?;
            let replaced = pb::Template { data, ..found }.update(channel, None).await?;
            print_list(out, &[replaced], output)
        }
        TemplateCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

/// Returns the id of the template with a name or id.
pub async fn id(channel: &Channel, name: &str) -> anyhow::Result<String> {
    match name.parse::<TemplateId>() {
        Ok(id) => Ok(id.to_string()),
        Err(_) => Ok(pb::Template::find(channel, name, View::Basic).await?.id),
    }
}

impl Row for pb::Template {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "AGE", "CHANGED"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let ages = [self.create_time, self.update_time].map(|time| output::age(time, now));
        [self.id.clone(), self.name.clone()].into_iter().chain(ages).collect()
    }
}

impl Watchable for pb::Template {
    type Response = pb::WatchTemplatesResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(channel: &Channel, id: String, view: View) -> Watch<Self> {
        let request = pb::WatchTemplatesRequest { id, view: view as i32 };
        Ok(client(channel).watch_templates(request).await?.into_inner())
    }
}

impl Resource for pb::Template {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "template";
    const NAMES: &'static str = "NAME|ID";

    async fn find(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        let by = match name.parse::<TemplateId>() {
            Ok(_) => By::Id(name.into()),
            Err(_) => By::Name(name.into()),
        };
        let request = pb::GetTemplateRequest { by: Some(by) };
        required(client(channel).get_template(request).await?.into_inner().template)
    }

    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self> {
        let (labels, view) = (query.labels.iter().cloned().collect(), query.view as i32);
        let request = pb::ListTemplatesRequest {
            page_size: PAGE_SIZE,
            page_token,
            labels,
            view,
            ..Default::default()
        };
        let page = client(channel).list_templates(request).await?.into_inner();
        Ok((page.templates, page.next_page_token))
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        let request = pb::DeleteTemplateRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_template(request).await?;
        Ok(())
    }

    /// Returns the YAML as its author wrote it.
    async fn describe(&self, _: &Channel) -> anyhow::Result<String> {
        Ok(self.data.clone())
    }
}

impl FromFiles for pb::Template {
    fn read(path: &Path) -> anyhow::Result<Vec<(String, Self)>> {
        let text = input::text(path)?;
        match messages_in(&text) {
            Some(objects) => resource::messages(path, objects, input::message),
            None => Ok(vec![(path.display().to_string(), Self { data: text, ..Self::default() })]),
        }
    }

    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateTemplateRequest { template: Some(self), request_id: String::new() };
        required(client(channel).create_template(request).await?.into_inner().template)
    }

    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self> {
        let request = pb::UpdateTemplateRequest { template: Some(self), update_mask: mask };
        required(client(channel).update_template(request).await?.into_inner().template)
    }
}

/// Returns the messages in `text`; none if it is a template, which has no `data`, and need not be YAML before it is rendered.
fn messages_in(text: &str) -> Option<Vec<serde_json::Value>> {
    let objects = input::parse(text).ok()?;
    let message = |object: &serde_json::Value| object.get("data").is_some();
    objects.iter().all(message).then_some(objects)
}

fn client(channel: &Channel) -> TemplateServiceClient<Channel> {
    TemplateServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_differs_from_a_message_that_has_one() {
        assert!(messages_in("version: \"0.1\"\nname: a\ntasks: []\n").is_none());
        assert!(
            messages_in("tasks:\n{{ range .X }}\n  - {{ . }}\n{{ end }}").is_none(),
            "no YAML yet"
        );
        assert_eq!(messages_in("name: a\ndata: |\n  tasks: []\n").map(|all| all.len()), Some(1));
        assert_eq!(messages_in("{\"data\": \"x\"}\n---\ndata: y\n").map(|all| all.len()), Some(2));
    }
}
