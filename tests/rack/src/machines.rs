//! Machines run by libvirt: firmware, a network interface on the bridge, a disk file, a serial log.

mod disks;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use crate::lab::{Lab, wait};
pub use disks::{ScsiDisk, reads_as_zeroes};
use setup::run;
use tinwright::hardware::v1::{DiskMedium, FirmwareMode, Inventory};

/// A machine's firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS, with iPXE in the interface's ROM.
    Bios,
    /// OVMF, with its own network stack.
    Uefi,
}

/// A machine of the rack.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The name and host name.
    pub name: String,
    /// System UUID, by which the BMC identifies it.
    pub uuid: String,
    /// MAC of its only interface.
    pub mac: String,
    /// Its reserved IPv4 address.
    pub address: String,
    /// Its firmware.
    pub firmware: Firmware,
    /// The disk image, a sparse file.
    pub disk: PathBuf,
    /// Size of the disk, in bytes.
    pub disk_bytes: u64,
    /// Further disks. It boots from them last.
    pub scsi_disks: Vec<ScsiDisk>,
    /// True if its second serial port is the socket [`Machine::shell`].
    pub has_shell: bool,
    /// True if it has a TPM 2.0.
    pub has_tpm: bool,
    /// Offset by which its hardware clock is behind at power on.
    pub clock_behind: Duration,
    /// True if its firmware boots from the network first.
    pub boots_from_network: bool,
    /// Its memory, in MiB.
    pub memory_mib: u64,
}

/// The default size of the disk of a machine, in bytes.
const DISK_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Disables IPv6 in OVMF, as operators do in firmware settings: each boot would try PXE and HTTP over it, more than a minute each.
const NO_IPV6: &str = "<sysinfo type='fwcfg'>\
<entry name='opt/org.tianocore/IPv6Support'>n</entry></sysinfo>";
/// A TPM 2.0 by swtpm, which libvirt starts with the machine.
const TPM: &str = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>";
/// An instruction for random numbers, which libvirt's model lacks: without one, each system needs a
/// second of processor time to collect them.
const RANDOM_NUMBERS: &str = "<feature policy='require' name='rdrand'/>";
/// The default memory of a machine, in MiB.
const MEMORY_MIB: u64 = 1280;

impl Machine {
    /// Creates machine `number`, counted from 1, powered off, with an empty disk.
    pub fn new(lab: &Lab, number: u8, firmware: Firmware) -> anyhow::Result<Self> {
        let disk = lab.path(format!("m{number}.raw"));
        std::fs::File::create(&disk)?.set_len(DISK_BYTES)?;
        Ok(Self {
            name: format!("m{number}"),
            uuid: format!("00000000-0000-4000-8000-0000000000{number:02x}"),
            mac: format!("52:54:00:00:01:{number:02x}"),
            address: format!("198.51.100.{}", 10 + number),
            firmware,
            disk,
            disk_bytes: DISK_BYTES,
            scsi_disks: Vec::new(),
            has_shell: false,
            has_tpm: false,
            clock_behind: Duration::ZERO,
            boots_from_network: true,
            memory_mib: MEMORY_MIB,
        })
    }

    /// Adds an empty SCSI disk of `gib` GiB, with a serial number and a World Wide Name of its own.
    pub fn with_scsi_disk(mut self, lab: &Lab, gib: u64, is_ssd: bool) -> anyhow::Result<Self> {
        let number = self.scsi_disks.len() + 1;
        self.scsi_disks.push(ScsiDisk::new(lab, &self.name, number, gib << 30, is_ssd)?);
        Ok(self)
    }

    /// Adds an empty SCSI disk of `gib` GiB that cannot be written. It is counted, and it is not wiped: a machine has a large
    /// disk, and a wipe takes no longer.
    pub fn with_read_only_disk(mut self, lab: &Lab, gib: u64) -> anyhow::Result<Self> {
        self = self.with_scsi_disk(lab, gib, true)?;
        if let Some(disk) = self.scsi_disks.last_mut() {
            disk.is_read_only = true;
        }
        Ok(self)
    }

