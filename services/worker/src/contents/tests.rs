//! Images that are accepted or refused, for each kind of destination.

use std::io::Cursor;

use gptman::{GPT, GPTPartitionEntry};
use proptest::prelude::*;

use super::*;

const DISK: Destination = Destination {
    kind: DeviceKind::Disk,
    sector: Some(512),
    capacity: Some(64 << 20),
    image: None,
};
const PARTITION: Destination = Destination { kind: DeviceKind::Partition, ..DISK };
const VOLUME: Destination = Destination { kind: DeviceKind::Volume, ..DISK };
const DISK_4K: Destination = Destination { sector: Some(4096), ..DISK };

/// Returns the first part of the reason why `head` is not written to `target`.
fn refused(head: &[u8], target: &Destination) -> Option<String> {
    let reason = check(head, target).err()?.to_string();
    let reason = reason.strip_suffix("; IMG_ANY_CONTENT=true writes it as it is").unwrap();
    Some(reason.to_owned())
}

/// Returns 256 KiB with `magic` at the offset `at`, and no other signature.
fn with(at: usize, magic: &[u8]) -> Vec<u8> {
    let mut head = vec![0xb7; 256 << 10];
    head[at..at + magic.len()].copy_from_slice(magic);
    head
}

/// Returns an image with the boot signature, and with MBR `entries`: indicator, type, first sector,
/// number of sectors.
fn mbr(entries: &[(u8, u8, u32, u32)]) -> Vec<u8> {
    let mut head = vec![0; 4 << 20];
    for ((indicator, kind, first, length), entry) in entries.iter().zip(head[446..].chunks_mut(16))
    {
        (entry[0], entry[4]) = (*indicator, *kind);
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..16].copy_from_slice(&length.to_le_bytes());
    }
    head[510..512].copy_from_slice(&[0x55, 0xaa]);
    head
}

/// Returns an image of 4 MiB with a GPT and one partition, which ends with the sector `last`.
fn gpt(sector: u64, last: u64) -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; 4 << 20]);
    let mut table = GPT::new_from(&mut disk, sector, [7; 16]).unwrap();
    table[1] = GPTPartitionEntry {
        partition_type_guid: [1; 16],
        unique_partition_guid: [2; 16],
        starting_lba: 64,
        ending_lba: last,
        attribute_bits: 0,
        partition_name: "root".into(),
    };
    GPT::write_protective_mbr_into(&mut disk, sector).unwrap();
    table.write_into(&mut disk).unwrap();
    disk.into_inner()
}

/// Puts the superblock of an ext4 at the beginning of `place`.
fn put_ext(place: &mut [u8]) {
    place[1080..1082].copy_from_slice(&[0x53, 0xef]);
}

#[test]
fn formats_to_convert_or_unpack_are_refused_everywhere() {
    let files: [(usize, &[u8], &str); 14] = [
        (
            0,
            b"QFI\xfb\0\0\0\x03",
            "qcow2 image: convert it to raw: `qemu-img convert -O raw IN OUT`",
        ),
        (0, b"KDMV", "vmdk image: convert"),
        (0, b"# Disk DescriptorFile\nversion=1", "vmdk descriptor: convert"),
        (0, b"vhdxfile", "vhdx image: convert"),
        (0, b"conectix", "dynamic vhd image: convert"),
        (64, &[0x7f, 0x10, 0xda, 0xbe], "vdi image: convert"),
        (0, &[0x3a, 0xff, 0x26, 0xed], "Android sparse image: convert it to raw: `simg2img"),
        (0, b"PK\x03\x04", "zip archive: extract the disk image from it"),
        (0, b"7z\xbc\xaf\x27\x1c", "7z archive: extract"),
        (257, b"ustar\x0000", "tar archive: extract"),
        (0, &[0x1f, 0x8b, 8], "gzip data: compress the image once"),
        (0, &[0x04, 0x22, 0x4d, 0x18], "lz4 data: decompress it, or compress it with zstd"),
        (0, b"LZIP\x01", "lzip data: decompress it"),
        (0, b"MSWIM\0\0\0", "Windows image (WIM): apply"),
    ];
    for (at, magic, text) in files {
        for target in [DISK, PARTITION, VOLUME] {
            let reason = refused(&with(at, magic), &target).unwrap();
            assert!(reason.starts_with(&format!("not a disk image: {text}")), "{reason}");
        }
    }
}

