//! The operating system on an ext4, and its cloud-init.
//!
//! The library ext4-view is memory-safe, and reads through [`Volume`], which ends it after a number
//! of bytes: a hostile file system cannot keep it busy.

use std::collections::BTreeMap;

use ext4_view::{Ext4, Ext4Read};
use serde::{Deserialize, Serialize};

use crate::partitions::{FileSystem, Partition, field};
use crate::source::Source;
use crate::text::printable;

/// Maximum number of bytes that are read of a file system.
const MAX_READ_BYTES: u64 = 64 << 20;
/// Maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Maximum number of settings of cloud-init that are read.
const MAX_SETTINGS: usize = 64;
/// Maximum number of data sources that are listed.
const MAX_DATA_SOURCES: usize = 32;
/// Minimum number of blocks in a group, as mke2fs makes them.
const MIN_BLOCKS_PER_GROUP: u32 = 256;

const OS_RELEASE: &str = "/etc/os-release";
const CLOUD_SETTINGS: &str = "/etc/cloud/cloud.cfg";
const CLOUD_DIRECTORY: &str = "/etc/cloud/cloud.cfg.d";

/// Operating system, as its os-release(5) says. Texts are printable and short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// `ID`, such as `debian`.
    pub id: String,
    /// `VERSION_ID`, such as `12`.
    pub version: String,
    /// `PRETTY_NAME`, or `NAME`.
    pub name: String,
}

/// Settings of an installed cloud-init.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudInit {
    /// `datasource_list` of the last setting that has one. Empty if none has: cloud-init looks for
    /// all data sources then.
    pub data_sources: Vec<String>,
}

/// Reads the operating system on the file system of `root`.
pub(super) fn read(disk: &Source, root: &Partition) -> Option<(Option<System>, Option<CloudInit>)> {
    if root.file_system != FileSystem::Ext4 || !is_plausible(disk, root) {
        return None;
    }
    let volume = Volume {
        file: disk.file().ok()?,
        start: root.offset,
        bytes: root.bytes,
        left: MAX_READ_BYTES,
    };
    let volume = Ext4::load(Box::new(volume)).ok()?;
    let system = text(&volume, OS_RELEASE).and_then(|text| system(&text));
    Some((system, cloud_init(&volume)))
}

/// True if the superblock's numbers fit the partition. The library allocates as they say.
pub(super) fn is_plausible(disk: &Source, root: &Partition) -> bool {
    let superblock = disk.read(root.offset.saturating_add(1024), 1024).unwrap_or_default();
    let number = |at| field(&superblock, at).map(u32::from_le_bytes);
    let (Some(low), Some(shift), Some(per_group)) = (number(4), number(24), number(32)) else {
        return false;
    };
    const IS_64_BIT: u32 = 0x80;
    let high = match number(96).is_some_and(|features| features & IS_64_BIT != 0) {
        true => number(336).unwrap_or_default(),
        false => 0,
    };
    let blocks = u64::from(high) << 32 | u64::from(low);
    let bytes = 1024_u64.checked_shl(shift).and_then(|size| blocks.checked_mul(size));
    shift <= 6
        && per_group >= MIN_BLOCKS_PER_GROUP
        && bytes.is_some_and(|bytes| bytes <= root.bytes.min(disk.bytes()))
}

/// Returns the text of a small file.
fn text(volume: &Ext4, path: &str) -> Option<String> {
    let size = volume.metadata(path).ok()?.len();
    let content = (size <= MAX_FILE_BYTES).then(|| volume.read(path).ok())??;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// Parses os-release(5).
fn system(text: &str) -> Option<System> {
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let values: BTreeMap<_, _> = lines.map(|(key, value)| (key, unquoted(value))).collect();
    let value = |key| values.get(key).map(|value| printable(value.as_bytes())).unwrap_or_default();
    let system = System {
        id: value("ID"),
        version: value("VERSION_ID"),
        name: if values.contains_key("PRETTY_NAME") { value("PRETTY_NAME") } else { value("NAME") },
    };
    (system != System::default()).then_some(system)
}

/// Returns `value` without quotation marks, and without the backslash before a character.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let within = |mark| value.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
    let value = within('"').or_else(|| within('\'')).unwrap_or(value);
    let mut plain = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        plain.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    plain
}

/// Returns the settings of cloud-init, if it is installed. A later setting replaces an earlier one.
fn cloud_init(volume: &Ext4) -> Option<CloudInit> {
    let mut data_sources = data_sources(&text(volume, CLOUD_SETTINGS)?);
    let mut names = Vec::new();
    for entry in volume.read_dir(CLOUD_DIRECTORY).into_iter().flatten().take(MAX_SETTINGS) {
        let name = entry.ok().and_then(|it| it.file_name().as_str().ok().map(str::to_owned));
        names.extend(name.filter(|name| name.ends_with(".cfg")));
    }
    names.sort();
    for name in names {
        let text = text(volume, &format!("{CLOUD_DIRECTORY}/{name}"));
        data_sources = text.and_then(|text| self::data_sources(&text)).or(data_sources);
    }
    Some(CloudInit { data_sources: data_sources.unwrap_or_default() })
}

/// Returns the value of `datasource_list` in a setting: `[A, B]`, or lines of `- A`.
fn data_sources(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default());
    let value = lines.find_map(|line| line.strip_prefix("datasource_list:"))?.trim();
    let names: Vec<&str> = match value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(list) => list.split(',').collect(),
        None if value.is_empty() => lines.map_while(|it| it.trim().strip_prefix("- ")).collect(),
        None => vec![value],
    };
    let names = names.into_iter().map(unquoted).filter(|name| !name.is_empty());
    Some(names.map(|name| printable(name.as_bytes())).take(MAX_DATA_SOURCES).collect())
}

/// The bytes of a partition. A limited number of them may be read.
struct Volume {
    file: std::fs::File,
    start: u64,
    bytes: u64,
    left: u64,
}

impl Ext4Read for Volume {
    fn read(
        &mut self,
        from: u64,
        into: &mut [u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        use std::os::unix::fs::FileExt as _;
        let length = into.len() as u64;
        let end = from.checked_add(length).filter(|end| *end <= self.bytes);
        self.left =
            self.left.checked_sub(length).ok_or("the file system is too large to look at")?;
        if end.is_none() {
            return Err("behind the end of the partition".into());
        }
        Ok(self.file.read_exact_at(into, self.start.saturating_add(from))?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn os_release_has_quoted_values() {
        let text =
            "# comment\nID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME='Debian \\\"12\\\"'\nNAME=x\n";
        let expected =
            System { id: "debian".into(), version: "12".into(), name: "Debian \\\"12\\\"".into() };
        assert_eq!(system(text), Some(expected));
        assert_eq!(system("\u{1b}[31m"), None);
    }

    #[test]
    fn data_sources_are_read_from_both_forms_of_a_list() {
        let list = |text: &str| data_sources(text);
        let some = |names: &[&str]| Some(names.iter().map(|it| (*it).into()).collect());
        assert_eq!(
            list("a: 1\ndatasource_list: [ NoCloud, \"Ec2\" ] # x\n"),
            some(&["NoCloud", "Ec2"])
        );
        assert_eq!(list("datasource_list:\n  - Ec2\n  - None\nb: 1"), some(&["Ec2", "None"]));
        assert_eq!(list("datasource_list: []"), some(&[]));
        assert_eq!(list("# datasource_list: [Ec2]\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "(datasource_list:|ID=|[-\\[\\]\"'\\\\#\n ]|\\PC){0,40}") {
            let _either = (system(&text), data_sources(&text));
        }
    }
}
