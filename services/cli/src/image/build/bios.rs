//! GRUB for BIOS in a disk image, as grub-bios-setup(8) puts it on a disk, which must be a block device there.
//!
//! ```text
//! sector 0                boot.img: loads one sector, whose number is in it
//! BIOS boot partition     core.img: its first sector loads the others, whose number and count are at its end
//! ```
//!
//! Offsets are those in GRUB's `include/grub/i386/pc/boot.h` and `include/grub/offsets.h`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use disk_images::partitions::SECTOR;

use super::disk::Layout;

/// Bytes of a sector.
const SECTOR_BYTES: usize = SECTOR as usize;
/// Code of sector 0, before the disk's signature and the partition table, in bytes.
const BOOT_CODE_BYTES: usize = 440;
/// GRUB_BOOT_MACHINE_KERNEL_SECTOR: number of the sector that boot.img loads, 8 bytes.
const KERNEL_SECTOR: usize = 0x5c;
/// GRUB_BOOT_MACHINE_DRIVE_CHECK: a jump over code for firmware that passes no drive number, 2 bytes. Two NOPs run that code.
const DRIVE_CHECK: usize = 0x66;
const NOPS: [u8; 2] = [0x90; 2];
/// The list of blocks at the end of the first sector of core.img: start (8 bytes), count (2), segment (2).
const BLOCK_LIST: usize = 0x200 - 12;
/// GRUB_BOOT_I386_PC_KERNEL_SEG (0x800), and one sector of 0x20 paragraphs: where the second sector of core.img is loaded.
const CORE_SEGMENT: u16 = 0x820;

/// Writes GRUB into the image `raw`: `boot` is its boot.img, `core` a core.img.
pub(super) fn install(raw: &Path, layout: &Layout, boot: &[u8], core: &[u8]) -> anyhow::Result<()> {
    let start = layout.bios_boot.first;
    let room = layout.bios_boot.bytes();
    anyhow::ensure!(core.len() as u64 <= room, "GRUB's core image has more than {room} bytes");
    let boot = boot_code(boot, start).context("GRUB's boot.img is too short")?;
    let core = core_image(core, start).context("GRUB's core.img is too short")?;
    let writing = || format!("writing {}", raw.display());
    let file = File::options().write(true).open(raw).with_context(writing)?;
    file.write_all_at(&boot, 0).with_context(writing)?;
    file.write_all_at(&core, start * SECTOR).with_context(writing)
}

/// Returns the code of sector 0, which loads the sector `core`.
fn boot_code(boot: &[u8], core: u64) -> Option<Vec<u8>> {
    let mut code = boot.get(..BOOT_CODE_BYTES)?.to_vec();
    put(&mut code, KERNEL_SECTOR, &core.to_le_bytes())?;
    put(&mut code, DRIVE_CHECK, &NOPS)?;
    Some(code)
}

/// Returns core.img in whole sectors, for a disk that has it from the sector `start` on.
fn core_image(core: &[u8], start: u64) -> Option<Vec<u8>> {
    let mut image = core.to_vec();
    image.resize(image.len().next_multiple_of(SECTOR_BYTES), 0);
    let others = u16::try_from(image.len() / SECTOR_BYTES).ok()?.checked_sub(1)?;
    put(&mut image, BLOCK_LIST, &(start + 1).to_le_bytes())?;
    put(&mut image, BLOCK_LIST + 8, &others.to_le_bytes())?;
    put(&mut image, BLOCK_LIST + 10, &CORE_SEGMENT.to_le_bytes())?;
    Some(image)
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(offset..offset + value.len())?.copy_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sector_0_names_the_first_sector_of_the_core() {
        let code = boot_code(&[7; 512], 0x0102_0304).unwrap();
        assert_eq!(code.len(), 440, "the partition table stays");
        assert_eq!(code[0x5c..0x64], [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(code[0x66..0x68], [0x90, 0x90]);
        assert_eq!(code.iter().filter(|byte| **byte == 7).count(), 430);
        assert_eq!(boot_code(&[7; 439], 1), None);
    }

    #[test]
    fn the_core_lists_its_other_sectors() {
        let image = core_image(&[7; 512 * 3 + 1], 2048).unwrap();
        assert_eq!(image.len(), 512 * 4);
        assert_eq!(image[500..512], [1, 8, 0, 0, 0, 0, 0, 0, 3, 0, 0x20, 0x08]);
        assert_eq!(image[512 * 3..512 * 3 + 2], [7, 0]);
        assert_eq!(core_image(&[], 2048), None);
    }
}