    /// Puts another empty disk of the same kind and size into the place of a SCSI disk. Takes effect when the machine is defined again.
    /// Returns the disk that was taken out.
    pub fn exchange_disk(&mut self, lab: &Lab, place: usize) -> anyhow::Result<ScsiDisk> {
        let old = self.scsi_disks.get_mut(place).context("no such disk")?;
        let new = ScsiDisk::new(lab, &self.name, place + 101, old.bytes, old.is_ssd)?;
        Ok(std::mem::replace(old, new))
    }

    /// Takes the medium of its disk out: what is left is a drive of size 0, as an empty card reader is. The BMC's emulator refuses to set the boot
    /// device of a machine without a drive.
    pub fn without_disk(self) -> anyhow::Result<Self> {
        std::fs::File::options().write(true).open(&self.disk)?.set_len(0)?;
        Ok(Self { disk_bytes: 0, ..self })
    }

    /// Adds a second serial port, for a shell.
    #[must_use]
    pub fn with_shell(self) -> Self {
        Self { has_shell: true, ..self }
    }

    /// Returns the socket of its second serial port, which is there while it is on.
    pub fn shell(&self, lab: &Lab) -> PathBuf {
        lab.path(format!("{}.shell", self.name))
    }

    /// Adds a TPM.
    #[must_use]
    pub fn with_tpm(self) -> Self {
        Self { has_tpm: true, ..self }
    }

    /// Sets its memory.
    #[must_use]
    pub fn with_memory_mib(self, memory_mib: u64) -> Self {
        Self { memory_mib, ..self }
    }

    /// Sets the offset of the hardware clock.
    #[must_use]
    pub fn with_clock_behind(self, clock_behind: Duration) -> Self {
        Self { clock_behind, ..self }
    }

    /// Takes the network interface out of the boot order, and its ROM away.
    #[must_use]
    pub fn without_network_boot(self) -> Self {
        Self { boots_from_network: false, ..self }
    }

    /// Checks that `inventory` is what the hypervisor gave the machine. Panics if it is not.
    pub fn assert_inventory(&self, inventory: &Inventory) {
        let mode = match self.firmware {
            Firmware::Bios => FirmwareMode::Bios,
            Firmware::Uefi => FirmwareMode::Uefi,
        };
        assert_eq!(inventory.uuid, self.uuid);
        assert_eq!(inventory.firmware_mode(), mode);
        let tpm_version = if self.has_tpm { "2.0" } else { "" };
        assert_eq!(inventory.memory_bytes, self.memory_mib << 20);
        assert_eq!(inventory.tpm_version, tpm_version, "{}", self.name);
        assert_eq!(inventory.processors.as_ref().map(|it| (it.sockets, it.cores)), Some((1, 1)));
        let macs: Vec<_> = inventory.interfaces.iter().map(|it| it.mac.as_str()).collect();
        assert_eq!(macs, [self.mac.as_str()]);
        // A set: the kernel names them in any order.
        let found = inventory.disks.iter().map(|disk| {
            let wwn = disk.wwn.trim_start_matches("0x");
            (disk.serial.as_str(), wwn, disk.size_bytes, disk.medium() == DiskMedium::Ssd)
        });
        let disks = self.scsi_disks.iter();
        let given = disks.map(|it| (it.serial.as_str(), it.wwn.as_str(), it.bytes, it.is_ssd));
        let given = given.chain([("", "", self.disk_bytes, false)]);
        assert_eq!(found.collect::<BTreeSet<_>>(), given.collect());
    }

    /// Returns the file with the output of its serial port, which exists once it was on.
    pub fn serial(&self, lab: &Lab) -> PathBuf {
        lab.path(format!("{}.serial", self.name))
    }

