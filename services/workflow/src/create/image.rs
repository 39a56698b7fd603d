//! The image of a workflow: the values that its template gets, the template that installs it without
//! one, and what the machine must be like.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use tinwright::hardware::v1::{FirmwareMode, Hardware, Inventory};
use tinwright::image::v1::{Image, ImageKind, ImageProperties};
use tinwright::workflow::v1 as pb;

use super::plan::variable;

/// Name of the value with the image.
pub(super) const IMAGE: &str = "image";
/// Directory of images at boot HTTP.
const DIRECTORY: &str = "/images/";
/// Suffix of the name of the stored file.
const FILE: &str = ".raw.zst";
/// Name of the template that installs an image.
const BUILT_IN_NAME: &str = "image";
/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;

/// Writes the image, and boots it.
const WRITE: &str = include_str!("image/write.yaml");
/// Sets the data source of cloud-init in the root file system of the image.
const DATA_SOURCE: &str = include_str!("image/data-source.yaml");
/// Ends the installation.
const RESTART: &str = include_str!("image/restart.yaml");

/// An image that does not fit a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is larger than the disk that it would be written to.
    #[error(
        "image {name} is a disk of {}, and {disk} has {}: choose a larger one",
        gibibytes(*.size),
        gibibytes(*.space)
    )]
    TooLarge {
        /// Name of the image.
        name: String,
        /// Size of its content in bytes.
        size: u64,
        /// The disk.
        disk: String,
        /// Size of the disk in bytes.
        space: u64,
    },
    /// The machine cannot boot it.
    #[error("image {name} does not boot {reason}")]
    FirmwareMode {
        /// Name of the image.
        name: String,
        /// What does not match.
        reason: String,
    },
    /// It is an archive, and nothing says how to install that.
    #[error("image {0} is an archive: a template has to extract it (archive2disk)")]
    Archive(String),
}

impl ImageError {
    /// Returns the reason for an `ErrorInfo`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "IMAGE_TOO_LARGE",
            Self::FirmwareMode { .. } => "FIRMWARE_MODE",
            Self::Archive(_) => "IMAGE_KIND",
        }
    }
}

/// Returns `image` as a workflow keeps it.
pub(super) fn pinned(image: &Image) -> pb::WorkflowImage {
    pb::WorkflowImage {
        id: image.id.clone(),
        name: image.name.clone(),
        sha256: image.sha256.clone(),
        stored_sha256: image.stored_sha256.clone(),
        map_sha256: image.map_sha256.clone(),
        size_bytes: image.size_bytes,
    }
}

/// Returns what a template gets as `.image` (docs/reference/templates.md).
pub(super) fn values(image: &Image) -> Value {
    let file = |suffix: &str| [DIRECTORY, &image.stored_sha256, suffix].concat();
    let has_map = !image.map_sha256.is_empty();
    let root = image.properties.as_ref().map_or(0, |properties| properties.root_partition);
    json!({
        "id": image.id,
        "name": image.name,
        "url": file(FILE),
        "file_sha256": format!("sha256:{}", image.stored_sha256),
        "map": if has_map { file(".map") } else { String::new() },
        "map_sha256": image.map_sha256,
        "sha256": image.sha256,
        "size_bytes": image.size_bytes,
        "signature": signature(image),
        "root_partition": root,
        "root_file_system": root_file_system(image),
    })
}

/// Returns the signatures, in base64 in one line; empty if there are none.
fn signature(image: &Image) -> String {
    let texts: String = image.signatures.iter().map(|it| it.text.as_str()).collect();
    BASE64.encode(texts)
}

/// True if `url` is that of the stored file of `image`.
pub(super) fn is_file_of(image: &Image, url: &str) -> bool {
    let name = url.strip_prefix(DIRECTORY).and_then(|name| name.strip_suffix(FILE));
    name == Some(&image.stored_sha256)
}

/// Returns the template that writes `image` to the root disk and boots it.
pub(super) fn built_in(image: &Image) -> Result<pb::Template, ImageError> {
    if image.kind() == ImageKind::Archive {
        return Err(ImageError::Archive(image.name.clone()));
    }
    let data_source = if sets_data_source(image) { DATA_SOURCE } else { "" };
    let data = [WRITE, data_source, RESTART].concat();
    Ok(pb::Template { name: BUILT_IN_NAME.to_owned(), data, ..pb::Template::default() })
}

