//! What an import leaves on the host.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use image::{CalledServices, ContentStore, Settings};
use runtime::{Channel, Clock};
use store::hosted::HostedService as _;
use store::sled::Sled;
use tokio_util::sync::CancellationToken;

use super::super::process::{Place, soon};

/// The names of the processes of a sandbox begin with it.
const SANDBOX: &str = "sandbox-";
/// The parent of the groups of sandboxes.
const GROUPS: &str = "tinwright-sandbox";
/// More than the time until unused content is removed.
const LATER: Duration = Duration::from_hours(25);

/// Waits until no import has left a file, a process or a group, at the places of the image service and of the builder.
pub(super) async fn gone(images: &Place, builder: &Place) {
    let gone = async {
        while !left(images, builder).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), gone).await;
    waited.unwrap_or_else(|_| panic!("left: {:?}", left(images, builder)));
}

/// Returns what imports have left.
fn left(images: &Place, builder: &Place) -> Vec<String> {
    let scratch = builds(builder).into_iter();
    let uploads = fs::read_dir(images.path("data/images/uploads")).unwrap();
    let uploads = uploads.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    scratch.chain(uploads).chain(sandboxes()).chain(groups()).collect()
}

/// Returns the names of the directories of builds.
pub(super) fn builds(builder: &Place) -> Vec<String> {
    let entries = fs::read_dir(builder.path("data/images/scratch")).unwrap().map(Result::unwrap);
    let builds = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    builds.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Returns a descendant of `process`, so many generations below it, of which each is the only one.
pub(super) fn descendant(process: u32, depth: usize) -> Option<u32> {
    (0..depth).try_fold(process, |process, _| child(process))
}

/// Returns a child of `process`.
fn child(process: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.filter_map(Result::ok);
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.collect::<String>().split_whitespace().next()?.parse().ok()
}

/// Returns the names of the processes of all sandboxes of this program.
fn sandboxes() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().map(Result::unwrap);
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(sandbox_name).collect()
}

/// Returns the name of a process if it belongs to a sandbox of this program.
fn sandbox_name(id: u32) -> Option<String> {
    let file = |path: &str| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let is_ours = file(&format!("/proc/{id}/exe"))? == file(env!("CARGO_BIN_EXE_tinwright"))?;
    let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
    (is_ours && name.starts_with(SANDBOX)).then(|| name.trim_end().to_owned())
}

/// Returns the groups of sandboxes.
fn groups() -> Vec<String> {
    let mounts = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
    let parents = mounts.map(|mount| mount.join(GROUPS)).filter(|parent| parent.is_dir());
    let entries = parents.flat_map(|parent| fs::read_dir(parent).unwrap().map(Result::unwrap));
    let groups = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    groups.map(|entry| entry.path().display().to_string()).collect()
}

/// Runs the image service of `place` a day later, until it has removed all objects.
pub(super) async fn collected_a_day_later(place: &Place) {
    let directory = place.path("data/images");
    let store = Arc::new(Sled::open(&place.path("data/store")).unwrap());
    let peers = CalledServices {
        identity: Channel::unconnected(),
        instance: Channel::unconnected(),
        workflow: Channel::unconnected(),
    };
    let content = Some(ContentStore::Directory(directory.clone()));
    let settings = Settings { content, ..Settings::default() };
    let clock = Clock::manual(Clock::system().wall() + LATER);
    let stop = CancellationToken::new();
    let service = image::Api::open(store, peers, &settings, clock, stop.clone()).unwrap();
    let running = tokio::spawn(service.run(stop.clone()));
    let removed = async {
        while files(&directory.join("blobs")) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(removed).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Returns the number of files below a folder.
pub(super) fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let counts = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => files(&entry.path()),
        false => 1,
    });
    counts.sum()
}
