//! Stop and deletion of containers.

use std::sync::Arc;
use std::time::Duration;

use tinwright::node::v1::ImageResult;
use tinwright::node::v1::container::State;
use tokio::time::timeout;

use super::lifecycle::{self, Action, is_alive};
use super::{commit_ready, log, ready_record, unchanged, view};
use crate::calls::{Call, expired};
use crate::core::{Core, backoff};
use crate::definition::Definition;
use crate::error::CallError;
use crate::journal::Change;
use crate::kernel::{RunId, StopSignal};
use crate::objects::{Event, ObjectState, Registry};

/// Begins to stop the container `id`. The result is the container as stopping: it is exited when no process is left.
pub(super) async fn stop(core: &Arc<Core>, call: &Call, id: i64) -> Result<ImageResult, CallError> {
    let _guard = core.lock(id).await?;
    call.check_time()?;
    let object = core.object(id)?;
    match lifecycle::on_stop(object.container_state()) {
        Action::Act => {}
        Action::Nothing | Action::Busy => return unchanged(core, call, id).await,
    }
    if !call.claim() {
        return Err(expired());
    }
    core.update_object(id, |object| object.set_container_state(State::Stopping));
    let result = view(core, id)?;
    if let Err(error) = call.conclude(core, vec![ready_record(core, id)?], &result).await {
        core.update_object(id, |object| object.set_container_state(State::Running));
        return Err(error);
    }
    terminate(core, id);
    Ok(result)
}

/// Starts the task that ends the processes of the container `id`, which is stopping.
pub(crate) fn terminate(core: &Arc<Core>, id: i64) {
    if let Ok(object) = core.object(id) {
        let run = object.run_id();
        let systemd = match &object.definition {
            Definition::Container(container) => container.systemd,
            Definition::Attachment(_) | Definition::Mount(_) => false,
        };
        core.spawn(end_run(core.clone(), id, run, systemd));
    }
}

/// Asks the first program to end, and kills all processes after the grace period. Goes on until the run has ended.
async fn end_run(core: Arc<Core>, id: i64, run: RunId, systemd: bool) {
    let (signal, grace) = match systemd {
        true => (StopSignal::HaltSystemd, core.options.systemd_stop_grace),
        false => (StopSignal::Terminate, core.options.stop_grace),
    };
    if !grace.is_zero() {
        send(&core, id, &run, signal).await;
        if has_ended_within(&core, id, &run, grace).await {
            return;
        }
        tracing::warn!(object.id = id, ?grace, "container did not stop: killed");
    }
    for attempt in 1.. {
        send(&core, id, &run, StopSignal::Kill).await;
        if has_ended_within(&core, id, &run, backoff(attempt)).await {
            return;
        }
    }
}

async fn send(core: &Core, id: i64, run: &RunId, signal: StopSignal) {
    if let Err(error) = core.kernel.containers.signal(run, signal).await {
        tracing::warn!(object.id = id, ?signal, %error, "a signal was not sent");
    }
}

/// True as soon as the container `id` is not in `run` any more, or the node stops; false after `duration`.
async fn has_ended_within(core: &Core, id: i64, run: &RunId, duration: Duration) -> bool {
    let ended = core.wait_until(|registry| !is_in_run(registry, id, run.number));
    tokio::select! {
        () = core.stop.cancelled() => true,
        waited = timeout(duration, ended) => waited.is_ok(),
    }
}

fn is_in_run(registry: &Registry, id: i64, number: u64) -> bool {
    registry
        .get(id)
        .is_some_and(|object| object.run.number == number && is_alive(object.container_state()))
}

/// Deletes the container `id`. By force, its processes are killed before.
pub(crate) async fn delete(
    core: &Arc<Core>,
    call: &Call,
    id: i64,
    force: bool,
) -> Result<ImageResult, CallError> {
    let mut guard = core.lock(id).await?;
    call.check_time()?;
    if is_alive(core.object(id)?.container_state()) {
        if !force {
            return Err(CallError::busy("the container has processes"));
        }
        begin_kill(core, id).await?;
        // The watcher needs the lock to record the end.
        drop(guard);
        let run = core.object(id)?.run_id();
        if !has_ended_within(core, id, &run, core.options.kill_timeout).await {
            return Err(CallError::busy("the processes of the container could not be killed"));
        }
        guard = core.lock(id).await?;
    }
    let result = remove(core, call, id).await;
    drop(guard);
    result
}

/// Records that the container `id` is stopping, and kills its processes.
async fn begin_kill(core: &Arc<Core>, id: i64) -> Result<(), CallError> {
    let before = core.object(id)?.container_state();
    core.update_object(id, |object| object.set_container_state(State::Stopping));
    if let Err(error) = commit_ready(core, id).await {
        core.update_object(id, |object| object.set_container_state(before));
        return Err(error);
    }
    let run = core.object(id)?.run_id();
    send(core, id, &run, StopSignal::Kill).await;
    if before == State::Running {
        // If this signal was lost, it is sent again.
        terminate(core, id);
    }
    Ok(())
}

/// Removes the container `id`, which has no processes. Its log stays.
async fn remove(core: &Arc<Core>, call: &Call, id: i64) -> Result<ImageResult, CallError> {
    let object = core.object(id)?;
    if is_alive(object.container_state()) {
        return Err(CallError::busy("the container was started again"));
    }
    if object.state == ObjectState::Collecting {
        return Err(CallError::busy("the creation of the container is being undone"));
    }
    let result = view(core, id)?;
    if !call.claim() {
        return Err(expired());
    }
    core.apply(id, Event::Delete);
    if let Err(error) = call.conclude(core, vec![Change::Remove(id)], &result).await {
        core.apply(id, Event::Refused);
        return Err(error);
    }
    log(core, &object, "container deleted").await;
    core.update(|registry| registry.remove(id));
    core.collect.notify_one();
    Ok(result)
}
