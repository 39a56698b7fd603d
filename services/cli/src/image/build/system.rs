//! The packages and settings of a built system.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;

use super::Ids;
use crate::image::interrupt::Interrupt;
use crate::image::{BuildOptions, cloud_init, programs};

/// Packages besides Debian's essential ones: what a server needs to boot, to get its address and its settings, and to be logged in to.
const PACKAGES: &[&str] = &[
    "ca-certificates",
    "cloud-guest-utils", // growpart, for cloud-init
    "cloud-init",
    "dbus",
    "e2fsprogs",
    "fdisk",
    "grub-cloud-amd64", // GRUB for BIOS and UEFI, with Secure Boot
    "ifupdown",
    "initramfs-tools",
    "iproute2",
    "iputils-ping",
    "isc-dhcp-client",
    "kmod",
    "less",
    "nano",
    "netbase",
    "openssh-server",
    "procps",
    "sudo", // for the user that cloud-init makes
    "systemd-sysv",
    "udev",
    "zstd",
];

/// Modules of GRUB's core for BIOS: those that it needs until it can read its directory.
const CORE_MODULES: &[&str] =
    &["biosdisk", "part_gpt", "ext2", "search_fs_uuid", "normal", "configfile"];

/// The directory of GRUB for BIOS in the system.
const GRUB_BIOS: &str = "boot/grub/i386-pc";

/// Installs the packages into the new directory `root`.
pub(super) async fn install(
    options: &BuildOptions,
    suite: &str,
    root: &Path,
    interrupt: &mut Interrupt,
) -> anyhow::Result<()> {
    let own = PACKAGES.iter().copied();
    let more = options.packages.iter().map(String::as_str);
    let packages: Vec<_> = own.chain([options.kernel.as_str()]).chain(more).collect();
    // It mounts /dev, /proc and /sys of the host below the directory. Only it sees these mounts: they are gone once its processes have ended.
    let mut command = programs::command("unshare");
    command.args(["--mount", "--propagation", "private", "mmdebstrap"]);
    command.args(["--variant=minbase", "--format=directory"]);
    command.arg(format!("--include={}", packages.join(",")));
    command.arg(format!("--components={}", options.components.join(",")));
    if let Some(keyring) = &options.keyring {
        command.arg("--keyring").arg(keyring);
    }
    command.arg("--").arg(suite).arg(root).args(&options.mirrors);
    let is_shown = std::io::stderr().is_terminal();
    if is_shown {
        // Its progress is on standard error.
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
    }
    let output = interrupt.output(command).await?;
    anyhow::ensure!(!is_shown || output.status.success(), "mmdebstrap failed, as it says above");
    programs::check("mmdebstrap", &output)
}

/// Makes the settings of the system in `root`: those that every machine gets, and those that a machine makes at its first start are removed.
pub(super) fn set_up(options: &BuildOptions, root: &Path, ids: Ids) -> anyhow::Result<()> {
    let parameters = &options.kernel_parameters;
    let metadata = options.metadata_url.as_str();
    let cloud_init = format!("{}/{}", cloud_init::DIRECTORY, cloud_init::FILE);
    let cloud_init = cloud_init.trim_start_matches('/');
    for (path, content) in [
        ("etc/hostname", "localhost\n".to_owned()),
        ("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".into()),
        ("etc/resolv.conf", String::new()),
        // Empty: made at the first start.
        ("etc/machine-id", String::new()),
        ("etc/fstab", fstab(ids)),
        (cloud_init, cloud_init::setting(metadata)),
        ("etc/cloud/cloud.cfg.d/80-image.cfg", CLOUD_INIT.into()),
        // Tells grub-cloud-amd64 to install GRUB when it is upgraded.
        ("etc/grub.d/enable_cloud", String::new()),
        ("etc/default/grub.d/50-image.cfg", grub_defaults(parameters)),
        ("boot/grub/grub.cfg", grub_cfg(parameters, ids)),
    ] {
        write(root, path, &content)?;
    }
    std::fs::create_dir_all(root.join("boot/efi")).context("making boot/efi")?;
    for entry in entries(&root.join("etc/ssh"))? {
        if entry.to_string_lossy().contains("/ssh_host_") {
            std::fs::remove_file(&entry).with_context(|| entry.display().to_string())?;
        }
    }
    Ok(())
}

/// Settings for cloud-init: sources of packages are the ones of the build; no locale is generated, since the image has only C.UTF-8.
const CLOUD_INIT: &str =
    "apt_preserve_sources_list: true\nlocale: C.UTF-8\nmanage_etc_hosts: true\n";

fn fstab(ids: Ids) -> String {
    format!(
        "UUID={} / ext4 errors=remount-ro 0 1\nUUID={} /boot/efi vfat umask=0077,nofail 0 2\n",
        ids.root,
        ids.esp_text()
    )
}

