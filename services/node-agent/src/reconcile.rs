//! After a start: makes the objects of the journal what the kernel has.
//!
//! | journal | kernel | consequence |
//! |---|---|---|
//! | creating | | undone: its effect is found by its mark |
//! | deleting | | the deletion is finished, and its call gets its result |
//! | ready | no such device or mount | vanished |
//! | container, running or starting | has the run | adopted: running |
//! | container, stopping | has the run | adopted: stopped again |
//! | container, running or starting | no such run | dead |
//! | container, stopping | no such run | exited |
//! | nothing | a mount, device or run | removed (`leftovers`) |
//!
//! What needs kernel steps is done afterwards, beside the first calls: a step that hangs does not delay the others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tinwright::node::v1::container::State as ContainerState;
use tokio::time::timeout;

use crate::containers;
use crate::core::Core;
use crate::definition::Definition;
use crate::delete::{self, Interrupted};
use crate::error::CallError;
use crate::journal::{CallRecord, Change, ObjectRecord, Phase};
use crate::kernel::{Exit, FoundObjects, FoundRun, KernelError, KernelErrorKind, RunId};
use crate::leftovers;
use crate::objects::{Event, NodeObject, ObjectState, Registry};
use crate::results::Begun;
use crate::teardown::device;

/// The longest time for the question if a device exists.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Puts the objects of the journal into `registry`, and returns the deletions that were interrupted.
pub(crate) fn restore(
    registry: &mut Registry,
    records: BTreeMap<i64, ObjectRecord>,
) -> Vec<(i64, CallRecord)> {
    let mut deletions = Vec::new();
    for (id, mut record) in records {
        let deletion = record.deletion.take();
        if record.phase() == Phase::Deleting {
            deletions.push((id, deletion.unwrap_or_default()));
        }
        match NodeObject::from_record(record) {
            Some(object) => registry.restore(id, object),
            None => tracing::error!(object.id = id, "a record of the journal has no object"),
        }
    }
    deletions
}

/// Compares the objects with the kernel, and starts what follows from it.
pub(crate) async fn reconcile(
    core: &Arc<Core>,
    deletions: Vec<(i64, CallRecord)>,
) -> Result<(), CallError> {
    let found = core.kernel.storage.found().await?;
    let runs = core.kernel.containers.runs().await?;
    let mut adopted = Vec::new();
    let objects: Vec<(i64, NodeObject)> =
        core.read(|registry| registry.iter().map(|(id, o)| (id, o.clone())).collect());
    let mut changes = Vec::new();
    for (id, object) in objects.iter().filter(|(_, o)| o.state == ObjectState::Ready) {
        if matches!(object.definition, Definition::Container(_)) {
            changes.extend(compare_container(core, *id, object, &runs, &mut adopted));
        } else if has_vanished(core, object, &found).await {
            tracing::warn!(object.id = id, "vanished from the kernel");
            core.apply(*id, Event::Vanished);
            let record = core.object(*id)?.to_record(Phase::Vanished);
            changes.push(Change::Put(Box::new(record)));
        }
    }
    if !changes.is_empty() {
        core.commit(changes).await?;
    }
    for (id, deletion) in deletions {
        resume(core, id, deletion).await?;
    }
    leftovers::start(core, leftovers::unknown(core, &found, &runs, &adopted));
    Ok(())
}

/// True if the kernel does not have a device or mount of the journal. If that cannot be found out, it has it.
async fn has_vanished(core: &Core, object: &NodeObject, found: &FoundObjects) -> bool {
    let attached: Result<bool, KernelError> = match (&object.definition, device(object)) {
        (Definition::Mount(mount), _) => {
            Ok(found.mounts.contains(&PathBuf::from(&mount.mountpoint)))
        }
        (_, Some(device)) => {
            let asked = core.kernel.storage.is_attached(&device);
            let late = |_| KernelError::new(KernelErrorKind::Failed, "no answer in time");
            timeout(ASK_TIMEOUT, asked).await.map_err(late).flatten()
        }
        (Definition::Attachment(_) | Definition::Container(_), None) => Ok(true),
    };
    let exists = attached.unwrap_or_else(|error| {
        tracing::warn!(%error, "an object of the journal was not looked at");
        true
    });
    !exists
}

/// Adopts the run of a container, or records that it is gone. Returns the change of the journal.
fn compare_container(
    core: &Arc<Core>,
    id: i64,
    object: &NodeObject,
    runs: &[FoundRun],
    adopted: &mut Vec<RunId>,
) -> Option<Change> {
    let state = object.container_state();
    if !containers::is_alive(state) && !object.run.is_starting {
        return None;
    }
    let run = object.run_id();
    let found = runs.iter().any(|found| found.run == run);
    let state = match state {
        ContainerState::Stopping => state,
        ContainerState::Running
        | ContainerState::Unspecified
        | ContainerState::Created
        | ContainerState::Exited
        | ContainerState::Dead
        | ContainerState::Paused => ContainerState::Running,
    };
    tracing::info!(object.id = id, found, "container of an earlier process");
    core.update_object(id, |object| match found {
        true => {
            object.run.is_starting = false;
            object.set_container_state(state);
        }
        false => containers::set_ended(object, containers::after_exit(state, Exit::Unknown)),
    });
    if found {
        adopted.push(run);
        containers::watch_running(core, id);
        if state == ContainerState::Stopping {
            containers::terminate(core, id);
        }
    }
    let object = core.object(id).ok()?;
    Some(Change::Put(Box::new(object.to_record(Phase::Ready))))
}

/// Starts to finish a deletion.
async fn resume(core: &Arc<Core>, id: i64, deletion: CallRecord) -> Result<(), CallError> {
    let call_id = Some(deletion.call_id.as_str()).filter(|call_id| !call_id.is_empty());
    let sender = match call_id.map(|call_id| core.lock_results().begin(call_id)) {
        Some(Begun::New(sender)) => Some(sender),
        Some(Begun::Ended(_) | Begun::Running(_)) | None => None,
    };
    let guard = core.lock(id).await?;
    let interrupted = Interrupted { id, deletion, sender, guard };
    core.spawn(delete::resume(core.clone(), interrupted));
    Ok(())
}
