//! Network interfaces.

use std::fs;
use std::path::Path;

use tinwright::Mac;
use tinwright::hardware::v1 as pb;

use super::{names, text};

/// Returns the names of the interfaces that are devices, in order.
pub(crate) fn device_interfaces(root: &Path) -> Vec<String> {
    let folder = root.join("sys/class/net");
    let mut names = names(&folder);
    names.retain(|name| folder.join(name).join("device").exists());
    names
}

/// Returns the Ethernet interfaces that are devices, in the order of their names.
pub(super) fn interfaces(root: &Path) -> Vec<pb::InventoryInterface> {
    let folder = root.join("sys/class/net");
    let names = device_interfaces(root);
    names.iter().filter_map(|name| interface(&folder.join(name), name)).collect()
}

fn interface(folder: &Path, name: &str) -> Option<pb::InventoryInterface> {
    let mac: Mac = text(&folder.join("address")).parse().ok()?;
    let driver = fs::read_link(folder.join("device/driver")).unwrap_or_default();
    let driver = driver.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let link = text(&folder.join("carrier")) == "1";
    // The file has -1 if the speed is unknown, as in virtual machines.
    let speed_mbps = text(&folder.join("speed")).parse().ok().filter(|_| link);
    Some(pb::InventoryInterface {
        name: name.to_owned(),
        mac: mac.to_string(),
        driver,
        speed_mbps: speed_mbps.filter(|speed| *speed != u32::MAX).unwrap_or_default(),
        link,
        lldp_neighbour: None,
    })
}