    /// Returns the output of its serial port.
    pub fn console(&self, lab: &Lab) -> String {
        let bytes = std::fs::read(self.serial(lab)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns libvirt's description of the machine.
    fn domain(&self, lab: &Lab) -> String {
        let Self { name, uuid, mac, disk, clock_behind, memory_mib, .. } = self;
        let (chipset, loader, settings, rom) = match self.firmware {
            Firmware::Bios => ("pc", String::new(), "", ""),
            Firmware::Uefi => {
                let variables = lab.path(format!("{name}.vars"));
                let loader = format!(
                    "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>\
                     <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>{}</nvram>",
                    variables.display()
                );
                // Without the interface's ROM, OVMF's own driver boots.
                ("q35", loader, NO_IPV6, "<rom enabled='no'/>")
            }
        };
        let (order, rom) = match self.boots_from_network {
            true => ("<boot order='1'/>", rom),
            false => ("", "<rom enabled='no'/>"),
        };
        let (disk, serial) = (disk.display(), self.serial(lab));
        let (shell, tpm) = (self.shell_device(lab), if self.has_tpm { TPM } else { "" });
        let behind = clock_behind.as_secs();
        let scsi_disks: String =
            self.scsi_disks.iter().zip('a'..).zip(3..).map(ScsiDisk::device).collect();
        format!(
            "<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>{memory_mib}</memory>
<vcpu>1</vcpu><os><type arch='x86_64' machine='{chipset}'>hvm</type>{loader}
</os>{settings}<features><acpi/></features>
<clock offset='variable' adjustment='-{behind}' basis='utc'/>
<cpu mode='custom' match='exact'><model fallback='allow'>qemu64</model>{RANDOM_NUMBERS}</cpu>
<on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe' discard='unmap'/>
<source file='{disk}'/><target dev='vda' bus='virtio'/><boot order='2'/></disk>{scsi_disks}
<interface type='bridge'><mac address='{mac}'/><source bridge='br0'/><model type='virtio'/>{order}{rom}</interface>
{tpm}<controller type='scsi' index='0' model='virtio-scsi'/><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
<serial type='file'><source path='{serial}' append='on'/><target port='0'/></serial>{shell}</devices></domain>",
            serial = serial.display()
        )
    }

    /// Returns libvirt's description of its second serial port.
    fn shell_device(&self, lab: &Lab) -> String {
        match self.has_shell {
            true => format!(
                "<serial type='unix'><source mode='bind' path='{}'/><target port='1'/></serial>",
                self.shell(lab).display()
            ),
            false => String::new(),
        }
    }
}

/// libvirt in the lab.
#[derive(Debug)]
pub struct Hypervisor {
    /// The connection URI for clients.
    pub uri: String,
}

impl Hypervisor {
    /// Starts libvirtd in `lab` with its own state, so that several can run at the same time.
    pub fn start(lab: &mut Lab) -> anyhow::Result<Self> {
        let sockets = lab.path("libvirt");
        std::fs::create_dir(&sockets)?;
        let folder = sockets.display();
        std::fs::write(
            sockets.join("libvirtd.conf"),
            format!(
                "unix_sock_dir = \"{folder}\"\nunix_sock_rw_perms = \"0777\"\n\
                 auth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n"
            ),
        )?;
        std::fs::write(
            sockets.join("qemu.conf"),
            "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\n\
             stdio_handler = \"file\"\nremember_owner = 0\nnamespaces = []\n\
             swtpm_user = \"root\"\nswtpm_group = \"root\"\n",
        )?;
        let script = format!(
            "for d in /run/libvirt /var/lib/libvirt /var/log/libvirt /etc/libvirt/qemu \\
               /var/lib/swtpm-localca /var/log/swtpm; do
               mkdir -p $d; mount -t tmpfs t $d; done
             mount --bind {folder}/qemu.conf /etc/libvirt/qemu.conf
             exec libvirtd --config {folder}/libvirtd.conf --pid-file {folder}/libvirtd.pid"
        );
        let mut command = lab.command("unshare");
        command.args(["-m", "--propagation", "slave", "sh", "-c", &script]);
        lab.start("libvirtd", &mut command)?;
        let socket = sockets.join("libvirt-sock");
        let hypervisor = Self { uri: format!("qemu+unix:///system?socket={}", socket.display()) };
        // At its first start libvirt probes the capabilities of every QEMU binary, which takes a while.
        wait("libvirt", Duration::from_secs(60), || {
            let output = hypervisor.virsh().args(["list", "--name"]).output();
            output.is_ok_and(|output| output.status.success()).then_some(())
        })?;
        Ok(hypervisor)
    }

    /// Defines `machine`, powered off; again after its disks were exchanged.
    pub fn define(&self, lab: &Lab, machine: &Machine) -> anyhow::Result<()> {
        let file = lab.path(format!("{}.xml", machine.name));
        std::fs::write(&file, machine.domain(lab))?;
        let mut define = self.virsh();
        run(define.arg("--quiet").arg("define").arg(&file)).context("defining a machine")
    }

    /// True if `machine` is powered on; its CPU may be paused.
    pub fn is_on(&self, machine: &Machine) -> anyhow::Result<bool> {
        let state = self.virsh().args(["domstate", &machine.name]).output()?;
        Ok(matches!(String::from_utf8_lossy(&state.stdout).trim(), "running" | "paused"))
    }

    /// Returns the number of the run of `machine`: it has another one after each power on, and none while it is off.
    pub fn run_of(&self, machine: &Machine) -> anyhow::Result<Option<u64>> {
        let id = self.virsh().args(["domid", &machine.name]).output()?;
        anyhow::ensure!(id.status.success(), "virsh domid: {}", id.status);
        Ok(String::from_utf8_lossy(&id.stdout).trim().parse().ok())
    }

    /// Switches `machine` on, as somebody who stands before it.
    pub fn power_on(&self, machine: &Machine) -> anyhow::Result<()> {
        run(self.virsh().args(["--quiet", "start", &machine.name]))
    }

    /// Switches `machine` off, as somebody who stands before it.
    pub fn power_off(&self, machine: &Machine) -> anyhow::Result<()> {
        run(self.virsh().args(["--quiet", "destroy", &machine.name]))
    }

    /// Resets `machine`, as somebody who stands before it.
    pub fn reset(&self, machine: &Machine) -> anyhow::Result<()> {
        run(self.virsh().args(["--quiet", "reset", &machine.name]))
    }

    /// Creates the folder in which sushy-emulator stores images for virtual media, as a storage pool of libvirt.
    pub fn create_media_pool(&self, lab: &Lab) -> anyhow::Result<()> {
        let folder = lab.path("media");
        std::fs::create_dir(&folder)?;
        let mut create = self.virsh();
        create.args(["--quiet", "pool-create-as", "default", "dir", "--target"]).arg(&folder);
        run(&mut create).context("creating the pool of virtual media")
    }

    /// True if `machine` has a CD at its next power on.
    pub fn has_cd(&self, machine: &Machine) -> anyhow::Result<bool> {
        let description = self.virsh().args(["dumpxml", "--inactive", &machine.name]).output()?;
        anyhow::ensure!(description.status.success(), "virsh dumpxml: {}", description.status);
        Ok(String::from_utf8_lossy(&description.stdout).contains("device='cdrom'"))
    }

    /// Pauses the CPU of `machine`.
    pub fn suspend(&self, machine: &Machine) -> anyhow::Result<()> {
        run(self.virsh().args(["--quiet", "suspend", &machine.name]))
    }

    /// Resumes the CPU of `machine`.
    pub fn resume(&self, machine: &Machine) -> anyhow::Result<()> {
        run(self.virsh().args(["--quiet", "resume", &machine.name]))
    }

    /// Plugs the network cable of `machine` in, or pulls it out, from its next power on.
    pub fn plug_cable(&self, machine: &Machine, is_plugged: bool) -> anyhow::Result<()> {
        let state = if is_plugged { "up" } else { "down" };
        let arguments = ["domif-setlink", &machine.name, &machine.mac, state, "--config"];
        run(self.virsh().arg("--quiet").args(arguments))
    }

    /// Plugs the network cable of `machine`, which is on, in, or pulls it out.
    pub fn plug_cable_now(&self, machine: &Machine, is_plugged: bool) -> anyhow::Result<()> {
        let state = if is_plugged { "up" } else { "down" };
        run(self.virsh().args(["--quiet", "domif-setlink", &machine.name, &machine.mac, state]))
    }

    fn virsh(&self) -> Command {
        let mut virsh = Command::new("virsh");
        virsh.args(["-c", &self.uri]);
        virsh
    }
}
