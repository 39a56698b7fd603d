//! Machines without libvirt and BMC: each is one QEMU process on the lab's bridge.
//!
//! The disk holds a minimal operating system that prints a line and restarts. QEMU ends at the restart.

use std::process::Command;

use crate::lab::Lab;
use crate::machines::{Firmware, Machine};
use setup::run;

/// The line that the operating system on the disk prints.
pub const DISK_BOOTS: &str = "RACK the disk boots";
/// A machine's memory, in MiB.
const MEMORY_MIB: &str = "256";

/// The firmware's first network boot method; the disk comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkBoot {
    /// PXE over IPv4. UEFI then tries HTTP, which cannot be disabled in OVMF.
    Pxe,
    /// HTTP boot, UEFI only.
    Http,
}

/// Creates machine `number`, counted from 1, with such a disk.
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
    /// Starts its QEMU process.
    pub fn power_on(&self, lab: &mut Lab, method: NetworkBoot) -> anyhow::Result<()> {
        let tap = format!("tap-{}", self.name);
        lab.ip(&format!("tuntap add {tap} mode tap"))?;
        lab.ip(&format!("link set {tap} master br0 up"))?;
        let mut qemu = lab.command("qemu-system-x86_64");
        qemu.args([
            "-accel",
            "tcg",
            "-m",
            MEMORY_MIB,
            "-display",
            "none",
            "-nodefaults",
            "-no-reboot",
        ]);
        qemu.args(["-boot", "strict=on", "-uuid", &self.uuid, "-serial"]);
        qemu.arg(format!("file:{}", lab.path(format!("{}.serial", self.name)).display()));
        self.add_firmware(lab, method, &mut qemu)?;
        let disk = self.disk.display();
        qemu.arg("-drive").arg(format!("file={disk},format=raw,if=none,readonly=on,id=disk"));
        qemu.arg("-device").arg("virtio-blk-pci,drive=disk,bootindex=2");
        qemu.arg("-netdev").arg(format!("tap,id=net,ifname={tap},script=no,downscript=no"));
        lab.start(&self.name, &mut qemu)
    }

    /// Adds the arguments that depend on the firmware: chipset, settings, and the network driver.
    fn add_firmware(
        &self,
        lab: &Lab,
        method: NetworkBoot,
        qemu: &mut Command,
    ) -> anyhow::Result<()> {
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
        for (setting, off) in
            [("IPv4PXESupport", method == NetworkBoot::Http), ("IPv6PXESupport", true)]
        {
            if off {
                qemu.arg("-fw_cfg").arg(format!("name=opt/org.tianocore/{setting},string=n"));
            }
        }
        Ok(())
    }
}
