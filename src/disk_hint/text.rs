//! Hints and disks as people write and read them: `medium=ssd,min-size=400GB,choose=smallest`.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::hardware::v1::disk_hint::Choose;
use crate::hardware::v1::{DiskHint, DiskMedium, InventoryDisk};

/// Disks that a text lists; of more, it says the number.
const MAX_LISTED_DISKS: usize = 16;
/// The longest name or serial number that a text shows.
const MAX_SHOWN_CHARS: usize = 64;
/// Units of sizes, the largest first.
const UNITS: [(&str, u64); 6] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
];

/// A text that is no hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDiskHintError {
    /// A part has no known key.
    #[error("{0:?} is none of serial=, wwn=, medium=, min-size=, max-size=, by-path=, choose=")]
    Part(String),
    /// A value has the wrong form.
    #[error("{value:?} is not a {wanted}")]
    Value {
        /// The value.
        value: String,
        /// The required form.
        wanted: &'static str,
    },
}

impl FromStr for DiskHint {
    type Err = ParseDiskHintError;

    /// Reads parts of the form key=value, with commas between them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut hint = Self::default();
        for part in text.split(',') {
            let unknown = || ParseDiskHintError::Part(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let wrong =
                |wanted| move || ParseDiskHintError::Value { value: value.to_owned(), wanted };
            match key {
                "serial" => value.clone_into(&mut hint.serial),
                "wwn" => value.clone_into(&mut hint.wwn),
                "by-path" => value.clone_into(&mut hint.by_path),
                "medium" => {
                    let medium = medium(value).ok_or_else(wrong("medium: hdd, ssd or nvme"))?;
                    hint.set_medium(medium);
                }
                "min-size" => {
                    hint.min_size_bytes = size(value).ok_or_else(wrong("size, such as 400GB"))?;
                }
                "max-size" => {
                    hint.max_size_bytes = size(value).ok_or_else(wrong("size, such as 400GB"))?;
                }
                "choose" => hint.set_choose(match value {
                    "smallest" => Choose::Smallest,
                    "largest" => Choose::Largest,
                    _ => return Err(wrong("choice: smallest or largest")()),
                }),
                _ => return Err(unknown()),
            }
        }
        Ok(hint)
    }
}

impl Display for DiskHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |bytes: u64| match bytes {
            0 => String::new(),
            _ => UNITS.iter().find(|(_, unit)| bytes.is_multiple_of(*unit)).map_or_else(
                || bytes.to_string(),
                |(name, unit)| format!("{}{name}", bytes / unit),
            ),
        };
        let choose = match self.choose() {
            Choose::Unspecified => "",
            Choose::Smallest => "smallest",
            Choose::Largest => "largest",
        };
        let parts = [
            ("serial", self.serial.clone()),
            ("wwn", self.wwn.clone()),
            ("medium", medium_word(self.medium()).to_owned()),
            ("min-size", exact(self.min_size_bytes)),
            ("max-size", exact(self.max_size_bytes)),
            ("by-path", self.by_path.clone()),
            ("choose", choose.to_owned()),
        ];
        let set = parts.into_iter().filter(|(_, value)| !value.is_empty());
        let set: Vec<_> = set.map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&set.join(","))
    }
}

/// Returns the medium as people write it, such as `ssd`; empty if it is unknown.
pub fn medium_word(medium: DiskMedium) -> &'static str {
    match medium {
        DiskMedium::Unspecified => "",
        DiskMedium::Hdd => "hdd",
        DiskMedium::Ssd => "ssd",
        DiskMedium::Nvme => "nvme",
    }
}

fn medium(word: &str) -> Option<DiskMedium> {
    let mut media = [DiskMedium::Hdd, DiskMedium::Ssd, DiskMedium::Nvme].into_iter();
    media.find(|medium| medium_word(*medium) == word)
}

/// Reads a size above zero: bytes, or a number with a unit.
fn size(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_number)?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// Returns a size of a disk as vendors write it: in powers of ten; empty if it is unknown.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        1..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        1_000_000_000.. => format!("{} GB", bytes / 1_000_000_000),
    }
}

/// Lists disks, each with its name, serial number or WWN, size and medium.
pub(super) fn list(disks: &[&InventoryDisk]) -> String {
    let shown = disks.iter().take(MAX_LISTED_DISKS).map(|disk| describe(disk));
    let more = disks.len().saturating_sub(MAX_LISTED_DISKS);
    let more = (more > 0).then(|| format!("{more} more"));
    let all: Vec<_> = shown.chain(more).collect();
    if all.is_empty() { "no disk".into() } else { all.join(", ") }
}

fn describe(disk: &InventoryDisk) -> String {
    let short = |text: &str| text.chars().take(MAX_SHOWN_CHARS).collect::<String>();
    let identity = match (&*disk.serial, &*disk.wwn) {
        ("", "") => "no serial".to_owned(),
        ("", wwn) => format!("WWN {}", short(wwn)),
        (serial, _) => format!("serial {}", short(serial)),
    };
    let removable = if disk.removable { "removable" } else { "" };
    let medium = medium_word(disk.medium()).to_owned();
    let details = [identity, size_text(disk.size_bytes), medium, removable.to_owned()];
    let details: Vec<_> = details.into_iter().filter(|it| !it.is_empty()).collect();
    format!("{} ({})", short(&disk.name), details.join(", "))
}