/// True if the installation tells the system's cloud-init where its metadata is. An xfs was not looked
/// into: there the setting is written whether or not the system has cloud-init.
fn sets_data_source(image: &Image) -> bool {
    let has_cloud_init = image.properties.as_ref().is_some_and(|it| it.has_cloud_init);
    let is_written = match root_file_system(image) {
        "ext4" => has_cloud_init,
        file_system => file_system == "xfs",
    };
    is_written && !image.keep_data_source
}

fn root_file_system(image: &Image) -> &str {
    image.properties.as_ref().map_or("", |properties| &properties.root_file_system)
}

/// Passes unless an action of `workflow` would write `image` to a disk of `machine` that is smaller.
pub(super) fn check_size(
    image: &Image,
    workflow: &pb::Workflow,
    machine: &Hardware,
) -> Result<(), ImageError> {
    let is_this = |url: &str| is_file_of(image, url);
    let writes = |action: &&pb::Action| variable(action, "IMG_URL").is_some_and(is_this);
    let disks = workflow.actions.iter().filter(writes).filter_map(|it| variable(it, "DEST_DISK"));
    for disk in disks.flat_map(|disks| disks.split(',')).map(str::trim) {
        let space = size_of(disk, machine.inventory.as_deref());
        if space.is_some_and(|space| space < image.size_bytes) {
            return Err(ImageError::TooLarge {
                name: image.name.clone(),
                size: image.size_bytes,
                disk: disk.to_owned(),
                space: space.unwrap_or_default(),
            });
        }
    }
    Ok(())
}

/// Returns the size in bytes of the disk at `path`, if the inventory has it.
fn size_of(path: &str, inventory: Option<&Inventory>) -> Option<u64> {
    let disk = inventory?.disks.iter().find(|disk| {
        let links = disk.by_id.iter().chain(&disk.by_path);
        disk.name == path.trim_start_matches("/dev/") || links.into_iter().any(|it| it == path)
    });
    disk.map(|disk| disk.size_bytes).filter(|bytes| *bytes > 0)
}

/// Passes unless it is known that `machine` cannot boot the disk `image`.
pub(super) fn check_firmware(image: &Image, machine: &Hardware) -> Result<(), ImageError> {
    let Some(properties) = &image.properties else { return Ok(()) };
    let (bios, loaders) = (properties.boots_bios, &properties.uefi_architectures);
    let inventory = machine.inventory.as_deref();
    let mode = inventory.map_or(FirmwareMode::Unspecified, Inventory::firmware_mode);
    let architecture = architecture(machine);
    let has_loader = match architecture {
        "" => !loaders.is_empty(),
        architecture => loaders.iter().any(|it| it == architecture),
    };
    let boots = match mode {
        FirmwareMode::Bios => bios,
        FirmwareMode::Uefi => has_loader,
        // Only x86 has a BIOS.
        FirmwareMode::Unspecified => has_loader || bios && matches!(architecture, "" | "x86_64"),
    };
    match boots {
        true => Ok(()),
        false => Err(ImageError::FirmwareMode {
            name: image.name.clone(),
            reason: misfit(properties, mode, architecture),
        }),
    }
}

/// Returns why firmware in `mode` on a processor of `architecture` does not boot a disk.
fn misfit(properties: &ImageProperties, mode: FirmwareMode, architecture: &str) -> String {
    let (bios, loaders) = (properties.boots_bios, &properties.uefi_architectures);
    match mode {
        _ if !bios && loaders.is_empty() => "on any machine: it has no boot loader".to_owned(),
        FirmwareMode::Bios => {
            "by legacy BIOS, and the machine's firmware is in that mode".to_owned()
        }
        FirmwareMode::Uefi if loaders.is_empty() => {
            "by UEFI, and the machine's firmware is in that mode".to_owned()
        }
        FirmwareMode::Uefi | FirmwareMode::Unspecified => {
            let bios = bios.then_some("legacy BIOS");
            let own: Vec<_> = loaders.iter().map(String::as_str).chain(bios).collect();
            format!("on {architecture}: its boot loaders are for {}", own.join(", "))
        }
    }
}

/// Returns the processor architecture that `machine` reported, or the one in its record.
fn architecture(machine: &Hardware) -> &str {
    let reported = machine.inventory.as_ref().map(|it| it.architecture.as_str());
    reported.filter(|it| !it.is_empty()).unwrap_or(&machine.architecture)
}

/// Returns a size with one decimal place.
fn gibibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / GIB;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
