//! Disks of machines.

use std::path::{Path, PathBuf};

use crate::lab::Lab;

/// A SCSI disk of a machine.
#[derive(Clone, Debug)]
pub struct ScsiDisk {
    /// The disk image, a sparse file.
    pub file: PathBuf,
    /// The serial number that it reports.
    pub serial: String,
    /// The World Wide Name that it reports, in hex.
    pub wwn: String,
    /// Size in bytes.
    pub bytes: u64,
    /// False if it reports that it rotates.
    pub is_ssd: bool,
    /// True if it cannot be written.
    pub is_read_only: bool,
}

impl ScsiDisk {
    /// Creates disk `number` of `machine`, with a serial number and a World Wide Name that no other one has.
    pub(super) fn new(
        lab: &Lab,
        machine: &str,
        number: usize,
        bytes: u64,
        is_ssd: bool,
    ) -> anyhow::Result<Self> {
        let file = lab.path(format!("{machine}-{number}.raw"));
        std::fs::File::create(&file)?.set_len(bytes)?;
        let serial = format!("{}-DISK-{number}", machine.to_uppercase());
        let machine: u8 = machine.trim_start_matches('m').parse()?;
        let wwn = format!("5000c500a1b2{machine:02x}{number:02x}");
        Ok(Self { file, serial, wwn, bytes, is_ssd, is_read_only: false })
    }

    /// Returns libvirt's description of the disk with this letter and place in the boot order.
    pub(super) fn device(((disk, letter), place): ((&Self, char), u8)) -> String {
        let Self { file, serial, wwn, is_ssd, .. } = disk;
        // SBC-4 §6.6.10: 1 is a disk that does not rotate, another number its rotations per minute.
        let rotation = if *is_ssd { 1 } else { 7200 };
        let (file, mode) = (file.display(), if disk.is_read_only { "<readonly/>" } else { "" });
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe' discard='unmap'/>
<source file='{file}'/><target dev='sd{letter}' bus='scsi' rotation_rate='{rotation}'/><boot order='{place}'/><serial>{serial}</serial><wwn>{wwn}</wwn>{mode}</disk>"
        )
    }
}

/// True if the first `length` bytes of `disk` are zero.
pub fn reads_as_zeroes(disk: &Path, length: u64) -> anyhow::Result<bool> {
    use std::io::Read as _;

    use rustix::fs::SeekFrom;
    use rustix::io::Errno;

    let mut file = std::fs::File::open(disk)?;
    let (mut buffer, zeroes) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        // Holes are zero.
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(true),
            data => data?,
        };
        if at >= length {
            return Ok(true);
        }
        let wanted = usize::try_from(length - at)?.min(buffer.len());
        let read = file.read(&mut buffer[..wanted])?;
        if buffer[..read] != zeroes[..read] {
            return Ok(false);
        }
        at += read as u64;
    }
}
