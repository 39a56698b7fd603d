//! The kernel modules that a machine may need while it is provisioned, and the reasons.
//!
//! Their dependencies are not listed: [`modules`](super::modules) finds them. Drivers that need firmware files are absent,
//! since the image contains no firmware.

/// A reason, and the modules for it.
pub(super) type ModuleGroup = (&'static str, &'static [&'static str]);

/// Modules that are loaded when a device's modalias or the kernel requests them.
pub(super) const ON_DEMAND: &[ModuleGroup] = &[
    ("virtual machines", &["virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi"]),
    ("Intel NICs, also emulated", &["e1000", "e1000e", "igb", "igc", "ixgbe", "i40e", "ice"]),
    ("Broadcom NICs", &["tg3", "bnxt_en"]),
    ("Mellanox NICs", &["mlx4_en", "mlx5_core"]),
    ("Realtek NICs, in small machines", &["r8169"]),
    ("Emulex NICs", &["be2net"]),
    ("NVMe disks", &["nvme"]),
    ("SATA and old IDE disks", &["ahci", "ata_piix"]),
    ("RAID and SAS controllers", &["megaraid_sas", "mpt3sas", "smartpqi", "hpsa", "aacraid"]),
    ("USB disks", &["xhci_pci", "ehci_pci", "uhci_hcd", "usb_storage", "uas"]),
    (
        "file names on EFI system partitions",
        &["nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8"],
    ),
    ("images in files, and their layers", &["loop", "squashfs", "overlay"]),
    ("logical volumes of installed systems", &["dm_mod"]),
    ("bonded and tagged links", &["bonding", "8021q"]),
    ("boot entries of the firmware", &["efivarfs"]),
    // Debian's kernel has them built in; others may not.
    ("TPMs, for the inventory", &["tpm_crb", "tpm_tis"]),
];

/// Modules that are loaded at start on every machine.
pub(super) const AT_START: &[ModuleGroup] = &[
    // SCSI disks may respond long after the driver of their controller is loaded, when modaliases are no longer looked up.
    ("SCSI disks", &["sd_mod"]),
    // An action without a file system type tries the types that the kernel supports then.
    ("file systems of installed systems", &["ext4", "xfs", "vfat"]),
];

/// Returns all modules, each with its reason.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let groups = ON_DEMAND.iter().chain(AT_START);
    groups.flat_map(|(reason, modules)| modules.iter().map(move |module| (*module, *reason)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_module_is_listed_once_and_every_group_has_a_reason() {
        let modules: BTreeSet<_> = all().map(|(module, _)| module).collect();
        assert_eq!(modules.len(), all().count());
        assert!(all().all(|(_, reason)| !reason.is_empty()));
    }
}
