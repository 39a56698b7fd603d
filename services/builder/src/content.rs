//! Content of a build, as the contract describes it.

use disk_images::partitions::{FileSystem, TableKind};
use disk_images::{Format, Properties, Wrapping};
use tinwright::image::v1::{BuiltContent, ImageProperties};

use crate::store::Stored;

/// Maximum size of a text of the properties in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// Content that was built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) stored: Stored,
    pub(crate) source_sha256: String,
    pub(crate) format: Format,
    pub(crate) wrappings: Vec<Wrapping>,
    pub(crate) properties: Properties,
}

impl From<&Built> for BuiltContent {
    fn from(built: &Built) -> Self {
        let stored = &built.stored;
        Self {
            size_bytes: stored.size_bytes,
            used_bytes: stored.used_bytes,
            stored_bytes: stored.file.bytes,
            sha256: stored.sha256.clone(),
            stored_sha256: stored.file.sha256.clone(),
            map_sha256: stored.map.as_ref().map(|map| map.sha256.clone()).unwrap_or_default(),
            source_sha256: built.source_sha256.clone(),
            source_format: format(built.format, &built.wrappings),
            properties: Some(properties(&built.properties)),
        }
    }
}

/// Returns the name of a format, then the names of its wrappings from the inside to the outside,
/// such as `raw+xz`.
fn format(format: Format, wrappings: &[Wrapping]) -> String {
    let wrappings = wrappings.iter().rev().map(|wrapping| wrapping.name());
    std::iter::once(format.name()).chain(wrappings).collect::<Vec<_>>().join("+")
}

fn properties(found: &Properties) -> ImageProperties {
    let table = match found.partition_table {
        TableKind::Gpt => "gpt",
        TableKind::Mbr => "mbr",
        TableKind::None => "",
    };
    let file_system = found.root.map(|root| match root.file_system {
        FileSystem::Ext4 => "ext4",
        FileSystem::Xfs => "xfs",
        FileSystem::Btrfs => "btrfs",
    });
    let system = found.system.clone().unwrap_or_default();
    ImageProperties {
        partition_table: table.to_owned(),
        boots_bios: found.bios,
        uefi_architectures: found.uefi.iter().map(|it| it.name().to_owned()).collect(),
        root_partition: found.root.map(|root| root.number).unwrap_or_default(),
        root_file_system: file_system.unwrap_or_default().to_owned(),
        os_id: text(&system.id),
        os_version: text(&system.version),
        os_name: text(&system.name),
        has_cloud_init: found.cloud_init.is_some(),
    }
}

/// Returns the printable beginning of a text of the image.
fn text(text: &str) -> String {
    let mut bytes = 0;
    let fits = |it: &char| {
        bytes += it.len_utf8();
        bytes <= MAX_TEXT_BYTES
    };
    text.chars().filter(|it| !it.is_control()).take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_names_its_wrappings_from_the_inside() {
        assert_eq!(format(Format::Qcow2, &[]), "qcow2");
        assert_eq!(format(Format::Raw, &[Wrapping::Zip, Wrapping::Xz]), "raw+xz+zip");
    }

    #[test]
    fn texts_of_an_image_are_short_and_printable() {
        assert_eq!(text("Debian\u{1b}[31m\n12"), "Debian[31m12");
        assert_eq!(text(&"ä".repeat(200)).len(), 256);
    }
}
