//! Containers: start, stop, deletion, and what happens when their processes end.
//!
//! Each start is a run with a number. A watcher waits for the end of one run; if the container has another run by then, or none
//! that goes on, the watcher changes nothing. Names are reserved before the start, so a slow start delays no other container.

mod lifecycle;
mod stop;

use std::path::PathBuf;
use std::sync::Arc;

use tinwright::node::v1::ImageResult;
use tinwright::node::v1::container::{Namespace, State};
use tinwright::node::v1::image_call::{DeleteContainer, SetContainerState};

use crate::calls::{Call, expired};
use crate::core::{Core, backoff};
use crate::definition::{Definition, ObjectType};
use crate::error::{CallError, NO_IDENTIFICATION};
use crate::journal::{Change, Phase};
use crate::kernel::{ContainerStep, Exit, KernelError, RunId, StopSignal};
use crate::objects::{NodeObject, ObjectState, Registry, Run};
use crate::resolve;
use lifecycle::Action;
pub(crate) use lifecycle::{after_exit, is_alive};
pub(crate) use stop::{delete, terminate};

/// Starts or stops a container.
pub(crate) async fn set_state(
    core: Arc<Core>,
    call: Arc<Call>,
    request: SetContainerState,
) -> Result<ImageResult, CallError> {
    let wanted = request.state();
    let id = core.read(|registry| identify(registry, request.id, request.name.as_deref()))?;
    match wanted {
        State::Running => start(&core, &call, id).await,
        State::Exited => stop::stop(&core, &call, id).await,
        State::Unspecified | State::Created | State::Stopping | State::Dead | State::Paused => {
            Err(CallError::invalid("the state of a container can be set to running or exited"))
        }
    }
}

/// Returns the id of the container that a request names; of id and name, the id counts.
pub(crate) fn identify(
    registry: &Registry,
    id: Option<i64>,
    name: Option<&str>,
) -> Result<i64, CallError> {
    match (id, name.filter(|name| !name.is_empty())) {
        (Some(id), _) => registry.find(id, ObjectType::Container).map(|_| id),
        (None, Some(name)) => registry
            .find_name(name)
            .ok_or_else(|| CallError::not_found(format!("container {name:?}"))),
        (None, None) => Err(CallError::invalid(NO_IDENTIFICATION)),
    }
}

async fn start(core: &Arc<Core>, call: &Call, id: i64) -> Result<ImageResult, CallError> {
    let _guard = core.lock(id).await?;
    call.check_time()?;
    let object = core.object(id)?;
    match lifecycle::on_start(object.container_state()) {
        Action::Act => {}
        Action::Nothing => return unchanged(core, call, id).await,
        Action::Busy => return Err(CallError::busy("the container is stopping")),
    }
    let run = Run { number: object.run.number + 1, is_starting: true };
    core.update_object(id, |object| object.run = run);
    if let Err(error) = commit_ready(core, id).await {
        core.update_object(id, |object| object.run = Run { is_starting: false, ..run });
        return Err(error);
    }
    if let Err(error) = start_run(core, call, id).await {
        core.update_object(id, |object| set_ended(object, State::Dead));
        commit_ready(core, id).await?;
        return Err(CallError::failed(error.cause));
    }
    log_state(core, id).await;
    let view = view(core, id)?;
    let concluded = match call.claim() {
        true => call.conclude(core, vec![ready_record(core, id)?], &view).await,
        false => Err(expired()),
    };
    if let Err(error) = concluded {
        undo_run(core, id).await;
        return Err(error);
    }
    watch_running(core, id);
    Ok(view)
}

/// Ends a run whose call has failed.
async fn undo_run(core: &Arc<Core>, id: i64) {
    let Ok(object) = core.object(id) else { return };
    let run = object.run_id();
    if let Err(error) = end_processes(core, &run).await {
        // The watcher goes on with it.
        tracing::warn!(object.id = id, %error, "a run could not be undone");
        watch_running(core, id);
        return;
    }
    core.update_object(id, |object| set_ended(object, State::Dead));
    if commit_ready(core, id).await.is_ok() {
        forget(core, &run).await;
    }
}

/// Kills the processes of `run`, and waits for their end.
async fn end_processes(core: &Core, run: &RunId) -> Result<Exit, KernelError> {
    core.kernel.containers.signal(run, StopSignal::Kill).await?;
    core.kernel.containers.wait(run).await
}

/// Sets the number of the first run, if the new container `id` is to be started.
pub(crate) fn prepare_first_run(core: &Core, id: i64) {
    core.update_object(id, |object| {
        let is_starting = object.container_state() == State::Running;
        object.run = Run { number: u64::from(is_starting), is_starting };
        object.set_container_state(State::Created);
    });
}

/// Creates the log of the new container `id`, and starts it if that was asked for. A start that fails leaves a dead container.
pub(crate) async fn first_run(core: &Core, call: &Call, id: i64) -> Result<(), CallError> {
    let object = core.object(id)?;
    if let Some(log) = object.log() {
        core.kernel.containers.log(&log, "container created").await?;
    }
    if object.run.is_starting
        && let Err(error) = start_run(core, call, id).await
    {
        tracing::warn!(object.id = id, %error, "container did not start");
        core.update_object(id, |object| set_ended(object, State::Dead));
        return Ok(());
    }
    log_state(core, id).await;
    Ok(())
}

