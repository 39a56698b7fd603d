//! Erased disks, and disks that must not be erased.

use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::{context, environment, reason, run};

#[tokio::test(flavor = "multi_thread")]
async fn every_listed_disk_reads_as_zeroes() {
    let disks = [LoopDisk::new(65 << 20), LoopDisk::new((1 << 20) + 512)];
    let list = format!("{}, {}", disks[0].path, disks[1].path);
    assert_eq!(run(Builtin::Wipe, &[("DEST_DISK", &list)]).await, ActionOutcome::Success);
    for disk in disks {
        assert!(disk.content().iter().all(|byte| *byte == 0), "{}", disk.path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_one_disk_is_in_use_none_is_erased() {
    let (used, other) = (LoopDisk::ext4(), LoopDisk::new(1 << 20));
    let mounted = used.mounted();
    let list = format!("{},{}", other.path, used.path);
    let reason = reason(run(Builtin::Wipe, &[("DEST_DISK", &list)]).await);
    assert_eq!(
        reason,
        format!("wipe: {}: in use: mounted on {}", used.path, mounted.path().display())
    );
    assert!(other.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wipe_stops() {
    let disk = LoopDisk::new(1 << 20);
    let (context, _) = context();
    context.stop.cancel();
    let variables = environment(&[("DEST_DISK", disk.path.as_str())]);
    assert_eq!(worker::run(Builtin::Wipe, &variables, &context).await, ActionOutcome::Cancelled);
    assert!(disk.is_untouched());
}

#[tokio::test]
async fn a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let sentence = format!("wipe: {path}: not a disk");
    assert_eq!(reason(run(Builtin::Wipe, &[("DEST_DISK", path)]).await), sentence);
}
