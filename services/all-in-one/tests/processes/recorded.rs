//! What former programs sent and stored is read by this one.
//!
//! Each folder in `tests/recorded` is the recording of one program, named after its commit.
//! [`recording`] describes its files. `tests/recorded/README.md` says how one is made.

mod client;
mod comparison;
mod contract;
mod places;
mod recorder;
mod recording;
mod replay;
mod site;
mod stored;
mod work;
mod worker;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost_reflect::DescriptorPool;
use serde_json::Value;
use tinwright::nouns::{NOUNS, NounInfo};

use self::client::Client;
use self::comparison::Comparison;
use self::recording::{BACKUP, CALLS, CONTRACT, READS, RECORDS, RecordedCall, SECRETS};
use self::stored::Content;
use super::network::Network;
use super::process::Place;

/// The variable with the folder for a new recording.
const FOLDER_VARIABLE: &str = "TINWRIGHT_RECORD";

/// Calls that are not recorded, and the reasons.
const NOT_RECORDED: [(&str, &str); 9] = [
    ("IdentityService/RotateAuthority", "replaces the keys of the site"),
    ("IdentityService/RotateSiteKey", "replaces the keys of the site"),
    ("InstanceService/ReinstallInstance", "an instance has one state"),
    ("InstanceService/ReportStackRunning", "needs the boot of a node"),
    ("InstanceService/RestartInstance", "needs the BMC of an instance"),
    ("InstanceService/RetryInstance", "an instance has one state"),
    ("NodeService/DeleteNode", "a node has one state"),
    ("StoreService/Backup", "the backup is a file"),
    ("StoreService/ResumeImageCollection", "needs a restored store"),
];

/// Returns the folders of all recordings.
fn folders() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let entries = std::fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    assert!(!folders.is_empty());
    folders
}

/// Restores the store of the recording in `folder`.
fn restore(folder: &Path) -> Place {
    let place = Place::new();
    recorder::copy_secrets(&folder.join(SECRETS), &place.secrets());
    let decompressed = Command::new("gzip").arg("-dc").arg(folder.join(BACKUP)).output().unwrap();
    assert!(decompressed.status.success());
    let backup = place.path("backup");
    std::fs::write(&backup, decompressed.stdout).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(["store", "restore"]).arg(backup).arg("--data").arg(place.path("data"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place
}

/// Checks that every message of the recording in `folder` is read as the recorded program meant it.
fn check_messages(folder: &Path) {
    let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
    for line in recording::read(folder, CALLS) {
        let now = RecordedCall::read(&line).line(&pool);
        assert_eq!(now, line);
    }
    for call in recording::read_calls(folder, READS) {
        // Fails for a field that this program does not know.
        call.line(&pool);
    }
    let contract = std::fs::read_to_string(folder.join(CONTRACT)).unwrap();
    let missing = contract::missing(&contract, &contract::described(&pool));
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Checks that the services read everything in the recorded store as it was meant.
async fn check_records(folder: &Path) {
    let place = restore(folder);
    // It migrates the store.
    place.check_store();
    let content = Content::read(&place.path("data")).await;
    assert!(content.report.is_clean(), "{:?}", content.report);
    let unread = content.unread();
    assert_eq!(unread.len(), content.report.entries, "{unread:?}");
    let mut comparison = Comparison::default();
    for line in recording::read(folder, RECORDS) {
        let key = line["key"].as_str().unwrap();
        match content.values.get(key) {
            Some(now) => comparison.compare(&line["value"], now, key),
            None => comparison.found.push(format!("{key}: missing")),
        }
    }
    assert!(comparison.found.is_empty(), "{}", comparison.found.join("\n"));
}

/// Checks that this program serves all objects of the recorded store as the recorded one did. That holds
/// for some minutes: then what waited has timed out.
fn check_served(folder: &Path) {
    let reads = recording::read_calls(folder, READS);
    let network = Network::new(&[]);
    network.on_site(async || {
        let process = recorder::start(restore(folder)).await;
        let client = Client::of(&process).await;
        let differences = replay::differences(&client, &reads).await;
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}

/// Writes what this program reads in the store of the recording in `folder`.
async fn write_records(folder: &Path) {
    let place = restore(folder);
    place.check_store();
    let content = Content::read(&place.path("data")).await;
    recording::write(folder, RECORDS, content.lines());
}

#[test]
fn messages_of_former_programs_mean_the_same() {
    for folder in folders() {
        check_messages(&folder);
    }
}

#[tokio::test]
async fn records_of_former_programs_mean_the_same() {
    for folder in folders() {
        check_records(&folder).await;
    }
}

#[test]
#[ignore = "builds a former program: cargo rack test --long upgrade"]
fn a_new_recording_is_read_and_its_store_is_upgraded_in_place() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| temporary.path().to_owned());
    recorder::record(setup::former::server().unwrap(), &folder, check_upgraded);
    block_on(write_records(&folder));
    check_is_complete(&folder);
    check_messages(&folder);
    block_on(check_records(&folder));
    check_served(&folder);
}

/// Checks that every call of the recorded program is recorded, and an event of each of its nouns.
fn check_is_complete(folder: &Path) {
    let recorded = [CALLS, READS].map(|name| recording::read_calls(folder, name)).concat();
    let recorded: BTreeSet<_> = recorded.into_iter().map(|call| call.path).collect();
    let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
    let contract = std::fs::read_to_string(folder.join(CONTRACT)).unwrap();
    let described = client::methods(&pool).filter(|it| contract::has_call(&contract, it));
    let paths = described.map(|method| client::path(&method));
    let has_reason = |path: &String| NOT_RECORDED.iter().any(|(name, _)| path.ends_with(name));
    let missing: Vec<_> =
        paths.filter(|path| !recorded.contains(path) && !has_reason(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let records = recording::read(folder, RECORDS);
    let is_recorded = |noun: &&NounInfo| contract.contains(&format!(".v1.{}:", noun.message));
    for noun in NOUNS.iter().filter(|noun| noun.has_events).filter(is_recorded) {
        let is_of_noun = |line: &Value| line["value"]["noun"] == noun.singular;
        assert!(records.iter().any(is_of_noun), "no event of {}", noun.singular);
    }
}

/// Checks that this program serves the objects in `place` as the recorded one did, and knows which
/// requests were carried out.
async fn check_upgraded(place: Place, folder: &Path) {
    let program = env!("CARGO_BIN_EXE_tinwright").into();
    let process = recorder::start(place.with_program(program)).await;
    let client = Client::of(&process).await;
    let [calls, reads] = [CALLS, READS].map(|name| recording::read_calls(folder, name));
    let differences = replay::differences(&client, &reads).await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let repeated = replay::repeat_creations(&client, &calls).await;
    println!("{repeated} requests repeated");
    assert!(repeated > 0);
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work)
}
