//! The parts of this machine, from sysfs and procfs: what `ReportInventory` sends, and the links to disks in `/dev/disk`.
//!
//! Everything is read below a root directory, so that tests have trees of their own. A part that cannot be read is left out.

mod block_device;
mod disk_links;
mod machine;
mod network;
mod smbios;

use std::fs;
use std::path::Path;

use tinwright::hardware::v1 as pb;

pub use disk_links::refresh as refresh_disk_links;
pub(crate) use network::device_interfaces;

/// The longest text of an inventory; the rest is cut off.
const MAX_TEXT_BYTES: usize = 255;
/// The most disks of an inventory.
const MAX_DISKS: usize = 128;
/// The most network interfaces of an inventory.
const MAX_INTERFACES: usize = 64;

/// Returns the inventory of the machine whose file systems are below `root`.
pub fn collect(root: &Path) -> pb::Inventory {
    let tables = fs::read(root.join("sys/firmware/dmi/tables/DMI")).unwrap_or_default();
    let mut disks = block_device::disks(root);
    let mut interfaces = network::interfaces(root);
    disks.truncate(MAX_DISKS);
    interfaces.truncate(MAX_INTERFACES);
    let dmi = |name: &str| machine::identity_text(&text(&root.join("sys/class/dmi/id").join(name)));
    pb::Inventory {
        report_time: None,
        uuid: dmi("product_uuid").to_lowercase(),
        serial: dmi("product_serial"),
        vendor: dmi("sys_vendor"),
        product: dmi("product_name"),
        bmc_url: smbios::redfish_url(&tables).unwrap_or_default(),
        firmware_mode: machine::firmware_mode(root).into(),
        processors: machine::processors(root),
        memory_bytes: smbios::memory_bytes(&tables)
            .or_else(|| machine::kernel_memory_bytes(root))
            .unwrap_or_default(),
        disks,
        interfaces,
        tpm_version: machine::tpm_version(root),
        architecture: std::env::consts::ARCH.to_owned(),
    }
}

/// Returns the content of a file with one value; empty if it cannot be read.
pub(crate) fn text(path: &Path) -> String {
    let content = fs::read(path).unwrap_or_default();
    one_line(&String::from_utf8_lossy(&content))
}

/// Returns the number in a file with one value.
pub(crate) fn number(path: &Path) -> Option<u64> {
    text(path).parse().ok()
}

/// Returns `text` without control characters and surrounding white space, and at most as long as a text of an inventory.
pub(crate) fn one_line(text: &str) -> String {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    let text = text.trim();
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].trim_end().to_owned()
}

/// Returns the names in the directory `path`, in order.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
