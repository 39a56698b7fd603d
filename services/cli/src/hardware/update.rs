//! `hardware update`: from files or from options.

use std::path::PathBuf;
use std::str::FromStr;

use tinwright::disk_hint::ParseDiskHintError;
use tinwright::hardware::v1 as pb;

use crate::connect::Io;
use crate::output::Format;
use crate::resource::{self, FileOptions, Resource as _, SendOptions, UpdateOptions};

/// Options of an update.
#[derive(Debug, clap::Args)]
pub struct UpdateHardware {
    /// The machines whose fields are set
    #[arg(value_name = pb::Hardware::NAMES, requires = "root_disk", conflicts_with = "files")]
    names: Vec<String>,
    /// Set the root disk: the one with serial=, wwn=, medium=hdd|ssd|nvme, min-size=, max-size= and by-path= that choose=smallest|largest
    /// leaves, such as medium=ssd,min-size=400GB,choose=smallest; none removes it
    #[arg(long, value_name = "KEY=VALUE,…|none", requires = "names", conflicts_with = "files")]
    root_disk: Option<RootDisk>,
    /// Replace only this field, also if it is absent in the file; may be repeated [default: all fields but absent secrets]
    #[arg(long = "field", value_name = "NAME", requires = "files")]
    fields: Vec<String>,
    /// Read one or more objects from this YAML or JSON file; - for standard input
    #[arg(short, long = "file", value_name = "FILE", required_unless_present = "names")]
    files: Vec<PathBuf>,
    /// Change the name, the MACs and the addresses also of machines that instances occupy
    #[arg(long, requires = "files")]
    force: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// The value of `--root-disk`.
#[derive(Clone, Debug, PartialEq)]
struct RootDisk(Option<Box<pb::DiskHint>>);

impl FromStr for RootDisk {
    type Err = ParseDiskHintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(if text == "none" { None } else { Some(Box::new(text.parse()?)) }))
    }
}

/// Updates the machines that `options` describe. All are found before the first is changed.
pub(super) async fn run(options: UpdateHardware, io: &mut Io<'_>) -> anyhow::Result<()> {
    let UpdateHardware { names, root_disk, fields, files, force, output } = options;
    let Some(RootDisk(root_disk)) = root_disk else {
        let send = SendOptions { force, ..SendOptions::default() };
        let options = UpdateOptions { fields, files: FileOptions { files, output }, send };
        return resource::update::<pb::Hardware>(options, io).await;
    };
    let new = pb::Hardware { root_disk, ..pb::Hardware::default() };
    resource::set_fields(&names, &new, &["root_disk"], output, io).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_disk_is_a_hint_or_none() {
        assert_eq!("none".parse(), Ok(RootDisk(None)));
        let hint = pb::DiskHint { serial: "A1".into(), ..pb::DiskHint::default() };
        assert_eq!("serial=A1".parse(), Ok(RootDisk(Some(Box::new(hint)))));
        assert!("A1".parse::<RootDisk>().is_err());
    }
}
