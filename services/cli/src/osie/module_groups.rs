//! The kernel modules that a machine may need in each flavour, and the reasons.
//!
//! Their dependencies are not listed: [`modules`](super::modules) finds them. Drivers that need firmware files are absent,
//! since the image contains no firmware.

use super::flavour::Flavour;

/// A reason, and the modules for it.
pub(super) type ModuleGroup = (&'static str, &'static [&'static str]);

/// Modules of all flavours that are loaded when a device's modalias or the kernel requests them.
const ON_DEMAND: &[ModuleGroup] = &[
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
    ("images in files, and their layers", &["loop", "squashfs", "overlay"]),
    ("bonded and tagged links", &["bonding", "8021q"]),
    ("boot entries of the firmware", &["efivarfs"]),
    // Debian's kernel has them built in; others may not.
    ("TPMs, for the inventory", &["tpm_crb", "tpm_tis"]),
];

/// Such modules of the flavour [`Flavour::Install`].
const INSTALL_ON_DEMAND: &[ModuleGroup] = &[
    (
        "file names on EFI system partitions",
        &["nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8"],
    ),
    ("logical volumes of installed systems", &["dm_mod"]),
];

/// Such modules of the flavour [`Flavour::Node`].
const NODE_ON_DEMAND: &[ModuleGroup] = &[
    ("versions of NFS", &["nfsv3", "nfsv4"]),
    // The kernel asks for them when a server of NFS 4.1 and later offers a layout.
    ("parallel NFS", &["nfs_layout_nfsv41_files", "nfs_layout_flexfiles"]),
    ("checksums of data to and from iSCSI targets and Ceph", &["crc32c_generic"]),
    ("encrypted connections to Ceph", &["gcm", "ghash_generic", "ctr", "aes_generic"]),
    ("block schedulers", &["mq_deadline", "bfq", "kyber_iosched"]),
];

/// Modules of all flavours that are loaded at start on every machine.
const AT_START: &[ModuleGroup] = &[
    // SCSI disks may respond long after the driver of their controller is loaded, when modaliases are no longer looked up.
    ("SCSI disks", &["sd_mod"]),
];

/// Such modules of the flavour [`Flavour::Install`].
const INSTALL_AT_START: &[ModuleGroup] = &[
    // An action without a file system type tries the types that the kernel supports then.
    ("file systems of installed systems", &["ext4", "xfs", "vfat"]),
];

/// Such modules of the flavour [`Flavour::Node`].
const NODE_AT_START: &[ModuleGroup] = &[
    // The agent reports a kernel without the files of these drivers as unable to attach.
    ("iSCSI units", &["iscsi_tcp", "libiscsi", "scsi_transport_iscsi"]),
    ("images of Ceph", &["rbd", "libceph"]),
    // Without the module there is no /dev/loop-control, whose use would load it.
    ("images in files of other file systems", &["loop"]),
    ("directories of NFS servers", &["nfs", "sunrpc"]),
    ("file systems of images", &["ext4", "xfs", "erofs", "squashfs", "overlay"]),
];

/// Returns the modules of `flavour` that are loaded at start, in this order.
pub(super) fn at_start(flavour: Flavour) -> impl Iterator<Item = &'static str> {
    let own = match flavour {
        Flavour::Install => INSTALL_AT_START,
        Flavour::Node => NODE_AT_START,
    };
    with_reasons([AT_START, own]).map(|(module, _)| module)
}

/// Returns all modules of `flavour`, each with its reason. A module may be in several groups.
pub(super) fn all(flavour: Flavour) -> impl Iterator<Item = (&'static str, &'static str)> {
    let [on_demand, at_start] = match flavour {
        Flavour::Install => [INSTALL_ON_DEMAND, INSTALL_AT_START],
        Flavour::Node => [NODE_ON_DEMAND, NODE_AT_START],
    };
    with_reasons([ON_DEMAND, on_demand, AT_START, at_start])
}

/// Returns the modules in `lists`, each with its reason.
fn with_reasons<const N: usize>(
    lists: [&'static [ModuleGroup]; N],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let groups = lists.into_iter().flatten();
    groups.flat_map(|(reason, modules)| modules.iter().map(move |module| (*module, *reason)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_group_lists_modules_once_and_has_a_reason() {
        for flavour in [Flavour::Install, Flavour::Node] {
            let groups: BTreeSet<_> = all(flavour).collect();
            assert_eq!(groups.len(), all(flavour).count());
            assert!(all(flavour).all(|(_, reason)| !reason.is_empty()));
        }
    }
}
