//! Disks, with the names that udev gives them: links in by-id say which disk it is, those in by-path where it is connected.

use std::fs;
use std::path::Path;

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::DiskMedium;

use super::{names, number, one_line, text};
use crate::disk::is_disk_name;

/// The unit of sizes in sysfs, whatever the disk's sectors are.
const SECTOR_BYTES: u64 = 512;
/// Offset and length of the model in an ATA Information page (SAT, page 89h): words 27 to 46 of the IDENTIFY data, which begin at
/// byte 60.
const ATA_MODEL: (usize, usize) = (60 + 54, 40);

/// Returns the disks that have a size, in the order of their names.
pub(super) fn disks(root: &Path) -> Vec<pb::InventoryDisk> {
    let folder = root.join("sys/block");
    let names = names(&folder).into_iter().filter(|name| is_disk_name(name));
    names.filter_map(|name| disk(&folder.join(&name), &name)).collect()
}

fn disk(folder: &Path, name: &str) -> Option<pb::InventoryDisk> {
    let size_bytes = number(&folder.join("size"))?.saturating_mul(SECTOR_BYTES);
    let path = fs::canonicalize(folder).unwrap_or_default();
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let identity = Identity::read(folder, name, &parts);
    let removable = number(&folder.join("removable")) == Some(1) || is_usb(&parts);
    let medium = match number(&folder.join("queue/rotational")) {
        _ if name.starts_with("nvme") => DiskMedium::Nvme,
        Some(0) => DiskMedium::Ssd,
        Some(_) => DiskMedium::Hdd,
        None => DiskMedium::Unspecified,
    };
    let links = |folder: &str, names: Vec<String>| {
        let paths = names.iter().map(|name| format!("/dev/disk/{folder}/{name}"));
        paths.filter(|path| path.len() <= super::MAX_TEXT_BYTES).collect()
    };
    (size_bytes > 0).then(|| pb::InventoryDisk {
        name: name.to_owned(),
        size_bytes,
        medium: medium.into(),
        by_id: links("by-id", identity.link_names()),
        by_path: links("by-path", path_names(&path, &parts)),
        removable,
        serial: identity.serial,
        wwn: identity.wwn,
        model: identity.model,
    })
}

/// Which disk it is.
struct Identity {
    /// The begin of its links in by-id, such as ata; empty for an unknown bus.
    bus: &'static str,
    vendor: String,
    model: String,
    serial: String,
    wwn: String,
}

impl Identity {
    fn read(folder: &Path, name: &str, parts: &[&str]) -> Self {
        let device = folder.join("device");
        let of = |attribute: &str| text(&device.join(attribute));
        let (mut vendor, mut model) = (of("vendor"), of("model"));
        // Disks of virtio have the number of the PCI vendor there.
        let is_virtio = name.starts_with("vd");
        let is_ata = vendor == "ATA";
        if is_ata {
            model = ata_model(&device).unwrap_or(model);
        }
        if is_ata || is_virtio {
            vendor.clear();
        }
        let bus = match () {
            () if name.starts_with("nvme") => "nvme",
            () if is_virtio => "virtio",
            () if is_usb(parts) => "usb",
            () if is_ata => "ata",
            () if name.starts_with("sd") => "scsi",
            () => "",
        };
        let serial = [text(&folder.join("serial")), of("serial"), page_serial(&device)];
        let serial = serial.into_iter().find(|serial| !serial.is_empty()).unwrap_or_default();
        let wwid = [text(&folder.join("wwid")), of("wwid")];
        let wwn = wwid.iter().find_map(|wwid| world_wide_name(wwid)).unwrap_or_default();
        Self { bus, vendor, model, serial, wwn }
    }

    /// Returns the names of its links in by-id: first the name that the bus defines to be unique.
    fn link_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        match self.wwn.strip_prefix("0x") {
            Some(_) => names.push(format!("wwn-{}", self.wwn)),
            None if !self.wwn.is_empty() => names.push(format!("nvme-{}", self.wwn)),
            None => {}
        }
        let parts: &[&String] = match self.bus {
            "virtio" => &[&self.serial],
            "scsi" | "usb" => &[&self.vendor, &self.model, &self.serial],
            _ => &[&self.model, &self.serial],
        };
        if !self.bus.is_empty() && !self.serial.is_empty() {
            let parts = parts.iter().filter(|part| !part.is_empty());
            let joined: Vec<_> = parts.map(|part| link_text(part)).collect();
            // scsi_id of udev marks names of vendor, model and serial number with an S.
            let bus = if self.bus == "scsi" { "scsi-S" } else { &format!("{}-", self.bus) };
            names.push(format!("{bus}{}", joined.join("_")));
        }
        names
    }
}

/// Returns `text` with only such characters as udev leaves in names: others are an underscore.
fn link_text(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "#+-.:=@_".contains(it);
    words.join("_").chars().map(|it| if is_plain(it) { it } else { '_' }).collect()
}

