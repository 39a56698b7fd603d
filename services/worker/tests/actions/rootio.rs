//! rootio on real block devices: the tables and file systems on them are checked with util-linux.

use std::fs;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use worker::rootio::Subcommand;
use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, OLD, sh};
use crate::file_server::FileServer;
use crate::{context, environment, reason};

/// Runs `subcommand` with the storage in `description` and the variables in `more`.
async fn run_subcommand(
    subcommand: Subcommand,
    description: Value,
    more: &[(&str, &str)],
) -> ActionOutcome {
    run_recorded(subcommand, description, more).await.0
}

/// Does the same. Returns the printed text, too.
pub(crate) async fn run_recorded(
    subcommand: Subcommand,
    description: Value,
    more: &[(&str, &str)],
) -> (ActionOutcome, String) {
    let file = NamedTempFile::new().unwrap();
    let metadata = json!({"metadata": {"instance": {"storage": description}}});
    fs::write(&file, metadata.to_string()).unwrap();
    let mut variables = vec![("TEST", "y"), ("JSON_FILE", file.path().to_str().unwrap())];
    variables.extend(more);
    let (context, recorder) = context();
    let action = Builtin::Rootio(subcommand);
    let outcome = worker::run(action, &environment(&variables), &context).await;
    let printed = String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap();
    (outcome, printed)
}

pub(crate) fn disks(disk: &LoopDisk, partitions: Value) -> Value {
    json!({"disks": [{"device": disk.path, "wipe_table": true, "partitions": partitions}]})
}

pub(crate) fn filesystem(disk: &LoopDisk, format: &str, options: &[&str]) -> Value {
    let create = json!({"options": options});
    json!({"filesystems": [{"mount": {"device": disk.path, "format": format, "point": "/", "create": create}}]})
}

/// Returns the partition table on `disk` as sfdisk prints it.
fn table(disk: &LoopDisk) -> Value {
    let text = sh(&format!("sfdisk --json {}", disk.path));
    serde_json::from_str::<Value>(&text).unwrap()["partitiontable"].clone()
}

/// Returns first sectors, sizes and types of the partitions in `table`.
fn partitions(table: &Value) -> Vec<(u64, u64, String)> {
    let rows = table["partitions"].as_array().unwrap().iter();
    let row = |row: &Value| {
        let text = row["type"].as_str().unwrap().to_lowercase();
        (row["start"].as_u64().unwrap(), row["size"].as_u64().unwrap(), text)
    };
    rows.map(row).collect()
}

const EFI: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";
const BIOS: &str = "21686148-6449-6e6f-744e-656564454649";
const SWAP: &str = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f";
const LINUX: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";
const HOME: &str = "933ac7e1-2eb4-4f13-b844-0e14e2aef915";

