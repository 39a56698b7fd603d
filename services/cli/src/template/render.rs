//! `template render`: what a template would run on a machine. Nothing is stored.

use std::path::PathBuf;

use anyhow::Context as _;
use tinwright::hardware::v1::Hardware;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::render_template_request::Source;

use crate::connect::Io;
use crate::output::{Format, print_one};
use crate::resource::{FromFiles as _, Resource as _};
use crate::{files, input};

/// The template, the machine and the values.
#[derive(Debug, clap::Args)]
pub struct RenderOptions {
    /// The template on the server
    #[arg(value_name = pb::Template::NAMES, required_unless_present = "file")]
    name: Option<String>,
    /// Read the template from this file in its place; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,
    /// Render it for this machine
    #[arg(long, value_name = "MACHINE")]
    hardware: String,
    /// Set the value of a placeholder of the template; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair)]
    values: Vec<(String, String)>,
    /// Render with this image as `.image`
    #[arg(long, value_name = "NAME|ID")]
    image: Option<String>,
    /// Print in this format [default: the YAML]
    #[arg(short, long, default_value = "table", hide_default_value = true)]
    output: Format,
}

/// Prints the rendered template, and its warnings to standard error.
pub(super) async fn run(options: RenderOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    let RenderOptions { name, file, hardware, values, image, output } = options;
    let source = match (name, file) {
        (Some(name), _) => Source::TemplateId(pb::Template::find_id(io.channel, &name).await?),
        (None, Some(file)) => {
            let objects = files::objects(&file)?;
            let object = objects.first().context("the file is empty")?;
            Source::TemplateData(pb::Template::read(object)?.data)
        }
        (None, None) => anyhow::bail!("name a template, or give --file"),
    };
    let request = pb::RenderTemplateRequest {
        source: Some(source),
        hardware_id: Hardware::find_id(io.channel, &hardware).await?,
        values: values.into_iter().collect(),
        occupied_by: String::new(),
        image_id: image.unwrap_or_default(),
    };
    let rendered = io.call(request).await?;
    for warning in &rendered.warnings {
        eprintln!("tinwright: warning: {warning}");
    }
    print_one(io.out, &rendered, &output, |it| it.rendered.clone())
}
