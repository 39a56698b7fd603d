//! The table of built-in actions, and the lookup by image reference.

use std::fmt;

use crate::context::Terminal;
use crate::environment::Environment;
use crate::rootio::Subcommand;

/// An action that the worker runs itself, without a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// Unpacks a tar into a file system.
    Archive2Disk,
    /// Runs a command in the installed system.
    Cexec,
    /// Runs the installed system's own boot loader installation.
    Grub2Disk,
    /// Writes a disk image to a disk, and verifies it.
    Image2Disk,
    /// Boots the installed system's kernel without going through firmware.
    Kexec,
    /// Reboots the machine or powers it off.
    Terminal(Terminal),
    /// Partitions and formats the disks as the instance's metadata describes.
    Rootio(Subcommand),
    /// Erases disks.
    Wipe,
    /// Writes one file into a file system.
    WriteFile,
}

/// The code of each action in [`actions::ACTIONS`]. Columns: the image that it replaces, the command for that image, the code.
const TABLE: &[(&str, &str, Builtin)] = &[
    ("archive2disk", "", Builtin::Archive2Disk),
    ("cexec", "", Builtin::Cexec),
    ("grub2disk", "", Builtin::Grub2Disk),
    ("image2disk", "", Builtin::Image2Disk),
    ("kexec", "", Builtin::Kexec),
    ("poweroff", "", Builtin::Terminal(Terminal::PowerOff)),
    ("reboot", "", Builtin::Terminal(Terminal::Reboot)),
    ("rootio", "format", Builtin::Rootio(Subcommand::Format)),
    ("rootio", "mount", Builtin::Rootio(Subcommand::Mount)),
    ("rootio", "partition", Builtin::Rootio(Subcommand::Partition)),
    ("rootio", "version", Builtin::Rootio(Subcommand::Version)),
    ("rootio", "wipe", Builtin::Rootio(Subcommand::Wipe)),
    ("wipe", "", Builtin::Wipe),
    ("writefile", "", Builtin::WriteFile),
];

impl Builtin {
    /// True if a new attempt finds on the disk what an interrupted one has written, and goes on there.
    pub fn can_go_on(self, environment: &Environment) -> bool {
        self == Self::Image2Disk && environment.optional("IMG_MAP").is_some()
    }

    /// Returns the built-in action that replaces `image`, if there is one. Registry, tag and digest are ignored,
    /// because images are never pulled. None if the table does not list `command`: it requests another program than the
    /// image's usual one.
    pub fn find(image: &str, command: &[String]) -> Option<Self> {
        let action = actions::find(image, command).ok()?;
        let row = TABLE
            .iter()
            .find(|(image, command, _)| (*image, *command) == (action.image, action.command));
        row.map(|(_, _, builtin)| *builtin)
    }

    /// Returns the reboot or power-off, if this action is one.
    pub fn terminal(self) -> Option<Terminal> {
        if let Self::Terminal(terminal) = self { Some(terminal) } else { None }
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = TABLE.iter().find(|(_, _, builtin)| builtin == self);
        let (image, command) = row.map_or(("", ""), |(image, command, _)| (*image, *command));
        f.write_str(image)?;
        if command.is_empty() { Ok(()) } else { write!(f, " {command}") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "@sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_last_path_component_of_a_reference_names_the_built_in() {
        for image in [
            "quay.io/tinkerbell/actions/image2disk:latest",
            "quay.io/tinkerbell-actions/image2disk:v1.0.0",
            "127.0.0.1/embedded/image2disk:latest",
            "localhost:5000/image2disk",
            "image2disk:v1.0.0",
            "image2disk",
        ] {
            assert_eq!(Builtin::find(image, &[]), Some(Builtin::Image2Disk), "{image}");
        }
        for image in
            ["quay.io/image2disk/custom", "image2disk-ng", "alpine", "", "image2disk:5000/os"]
        {
            assert_eq!(Builtin::find(image, &[]), None, "{image}");
        }
    }

    #[test]
    fn a_pinned_digest_is_ignored() {
        for image in
            [format!("quay.io/tinkerbell/actions/cexec{DIGEST}"), format!("cexec:latest{DIGEST}")]
        {
            assert_eq!(Builtin::find(&image, &[]), Some(Builtin::Cexec));
        }
    }

    #[test]
    fn an_unlisted_command_is_not_a_built_in() {
        assert_eq!(Builtin::find("cexec", &words(&["sh"])), None);
        assert_eq!(Builtin::find("cexec", &words(&[""])), Some(Builtin::Cexec));
    }

    #[test]
    fn the_command_selects_the_step_of_rootio() {
        let image = "quay.io/tinkerbell/actions/rootio:latest";
        let find = |command: &[&str]| Builtin::find(image, &words(command));
        assert_eq!(find(&["partition"]), Some(Builtin::Rootio(Subcommand::Partition)));
        for other in [&[][..], &["help"], &["partition", "--force"]] {
            assert_eq!(find(other), None, "{other:?}");
        }
    }

    #[test]
    fn every_action_of_the_table_has_its_code() {
        let listed: Vec<_> = actions::ACTIONS.iter().map(|it| (it.image, it.command)).collect();
        let coded: Vec<_> = TABLE.iter().map(|(image, command, _)| (*image, *command)).collect();
        assert_eq!(listed, coded);
    }

    /// Returns the names in upper case that the code of an action quotes.
    fn quoted_names(source: &str) -> impl Iterator<Item = &str> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        let is_name = |text: &&str| {
            // Not a variable of an action.
            let is_own = *text != "CARGO_PKG_VERSION";
            let letters = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
            is_own
                && text.len() > 2
                && text.bytes().all(letters)
                && text.starts_with(char::is_alphabetic)
        };
        words.filter(is_name)
    }

    #[test]
    fn the_code_of_an_action_reads_only_variables_that_the_table_has() {
        for (image, command, source) in [
            ("archive2disk", "", include_str!("archive2disk.rs")),
            ("archive2disk", "", include_str!("image_keys.rs")),
            ("cexec", "", include_str!("cexec.rs")),
            ("grub2disk", "", include_str!("grub2disk.rs")),
            ("image2disk", "", include_str!("image2disk/options.rs")),
            ("image2disk", "", include_str!("image_keys.rs")),
            ("kexec", "", include_str!("kexec.rs")),
            ("rootio", "partition", include_str!("rootio.rs")),
            ("rootio", "partition", include_str!("rootio/metadata.rs")),
            ("wipe", "", include_str!("wipe.rs")),
            ("writefile", "", include_str!("writefile.rs")),
        ] {
            let action = actions::find(image, &words(&[command])).unwrap();
            let names: Vec<_> = quoted_names(source).collect();
            assert!(!names.is_empty(), "{image}");
            for name in names {
                let is_listed = action.variables.iter().any(|variable| variable.name == name);
                assert!(is_listed, "{image} reads {name}");
            }
        }
    }

    #[test]
    fn the_text_of_a_built_in_is_its_image_and_command() {
        for (image, command, builtin) in TABLE {
            assert_eq!(Builtin::find(image, &words(&[command])), Some(*builtin));
            assert_eq!(builtin.to_string(), format!("{image} {command}").trim_end());
        }
    }

    proptest! {
        #[test]
        fn find_never_panics(
            image in "\\PC{0,60}",
            command in prop::collection::vec("\\PC{0,5}", 0..3),
        ) {
            let _either = Builtin::find(&image, &command);
        }
    }
}
