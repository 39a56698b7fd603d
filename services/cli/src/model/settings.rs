//! The options that set how machines of a model are treated.

use std::path::PathBuf;

use runtime::Channel;
use tinwright::hardware::v1 as pb;

use crate::output::Format;
use crate::resource::{FileOptions, Resource as _};

/// Options of a creation.
#[derive(Debug, clap::Args)]
pub struct CreateModel {
    /// The files.
    #[command(flatten)]
    pub files: FileOptions,
    /// The settings, of all models in the files
    #[command(flatten)]
    pub settings: ModelSettings,
}

/// Options of an update.
#[derive(Debug, clap::Args)]
pub struct UpdateModel {
    /// The model whose settings are changed
    #[arg(value_name = pb::Model::NAMES, required_unless_present = "files")]
    pub(super) name: Option<String>,
    /// Read one or more models from this YAML or JSON file; - for standard input
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "name")]
    pub(super) files: Vec<PathBuf>,
    /// Replace only this field, also if it is absent in the file; may be repeated [default: all fields]
    #[arg(long = "field", value_name = "NAME", requires = "files")]
    pub(super) fields: Vec<String>,
    /// The settings
    #[command(flatten)]
    pub(super) settings: ModelSettings,
    /// Do not accept enrolled machines: an operator does
    #[arg(long, conflicts_with_all = ["accept_enrolled", "files"])]
    pub(super) no_accept_enrolled: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub(super) output: Format,
}

/// Settings of a model.
#[derive(Debug, clap::Args)]
pub struct ModelSettings {
    /// Make machines of the model provisionable when they enrol, without `hardware accept`
    #[arg(long)]
    accept_enrolled: bool,
    /// Accept only machines whose record names this location; may be repeated [default: anywhere]
    #[arg(long = "accept-location", value_name = "LOCATION", requires = "accept_enrolled")]
    accept_locations: Vec<String>,
    /// Prepare a machine again after this many minutes without a step of its boot; 0 for the site's setting [default: 0 for a
    /// new model]
    #[arg(long, value_name = "MINUTES")]
    boot_silent_minutes: Option<u32>,
    /// Prepare a machine again this many minutes after the last step of its boot; 0 for the site's setting [default: 0
    /// for a new model]
    #[arg(long, value_name = "MINUTES")]
    boot_step_minutes: Option<u32>,
}

impl ModelSettings {
    pub(super) fn is_empty(&self) -> bool {
        let Self { accept_enrolled, accept_locations: _, boot_silent_minutes, boot_step_minutes } =
            self;
        !accept_enrolled && boot_silent_minutes.is_none() && boot_step_minutes.is_none()
    }

    /// Writes the settings that are given into `model`. Returns the names of their fields.
    pub(super) async fn write(
        &self,
        channel: &Channel,
        model: &mut pb::Model,
    ) -> anyhow::Result<Vec<String>> {
        let mut paths = Vec::new();
        if self.accept_enrolled {
            let mut location_ids = Vec::new();
            for name in &self.accept_locations {
                location_ids.push(pb::Location::find_id(channel, name).await?);
            }
            model.accept_enrolled = Some(pb::AcceptEnrolled { location_ids });
            paths.push("accept_enrolled".into());
        }
        if let Some(minutes) = self.boot_silent_minutes {
            model.boot_silent_minutes = minutes;
            paths.push("boot_silent_minutes".into());
        }
        if let Some(minutes) = self.boot_step_minutes {
            model.boot_step_minutes = minutes;
            paths.push("boot_step_minutes".into());
        }
        Ok(paths)
    }
}
