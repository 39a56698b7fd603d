//! Leftovers of a former system at the end of a disk, as util-linux recognises them, are gone after
//! new content is written.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};
use worker::ActionOutcome;
use worker::rootio::Subcommand;

use crate::disk::{LoopDisk, OLD, sh};
use crate::image2disk::disk_image;
use crate::rootio::{disks, filesystem, run_recorded};
use crate::tables::{check_gpt, gpt_image, written};

/// Bytes of the disks of this module: not a multiple of what superblocks are aligned to.
const SIZE: u64 = (64 << 20) + (96 << 10);

/// A former system's superblock: its name in the log, and in util-linux; its offset and its bytes.
pub(crate) struct Former {
    name: &'static str,
    pub(crate) kind: &'static str,
    at: u64,
    bytes: Vec<u8>,
}

/// Returns `length` bytes with `fields` at their offsets.
fn record(length: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

/// Returns the superblocks of former systems on a device of `size` bytes. The last two are for
/// whole disks with sectors of 512 bytes.
pub(crate) fn superblocks(size: u64) -> Vec<Former> {
    let (place, old) = ((size / 512 - 16) & !7, (size & !0xffff) - (64 << 10));
    let magic = [0xfc, 0x4e, 0x2b, 0xa9];
    let new_md = record(4096, &[(0, &magic), (4, &[1]), (144, &place.to_le_bytes())]);
    let kib = u32::try_from(old >> 10).unwrap().to_le_bytes();
    let old_md = record(4096, &[(0, &magic), (8, &[90]), (32, &kib)]);
    // Four uberblocks in a label.
    let uberblock = |number: usize| ((128 + number) << 10, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0][..]);
    let label = record(256 << 10, &[0, 4, 8, 12].map(uberblock));
    let last = (size / 512 - 1).to_be_bytes();
    let ddf =
        [(0, &[0xde, 0x11, 0xde, 0x11][..]), (8, &[b'x'; 24]), (32, b"01.02.00"), (96, &last)];
    let intel = record(512, &[(0, b"Intel Raid ISM Cfg Sig. 1.3.00")]);
    let array = "superblock of a software RAID (md)";
    let firmware = ["header of a firmware RAID (DDF)", "header of a firmware RAID (Intel)"];
    let former = |name, kind, at, bytes| Former { name, kind, at, bytes };
    vec![
        former(array, "linux_raid_member", place * 512, new_md),
        former(array, "linux_raid_member", old, old_md),
        former("label of a ZFS pool", "zfs_member", (size & !0x3_ffff) - (256 << 10), label),
        former(firmware[0], "ddf_raid_member", size - 512, record(512, &ddf)),
        former(firmware[1], "isw_raid_member", size - 1024, intel),
    ]
}

impl Former {
    pub(crate) fn put(&self, path: &str) {
        let disk = OpenOptions::new().write(true).open(path).unwrap();
        disk.write_all_at(&self.bytes, self.at).unwrap();
        disk.sync_all().unwrap();
    }
}

