//! The table of actions.

use std::fmt;

/// A built-in action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The last part of the path of the image that it replaces.
    pub image: &'static str,
    /// The command for that image; empty for the image's own.
    pub command: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Its variables.
    pub variables: &'static [Variable],
    /// True if it runs programs, which get all variables, also those that are not listed.
    pub runs_programs: bool,
}

/// A variable of an action. An empty value counts as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Whether the action can run without it.
    pub need: Need,
    /// The value that holds without it; empty if there is none.
    pub default: &'static str,
    /// Its meaning, with the form of its values.
    pub meaning: &'static str,
}

/// Whether an action can run without a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It cannot.
    Required,
    /// It can.
    Optional,
    /// It can if one of these other variables has a value.
    Unless(&'static [&'static str]),
}

/// The variables that the worker sets for every action. Those of a template override them.
pub const STANDARD_VARIABLES: &[&str] = &[
    "TINK_WORKFLOW_ID",
    "TINK_TASK_ID",
    "TINK_ACTION_ID",
    "TINK_LEASE_ID",
    "TINK_ATTEMPT",
    "TINK_BOOT_ID",
    "TINK_HARDWARE_ID",
    "TINK_INSTANCE_ID",
];

const fn required(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, need: Need::Required, default: "", meaning }
}

const fn unless(
    others: &'static [&'static str],
    name: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable { name, need: Need::Unless(others), default: "", meaning }
}

const fn optional(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, need: Need::Optional, default, meaning }
}

const FS_TYPE: Variable = optional(
    "FS_TYPE",
    "any that the kernel supports",
    "file system of the partition, such as `ext4`",
);
const PROGRESS: Variable = optional(
    "PROGRESS_INTERVAL_SECONDS",
    "1",
    "interval between reports of progress, in whole seconds, at least 1",
);

const IMG_NAME: Variable = optional(
    "IMG_NAME",
    "",
    "name of the image; required on a machine that installs signed images only",
);
const IMG_SIGNATURE: Variable = optional(
    "IMG_SIGNATURE",
    "",
    "signatures of the image, as `minisign` writes them, one after another, or base64 of that; required on such a machine",
);

/// Reads the instance's metadata, in which the disks are described.
const STORAGE: &[Variable] = &[
    unless(&["TEST"], "MIRROR_HOST", "host name or address of the metadata server"),
    optional("METADATA_SERVICE_PORT", "50061", "port of the metadata server"),
    optional("MBR", "", "any text: an MBR is written instead of a GPT"),
    optional("TEST", "", "any text: the metadata is read from `JSON_FILE` instead"),
    optional("JSON_FILE", "", "file with the metadata; required with `TEST`"),
];

const ARCHIVE2DISK: &[Variable] = &[
    required("ARCHIVE_URL", "URL of the archive: `http`, `https`, or a path on the boot server"),
    required(
        "ARCHIVE_TYPE",
        "`targz`: the archive must be compressed; `tar`: it is decompressed if its first bytes show a known format",
    ),
    IMG_NAME,
    IMG_SIGNATURE,
    required("DEST_DISK", "partition to which it is extracted"),
    FS_TYPE,
    optional("DEST_PATH", "the root directory", "directory in the file system, created if missing"),
    unless(
        &["INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION"],
        "TARFILE_CHECKSUM",
        "`sha256:…` or `sha512:…` of the downloaded file, or of the tar in it",
    ),
    optional(
        "INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION",
        "false",
        "`true`: no checksum is required or compared",
    ),
    optional(
        "HTTP_CLIENT_TIMEOUT_MINUTES",
        "10",
        "minutes without a new byte after which the download fails; 0: never",
    ),
];

const CEXEC: &[Variable] = &[
    required("BLOCK_DEVICE", "partition with the installed system"),
    required("FS_TYPE", "file system of the partition, such as `ext4`"),
    required("CMD_LINE", "commands separated by `;`, their words by spaces, without quoting"),
    optional(
        "DEFAULT_INTERPRETER",
        "",
        "program that gets the whole line as one argument instead, such as `/bin/sh -c`",
    ),
    optional(
        "CHROOT",
        "mounted at `/mountAction`",
        "any text: the system is the command's root directory, with `/dev`, `/proc` and `/sys`",
    ),
    optional(
        "UPDATE_RESOLV_CONF",
        "false",
        "`true`: resolv.conf of the installation environment is mounted over that of the installed system",
    ),
    optional("JSON_OUTOUT", "", "accepted, without effect"),
];

const GRUB2DISK: &[Variable] = &[
    required("GRUB_DISK", "partition with the installed system"),
    FS_TYPE,
    required(
        "GRUB_INSTALL_PATH",
        "disk to boot from, and options of `grub-install`, separated by spaces",
    ),
];

