//! The links to disks and partitions in `/dev/disk`, as udev would make them: the in-memory environment has no udev.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tinwright::hardware::v1 as pb;

use super::{block_device, names, number};

/// Makes the links of all disks and partitions that are below `root` now, and removes those of others.
pub fn refresh(root: &Path) -> io::Result<()> {
    let wanted = links(root, &block_device::disks(root));
    for folder in ["dev/disk/by-id", "dev/disk/by-path"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder)?;
        for name in names(&folder) {
            let link = folder.join(name);
            if wanted.get(&link) != fs::read_link(&link).ok().as_ref() {
                fs::remove_file(link)?;
            }
        }
    }
    for (link, target) in wanted {
        match symlink(target, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the links with their targets. Of two disks that claim one name, the first keeps it.
fn links(root: &Path, disks: &[pb::InventoryDisk]) -> BTreeMap<PathBuf, PathBuf> {
    let mut links = BTreeMap::new();
    for disk in disks {
        let partitions = partitions(&root.join("sys/block").join(&disk.name));
        for link in disk.by_id.iter().chain(&disk.by_path) {
            let mut add = |link: String, device: &str| {
                let target = Path::new("../..").join(device);
                links.entry(root.join(link.trim_start_matches('/'))).or_insert(target);
            };
            add(link.clone(), &disk.name);
            for (number, device) in &partitions {
                add(format!("{link}-part{number}"), device);
            }
        }
    }
    links
}

/// Returns number and name of each partition of the disk whose folder in sysfs is `disk`.
fn partitions(disk: &Path) -> Vec<(u64, String)> {
    let number_of = |name: &str| number(&disk.join(name).join("partition"));
    names(disk).into_iter().filter_map(|name| Some((number_of(&name)?, name))).collect()
}