/// Returns the kinds of all signatures on the device `path`.
pub(crate) fn signatures(path: &str) -> Vec<String> {
    let found = sh(&format!("wipefs --noheadings --output TYPE {path}"));
    found.lines().map(|line| line.trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn superblocks_at_the_end_are_erased_and_logged() {
    for former in superblocks(SIZE) {
        let disk = LoopDisk::new(SIZE);
        former.put(&disk.path);
        assert_eq!(signatures(&disk.path), [former.kind]);
        let (outcome, log) = written(gpt_image(512, 1024), &disk.path, &[]).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        let line =
            format!("\nerased at the end of the disk, from a former system: {}\n", former.name);
        assert!(log.contains(&line), "{log}");
        assert_eq!(signatures(&disk.path), ["gpt", "gpt", "PMBR"], "{}", former.kind);
        check_gpt(&disk.path, 512);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backup_gpt_of_a_former_system_is_erased_if_the_image_has_none() {
    for sector in [512, 4096] {
        let disk = LoopDisk::with_sectors(16 << 20, sector);
        sh(&format!("printf 'label: gpt\\n,\\n' | sfdisk -q {} 2>/dev/null", disk.path));
        let mut image = disk_image(1 << 20);
        image[446..462].copy_from_slice(&[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 1, 0, 0, 9, 0, 0, 0]);
        let (outcome, log) = written(image.clone(), &disk.path, &[]).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        let line = "\nerased at the end of the disk, from a former system: backup GPT\n";
        assert!(log.contains(line), "{log}");
        let content = disk.content();
        assert!(content[..image.len()] == image);
        let entries = 128 * 128 + usize::try_from(sector).unwrap();
        let (kept, table) = content[image.len()..].split_at(content.len() - image.len() - entries);
        assert!(kept.iter().all(|byte| *byte == OLD), "more than the table was erased");
        assert!(!table.windows(8).any(|bytes| bytes == b"EFI PART"));
        assert_eq!(signatures(&disk.path), ["dos"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superblock_that_the_image_covers_in_part_is_erased() {
    let label = &superblocks(SIZE)[2];
    let disk = LoopDisk::new(SIZE);
    label.put(&disk.path);
    let image = disk_image(usize::try_from(label.at).unwrap() + 5000);
    let (outcome, log) = written(image.clone(), &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    assert!(log.contains(label.name), "{log}");
    assert!(disk.content()[..image.len()] == image);
    assert!(!signatures(&disk.path).contains(&label.kind.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superblock_in_the_image_itself_stays() {
    let disk = LoopDisk::new(SIZE);
    // All but the last sector.
    let mut image = disk_image(usize::try_from(SIZE).unwrap() - 512);
    for former in superblocks(SIZE) {
        let at = usize::try_from(former.at).unwrap();
        if let Some(place) = image.get_mut(at..at + former.bytes.len()) {
            place.copy_from_slice(&former.bytes);
        }
    }
    let (outcome, log) = written(image.clone(), &disk.path, &[]).await;
    assert_eq!((outcome, log.lines().count()), (ActionOutcome::Success, 1), "{log}");
    assert!(disk.content()[..image.len()] == image);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_data_behind_the_image_stay() {
    let disk = LoopDisk::new(SIZE);
    let image = disk_image(1 << 20);
    let (outcome, log) = written(image.clone(), &disk.path, &[]).await;
    assert_eq!((outcome, log.lines().count()), (ActionOutcome::Success, 1), "{log}");
    assert!(disk.content()[image.len()..].iter().all(|byte| *byte == OLD));
}

#[tokio::test(flavor = "multi_thread")]
async fn boot_code_alone_leaves_the_system_of_the_disk() {
    let row = format!("start=2048,size={}", SIZE / 512 - 2048 - 40);
    let cases = ["gpt", "dos", "none"].into_iter().flat_map(|table| [(table, 440), (table, 512)]);
    for (table, bytes) in cases {
        let disk = LoopDisk::new(SIZE);
        if table != "none" {
            let script = format!("label: {table}\\n{row}\\n");
            sh(&format!("printf '{script}' | sfdisk -q {} 2>/dev/null", disk.path));
        }
        superblocks(SIZE).iter().for_each(|former| former.put(&disk.path));
        let before = disk.content();
        // Code, and what is behind the code on the disk.
        let image = [&disk_image(512)[..440], &before[440..bytes]].concat();
        let any = [("IMG_ANY_CONTENT", "true")];
        let (outcome, log) = written(image.clone(), &disk.path, &any).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        assert!(!log.contains("erased"), "{log}");
        let content = disk.content();
        assert!(content[..bytes] == image && content[bytes..] == before[bytes..], "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_sector_without_a_table_leaves_no_gpt() {
    let disk = LoopDisk::new(4 << 20);
    sh(&format!("printf 'label: gpt\\n,\\n' | sfdisk -q {} 2>/dev/null", disk.path));
    let (outcome, log) = written(disk_image(512), &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    assert!(log.contains("from a former system: GPT, backup GPT\n"), "{log}");
    assert!(!disk.content().windows(8).any(|bytes| bytes == b"EFI PART"));
}

/// Writes a partition table with `partitions` to `disk`, as an MBR if `more` has this variable.
/// Returns the log.
async fn partitioned(
    disk: &LoopDisk,
    partitions: Value,
    wipe_table: bool,
    more: &[(&str, &str)],
) -> String {
    let mut description = disks(disk, partitions);
    description["disks"][0]["wipe_table"] = json!(wipe_table);
    let (outcome, log) = run_recorded(Subcommand::Partition, description, more).await;
    assert_eq!(outcome, ActionOutcome::Success);
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_partition_table_leaves_no_superblocks() {
    let before_the_end = json!([{"number": 1, "size": 2048}]);
    let to_the_end = json!([{"number": 1}]);
    let cases = [(&before_the_end, true), (&before_the_end, false), (&to_the_end, false)];
    for mbr in [&[][..], &[("MBR", "1")]] {
        for former in superblocks(SIZE) {
            for (partitions, wipe) in cases {
                let disk = LoopDisk::new(SIZE);
                former.put(&disk.path);
                let log = partitioned(&disk, partitions.clone(), wipe, mbr).await;
                assert_eq!(log.contains(former.name), !wipe, "{log}");
                assert!(!signatures(&disk.path).contains(&former.kind.to_owned()));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_the_former_table_has_too_keeps_its_content() {
    for mbr in [&[][..], &[("MBR", "1")]] {
        // The superblocks of the partition itself are at the same offsets.
        for former in &superblocks(SIZE)[1..3] {
            let disk = LoopDisk::new(SIZE);
            partitioned(&disk, json!([{"number": 1}]), false, mbr).await;
            former.put(&disk.path);
            let log = partitioned(&disk, json!([{"number": 1}]), false, mbr).await;
            assert!(!log.contains("erased"), "{log}");
            let at = usize::try_from(former.at).unwrap();
            assert!(disk.content()[at..].starts_with(&former.bytes), "{}", former.kind);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_another_size_than_before_keeps_no_superblocks() {
    for mbr in [&[][..], &[("MBR", "1")]] {
        for former in &superblocks(SIZE)[1..3] {
            let disk = LoopDisk::new(SIZE);
            partitioned(&disk, json!([{"number": 1, "size": 2048}]), false, mbr).await;
            former.put(&disk.path);
            let log = partitioned(&disk, json!([{"number": 1}]), false, mbr).await;
            assert!(log.contains(former.name), "{log}");
            assert!(!signatures(&disk.path).contains(&former.kind.to_owned()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_system_leaves_no_superblocks() {
    let disk = LoopDisk::new(SIZE);
    let [array, ..] = &superblocks(SIZE)[..] else { panic!("no superblock") };
    array.put(&disk.path);
    let description = filesystem(&disk, "vfat", &[]);
    let (outcome, log) = run_recorded(Subcommand::Format, description, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(log.contains(array.name), "{log}");
    assert_eq!(signatures(&disk.path), ["vfat"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_keeps_what_belongs_to_the_disk() {
    let disk = LoopDisk::with_partitions(16 << 20);
    let partition = disk.add_partition();
    let [array, .., intel] = &superblocks(4 << 20)[..] else { panic!("no superblocks") };
    array.put(&partition);
    intel.put(&partition);
    let file_system = crate::contents::made("mkfs.ext4 -q $1 2M");
    let outcome = written(file_system, &partition, &[]).await;
    let line = format!("\nerased at the end of the disk, from a former system: {}\n", array.name);
    assert!(outcome.0 == ActionOutcome::Success && outcome.1.ends_with(&line), "{outcome:?}");
    assert!(disk.content()[(5 << 20) - 1024..].starts_with(b"Intel Raid ISM Cfg Sig. "));
}
