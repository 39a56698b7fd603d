//! A machine with the Debian system that the rack installs, booted directly, without firmware and network. Its commands come from a shell for root
//! on its second serial port (systemd-debug-generator(8)).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rack::lab::{Lab, wait};
use rack::provision::images;
use rack::shell::Shell;
use setup::run;

/// The folder of the files that it gets.
pub(crate) const FILES: &str = "/mnt";
/// Its memory, in MiB.
const MEMORY_MIB: &str = "1024";
/// The size of its root file system. The file is sparse.
const ROOT_SIZE: &str = "3G";
/// The size of the file system with its files, in bytes. The file is sparse.
const FILES_BYTES: u64 = 1 << 30;
/// Units that take minutes without KVM, and that nothing here needs.
const SLOW_UNITS: [&str; 3] = ["e2scrub_reap.service", "serial-getty@ttyS0.service", "ssh.service"];
/// Maximum time of a boot without KVM.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum time of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// A running machine. The lab ends it.
#[derive(Debug)]
pub(crate) struct Machine {
    shell: Shell,
    boots: usize,
}

impl Machine {
    /// Boots it in `lab`, and waits until systemd has started everything. The files in `files` are below [`FILES`].
    pub(crate) fn boot(lab: &mut Lab, files: &Path) -> anyhow::Result<Self> {
        let images = images()?;
        let (root, boot, disk) = (lab.path("root.raw"), lab.path("boot"), lab.path("files.raw"));
        std::fs::create_dir(&boot)?;
        write_root(&images.join("debian-bios.raw.zst"), &root)?;
        let mut tar = Command::new("tar");
        tar.args(["--wildcards", "--strip-components=2", "-xf"])
            .arg(images.join("debian-root.tar"));
        run(tar.arg("-C").arg(&boot).args(["./boot/vmlinuz-*", "./boot/initrd.img-*"]))?;
        std::fs::File::create(&disk)?.set_len(FILES_BYTES)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(files).arg(&disk))?;
        let socket = lab.path("debian.shell");
        let mut qemu = lab.command("qemu-system-x86_64");
        qemu.args("-accel tcg,thread=single -cpu max -nodefaults -display none".split(' '));
        qemu.args(["-m", MEMORY_MIB, "-append", &kernel_parameters()]);
        qemu.arg("-serial").arg(format!("file:{}", lab.path("debian.serial").display()));
        qemu.arg("-serial").arg(format!("unix:{},server=on,wait=off", socket.display()));
        qemu.arg("-kernel").arg(named(&boot, "vmlinuz-")?);
        qemu.arg("-initrd").arg(named(&boot, "initrd.img-")?);
        for (disk, options) in [(&root, "cache=unsafe"), (&disk, "readonly=on")] {
            let disk = format!("file={},format=raw,if=virtio,{options}", disk.display());
            qemu.arg("-drive").arg(disk);
        }
        lab.start("debian", &mut qemu)?;
        let mut machine = Self { shell: Shell::connect(&socket)?, boots: 0 };
        machine.wait_for_start(lab)?;
        Ok(machine)
    }

    /// Restarts the system, and waits until systemd has started everything.
    pub(crate) fn restart(&mut self, lab: &mut Lab) -> anyhow::Result<()> {
        // After the answer of the shell, which ends with the system.
        self.shell.run("( (sleep 2; systemctl reboot) & )")?;
        self.wait_for_start(lab)
    }

    fn wait_for_start(&mut self, lab: &mut Lab) -> anyhow::Result<()> {
        self.boots += 1;
        let started = wait("the start of Debian", BOOT_TIMEOUT, || {
            if lab.has_ended("debian").ok()? {
                return Some(false);
            }
            let console = std::fs::read(lab.path("debian.serial")).unwrap_or_default();
            let console = String::from_utf8_lossy(&console);
            let is_end =
                |line: &&str| line.contains("Reached target") && line.contains("multi-user.target");
            (console.lines().filter(is_end).count() == self.boots).then_some(true)
        })?;
        anyhow::ensure!(started, "QEMU ended: {}", lab.log("debian"));
        self.run(&format!("mount -o ro /dev/vdb {FILES}")).map(drop)
    }

    /// Runs `line`. Returns what it prints; a status other than 0 is an error.
    pub(crate) fn run(&mut self, line: &str) -> anyhow::Result<String> {
        let quoted = line.replace('\'', r"'\''");
        let command = format!("HOME=/root sh -c '{quoted}' </dev/null >/run/output 2>&1");
        self.shell
            .run(&format!("rm -f /run/status; ( ({command}; echo $? >/run/status) & )"))
            .with_context(|| line.to_owned())?;
        let status = wait(line, COMMAND_TIMEOUT, || {
            let status = self.shell.run("cat /run/status 2>/dev/null; true").ok()?;
            status.trim().parse::<i32>().ok()
        })?;
        let output = self.shell.run("cat /run/output")?;
        anyhow::ensure!(status == 0, "{line}: status {status}: {output}");
        Ok(output)
    }
}

/// Writes the root file system of the disk image `image` to `root`, and makes it larger, for several versions of our programs.
fn write_root(image: &Path, root: &Path) -> anyhow::Result<()> {
    let disk = root.with_extension("disk");
    run(Command::new("zstd").args(["-dq"]).arg(image).arg("-o").arg(&disk))?;
    // The only partition begins after one MiB, and ends with the disk.
    let mut dd = Command::new("dd");
    dd.args(["bs=1M", "skip=1", "conv=sparse", "status=none"]);
    run(dd.arg(format!("if={}", disk.display())).arg(format!("of={}", root.display())))?;
    std::fs::remove_file(disk)?;
    let quiet = || std::process::Stdio::null();
    run(Command::new("e2fsck").args(["-f", "-p"]).arg(root).stdout(quiet()))?;
    run(Command::new("resize2fs").arg(root).arg(ROOT_SIZE).stdout(quiet()).stderr(quiet()))
}

fn kernel_parameters() -> String {
    // On a busy host an emulated timer is late; a kernel that checks it stops. Nothing here answers cloud-init.
    let quick = "panic=-1 mitigations=off no_timer_check cloud-init=disabled";
    let masked = SLOW_UNITS.map(|unit| format!(" systemd.mask={unit}")).concat();
    format!(
        "root=LABEL=root ro console=ttyS0 net.ifnames=0 {quick} systemd.debug_shell=ttyS1{masked}"
    )
}

/// Returns the file in `folder` whose name begins with `prefix`.
fn named(folder: &Path, prefix: &str) -> anyhow::Result<std::path::PathBuf> {
    let paths = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let has_prefix = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    paths.into_iter().find(has_prefix).with_context(|| format!("no {prefix}* in the image"))
}