#[test]
fn lzma_is_recognised_without_a_magic() {
    let header = [0x5d, 0, 0, 0x80, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
    assert!(refused(&with(0, &header), &DISK).unwrap().contains(": lzma data: decompress"));
    let jump = [0x5d, 0xe9, 0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 5, 6, 7];
    assert!(refused(&with(0, &jump), &DISK).unwrap().contains("neither a partition table nor"));
}

#[test]
fn a_tar_without_the_magic_of_posix_is_recognised_by_its_checksum() {
    let mut header = vec![0; 1024];
    header[..8].copy_from_slice(b"disk.raw");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert!(refused(&header, &DISK).unwrap().contains(": tar archive: extract"));
    header[0] = b'D';
    assert!(refused(&header, &DISK).unwrap().contains("neither a partition table nor"));
}

#[test]
fn texts_are_refused_everywhere() {
    for (text, name) in [
        ("<!DOCTYPE html>\n<title>404</title>", "HTML page"),
        ("\u{feff} <HTML>", "HTML page"),
        ("{\"error\": \"not found\"}", "text"),
        ("<?xml version=\"1.0\"?><Envelope/>", "text"),
        ("#!/bin/sh\nexec true\n", "text"),
        ("zu spät", "text"),
        ("version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
    ] {
        for target in [DISK, PARTITION] {
            let reason = refused(text.as_bytes(), &target).unwrap();
            assert!(reason.starts_with(&format!("not a disk image: {name}: ")), "{reason}");
        }
    }
}

#[test]
fn a_text_whose_last_character_is_cut_is_a_text() {
    let text = "ä".repeat(300);
    assert!(refused(&text.as_bytes()[..511], &DISK).unwrap().contains(": text: "));
    assert!(refused(&text.as_bytes()[1..], &DISK).unwrap().contains("neither a partition table"));
}

#[test]
fn programs_and_file_systems_are_for_partitions() {
    let files: [(usize, &[u8], &str); 12] = [
        (0x202, b"HdrS", "Linux kernel"),
        (56, b"ARM\x64", "Linux kernel"),
        (0, b"MZ", "EFI program or Linux kernel"),
        (0, b"\x7fELF", "ELF program"),
        (0, b"hsqs", "squashfs file system"),
        (0, b"XFSB", "XFS file system"),
        (0, b"LUKS\xba\xbe", "LUKS volume"),
        (1080, &[0x53, 0xef], "ext2, ext3 or ext4 file system"),
        (65_600, b"_BHRfS_M", "btrfs file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (512, b"LABELONE", "LVM physical volume"),
        (32_769, b"CD001", "ISO 9660 file system without a boot sector"),
    ];
    for (at, magic, name) in files {
        let head = with(at, magic);
        let reason = refused(&head, &DISK).unwrap();
        assert!(reason.starts_with(&format!("not a disk image: {name}: ")), "{reason}");
        assert_eq!(refused(&head, &PARTITION), None, "{name}");
        assert_eq!(refused(&head, &VOLUME), None, "{name}");
    }
}

#[test]
fn a_kernel_has_the_signature_of_a_boot_sector_and_is_refused() {
    let mut kernel = mbr(&[]);
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    assert!(refused(&kernel, &DISK).unwrap().starts_with("not a disk image: Linux kernel: "));
}

#[test]
fn zeroes_and_unknown_contents_are_refused() {
    let zeroes =
        "not a disk image: only zeroes in its first 4096 bytes: the file may be incomplete";
    for target in [DISK, PARTITION] {
        assert_eq!(refused(&[0; 4096], &target).unwrap(), zeroes);
    }
    let unknown =
        "not a disk image: neither a partition table nor a boot sector in its first sectors";
    for head in [&[0xb7; 4096][..], &[0xb7]] {
        assert_eq!(refused(head, &DISK).unwrap(), unknown);
        assert_eq!(refused(head, &PARTITION), None);
    }
}

#[test]
fn boot_sectors_are_accepted() {
    let mut code = mbr(&[]);
    assert!(refused(&code, &DISK).unwrap().starts_with("empty disk image: "));
    code[0] = 0xeb;
    assert_eq!(refused(&code, &DISK), None);
    put_ext(&mut code); // As extlinux leaves it.
    assert_eq!(refused(&code, &DISK), None);
    let mut iso = code;
    iso[32_769..32_774].copy_from_slice(b"CD001");
    assert_eq!(refused(&iso, &DISK), None);
}

#[test]
fn an_exfat_without_boot_code_is_refused() {
    let mut exfat = mbr(&[]);
    exfat[..11].copy_from_slice(b"\xeb\x76\x90EXFAT   ");
    exfat[120..510].fill(0xf4);
    assert!(refused(&exfat, &DISK).unwrap().contains(": exFAT file system: "));
    exfat[130] = 0x31;
    assert_eq!(refused(&exfat, &DISK), None);
}

#[test]
fn partition_tables_are_accepted_on_disks_and_volumes() {
    for head in [mbr(&[(0x80, 0x83, 2048, 4096)]), mbr(&[(0x80, 0, 0, 8192)]), gpt(512, 2000)] {
        assert_eq!(refused(&head, &DISK), None);
        assert_eq!(refused(&head, &VOLUME), None);
        let nested =
            "disk image with a partition table: write it to a whole disk, not to a partition";
        assert_eq!(refused(&head, &PARTITION).unwrap(), nested);
    }
}

#[test]
fn a_table_for_other_sectors_is_refused() {
    let sizes = |image, disk| {
        format!(
            "disk image for sectors of {image} bytes: the disk has sectors of {disk} bytes: take an image that is made for these"
        )
    };
    assert_eq!(refused(&gpt(512, 2000), &DISK_4K), Some(sizes(512, 4096)));
    assert_eq!(refused(&gpt(4096, 700), &DISK), Some(sizes(4096, 512)));
    assert_eq!(refused(&gpt(4096, 700), &DISK_4K), None);
    assert_eq!(refused(&gpt(4096, 700), &Destination { sector: None, ..DISK }), None);
}

#[test]
fn the_contents_of_the_first_partition_tell_the_sectors_of_an_mbr() {
    let image = |sector: usize| {
        let mut image = mbr(&[(0x80, 0x83, 300, 400)]);
        put_ext(&mut image[300 * sector..]);
        image
    };
    assert_eq!(refused(&image(512), &DISK), None);
    assert_eq!(refused(&image(4096), &DISK_4K), None);
    for (image, target) in [(image(512), DISK_4K), (image(4096), DISK)] {
        assert!(refused(&image, &target).unwrap().starts_with("disk image for sectors of "));
    }
    // Nothing is recognised in the partition.
    assert_eq!(refused(&mbr(&[(0x80, 0x83, 300, 400)]), &DISK_4K), None);
    let mut iso = mbr(&[(0x80, 0, 0, 400)]);
    iso[32_769..32_774].copy_from_slice(b"CD001");
    assert!(refused(&iso, &DISK_4K).unwrap().starts_with("disk image for sectors of 512 bytes"));
}

#[test]
fn the_contents_of_another_partition_tell_nothing_about_the_sectors_of_an_mbr() {
    // The second partition is where the first one would be with sectors of 1024 or 4096 bytes.
    for (raw, with_file_system) in [(2048, 4096), (256, 2048)] {
        let length = with_file_system - raw;
        let mut image = mbr(&[(0, 0xa2, raw, length), (0x80, 0x83, with_file_system, 1000)]);
        image[raw as usize * 512..][..4096].fill(0xb7);
        put_ext(&mut image[with_file_system as usize * 512..]);
        assert_eq!(refused(&image, &DISK), None, "{raw}");
    }
}

#[test]
fn a_partition_at_the_same_place_with_other_sectors_does_not_hide_their_size() {
    // With sectors of 512 bytes, the last partition is where the first one is with 4096.
    let mut image = mbr(&[(0x80, 0x83, 256, 1792), (0, 0x83, 2048, 1000)]);
    put_ext(&mut image[256 * 4096..]);
    let other_sectors = "disk image for sectors of 4096 bytes: the disk has sectors of 512 bytes";
    assert!(refused(&image, &DISK).unwrap().starts_with(other_sectors));
    assert_eq!(refused(&image, &DISK_4K), None);
    let mut image = mbr(&[(0x80, 0x83, 256, 256), (0, 0x83, 512, 1536), (0, 0x83, 2048, 1000)]);
    put_ext(&mut image[256 * 4096..]);
    // Raw data where the first partition is with sectors of 512 bytes: the table may be for these.
    image[256 * 512..][..4096].fill(0xb7);
    assert_eq!(refused(&image, &DISK), None);
    // The second partition has content with sectors of 4096 bytes only.
    put_ext(&mut image[512 * 4096..]);
    assert!(refused(&image, &DISK).unwrap().starts_with(other_sectors));
    assert_eq!(refused(&image, &DISK_4K), None);
}

#[test]
fn a_file_system_for_smaller_sectors_is_refused() {
    let mut fat = mbr(&[]);
    fat[..13].copy_from_slice(b"\xeb\x3c\x90mkfs.fat\x00\x02");
    assert_eq!(refused(&fat, &DISK), None);
    assert!(refused(&fat, &DISK_4K).unwrap().starts_with("disk image for sectors of 512 bytes"));
    fat[12] = 0x10; // 4096
    assert_eq!(refused(&fat, &DISK), None);
}

#[test]
fn a_fat_larger_than_the_disk_is_refused() {
    for (at, sectors) in [(19, &[0x80, 0x0c][..]), (32, &[0x80, 0x0c, 0, 0])] {
        let mut fat = mbr(&[]);
        fat[..13].copy_from_slice(b"\xeb\x3c\x90mkfs.fat\x00\x02");
        fat[54..62].copy_from_slice(b"FAT12   ");
        fat[at..at + sectors.len()].copy_from_slice(sectors);
        assert_eq!(refused(&fat, &Destination { capacity: Some(3200 * 512), ..DISK }), None);
        let reason = refused(&fat, &Destination { capacity: Some(3199 * 512), ..DISK });
        assert!(reason.unwrap().starts_with("disk too small: holds 1637888 bytes, "));
    }
}

#[test]
fn a_table_that_firmware_rejects_is_refused() {
    let changed = |at: usize| {
        let mut image = gpt(512, 2000);
        image[at] ^= 1;
        refused(&image, &DISK).unwrap()
    };
    let damaged = "damaged partition table: ";
    assert_eq!(changed(512), format!("{damaged}no GPT header in sector 1"));
    assert_eq!(changed(512 + 48), format!("{damaged}the checksum of the GPT header is wrong"));
    assert_eq!(changed(1024 + 40), format!("{damaged}the checksum of the GPT entries is wrong"));
    let unprotected = format!("{damaged}a GPT without the protective MBR, which firmware requires");
    assert_eq!(changed(454), unprotected);
    assert_eq!(changed(510), unprotected);
}

#[test]
fn a_gpt_that_cannot_be_completed_is_refused_on_volumes_too() {
    let changed = |at: usize| {
        let mut image = gpt(512, 2000);
        image[at] ^= 1;
        refused(&image, &VOLUME)
    };
    let checksum = "damaged partition table: the checksum of the GPT header is wrong";
    assert_eq!(changed(512 + 48).as_deref(), Some(checksum));
    let small = Destination { capacity: Some(3000 * 512), ..VOLUME };
    assert!(refused(&gpt(512, 2967), &small).unwrap().starts_with("disk too small: "));
    let cut = Destination { image: Some(2001 * 512 - 1), ..VOLUME };
    assert!(refused(&gpt(512, 2000), &cut).unwrap().starts_with("incomplete disk image: "));
    // Without the protective MBR, it is not completed.
    assert_eq!(changed(454), None);
    let mut damaged = gpt(4096, 700);
    damaged[4096 + 48] ^= 1;
    assert!(refused(&damaged, &Destination { sector: None, ..VOLUME }).is_some());
}

#[test]
fn a_gpt_that_is_not_completed_is_written_to_volumes() {
    let volume_4k = Destination { sector: Some(4096), ..VOLUME };
    assert_eq!(refused(&gpt(512, 2000), &volume_4k), None);
    assert_eq!(refused(&gpt(4096, 700), &VOLUME), None);
    let mut without_header = gpt(512, 2000);
    without_header[512] ^= 1;
    for target in [VOLUME, volume_4k, Destination { sector: None, ..VOLUME }] {
        assert_eq!(refused(&without_header, &target), None);
    }
}

#[test]
fn a_table_without_partitions_is_refused() {
    let mut disk = Cursor::new(vec![0; 4 << 20]);
    GPT::write_protective_mbr_into(&mut disk, 512).unwrap();
    GPT::new_from(&mut disk, 512, [7; 16]).unwrap().write_into(&mut disk).unwrap();
    let empty = "empty disk image: a partition table without partitions, and no boot code";
    assert_eq!(refused(&disk.into_inner(), &DISK).unwrap(), empty);
}

#[test]
fn a_table_that_does_not_fit_on_the_disk_is_refused() {
    let reason =
        "disk too small: holds 1536000 bytes, the partition table of the image needs 1536512";
    let small = Destination { capacity: Some(3000 * 512), ..DISK };
    // With the backup: 33 sectors.
    assert_eq!(refused(&gpt(512, 2966), &small), None);
    assert_eq!(refused(&gpt(512, 2967), &small), Some(reason.into()));
    assert_eq!(refused(&mbr(&[(0, 0x83, 1000, 2000)]), &small), None);
    assert_eq!(refused(&mbr(&[(0, 0x83, 1000, 2001)]), &small), Some(reason.into()));
}

#[test]
fn an_image_that_ends_before_a_partition_of_its_gpt_is_refused() {
    let whole = Destination { image: Some(2001 * 512), ..DISK };
    assert_eq!(refused(&gpt(512, 2000), &whole), None);
    let cut = Destination { image: Some(2001 * 512 - 1), ..DISK };
    let reason =
        "incomplete disk image: partition 1 ends at byte 1024512, the image at byte 1024511";
    assert_eq!(refused(&gpt(512, 2000), &cut).unwrap(), reason);
}

#[test]
fn a_file_system_with_code_like_a_table_may_be_in_a_partition() {
    let mut boot_sector = mbr(&[(0x80, 0xa5, 0, 50_000)]);
    boot_sector[512..516].copy_from_slice(b"\x57\x45\x56\x82"); // FreeBSD's boot1
    assert_eq!(refused(&boot_sector, &PARTITION), None);
}

#[test]
fn an_implanted_checksum_is_found_in_the_volume_descriptor() {
    let mut iso = vec![0; DESCRIPTOR_BYTES];
    iso[32_769..32_774].copy_from_slice(b"CD001");
    assert!(!has_implanted_checksum(&iso));
    iso[32_768 + 883..][..21].copy_from_slice(b"ISO MD5SUM = 0123;SKI");
    assert!(has_implanted_checksum(&iso));
}

proptest! {
    #[test]
    fn no_bytes_make_the_check_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        signed in any::<bool>(),
        kind in prop::sample::select(vec![DISK, DISK_4K, PARTITION, VOLUME]),
    ) {
        let mut head = bytes;
        if signed && head.len() >= 520 {
            head[510..520].copy_from_slice(b"\x55\xaaEFI PART");
        }
        let _either = check(&head, &kind);
    }
}
