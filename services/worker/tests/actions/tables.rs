//! Partition tables after an image is written: they have the disk's size, and nothing of a former
//! system is left.

use std::fs;
use std::io::{Seek as _, SeekFrom};

use gptman::{GPTHeader, GPTPartitionEntry};
use worker::{ActionOutcome, Builtin};

use crate::contents::made;
use crate::disk::{LoopDisk, sh};
use crate::file_server::FileServer;
use crate::image2disk::packed;
use crate::{context, environment, reason};

/// Returns an image of `kib` KiB with the table that sfdisk makes of `script`, for sectors of
/// `sector` bytes.
pub(crate) fn partitioned(kib: u64, sector: u64, script: &str) -> Vec<u8> {
    made(&format!(
        "truncate -s {kib}K $1; disk=$(losetup -b {sector} --find --show $1); \
         printf '{script}' | sfdisk -q $disk 2>&1 || failed=1; losetup --detach $disk; [ -z \"$failed\" ]"
    ))
}

/// Returns an image of `kib` KiB with a GPT for sectors of `sector` bytes, which has one partition.
pub(crate) fn gpt_image(sector: u64, kib: u64) -> Vec<u8> {
    let script = "label: gpt\\nfirst-lba: 40\\nstart=64,size=64,type=U,name=root\\n";
    let mut image = partitioned(kib, sector, script);
    let at = usize::try_from(64 * sector).unwrap();
    image[at..at + 7].copy_from_slice(b"content");
    image
}

/// Writes `image` to `path`. Returns the outcome and the log.
pub(crate) async fn written(
    image: Vec<u8>,
    path: &str,
    more: &[(&str, &str)],
) -> (ActionOutcome, String) {
    let server = FileServer::serve("disk.img", image, []).await;
    let (context, recorder) = context();
    let place = [("IMG_URL", server.url.as_str()), ("DEST_DISK", path)];
    let variables = environment(&[&place[..], more].concat());
    let outcome = worker::run(Builtin::Image2Disk, &variables, &context).await;
    let log = String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap();
    (outcome, log)
}

/// Requires a GPT in both places of the disk at `path`, with right checksums and each other's
/// sector, as another program reads it. `sfdisk` finds no fault. Returns the partitions.
pub(crate) fn check_gpt(path: &str, sector: u64) -> Vec<GPTPartitionEntry> {
    let mut disk = fs::File::open(path).unwrap();
    let last = disk.seek(SeekFrom::End(0)).unwrap() / sector - 1;
    let copies = [(1, last), (last, 1)].map(|(own, other)| {
        disk.seek(SeekFrom::Start(own * sector)).unwrap();
        let header = GPTHeader::read_from(&mut disk).unwrap();
        assert_eq!((header.primary_lba, header.backup_lba), (own, other));
        let entries = u64::from(header.number_of_partition_entries) * 128;
        assert_eq!(header.last_usable_lba, last - entries.div_ceil(sector) - 1);
        let entries = header.read_partitions(&mut disk, sector).unwrap();
        (header.disk_guid, entries)
    });
    assert!(copies[0] == copies[1]);
    let attached = format!("losetup -b {sector} --find --show {path}");
    let disk = if path.starts_with("/dev/") { path.to_owned() } else { sh(&attached) };
    let verified = sh(&format!("sfdisk --verify {disk} 2>&1"));
    if disk != path {
        sh(&format!("losetup --detach {disk}"));
    }
    assert!(
        verified.contains("No errors detected") && !verified.contains("mismatch"),
        "{verified}"
    );
    let [(_, entries), _] = copies;
    entries.into_iter().filter(GPTPartitionEntry::is_used).collect()
}

