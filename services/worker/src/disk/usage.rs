//! The machine's disks, and what uses them, from sysfs and procfs.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Prefixes of kernel names of block devices that are not the machine's own disks.
const NOT_DISKS: [&str; 9] = ["dm-", "drbd", "fd", "loop", "md", "nbd", "ram", "sr", "zram"];

/// Returns the paths in `/dev` of the machine's writable, non-empty disks, in name order.
pub(crate) fn every_disk() -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut disks: Vec<_> = entries
        .filter(|entry| {
            is_disk_name(&entry.file_name().to_string_lossy()) && is_writable(&entry.path())
        })
        .map(|entry| Path::new("/dev").join(entry.file_name().to_string_lossy().replace('!', "/")))
        .collect();
    disks.sort();
    disks
}

/// Formats `disks` in one line.
pub(super) fn list(disks: &[PathBuf]) -> String {
    let names: Vec<_> = disks.iter().map(|disk| disk.display().to_string()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The kind of a block device, or of a file used as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// Firmware boots from it: a whole disk. A file counts as one.
    Disk,
    /// A part of a disk.
    Partition,
    /// A device that only the installed system makes, such as a logical volume.
    Volume,
}

/// Returns the kind of the block device `number`.
pub(super) fn kind(number: u64) -> DeviceKind {
    let Some(entry) = sysfs(number) else { return DeviceKind::Disk };
    let read = |attribute: &str| fs::read_to_string(entry.join(attribute)).ok();
    if entry.join("partition").exists() {
        return DeviceKind::Partition;
    }
    match (read("dm/uuid"), read("md/metadata_version")) {
        (Some(uuid), _) => kind_of_mapping(&uuid),
        // Firmware knows the arrays with metadata of another format than Linux's own.
        (None, Some(version)) if !version.starts_with("external:") => DeviceKind::Volume,
        (None, _) => DeviceKind::Disk,
    }
}

/// Returns the kind of a device of the device mapper by its UUID. It begins with the name of the
/// program that made it.
fn kind_of_mapping(uuid: &str) -> DeviceKind {
    match uuid.split_once('-').map_or("", |(made_by, _)| made_by) {
        // Several paths to one disk, and an array of firmware.
        "mpath" | "DMRAID" => DeviceKind::Disk,
        part if part.starts_with("part") => DeviceKind::Partition,
        _ => DeviceKind::Volume,
    }
}

/// Describes what uses the device `number` or one of its partitions: a mount, another device, or a program.
pub(super) fn explain(number: u64) -> String {
    let Some(disk) = sysfs(number) else { return "the kernel reports it as busy".into() };
    let inside = |number: &str| {
        fs::canonicalize(format!("/sys/dev/block/{number}")).is_ok_and(|it| it.starts_with(&disk))
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().filter_map(mount).find(|(number, _)| inside(number));
    if let Some((_, place)) = mounted {
        return format!("mounted on {place}");
    }
    match holder(&disk) {
        Some(holder) => format!("part of {holder}"),
        None => "another program or file system holds it".into(),
    }
}

/// Returns the device number and mount point in a line of mountinfo (proc(5)).
fn mount(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.split(' ').skip(2);
    Some((fields.next()?, fields.nth(1)?))
}

/// Returns the name of a device built on `disk` or on one of its partitions, such as a logical volume or a RAID.
fn holder(disk: &Path) -> Option<String> {
    let parts = fs::read_dir(disk).into_iter().flatten().flatten().map(|entry| entry.path());
    let places = std::iter::once(disk.to_owned()).chain(parts).map(|place| place.join("holders"));
    let mut holders = places.filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    holders.next().map(|holder| holder.file_name().to_string_lossy().into_owned())
}

fn sysfs(number: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()
}

/// True for the name of a block device that is one of the machine's own disks.
pub(crate) fn is_disk_name(name: &str) -> bool {
    !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix))
}

fn is_writable(entry: &Path) -> bool {
    let read = |attribute: &str| fs::read_to_string(entry.join(attribute)).unwrap_or_default();
    read("ro").trim() == "0" && read("size").trim() != "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_arrays_and_memory_are_not_the_machines_disks() {
        for disk in ["sda", "nvme0n1", "vda", "xvda", "mmcblk0", "pmem0"] {
            assert!(is_disk_name(disk), "{disk}");
        }
        for other in ["loop0", "dm-1", "md127", "ram3", "sr0", "zram0", "nbd2", "fd0"] {
            assert!(!is_disk_name(other), "{other}");
        }
    }

    #[test]
    fn mappings_are_disks_partitions_or_volumes() {
        for (uuid, kind) in [
            ("mpath-3600508b400105e210000900000490000\n", DeviceKind::Disk),
            ("DMRAID-isw_bhbgjccgde_Volume0", DeviceKind::Disk),
            ("part1-mpath-3600508b4", DeviceKind::Partition),
            ("LVM-0zWl8uCSTbAi", DeviceKind::Volume),
            ("CRYPT-LUKS2-4f0b-root", DeviceKind::Volume),
            ("", DeviceKind::Volume),
        ] {
            assert_eq!(kind_of_mapping(uuid), kind, "{uuid}");
        }
    }

    #[test]
    fn a_line_of_mountinfo_is_parsed_into_device_and_mount_point() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(mount(line), Some(("98:0", "/mnt2")));
        assert_eq!(mount("36 35"), None);
    }
}
