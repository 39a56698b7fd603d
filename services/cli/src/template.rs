//! Commands on templates.
//!
//! A template's file is the template itself, with its placeholders; or our message, which may also have id, name and labels,
//! and has the template as its `data`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use prost_types::FieldMask;
use tinwright::TemplateId;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::get_template_request::By;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::connect::{LARGEST, Show, View};
use crate::follow::Watchable;
use crate::input;
use crate::noun::{self, Files, Noun, PAGE, Plain, Wanted, Written, answered};
use crate::output::{self, Format, Row, say};

/// Commands on templates.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create templates: each file is a template, or our message with one as data
    Create(Files),
    /// Replace a template's YAML; workflows that were made from it do not change
    Update {
        /// Name or id of the template
        #[arg(value_name = pb::Template::NAMES)]
        name: String,
        /// File with the YAML; - for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Connection and output
        #[command(flatten)]
        show: Show,
    },
    /// Commands of every resource
    #[command(flatten)]
    Noun(noun::Command<pb::Template>),
}

/// Runs `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Create(files) => noun::create::<pb::Template>(files, out).await,
        Command::Update { name, file, show } => {
            let (data, channel) = (input::text(&file)?, show.connection.open().await?);
            let found = pb::Template::find(&channel, &name, View::Full).await?;
            let replaced = pb::Template { data, ..found }.update(&channel, None).await?;
            say(out, &output::list(&[replaced], show.output)?)
        }
        Command::Noun(command) => noun::run(command, out).await,
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
        let (created, changed) = (self.create_time, self.update_time);
        vec![
            self.id.clone(),
            self.name.clone(),
            output::age(created, now),
            output::age(changed, now),
        ]
    }
}

impl Watchable for pb::Template {
    type Told = pb::WatchTemplatesResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(
        channel: &Channel,
        id: String,
        view: View,
    ) -> Result<Streaming<Self::Told>, Status> {
        let request = pb::WatchTemplatesRequest { id, view: view.into() };
        Ok(client(channel).watch_templates(request).await?.into_inner())
    }
}

impl Noun for pb::Template {
    type Choice = Plain;
    type Sight = Plain;
    type Removal = Plain;
    const NOUN: &'static str = "template";
    const NAMES: &'static str = "NAME|ID";

    async fn find(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        let by = match name.parse::<TemplateId>() {
            Ok(_) => By::Id(name.into()),
            Err(_) => By::Name(name.into()),
        };
        let found = client(channel).get_template(pb::GetTemplateRequest { by: Some(by) }).await?;
        answered(found.into_inner().template)
    }

    async fn list(channel: &Channel, wanted: Wanted<Plain>) -> anyhow::Result<Vec<Self>> {
        noun::pages(async |page_token| {
            let (labels, view) = (wanted.labels.clone(), wanted.view.into());
            let request = pb::ListTemplatesRequest { page_size: PAGE, page_token, labels, view };
            let page = client(channel).list_templates(request).await?.into_inner();
            Ok((page.templates, page.next_page_token))
        })
        .await
    }

    async fn delete(&self, channel: &Channel, _: &Plain) -> anyhow::Result<()> {
        let request = pb::DeleteTemplateRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_template(request).await?;
        Ok(())
    }

    /// As a table, returns the YAML as its author wrote it.
    fn shown(&self, format: Format) -> anyhow::Result<String> {
        match format {
            Format::Table => Ok(self.data.trim_end().to_owned()),
            Format::Json | Format::Yaml => output::one(self, format),
        }
    }
}

impl Written for pb::Template {
    fn read(path: &Path) -> anyhow::Result<Vec<(String, Self)>> {
        let text = input::text(path)?;
        match messages_in(&text) {
            Some(objects) => noun::messages(path, objects, input::message),
            None => Ok(vec![(path.display().to_string(), Self { data: text, ..Self::default() })]),
        }
    }

    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateTemplateRequest { template: Some(self), request_id: String::new() };
        answered(client(channel).create_template(request).await?.into_inner().template)
    }

    async fn update(
        self,
        channel: &Channel,
        update_mask: Option<FieldMask>,
    ) -> anyhow::Result<Self> {
        let request = pb::UpdateTemplateRequest { template: Some(self), update_mask };
        answered(client(channel).update_template(request).await?.into_inner().template)
    }
}

/// Returns the messages in `text`; none if it is a template, which has no `data`, and need not be YAML before it is rendered.
fn messages_in(text: &str) -> Option<Vec<serde_json::Value>> {
    let objects = input::parse(text).ok()?;
    let message = |object: &serde_json::Value| object.get("data").is_some();
    objects.iter().all(message).then_some(objects)
}

fn client(channel: &Channel) -> TemplateServiceClient<Channel> {
    TemplateServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST)
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

    #[test]
    fn a_template_is_printed_as_it_was_written() {
        let data = "version: \"0.1\" # ours\ntasks: []\n";
        let template = pb::Template { data: data.into(), ..pb::Template::default() };
        assert_eq!(template.shown(Format::Table).unwrap(), data.trim_end());
    }
}