/// Requires that `content` begins with `image`, apart from the table's fields for the size of the
/// disk, and from the backup of the table, which may lie there on a disk of about the same size.
pub(crate) fn check_content(content: &[u8], image: &[u8], sector: usize) {
    let mut expected = image.to_vec();
    // The size in the protective MBR, and the first header.
    for fields in [458..462, sector..sector + 92] {
        expected[fields.clone()].copy_from_slice(&content[fields]);
    }
    // xorriso makes 248 entries, others 128.
    let number = image[sector + 80..sector + 84].try_into().unwrap();
    let entries = 128 * u32::from_le_bytes(number) as usize;
    let end = expected.len() - sector - entries.next_multiple_of(sector);
    assert!(content[..end] == expected[..end]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backup_of_a_gpt_is_moved_to_the_end_of_the_disk() {
    for sector in [512, 4096] {
        let image = gpt_image(sector, 1024);
        for size in [16 << 20, (16 << 20) + 4096, 1 << 20] {
            let disk = LoopDisk::with_sectors(size, sector);
            let (outcome, log) = written(packed("gzip", &image), &disk.path, &[]).await;
            assert_eq!(outcome, ActionOutcome::Success, "{log}");
            assert_eq!(check_gpt(&disk.path, sector).len(), 1);
            check_content(&disk.content(), &image, sector as usize);
            let line =
                format!("backup GPT moved to the end of the disk, sector {}\n", size / sector - 1);
            assert_eq!(log.contains(&line), size > 1 << 20, "{log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backup_is_moved_without_verification_too() {
    let disk = LoopDisk::new(16 << 20);
    let image = gpt_image(512, 1024);
    let (outcome, _) = written(image, &disk.path, &[("IMG_VERIFY", "false")]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(check_gpt(&disk.path, 512).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_backup_of_an_image_is_made_anew() {
    for missing in [0, 512, 33 * 512] {
        let (disk, image) = (LoopDisk::new(1 << 20), gpt_image(512, 1024));
        let image = image[..image.len() - missing].to_vec();
        let damaged = [&image[..image.len() - 512], &[0; 512]].concat();
        let (outcome, log) = written(damaged, &disk.path, &[]).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        assert_eq!(check_gpt(&disk.path, 512).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_used_as_a_disk_gets_the_table_of_its_size() {
    for sector in [512, 4096] {
        let (file, image) = (tempfile::NamedTempFile::new().unwrap(), gpt_image(sector, 1024));
        let path = file.path().to_str().unwrap();
        let (outcome, log) = written(image.clone(), path, &[]).await;
        assert_eq!((outcome, log.lines().count()), (ActionOutcome::Success, 1), "{log}");
        assert!(fs::read(path).unwrap() == image);
        file.as_file().set_len(16 << 20).unwrap();
        let (outcome, _) = written(image, path, &[]).await;
        assert_eq!(outcome, ActionOutcome::Success);
        assert_eq!(check_gpt(path, sector).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_for_other_sectors_is_refused() {
    for (image, disk) in [(512, 4096), (4096, 512)] {
        let device = LoopDisk::with_sectors(16 << 20, disk);
        let reason = reason(written(gpt_image(image, 1024), &device.path, &[]).await.0);
        let text =
            format!("disk image for sectors of {image} bytes: the disk has sectors of {disk}");
        assert!(reason.contains(&text), "{reason}");
        assert!(device.is_untouched());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_larger_than_the_disk_is_refused_before_the_first_write() {
    let disk = LoopDisk::new(1 << 20);
    let script = "label: gpt\\nfirst-lba: 40\\nstart=64,size=9000,type=U\\n";
    let image = partitioned(9 << 10, 512, script);
    for more in [&[][..], &[("IMG_FORCE", "true")]] {
        let reason = reason(written(packed("gzip", &image), &disk.path, more).await.0);
        let text = "disk too small: holds 1048576 bytes, the partition table of the image needs ";
        assert!(reason.contains(text), "{reason}");
        assert!(disk.is_untouched());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_cut_in_its_partition_is_refused() {
    let disk = LoopDisk::new(16 << 20);
    let cut = gpt_image(512, 1024)[..100 * 512].to_vec();
    let text = "incomplete disk image: partition 1 ends at byte 65536, the image at byte 51200";
    let before_writing = reason(written(cut.clone(), &disk.path, &[]).await.0);
    assert!(before_writing.contains(text), "{before_writing}");
    assert!(disk.is_untouched());
    let at_the_end = reason(written(packed("gzip", &cut), &disk.path, &[]).await.0);
    assert!(at_the_end.contains(text), "{at_the_end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_any_content_a_valid_gpt_gets_its_backup() {
    let cut = gpt_image(512, 1024)[..100 * 512].to_vec();
    let empty = partitioned(1024, 512, "label: gpt\\nfirst-lba: 40\\n");
    for (image, count) in [(cut, 1), (empty, 0)] {
        let disk = LoopDisk::new(16 << 20);
        sh(&format!("printf 'label: gpt\\n,\\n' | sfdisk -q {} 2>/dev/null", disk.path));
        let any = [("IMG_ANY_CONTENT", "true")];
        let (outcome, log) = written(image, &disk.path, &any).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        assert!(log.contains("\nbackup GPT moved to the end of the disk, sector 32767\n"), "{log}");
        assert_eq!(check_gpt(&disk.path, 512).len(), count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_any_content_a_table_without_room_for_its_backup_is_logged() {
    let disk = LoopDisk::new(1 << 20);
    let script = "label: gpt\\nfirst-lba: 40\\nstart=64,size=9000,type=U\\n";
    let image = partitioned(9 << 10, 512, script)[..100 * 512].to_vec();
    let any = [("IMG_ANY_CONTENT", "true")];
    let (outcome, log) = written(image.clone(), &disk.path, &any).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    let line = "\nbackup GPT not moved: the disk holds 1048576 bytes, the table needs 4657664\n";
    assert!(log.contains(line), "{log}");
    assert!(disk.content()[..image.len()] == image);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_partition_of_an_mbr_is_logged() {
    let (disk, mut image) = (LoopDisk::new(16 << 20), crate::image2disk::disk_image(1 << 20));
    image[446..462].copy_from_slice(&[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0]);
    let (outcome, log) = written(image, &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(
        log.contains("\npartition 1 ends at byte 2228224, the image at byte 1048576\n"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_an_image_that_verifies_itself_stays() {
    let (disk, mut image) = (LoopDisk::new(16 << 20), hybrid_iso());
    let (outcome, log) = written(image.clone(), &disk.path, &[]).await;
    assert_eq!((outcome, check_gpt(&disk.path, 512).len()), (ActionOutcome::Success, 3), "{log}");
    image[32_768 + 883..][..14].copy_from_slice(b"ISO MD5SUM = 0");
    let (outcome, log) = written(image.clone(), &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(disk.content()[..image.len()] == image);
    assert!(
        log.contains("\nerased at the end of the disk, from a former system: backup GPT\n"),
        "{log}"
    );
    assert!(log.contains("\nbackup GPT not moved: the image verifies itself"), "{log}");
}

/// Returns a hybrid ISO image with a GPT, which has an EFI system partition.
pub(crate) fn hybrid_iso() -> Vec<u8> {
    made(
        "cd ${1%/*}; mkdir tree; echo hello > tree/a; mkfs.vfat -C esp 1440; \
         xorriso -as mkisofs -o $1 -append_partition 2 0xef esp -appended_part_as_gpt tree",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_footer_of_a_fixed_vhd_is_logged() {
    let (disk, image) = (LoopDisk::new(16 << 20), gpt_image(512, 1024));
    let mut footer = b"conectix".to_vec();
    footer.resize(512, 0);
    let (outcome, log) = written([image, footer].concat(), &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(log.contains("\nthe image ends with the footer of a VHD"), "{log}");
    check_gpt(&disk.path, 512);
}
