//! Machines without libvirt and a BMC: each is a QEMU on the lab's bridge, on for as long as the process runs.
//!
//! Their disks hold an operating system that only says that it runs, and restarts. A restart is a machine's end.

use std::process::Command;

use crate::lab::Lab;
use crate::machines::{Firmware, Machine};
use setup::run;

/// What the operating system on the disks says.
pub const DISK_BOOTS: &str = "RACK the disk boots";
/// A machine's memory, in MiB.
const MEMORY: &str = "256";

/// How firmware boots from the network, before it boots the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By PXE over IPv4. UEFI goes on with HTTP, which is not switched off in a virtual one.
    Pxe,
    /// By HTTP; UEFI only.
    Http,
}

/// The machine with this number, from 1, with such a disk.
pub fn machine(lab: &Lab, number: u8, firmware: Firmware) -> anyhow::Result<Machine> {
    let script = setup::root().join("tests/rack/assets/disk/make.sh");
    run(Command::new("sh").arg(script).arg(lab.dir()))?;
    let disk = match firmware {
        Firmware::Bios => lab.path("bios.raw"),
        Firmware::Uefi => lab.path("uefi.raw"),
    };
    Ok(Machine { disk, ..Machine::new(lab, number, firmware)? })
}

impl Machine {
    /// Switches it on.
    pub fn power_on(&self, lab: &mut Lab, way: Way) -> anyhow::Result<()> {
        let tap = format!("tap-{}", self.name);
        lab.ip(&format!("tuntap add {tap} mode tap"))?;
        lab.ip(&format!("link set {tap} master br0 up"))?;
        let mut qemu = lab.command("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-m", MEMORY, "-display", "none", "-nodefaults", "-no-reboot"]);
        qemu.args(["-boot", "strict=on", "-uuid", &self.uuid, "-serial"]);
        qemu.arg(format!("file:{}", lab.path(format!("{}.serial", self.name)).display()));
        self.firmware(lab, way, &mut qemu)?;
        let disk = self.disk.display();
        qemu.arg("-drive").arg(format!("file={disk},format=raw,if=none,readonly=on,id=disk"));
        qemu.arg("-device").arg("virtio-blk-pci,drive=disk,bootindex=2");
        qemu.arg("-netdev").arg(format!("tap,id=net,ifname={tap},script=no,downscript=no"));
        lab.start(&self.name, &mut qemu)
    }

    /// What differs by firmware: chipset, settings, and whose driver boots from the network.
    fn firmware(&self, lab: &Lab, way: Way, qemu: &mut Command) -> anyhow::Result<()> {
        let interface = format!("virtio-net-pci,netdev=net,mac={},bootindex=1", self.mac);
        if self.firmware == Firmware::Bios {
            // Without graphics SeaBIOS and iPXE write to the serial port.
            qemu.args(["-machine", "pc,graphics=off", "-device", &interface]);
            return Ok(());
        }
        let variables = lab.path(format!("{}.vars", self.name));
        std::fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables)?;
        let code = "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd";
        qemu.args(["-machine", "q35", "-drive", code, "-drive"]);
        qemu.arg(format!("if=pflash,format=raw,file={}", variables.display()));
        qemu.arg("-device").arg(format!("{interface},romfile="));
        for (setting, off) in [("IPv4PXESupport", way == Way::Http), ("IPv6PXESupport", true)] {
            if off {
                qemu.arg("-fw_cfg").arg(format!("name=opt/org.tianocore/{setting},string=n"));
            }
        }
        Ok(())
    }
}
