//! Removes what the kernel has of earlier processes of the node and no record of the journal names.
//!
//! Everything below the mount directory is the node's. Of devices, those whose mark begins with the name of the journal are: other
//! nodes may use the same kernel.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::core::{Core, backoff};
use crate::kernel::{Device, FoundObjects, FoundRun, KernelError, MountTarget, RunId, StopSignal};

/// One thing to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Run(RunId),
    Mount(PathBuf),
    Device(Device),
    Directory(PathBuf),
}

/// Returns what no object has, in the order in which it can be removed: processes, mounts from the last to the first, devices,
/// directories. The runs `adopted` have containers.
pub(crate) fn unknown(
    core: &Core,
    found: &FoundObjects,
    runs: &[FoundRun],
    adopted: &[RunId],
) -> Vec<Leftover> {
    let (mut paths, mut marks) = (BTreeSet::new(), BTreeSet::new());
    core.read(|registry| {
        for (_, object) in registry.iter() {
            marks.insert(object.mark.clone());
            if let Some(target) = object.mount_target() {
                paths.insert(target.mountpoint);
                paths.extend(target.writable.into_iter().flat_map(|w| [w.upper, w.work]));
            }
        }
    });
    let undone = core.read(being_undone);
    let run = |run: &RunId| !adopted.contains(run) && !undone.contains(&run.mark);
    let own = format!("{}-", core.name);
    let device = |mark: &str| mark.starts_with(&own) && !marks.contains(mark);
    let path = |path: &Path| !paths.contains(path);
    let mounted: BTreeSet<_> = found.mounts.iter().collect();

    let runs = runs.iter().filter(|found| run(&found.run)).map(|f| Leftover::Run(f.run.clone()));
    let mounts = found.mounts.iter().rev().filter(|mount| path(mount)).cloned();
    let devices = found.devices.iter().filter(|(mark, _)| device(mark)).map(|(_, d)| d.clone());
    let directories =
        found.directories.iter().filter(|dir| path(dir) && !mounted.contains(dir)).cloned();
    runs.chain(mounts.map(Leftover::Mount))
        .chain(devices.map(Leftover::Device))
        .chain(directories.map(Leftover::Directory))
        .collect()
}

/// Returns the marks of objects whose creation is undone: that ends their runs.
fn being_undone(registry: &crate::objects::Registry) -> BTreeSet<String> {
    let collecting =
        registry.iter().filter(|(_, o)| o.state == crate::objects::ObjectState::Collecting);
    collecting.map(|(_, object)| object.mark.clone()).collect()
}

/// Starts the task that removes `leftovers`.
pub(crate) fn start(core: &Arc<Core>, leftovers: Vec<Leftover>) {
    if !leftovers.is_empty() {
        core.spawn(remove_all(core.clone(), leftovers));
    }
}

async fn remove_all(core: Arc<Core>, mut leftovers: Vec<Leftover>) {
    for attempt in 1.. {
        let mut failed = Vec::new();
        for leftover in leftovers {
            match remove(&core, &leftover).await {
                Ok(()) => tracing::warn!(?leftover, "removed: no record names it"),
                Err(error) => {
                    tracing::warn!(?leftover, %error, "not removed, although no record names it");
                    failed.push(leftover);
                }
            }
        }
        if failed.is_empty() {
            return;
        }
        leftovers = failed;
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(backoff(attempt)) => {}
        }
    }
}

async fn remove(core: &Core, leftover: &Leftover) -> Result<(), KernelError> {
    let (storage, deadline) = (&core.kernel.storage, core.step_deadline());
    match leftover {
        Leftover::Run(run) => {
            let containers = &core.kernel.containers;
            containers.signal(run, StopSignal::Kill).await?;
            containers.wait(run).await?;
            containers.forget(run).await
        }
        Leftover::Mount(mountpoint) => {
            let target =
                MountTarget { mountpoint: mountpoint.clone(), writable: None, recursive: true };
            storage.unmount(&target, deadline).await
        }
        Leftover::Device(device) => storage.detach(device, deadline).await,
        Leftover::Directory(path) => storage.remove_directory(path).await,
    }
}
