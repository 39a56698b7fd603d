//! The built-in actions there are, and which of them an image reference names.

use std::fmt;

use crate::action::Terminal;
use crate::rootio::Subcommand;

/// An action this program carries out itself, without a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// Unpacks a tar into a file system.
    Archive2Disk,
    /// Runs a command in the installed system.
    Cexec,
    /// Has the installed system put its boot loader on a disk.
    Grub2Disk,
    /// Writes a disk image to a disk, and reads it back.
    Image2Disk,
    /// Goes on with the installed system's kernel, without the firmware in between.
    Kexec,
    /// Turns the machine off.
    PowerOff,
    /// Boots the machine again.
    Reboot,
    /// Prepares the disks that the instance's metadata describes.
    Rootio(Subcommand),
    /// Erases disks.
    Wipe,
    /// Writes one file into a file system.
    WriteFile,
}

/// Every built-in: the image that it stands in for, the command that the image is given, and what it is.
const TABLE: &[(&str, &str, Builtin)] = &[
    ("archive2disk", "", Builtin::Archive2Disk),
    ("cexec", "", Builtin::Cexec),
    ("grub2disk", "", Builtin::Grub2Disk),
    ("image2disk", "", Builtin::Image2Disk),
    ("kexec", "", Builtin::Kexec),
    ("poweroff", "", Builtin::PowerOff),
    ("reboot", "", Builtin::Reboot),
    ("rootio", "format", Builtin::Rootio(Subcommand::Format)),
    ("rootio", "mount", Builtin::Rootio(Subcommand::Mount)),
    ("rootio", "partition", Builtin::Rootio(Subcommand::Partition)),
    ("rootio", "version", Builtin::Rootio(Subcommand::Version)),
    ("rootio", "wipe", Builtin::Rootio(Subcommand::Wipe)),
    ("wipe", "", Builtin::Wipe),
    ("writefile", "", Builtin::WriteFile),
];

/// Whether a built-in may stand in for the image it is named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Unless the reference pins a digest, which means exactly that image.
    Prefer,
    /// Always: there is nothing else to run images with.
    Only,
    /// Not at all.
    Never,
}

impl Builtin {
    /// The built-in that `image` names under `policy`, if it is one. Its registry, tag and digest play no part; a
    /// `command` that is none of the table's means another program than the image's usual one.
    pub fn named(image: &str, command: &[String], policy: Policy) -> Option<Self> {
        let (name, digest) =
            image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
        let replaced = match policy {
            Policy::Never => false,
            Policy::Prefer => digest.is_none(),
            Policy::Only => true,
        };
        if !replaced {
            return None;
        }
        let name = name.rsplit('/').next()?.split(':').next()?;
        let words: Vec<_> = command.iter().filter(|word| !word.is_empty()).collect();
        let command = match words.as_slice() {
            [] => "",
            [word] => word.as_str(),
            [_, _, ..] => return None,
        };
        let row = TABLE.iter().find(|(image, given, _)| *image == name && *given == command);
        row.map(|(_, _, builtin)| *builtin)
    }

    /// What is left to the caller as its last act, if this is nothing but the end of the running system.
    pub fn terminal(self) -> Option<Terminal> {
        match self {
            Self::Reboot => Some(Terminal::Reboot),
            Self::PowerOff => Some(Terminal::PowerOff),
            Self::Archive2Disk
            | Self::Cexec
            | Self::Grub2Disk
            | Self::Image2Disk
            | Self::Kexec
            | Self::Rootio(_)
            | Self::Wipe
            | Self::WriteFile => None,
        }
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
    fn the_last_part_of_a_reference_names_the_built_in() {
        for image in [
            "quay.io/tinkerbell/actions/image2disk:latest",
            "quay.io/tinkerbell-actions/image2disk:v1.0.0",
            "127.0.0.1/embedded/image2disk:latest",
            "localhost:5000/image2disk",
            "image2disk:v1.0.0",
            "image2disk",
        ] {
            assert_eq!(
                Builtin::named(image, &[], Policy::Prefer),
                Some(Builtin::Image2Disk),
                "{image}"
            );
        }
        for image in
            ["quay.io/image2disk/custom", "image2disk-ng", "alpine", "", "image2disk:5000/os"]
        {
            assert_eq!(Builtin::named(image, &[], Policy::Only), None, "{image}");
        }
    }

    #[test]
    fn a_pinned_digest_means_that_very_image_while_there_is_a_choice() {
        for image in
            [format!("quay.io/tinkerbell/actions/cexec{DIGEST}"), format!("cexec:latest{DIGEST}")]
        {
            assert_eq!(Builtin::named(&image, &[], Policy::Prefer), None);
            assert_eq!(Builtin::named(&image, &[], Policy::Only), Some(Builtin::Cexec));
        }
        assert_eq!(Builtin::named("cexec", &[], Policy::Never), None);
    }

    #[test]
    fn a_command_of_its_own_is_not_a_built_in() {
        assert_eq!(Builtin::named("cexec", &words(&["sh"]), Policy::Only), None);
        assert_eq!(Builtin::named("cexec", &words(&[""]), Policy::Only), Some(Builtin::Cexec));
    }

    #[test]
    fn rootio_is_told_what_to_do_by_its_command() {
        let image = "quay.io/tinkerbell/actions/rootio:latest";
        let named = |command: &[&str]| Builtin::named(image, &words(command), Policy::Only);
        assert_eq!(named(&["partition"]), Some(Builtin::Rootio(Subcommand::Partition)));
        for other in [&[][..], &["help"], &["partition", "--force"]] {
            assert_eq!(named(other), None, "{other:?}");
        }
    }

    #[test]
    fn every_built_in_is_shown_as_it_is_called() {
        for (image, command, builtin) in TABLE {
            assert_eq!(Builtin::named(image, &words(&[command]), Policy::Only), Some(*builtin));
            assert_eq!(builtin.to_string(), format!("{image} {command}").trim_end());
        }
    }

    proptest! {
        #[test]
        fn no_reference_makes_the_naming_panic(
            image in "\\PC{0,60}",
            command in prop::collection::vec("\\PC{0,5}", 0..3),
        ) {
            let _either = Builtin::named(&image, &command, Policy::Only);
        }
    }
}