/// Returns the world wide name in a `wwid` of the kernel: NAA of SCSI and ATA, EUI-64 or NGUID of NVMe.
fn world_wide_name(wwid: &str) -> Option<String> {
    let is_hex = |text: &str| !text.is_empty() && text.chars().all(|it| it.is_ascii_hexdigit());
    let (kind, digits) = wwid.split_once('.').filter(|(_, digits)| is_hex(digits))?;
    match kind {
        "naa" => Some(format!("0x{}", digits.to_lowercase())),
        "eui" => Some(format!("eui.{}", digits.to_lowercase())),
        _ => None,
    }
}

/// Returns the serial number in the page 80h of a SCSI disk.
fn page_serial(device: &Path) -> String {
    let page = fs::read(device.join("vpd_pg80")).unwrap_or_default();
    one_line(&String::from_utf8_lossy(page.get(4..).unwrap_or_default()))
}

/// Returns the whole model of an ATA disk: `model` has its first 16 characters only.
fn ata_model(device: &Path) -> Option<String> {
    let page = fs::read(device.join("vpd_pg89")).ok()?;
    let (at, length) = ATA_MODEL;
    let words = page.get(at..at + length)?.chunks_exact(2);
    let swapped: Vec<u8> = words.flat_map(|word| word.iter().rev().copied()).collect();
    Some(one_line(&String::from_utf8_lossy(&swapped))).filter(|model| !model.is_empty())
}

fn is_usb(parts: &[&str]) -> bool {
    parts.iter().any(|part| usb_port(part).is_some())
}

/// Returns the port and interface in the name of a USB interface: `1:1.0` in `2-1:1.0`.
fn usb_port(part: &str) -> Option<&str> {
    let (bus, port) = part.split_once('-')?;
    let is_bus = !bus.is_empty() && bus.chars().all(|it| it.is_ascii_digit());
    let is_port =
        port.contains(':') && port.chars().all(|it| it.is_ascii_digit() || ":.".contains(it));
    (is_bus && is_port).then_some(port)
}

/// Returns the names in by-path of the disk whose `path` in sysfs has these `parts`; none for a bus that is not known here.
fn path_names(path: &Path, parts: &[&str]) -> Vec<String> {
    let Some(pci) = parts.iter().rev().find(|part| is_pci_function(part)) else {
        return Vec::new();
    };
    let after: Vec<_> = parts.iter().skip_while(|part| part != &pci).skip(1).copied().collect();
    let part = |prefix: &str| after.iter().find_map(|part| part.strip_prefix(prefix));
    let scsi = after.iter().find_map(|part| scsi_address(part));
    let usb = after.iter().find_map(|part| usb_port(part));
    let is_sas = after.iter().any(|part| part.starts_with("end_device-"));
    let name = format!("pci-{pci}");
    match (usb, ata_port(path), scsi, part("nvme")) {
        _ if is_sas => Vec::new(),
        (Some(port), _, Some(scsi), _) => vec![format!("{name}-usb-0:{port}-scsi-{scsi}")],
        (Some(_), ..) => Vec::new(),
        (None, Some(port), ..) => vec![format!("{name}-ata-{port}")],
        (None, None, Some(scsi), _) => vec![format!("{name}-scsi-{scsi}")],
        (None, None, None, Some(_)) => {
            number(&path.join("nsid")).map(|id| format!("{name}-nvme-{id}")).into_iter().collect()
        }
        (None, None, None, None) if part("virtio").is_some() => {
            vec![name.clone(), format!("virtio-{name}")]
        }
        (None, None, None, None) => Vec::new(),
    }
}

/// Returns the number of the port, on its controller, of an ATA disk.
fn ata_port(path: &Path) -> Option<u64> {
    let is_port = |name: &str| name.strip_prefix("ata").is_some_and(|it| it.parse::<u32>().is_ok());
    path.ancestors().find_map(|folder| {
        let name = folder.file_name()?.to_str().filter(|name| is_port(name))?;
        number(&folder.join("ata_port").join(name).join("port_no"))
    })
}

/// True for the name of a PCI function, such as 0000:00:1f.2.
fn is_pci_function(part: &str) -> bool {
    let mut fields = part.split([':', '.']);
    let has = |field: Option<&str>, length: usize| {
        field.is_some_and(|it| it.len() == length && it.chars().all(|it| it.is_ascii_hexdigit()))
    };
    has(fields.next(), 4)
        && has(fields.next(), 2)
        && has(fields.next(), 2)
        && has(fields.next(), 1)
        && fields.next().is_none()
}

/// Returns channel, target and LUN of a SCSI device, after the number of the host, which udev counts from 0 for each controller.
fn scsi_address(part: &str) -> Option<String> {
    let fields: Vec<u64> =
        part.split(':').map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [_, channel, target, lun] = fields[..] else { return None };
    Some(format!("0:{channel}:{target}:{lun}"))
}
