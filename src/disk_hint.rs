//! The root disk of a machine: the disk in its inventory that fulfils a hint, and a path by which every boot finds it.

mod text;

use crate::check;
use crate::hardware::v1::disk_hint::Choose;
use crate::hardware::v1::{DiskHint, DiskMedium, Inventory, InventoryDisk};
use crate::status::Violations;

pub use text::{ParseDiskHintError, medium_word, size_text};

/// The longest text of a hint: the longest of an inventory.
const MAX_TEXT_BYTES: usize = 255;
/// The folder of links that say where a disk is connected.
const BY_PATH: &str = "/dev/disk/by-path/";

/// The reason for which no root disk is found. Its text names the candidates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The machine has not reported its disks.
    #[error(
        "the machine has no inventory: boot its in-memory environment once, which reports the disks"
    )]
    NoInventory,
    /// No disk fulfils the hint.
    #[error("no disk can be the root disk ({hint}): the machine has {disks}")]
    NoMatch {
        /// The hint.
        hint: String,
        /// All disks.
        disks: String,
    },
    /// Several disks fulfil the hint.
    #[error("several disks can be the root disk ({hint}): {disks}")]
    Ambiguous {
        /// The hint.
        hint: String,
        /// Those that fulfil it.
        disks: String,
    },
    /// The disk has no link of its own, and its name may be that of another one at the next boot.
    #[error("the root disk has no link of its own in /dev/disk: {disk}")]
    NoLink {
        /// The disk.
        disk: String,
    },
}

impl Error {
    /// Returns the reason for an `ErrorInfo`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoInventory | Self::NoMatch { .. } => "ROOT_DISK_MISSING",
            Self::Ambiguous { .. } | Self::NoLink { .. } => "ROOT_DISK_AMBIGUOUS",
        }
    }
}

/// Returns the path of the root disk of a machine with this inventory: a link in `/dev/disk` that no other disk has.
pub fn root_disk(hint: Option<&DiskHint>, inventory: Option<&Inventory>) -> Result<String, Error> {
    let disks = &inventory.ok_or(Error::NoInventory)?.disks;
    let disk = resolve(hint, disks)?;
    stable_path(disk, disks).ok_or_else(|| Error::NoLink { disk: text::list(&[disk]) })
}

/// Returns the one of `disks` that fulfils `hint`; without a hint, the only one that is not removable.
pub fn resolve<'a>(
    hint: Option<&DiskHint>,
    disks: &'a [InventoryDisk],
) -> Result<&'a InventoryDisk, Error> {
    let wanted = hint.cloned().unwrap_or_default();
    let fulfilling: Vec<_> = disks.iter().filter(|disk| fulfils(&wanted, disk)).collect();
    let sizes = fulfilling.iter().map(|disk| disk.size_bytes);
    let size = match wanted.choose() {
        Choose::Unspecified => None,
        Choose::Smallest => sizes.min(),
        Choose::Largest => sizes.max(),
    };
    let is_chosen = |disk: &&InventoryDisk| size.is_none_or(|size| size == disk.size_bytes);
    let chosen: Vec<_> = fulfilling.into_iter().filter(is_chosen).collect();
    let hint = || hint.map_or_else(|| "without a hint".to_owned(), |hint| format!("hint {hint}"));
    match chosen[..] {
        [disk] => Ok(disk),
        [] => {
            let all: Vec<_> = disks.iter().collect();
            Err(Error::NoMatch { hint: hint(), disks: text::list(&all) })
        }
        [_, _, ..] => Err(Error::Ambiguous { hint: hint(), disks: text::list(&chosen) }),
    }
}

/// True if `disk` fulfils all that `hint` says of a single disk.
fn fulfils(hint: &DiskHint, disk: &InventoryDisk) -> bool {
    let DiskHint { serial, wwn, min_size_bytes, max_size_bytes, medium, by_path, choose: _ } = hint;
    let names_one = [serial, wwn, by_path].iter().any(|text| !text.is_empty());
    (names_one || !disk.removable)
        && (serial.is_empty() || *serial == disk.serial)
        && (wwn.is_empty() || *wwn == disk.wwn)
        && (by_path.is_empty() || disk.by_path.contains(by_path))
        && disk.size_bytes >= *min_size_bytes
        && (*max_size_bytes == 0 || disk.size_bytes <= *max_size_bytes)
        && (hint.medium() == DiskMedium::Unspecified || *medium == disk.medium)
}

/// Returns the best link to `disk` that no other one of `disks` has. The name of the device is as good if it is the only disk.
fn stable_path(disk: &InventoryDisk, disks: &[InventoryDisk]) -> Option<String> {
    let links = |disk: &InventoryDisk| [&disk.by_id[..], &disk.by_path[..]].concat();
    let others: Vec<_> = disks.iter().filter(|other| other.name != disk.name).collect();
    let is_own = |link: &String| !others.iter().any(|other| links(other).contains(link));
    let name = others.is_empty().then(|| format!("/dev/{}", disk.name));
    links(disk).into_iter().filter(is_own).chain(name).find(|path| is_plain(path))
}

/// True if `path` has only such characters as udev leaves in names of links: it becomes a part of a template's YAML.
fn is_plain(path: &str) -> bool {
    path.chars().all(|it| it.is_ascii_alphanumeric() || "/#+-.:=@_".contains(it))
}

/// Normalizes a hint, and adds its violations to `wrong`.
pub fn normalize(hint: &mut DiskHint, wrong: &mut Violations) {
    if *hint == DiskHint::default() {
        wrong.add("", "is empty: set a field of it, or leave it out");
    }
    let DiskHint { serial, wwn, min_size_bytes, max_size_bytes, medium, by_path, choose } = hint;
    wrong.normalize_optional("serial", serial, one_line);
    wrong.normalize_optional("wwn", wwn, world_wide_name);
    wrong.normalize_optional("by_path", by_path, link);
    if *max_size_bytes > 0 && min_size_bytes > max_size_bytes {
        wrong.add("min_size_bytes", format!("{min_size_bytes} is above max_size_bytes"));
    }
    if DiskMedium::try_from(*medium).is_err() {
        wrong.add("medium", "is not a value of its enum");
    }
    if Choose::try_from(*choose).is_err() {
        wrong.add("choose", "is not a value of its enum");
    }
}

fn one_line(value: &str) -> Result<String, String> {
    let value = value.trim();
    check::length(value, MAX_TEXT_BYTES).map_err(|error| error.to_string())?;
    match value.is_empty() || value.contains(char::is_control) {
        true => Err("is blank, or has a control character".into()),
        false => Ok(value.to_owned()),
    }
}

fn world_wide_name(value: &str) -> Result<String, String> {
    let name = one_line(value)?.to_lowercase();
    let is_number = name.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(if is_number { format!("0x{name}") } else { name })
}

fn link(value: &str) -> Result<String, String> {
    let path = one_line(value)?;
    let name = path.strip_prefix(BY_PATH);
    match name.is_some_and(|name| !name.is_empty() && !name.contains('/')) {
        true => Ok(path),
        false => Err(format!("is not a link in {BY_PATH}")),
    }
}

#[cfg(test)]
mod tests;
