//! Which modules of the kernel a machine may need while it is provisioned, and why.
//!
//! What these need in turn is found out, not listed. Drivers that need firmware files beside them are absent, since
//! the image carries none.

/// When the modules of a group are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// When a device asks for them by its modalias, or the kernel by its own request.
    Asked,
    /// At start, whatever the machine is made of.
    Always,
}

/// Modules that are there for one reason.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) reason: &'static str,
    pub(super) when: When,
    pub(super) modules: &'static [&'static str],
}

const fn asked(reason: &'static str, modules: &'static [&'static str]) -> Group {
    Group { reason, when: When::Asked, modules }
}

const fn always(reason: &'static str, modules: &'static [&'static str]) -> Group {
    Group { reason, when: When::Always, modules }
}

/// All of them.
pub(super) const GROUPS: &[Group] = &[
    asked("virtual machines", &["virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi"]),
    asked(
        "Intel's NICs, emulated ones included",
        &["e1000", "e1000e", "igb", "igc", "ixgbe", "i40e", "ice"],
    ),
    asked("Broadcom's NICs", &["tg3", "bnxt_en"]),
    asked("Mellanox's NICs", &["mlx4_en", "mlx5_core"]),
    asked("Realtek's NICs, in small machines", &["r8169"]),
    asked("Emulex's NICs", &["be2net"]),
    asked("disks on NVMe", &["nvme"]),
    asked("disks on SATA and old IDE", &["ahci", "ata_piix"]),
    asked(
        "disks behind RAID and SAS controllers",
        &["megaraid_sas", "mpt3sas", "smartpqi", "hpsa", "aacraid"],
    ),
    asked("disks on USB", &["xhci_pci", "ehci_pci", "uhci_hcd", "usb_storage", "uas"]),
    // SCSI disks may answer long after their controller's driver is loaded, when nobody looks at modaliases any more.
    always("every disk that speaks SCSI", &["sd_mod"]),
    // An action that does not name its file system tries those that the kernel knows by then.
    always("file systems of installed systems", &["ext4", "xfs", "vfat"]),
    asked(
        "file names on EFI system partitions",
        &["nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8"],
    ),
    asked("images in files, and their layers", &["loop", "squashfs", "overlay"]),
    asked("logical volumes of installed systems", &["dm_mod"]),
    asked("bonded and tagged links", &["bonding", "8021q"]),
    asked("the firmware's boot entries", &["efivarfs"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_module_is_listed_once_and_every_group_has_a_reason() {
        let all = || GROUPS.iter().flat_map(|group| group.modules);
        assert_eq!(all().collect::<BTreeSet<_>>().len(), all().count());
        assert!(GROUPS.iter().all(|group| !group.reason.is_empty()));
    }
}
