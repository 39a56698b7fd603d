//! The options of an update, and what they change.

use tinwright::image::v1 as pb;

use crate::input;
use crate::output::Format;
use crate::resource::Resource as _;

/// Options of an update.
#[derive(Debug, clap::Args)]
pub struct UpdateImage {
    /// The image
    #[arg(value_name = "NAME|ID")]
    pub(super) name: String,
    /// Rename it
    #[arg(long = "rename", value_name = "NAME")]
    new_name: Option<String>,
    /// Move it to this family; '' for none
    #[arg(long, value_name = "FAMILY")]
    family: Option<String>,
    /// Let callers of all tenants read it, or no longer
    #[arg(long, value_name = "BOOL")]
    public: Option<bool>,
    /// Refuse to delete it, or allow it again
    #[arg(long, value_name = "BOOL")]
    protect: Option<bool>,
    /// Set its description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Add this label, or change its value; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Remove the label with this key; may be repeated
    #[arg(long = "remove-label", value_name = "KEY")]
    removed_labels: Vec<String>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub(super) output: Format,
}

impl UpdateImage {
    /// Writes what is given into `image`, and returns it with the names of the changed fields. With
    /// labels it is changed at its revision only: its other labels are those that were read.
    pub(super) fn write(self, mut image: pb::Image) -> anyhow::Result<(pb::Image, Vec<String>)> {
        let Self { new_name, family, public, protect, description, labels, removed_labels, .. } =
            self;
        let has_labels = !labels.is_empty() || !removed_labels.is_empty();
        let is_given = [
            ("name", new_name.is_some()),
            ("family", family.is_some()),
            ("public", public.is_some()),
            ("protect", protect.is_some()),
            ("description", description.is_some()),
            ("labels", has_labels),
        ];
        for key in removed_labels {
            let is_removed = image.labels.remove(&key).is_some();
            anyhow::ensure!(is_removed, "image {} has no label {key:?}", image.title());
        }
        image.labels.extend(labels);
        image.revision = if has_labels { image.revision } else { 0 };
        image.name = new_name.unwrap_or(image.name);
        image.family = family.unwrap_or(image.family);
        image.public = public.unwrap_or(image.public);
        image.protect = protect.unwrap_or(image.protect);
        image.description = description.unwrap_or(image.description);
        let paths = is_given.into_iter().filter(|it| it.1).map(|it| it.0.to_owned()).collect();
        Ok((image, paths))
    }
}