#[tokio::test(flavor = "multi_thread")]
async fn sfdisk_reads_and_verifies_the_gpt() {
    for (sector, per_mib) in [(512, 2048), (4096, 256)] {
        let disk = LoopDisk::with_sectors(64 << 20, sector);
        let layout = json!([
            {"label": "BIOS", "number": 1, "size": 2048},
            {"label": "EFI", "number": 2, "size": 20480},
            {"label": "SWAP", "number": 3, "size": 8},
            {"label": "HOME", "number": 5, "size": 4096, "type_guid": HOME.to_uppercase()},
            {"label": "ROOT", "number": 4, "size": 0}]);
        let outcome = run_subcommand(Subcommand::Partition, disks(&disk, layout), &[]).await;
        assert_eq!(outcome, ActionOutcome::Success);
        let table = table(&disk);
        let last = table["lastlba"].as_u64().unwrap();
        let mib = |mib: u64| mib * per_mib;
        let expected = [
            (mib(1), mib(1), BIOS),
            (mib(2), mib(10), EFI),
            (mib(12), 8 * 512 / sector, SWAP),
            (mib(15), last + 1 - mib(15), LINUX),
            (mib(13), mib(2), HOME),
        ];
        assert_eq!(
            partitions(&table),
            expected.map(|(start, size, kind)| (start, size, kind.to_owned()))
        );
        assert_eq!(table["partitions"][1]["name"], "EFI");
        let output = sh(&format!("sfdisk --verify {} 2>&1", disk.path));
        assert!(output.contains("No errors detected"), "{output}");
        // Without the primary header, sfdisk finds the backup header at the end.
        sh(&format!(
            "dd if=/dev/zero of={} bs={sector} seek=1 count=1 conv=notrunc status=none",
            disk.path
        ));
        assert_eq!(
            sh(&format!("sfdisk --json {} 2>/dev/null | grep -c '\"node\"'", disk.path)),
            "5"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_of_a_disk_are_wiped_first_if_the_metadata_requests_it() {
    for wipe in [true, false] {
        let disk = LoopDisk::new(8 << 20);
        let entry = json!({"device": disk.path, "wipe_table": wipe, "partitions": [{"number": 1}]});
        let outcome = run_subcommand(Subcommand::Partition, json!({"disks": [entry]}), &[]).await;
        assert_eq!(outcome, ActionOutcome::Success);
        let (content, left) = (disk.content(), if wipe { 0 } else { OLD });
        // Except the table, whose backup copy is after the last partition.
        let (mib, end) = (1 << 20, content.len());
        let ends = content[34 * 512..mib].iter().chain(&content[end - mib..end - 33 * 512]);
        assert!(ends.into_iter().all(|byte| *byte == left), "{wipe}");
        assert!(content[mib..end - mib].iter().all(|byte| *byte == OLD), "{wipe}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mbr_is_written_if_the_template_requests_it() {
    let disk = LoopDisk::new(64 << 20);
    sh(&format!("printf 'label: gpt\\n,\\n' | sfdisk -q {} 2>/dev/null", disk.path));
    let layout = json!([
        {"label": "FAT32_ACTIVE", "number": 1, "size": 20480},
        {"label": "SWAP", "number": 2, "size": 2049},
        {"label": "LINUX", "number": 3}]);
    let description = json!({"disks": [{"device": disk.path, "partitions": layout}]});
    assert_eq!(
        run_subcommand(Subcommand::Partition, description, &[("MBR", "1")]).await,
        ActionOutcome::Success
    );
    let table = table(&disk);
    assert_eq!(table["label"], "dos");
    let expected = [(2048, 20480, "c"), (22528, 2049, "82"), (26624, 131_072 - 26624, "83")];
    assert_eq!(
        partitions(&table),
        expected.map(|(start, size, kind)| (start, size, kind.to_owned()))
    );
    assert_eq!(
        (&table["partitions"][0]["bootable"], &table["partitions"][2]["bootable"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(sh(&format!("wipefs --noheadings --output TYPE {}", disk.path)), "dos");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_is_fetched_over_http() {
    let disk = LoopDisk::new(8 << 20);
    let metadata = json!({"metadata": {"instance": {"storage": disks(&disk, json!([{"label": "ROOT", "number": 1, "size": 0}]))}}});
    let server = FileServer::serve("metadata", metadata.to_string().into_bytes(), []).await;
    let (host, port) =
        ("127.0.0.1", server.url.split(':').nth(2).unwrap().trim_end_matches("/metadata"));
    let variables = [("MIRROR_HOST", host), ("METADATA_SERVICE_PORT", port)];
    let outcome = crate::run(Builtin::Rootio(Subcommand::Partition), &variables).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert_eq!(partitions(&table(&disk)).len(), 1);
    assert_eq!(server.paths(), ["/metadata"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_partitions_do_not_fit_no_disk_is_written() {
    let (disk, other) = (LoopDisk::new(8 << 20), LoopDisk::new(8 << 20));
    let entry = |disk: &LoopDisk, size: u64| json!({"device": disk.path, "wipe_table": true, "partitions": [{"label": "ROOT", "number": 1, "size": size}]});
    let description = json!({"disks": [entry(&other, 2048), entry(&disk, 50_000)]});
    let sentence = format!(
        "rootio partition: {}: partition 1 \"ROOT\" needs 50000 sectors of 512 bytes; 14303 are left",
        disk.path
    );
    assert_eq!(reason(run_subcommand(Subcommand::Partition, description, &[]).await), sentence);
    assert!(disk.is_untouched() && other.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_in_use_is_refused() {
    let disk = LoopDisk::ext4();
    let mounted = disk.mounted();
    let description = || {
        let mut all = disks(&disk, json!([{"number": 1}]));
        all["filesystems"] = filesystem(&disk, "ext4", &[])["filesystems"].clone();
        all
    };
    for (what, name) in [
        (Subcommand::Partition, "partition"),
        (Subcommand::Wipe, "wipe"),
        (Subcommand::Format, "format"),
    ] {
        let sentence = format!(
            "rootio {name}: {}: in use: mounted on {}",
            disk.path,
            mounted.path().display()
        );
        assert_eq!(reason(run_subcommand(what, description(), &[]).await), sentence);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_disk_has_no_signatures() {
    let disk = LoopDisk::new(64 << 20);
    sh(&format!("printf 'label: gpt\\n,\\n' | sfdisk -q {} 2>/dev/null", disk.path));
    assert_eq!(
        run_subcommand(Subcommand::Wipe, disks(&disk, Value::Null), &[]).await,
        ActionOutcome::Success
    );
    assert_eq!(sh(&format!("wipefs {}", disk.path)), "");
    let content = disk.content();
    let (mib, end) = (1 << 20, content.len());
    assert!(content[..mib].iter().chain(&content[end - mib..]).all(|byte| *byte == 0));
    assert!(disk.allocated() <= 4 << 20, "nothing was discarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_systems_are_created_with_their_options() {
    for (format, options) in [
        ("ext2", &["-L", "DATA"][..]),
        ("ext3", &["-L", "DATA"]),
        ("ext4", &["-L", "DATA", "-O", "^has_journal"]),
        ("vfat", &["-n", "DATA"]),
        ("swap", &["-L", "DATA"]),
    ] {
        let disk = LoopDisk::new(64 << 20);
        let outcome =
            run_subcommand(Subcommand::Format, filesystem(&disk, format, options), &[]).await;
        assert_eq!(outcome, ActionOutcome::Success, "{format}");
        let found = sh(&format!("blkid -p -o value -s TYPE -s LABEL {}", disk.path));
        assert_eq!(found, format!("DATA\n{format}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn busybox_programs_create_some_file_systems() {
    let place = tempfile::tempdir().unwrap();
    for program in ["mke2fs", "mkdosfs", "mkswap"] {
        std::os::unix::fs::symlink("/bin/busybox", place.path().join(program)).unwrap();
    }
    let path = [("PATH", place.path().to_str().unwrap())];
    for (format, label) in [("ext2", "-L"), ("vfat", "-n"), ("swap", "-L")] {
        let disk = LoopDisk::new(64 << 20);
        let description = filesystem(&disk, format, &[label, "DATA"]);
        assert_eq!(
            run_subcommand(Subcommand::Format, description, &path).await,
            ActionOutcome::Success,
            "{format}"
        );
        let found = sh(&format!("blkid -p -o value -s TYPE -s LABEL {}", disk.path));
        assert_eq!(found, format!("DATA\n{format}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_file_systems_are_refused_before_the_first_write() {
    let (disk, other) = (LoopDisk::new(8 << 20), LoopDisk::new(8 << 20));
    let both = |format: &str| {
        let mut all = filesystem(&other, "swap", &[]);
        let one = filesystem(&disk, format, &[])["filesystems"][0].clone();
        all["filesystems"].as_array_mut().unwrap().push(one);
        all
    };
    let sentence = format!("rootio format: {}: file system \"zfs\" is not supported", disk.path);
    assert_eq!(reason(run_subcommand(Subcommand::Format, both("zfs"), &[]).await), sentence);
    // A PATH with only one program.
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/sbin/mkswap", place.path().join("mkswap")).unwrap();
    let path = [("PATH", place.path().to_str().unwrap())];
    let sentence = format!(
        "rootio format: {}: the program mkfs.ext4 for ext4 is missing in this environment",
        disk.path
    );
    assert_eq!(reason(run_subcommand(Subcommand::Format, both("ext4"), &path).await), sentence);
    assert!(other.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_fails_the_action() {
    let disk = LoopDisk::new(8 << 20);
    let description = filesystem(&disk, "ext4", &["-O", "nonsense"]);
    let (outcome, printed) = run_recorded(Subcommand::Format, description, &[]).await;
    let failed = reason(outcome);
    assert!(failed.starts_with("rootio format: `"), "{failed}");
    assert!(printed.contains("nonsense"), "{printed}");
}

#[tokio::test]
async fn missing_metadata_is_named() {
    for (what, sentence) in [
        (Subcommand::Partition, "rootio partition: the metadata's storage has no disks"),
        (Subcommand::Wipe, "rootio wipe: the metadata's storage has no disks"),
        (Subcommand::Format, "rootio format: the metadata's storage has no filesystems"),
    ] {
        assert_eq!(reason(run_subcommand(what, json!({}), &[]).await), sentence);
    }
    let missing = reason(crate::run(Builtin::Rootio(Subcommand::Wipe), &[]).await);
    assert_eq!(missing, "rootio wipe: MIRROR_HOST is missing");
    let file = NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let empty = [("TEST", "1"), ("JSON_FILE", path)];
    let reason = reason(crate::run(Builtin::Rootio(Subcommand::Format), &empty).await);
    assert!(reason.starts_with(&format!("rootio format: {path}: EOF while parsing")), "{reason}");
}

#[tokio::test]
async fn mount_and_version_print_a_line() {
    for (subcommand, expected) in [
        (Subcommand::Mount, "nothing to mount: each action mounts its file systems itself\n"),
        (Subcommand::Version, concat!("tinwright-worker ", env!("CARGO_PKG_VERSION"), "\n")),
    ] {
        let (context, recorder) = context();
        let outcome = worker::run(Builtin::Rootio(subcommand), &environment(&[]), &context).await;
        assert_eq!(outcome, ActionOutcome::Success);
        assert_eq!(recorder.output.lock().unwrap().as_slice(), expected.as_bytes());
    }
}