const IMAGE2DISK: &[Variable] = &[
    required("IMG_URL", "URL of the image: `http`, `https`, or a path on the boot server"),
    optional(
        "IMG_MAP",
        "",
        "URL of the map of the image in `IMG_URL`, or a path on the boot server: only blocks that the disk lacks are downloaded",
    ),
    optional("IMG_MAP_SHA256", "", "SHA-256 of the map; required with `IMG_MAP`"),
    IMG_NAME,
    IMG_SIGNATURE,
    required("DEST_DISK", "disk, partition or file to which it is written; it must exist"),
    optional(
        "COMPRESSED",
        "decompressed if its first bytes show a known format",
        "`true`: the image must be compressed; `false`: it is written as it is",
    ),
    optional(
        "IMG_SHA256",
        "",
        "`sha256:…` or `sha512:…` of the downloaded file, before decompression",
    ),
    optional("IMG_CHECKSUM", "", "the same; overrides `IMG_SHA256`"),
    optional(
        "IMG_ANY_CONTENT",
        "false",
        "`true`: an image that the disk cannot boot from is written; `COMPRESSED` and `IMG_FORCE` do not imply it",
    ),
    optional(
        "IMG_FORCE",
        "false",
        "`true`: a disk in use is written to, and the part of the image beyond the disk's end is dropped",
    ),
    optional("IMG_VERIFY", "true", "`false`: the image is not read back"),
    optional("RETRY_ENABLED", "true", "`false`: the download fails at its first interruption"),
    optional(
        "RETRY_DURATION_MINUTES",
        "10",
        "minutes without a new byte after which the download fails",
    ),
    PROGRESS,
    optional("TEXT_LOGGING", "", "accepted, without effect"),
];

const KEXEC: &[Variable] = &[
    required("BLOCK_DEVICE", "partition with kernel and initrd"),
    FS_TYPE,
    optional(
        "KERNEL_PATH",
        "that of GRUB's default entry",
        "kernel, relative to the root directory of the file system",
    ),
    optional("INITRD_PATH", "", "with `KERNEL_PATH`: its initrd, or several, separated by spaces"),
    optional(
        "CMD_LINE",
        "without `KERNEL_PATH` those of GRUB's default entry",
        "arguments of the kernel",
    ),
    optional("GRUBCFG_PATH", "boot/grub/grub.cfg", "configuration of GRUB"),
];

const WIPE: &[Variable] = &[
    unless(
        &["WIPE_DISKS"],
        "DEST_DISK",
        "disks to erase, separated by commas; excludes `WIPE_DISKS`",
    ),
    optional(
        "WIPE_DISKS",
        "",
        "`all`: every disk of the machine, but no read-only disks, empty drives, or devices built on other disks",
    ),
    PROGRESS,
];

const WRITEFILE: &[Variable] = &[
    required("DEST_DISK", "partition in which the file is written"),
    FS_TYPE,
    required("DEST_PATH", "absolute path of the file; links are followed inside the file system"),
    optional("CONTENTS", "empty", "content of the file"),
    required("UID", "owner, decimal"),
    required("GID", "group, decimal"),
    required("MODE", "permissions of the file, octal"),
    required("DIRMODE", "permissions of directories that are created for it, octal"),
];

const fn action(
    image: &'static str,
    command: &'static str,
    variables: &'static [Variable],
    summary: &'static str,
) -> Action {
    Action { image, command, summary, variables, runs_programs: false }
}

const fn program(action: Action) -> Action {
    Action { runs_programs: true, ..action }
}

/// All built-in actions, in the order of their images.
pub const ACTIONS: &[Action] = &[
    action("archive2disk", "", ARCHIVE2DISK, "extracts a tar into a file system"),
    program(action("cexec", "", CEXEC, "runs a command in the installed system")),
    program(action(
        "grub2disk",
        "",
        GRUB2DISK,
        "installs the boot loader with the installed system's own programs",
    )),
    action("image2disk", "", IMAGE2DISK, "writes a disk image, and verifies it"),
    action(
        "kexec",
        "",
        KEXEC,
        "boots the installed system's kernel without going through firmware",
    ),
    action("poweroff", "", &[], "powers the machine off"),
    action("reboot", "", &[], "reboots the machine"),
    program(action(
        "rootio",
        "format",
        STORAGE,
        "creates the file systems that the instance's metadata describes",
    )),
    program(action(
        "rootio",
        "mount",
        &[],
        "does nothing: each action mounts its file systems itself",
    )),
    program(action(
        "rootio",
        "partition",
        STORAGE,
        "writes the partition tables that the instance's metadata describes",
    )),
    program(action("rootio", "version", &[], "prints the version")),
    program(action(
        "rootio",
        "wipe",
        STORAGE,
        "erases partition tables and file system signatures",
    )),
    action("wipe", "", WIPE, "erases disks"),
    action("writefile", "", WRITEFILE, "writes a file into a file system"),
];

/// Image and command.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.image)?;
        if self.command.is_empty() { Ok(()) } else { write!(f, " {}", self.command) }
    }
}