/// Settings for later runs of update-grub in the installed system.
fn grub_defaults(parameters: &str) -> String {
    let quoted = parameters.replace('\'', r"'\''");
    format!("GRUB_CMDLINE_LINUX='{quoted}'\nGRUB_TIMEOUT=1\n")
}

/// The menu of the first start. update-grub, which an upgrade of the kernel runs, replaces it: it needs the disk, so it cannot run here.
fn grub_cfg(parameters: &str, ids: Ids) -> String {
    let root = ids.root;
    format!(
        "set timeout=1
serial --speed=115200
terminal_input console serial
terminal_output console serial
menuentry 'Debian GNU/Linux' {{
    search --no-floppy --fs-uuid --set=root {root}
    linux /vmlinuz root=UUID={root} ro {parameters}
    initrd /initrd.img
}}
"
    )
}

/// Returns GRUB's commands that find its directory.
pub(super) fn find_root(ids: Ids) -> String {
    format!("search.fs_uuid {} root\nset prefix=($root)/boot/grub\n", ids.root)
}

/// Puts GRUB for BIOS into the system in `root`, and returns its core.img.
pub(super) async fn grub_core(
    root: &Path,
    ids: Ids,
    interrupt: &mut Interrupt,
) -> anyhow::Result<Vec<u8>> {
    let directory = root.join(GRUB_BIOS);
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for file in entries(&root.join("usr/lib/grub/i386-pc"))? {
        let is_module = file.extension().is_some_and(|it| it == "mod" || it == "lst");
        if is_module && let Some(name) = file.file_name() {
            std::fs::copy(&file, directory.join(name))
                .with_context(|| file.display().to_string())?;
        }
    }
    write(root, &format!("{GRUB_BIOS}/load.cfg"), &find_root(ids))?;
    let mut mkimage = programs::command("chroot");
    mkimage.arg(root).args(["grub-mkimage", "--format=i386-pc", "--prefix=/boot/grub"]);
    mkimage.arg(format!("--config=/{GRUB_BIOS}/load.cfg"));
    mkimage.arg(format!("--output=/{GRUB_BIOS}/core.img")).args(CORE_MODULES);
    interrupt.run(mkimage).await?;
    let core = directory.join("core.img");
    std::fs::read(&core).with_context(|| core.display().to_string())
}

/// Writes a file below `root`, in place of a file or a symbolic link.
fn write(root: &Path, path: &str, content: &str) -> anyhow::Result<()> {
    let path = root.join(path);
    let writing = || format!("writing {}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(writing)?;
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.with_context(writing)?,
    }
    let mut file = File::create_new(&path).with_context(writing)?;
    file.write_all(content.as_bytes()).with_context(writing)
}

/// Returns the paths of the entries of `directory`.
fn entries(directory: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.with_context(|| directory.display().to_string())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const IDS: Ids = Ids { root: Uuid::from_u128(7), esp: 0x1a2b_00ff };

    #[test]
    fn all_parts_name_the_same_file_systems() {
        let root = "00000000-0000-0000-0000-000000000007";
        assert_eq!(
            fstab(IDS),
            format!(
                "UUID={root} / ext4 errors=remount-ro 0 1\nUUID=1A2B-00FF /boot/efi vfat umask=0077,nofail 0 2\n"
            )
        );
        let menu = grub_cfg("console=ttyS1", IDS);
        assert!(menu.contains(&format!("linux /vmlinuz root=UUID={root} ro console=ttyS1\n")));
        assert!(menu.contains(&format!("--set=root {root}\n")));
        assert!(find_root(IDS).starts_with(&format!("search.fs_uuid {root} root\n")));
    }

    #[test]
    fn kernel_parameters_are_one_text_for_update_grub() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("grub");
        std::fs::write(&path, grub_defaults("quiet a='b c' $HOME")).unwrap();
        let script = format!(". {}; printf %s \"$GRUB_CMDLINE_LINUX\"", path.display());
        let (printed, _) = programs::run(programs::command("sh").args(["-c", &script])).unwrap();
        assert_eq!(printed, "quiet a='b c' $HOME");
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (root, host) = (place.path().join("root"), place.path().join("host"));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(&host, "the host's").unwrap();
        std::os::unix::fs::symlink(&host, root.join("etc/resolv.conf")).unwrap();
        write(&root, "etc/resolv.conf", "the image's").unwrap();
        assert_eq!(std::fs::read_to_string(&host).unwrap(), "the host's");
        let written = std::fs::read_to_string(root.join("etc/resolv.conf")).unwrap();
        assert_eq!(written, "the image's");
    }
}