/// Starts the run of the container `id` whose number is set.
async fn start_run(core: &Core, call: &Call, id: i64) -> Result<(), CallError> {
    let object = core.object(id)?;
    let step = container_step(core, &object)?;
    core.kernel.containers.start(&step, call.deadline).await?;
    core.update_object(id, |object| {
        object.run.is_starting = false;
        object.set_container_state(State::Running);
    });
    Ok(())
}

fn container_step(core: &Core, object: &NodeObject) -> Result<ContainerStep, CallError> {
    let Definition::Container(container) = &object.definition else {
        return Err(CallError::internal("not a container"));
    };
    let root = core.read(|registry| root(registry, object))?;
    let log = object.log().ok_or_else(|| CallError::internal("the container has no log"))?;
    let namespaces = container.namespaces.iter().filter_map(|&n| Namespace::try_from(n).ok());
    Ok(ContainerStep {
        run: object.run_id(),
        root,
        command: container.command.clone(),
        systemd: container.systemd,
        namespaces: namespaces.collect(),
        log,
    })
}

/// Returns the root directory of a container, if its mount is there.
fn root(registry: &Registry, object: &NodeObject) -> Result<PathBuf, CallError> {
    let id = object.definition.dependencies().first().copied().unwrap_or_default();
    match registry.get(id).map(|mount| mount.state) {
        Some(ObjectState::Ready) => resolve::mountpoint(registry, id),
        Some(
            ObjectState::Vanished
            | ObjectState::Creating
            | ObjectState::Collecting
            | ObjectState::Deleting { .. },
        )
        | None => Err(CallError::failed(format!("the mount {id} is gone"))),
    }
}

/// Starts the watcher of the container `id`, if that is running or stopping.
pub(crate) fn watch_running(core: &Arc<Core>, id: i64) {
    let Ok(object) = core.object(id) else { return };
    if is_alive(object.container_state()) {
        core.spawn(watch(core.clone(), id, object.run_id()));
    }
}

/// Waits for the end of `run`, and records it.
async fn watch(core: Arc<Core>, id: i64, run: RunId) {
    let mut failures = 0;
    let exit = loop {
        let waited = tokio::select! {
            () = core.stop.cancelled() => return,
            waited = core.kernel.containers.wait(&run) => waited,
        };
        match waited {
            Ok(exit) => break exit,
            Err(error) => {
                failures += 1;
                tracing::warn!(object.id = id, %error, "waiting for a container failed");
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = tokio::time::sleep(backoff(failures)) => {}
                }
            }
        }
    };
    record_end(&core, id, &run, exit).await;
}

/// Records the end of `run`, unless the container has another one by now.
pub(crate) async fn record_end(core: &Core, id: i64, run: &RunId, exit: Exit) {
    let Ok(object) = core.object(id) else { return };
    if let Ok(root) = core.read(|registry| root(registry, &object))
        && let Err(error) = core.kernel.storage.sync(&root).await
    {
        tracing::warn!(object.id = id, %error, "the file system of a container was not synchronized");
    }
    let Ok(_guard) = core.lock(id).await else { return };
    // Looked at again, because another run may have begun meanwhile.
    let Ok(object) = core.object(id) else { return };
    let state = object.container_state();
    if object.run.number != run.number || !is_alive(state) {
        return;
    }
    tracing::info!(object.id = id, %exit, "container ended");
    core.update_object(id, |object| set_ended(object, after_exit(state, exit)));
    // If the end cannot be written, the run is kept: the next process of the node finds the end there.
    if commit_ready(core, id).await.is_ok() {
        forget(core, run).await;
    }
}

/// Sets the state of a container whose run has ended.
pub(crate) fn set_ended(object: &mut NodeObject, state: State) {
    object.run.is_starting = false;
    object.set_container_state(state);
}

pub(crate) async fn forget(core: &Core, run: &RunId) {
    if let Err(error) = core.kernel.containers.forget(run).await {
        // The next process of the node tries it again.
        tracing::warn!(%error, "an ended run was not forgotten");
    }
}

/// Appends a line to the log of a container. A log that cannot be written stops nothing.
pub(crate) async fn log(core: &Core, object: &NodeObject, text: &str) {
    let Some(log) = object.log() else { return };
    if let Err(error) = core.kernel.containers.log(&log, text).await {
        tracing::warn!(%error, "the log of a container was not written");
    }
}

async fn log_state(core: &Core, id: i64) {
    let Ok(object) = core.object(id) else { return };
    let state = lifecycle::name(object.container_state());
    log(core, &object, &format!("container state: {state}")).await;
}

/// Returns the result of a call that changed nothing.
async fn unchanged(core: &Core, call: &Call, id: i64) -> Result<ImageResult, CallError> {
    let view = view(core, id)?;
    call.conclude(core, Vec::new(), &view).await?;
    Ok(view)
}

fn view(core: &Core, id: i64) -> Result<ImageResult, CallError> {
    let view = core.read(|registry| registry.view(id));
    view.map(ImageResult::from).ok_or_else(|| CallError::not_found(format!("container {id}")))
}

fn ready_record(core: &Core, id: i64) -> Result<Change, CallError> {
    Ok(Change::Put(Box::new(core.object(id)?.to_record(Phase::Ready))))
}

async fn commit_ready(core: &Core, id: i64) -> Result<(), CallError> {
    core.commit(vec![ready_record(core, id)?]).await
}

/// Deletes a container.
pub(crate) async fn delete_call(
    core: Arc<Core>,
    call: Arc<Call>,
    request: DeleteContainer,
) -> Result<ImageResult, CallError> {
    let id = core.read(|registry| identify(registry, request.id, request.name.as_deref()))?;
    delete(&core, &call, id, request.force).await
}
