//! The images that are mapped.

use std::path::Path;

use super::options::{NO_SNAPSHOT, RbdImage};
use crate::{Result, sysfs};

/// A mapped image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RbdDevice {
    /// N of `/dev/rbdN`.
    pub id: u32,
    /// Name of the pool.
    pub pool: String,
    /// Namespace in the pool; empty for the default one.
    pub namespace: String,
    /// Name of the image.
    pub image: String,
    /// Name of the snapshot, or `-` for the image itself.
    pub snapshot: String,
}

impl RbdDevice {
    /// Returns the device that mapping `image` leads to, without its number.
    pub(super) fn of(image: &RbdImage) -> Self {
        Self {
            id: u32::MAX,
            pool: image.pool.clone(),
            namespace: image.options.namespace.clone(),
            image: image.image.clone(),
            snapshot: image.kernel_snapshot().to_owned(),
        }
    }

    /// True if both are the same snapshot of the same image, whatever their numbers.
    pub(super) fn is_same_image(&self, other: &Self) -> bool {
        let Self { id: _, pool, namespace, image, snapshot } = other;
        &self.pool == pool
            && &self.namespace == namespace
            && &self.image == image
            && &self.snapshot == snapshot
    }

    /// Returns the name as rbd(8) writes it, for messages.
    pub(super) fn name(&self) -> String {
        let Self { id: _, pool, namespace, image, snapshot } = self;
        let pool = if namespace.is_empty() { pool.clone() } else { format!("{pool}/{namespace}") };
        if snapshot == NO_SNAPSHOT {
            return format!("rbd image {pool}/{image}");
        }
        format!("rbd image {pool}/{image}@{snapshot}")
    }
}

/// Returns the mapped images by number.
pub(super) fn list(bus: &Path) -> Result<Vec<RbdDevice>> {
    let directory = bus.join("devices");
    let mut devices = Vec::new();
    for id in sysfs::entries(&directory)?.iter().filter_map(|name| name.parse().ok()) {
        devices.extend(read(&directory.join(format!("{id}")), id)?);
    }
    devices.sort_unstable_by_key(|device| device.id);
    Ok(devices)
}

/// Returns one mapped image, or `None` if it is unmapped meanwhile.
fn read(directory: &Path, id: u32) -> Result<Option<RbdDevice>> {
    let attribute = |name: &str| sysfs::attribute(&directory.join(name));
    let (Some(pool), Some(image)) = (attribute("pool")?, attribute("name")?) else {
        return Ok(None);
    };
    // Older kernels have no namespaces, and no attribute for the snapshot of an image that has none.
    let namespace = attribute("pool_ns")?.unwrap_or_default();
    let snapshot = attribute("current_snap")?.filter(|name| !name.is_empty());
    let snapshot = snapshot.unwrap_or_else(|| NO_SNAPSHOT.to_owned());
    Ok(Some(RbdDevice { id, pool, namespace, image, snapshot }))
}
