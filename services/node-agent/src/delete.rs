//! Deletion of attachments and mounts by calls.

use std::sync::Arc;

use tinwright::node::v1::ImageResult;
use tinwright::node::v1::image_call::DeleteObject;
use tokio::sync::{OwnedMutexGuard, watch};

use crate::calls::Call;
use crate::core::Core;
use crate::definition::ObjectType;
use crate::error::CallError;
use crate::journal::{CallRecord, Change, Phase};
use crate::objects::{Event, NodeObject, ObjectState};
use crate::teardown::tear_down;

/// Deletes the object that `request` names, which has the type `object_type`.
pub(crate) async fn delete(
    core: Arc<Core>,
    call: Arc<Call>,
    object_type: ObjectType,
    request: DeleteObject,
) -> Result<ImageResult, CallError> {
    let DeleteObject { id, force } = request;
    core.read(|registry| registry.find(id, object_type).map(|_| ()))?;
    let _guard = core.lock(id).await?;
    call.check_time()?;
    let result = begin(&core, &call, object_type, id, force).await?;
    if let Err(error) = tear_down(&core, id, call.deadline).await {
        refuse(&core, id, Event::Refused).await;
        return Err(error);
    }
    if let Err(error) = call.conclude(&core, vec![Change::Remove(id)], &result).await {
        refuse(&core, id, Event::Vanished).await;
        return Err(error);
    }
    core.update(|registry| registry.remove(id));
    tracing::info!(object.id = id, force, "deleted");
    // The collector continues with the dependencies.
    core.collect.notify_one();
    Ok(result)
}

/// Begins the deletion of the object `id`: writes to the journal that it is being deleted, with the result of the call.
async fn begin(
    core: &Core,
    call: &Call,
    object_type: ObjectType,
    id: i64,
    force: bool,
) -> Result<ImageResult, CallError> {
    let released = core.options.delete_releases_owner;
    let (result, record) = core.update(|registry| {
        let object = registry.find(id, object_type)?;
        if !force {
            check_unused(object, released)?;
        }
        let view = registry.view(id).map(ImageResult::from);
        let object = registry.get_mut(id).ok_or_else(|| CallError::not_found(""))?;
        object.apply(Event::Delete).map_err(|error| CallError::internal(error.to_string()))?;
        // The collection of an object goes on after a crash as it is.
        let is_deleting = object.state != ObjectState::Collecting;
        let record = is_deleting.then(|| object.to_record(Phase::Deleting));
        view.map(|view| (view, record)).ok_or_else(|| CallError::not_found(""))
    })?;
    if let Some(mut record) = record {
        record.deletion = Some(CallRecord {
            call_id: call.id().unwrap_or_default().to_owned(),
            result: Some(result.clone()),
            ended: core.unix_seconds(),
        });
        if let Err(error) = core.commit(vec![Change::Put(Box::new(record))]).await {
            refuse(core, id, Event::Refused).await;
            return Err(error);
        }
    }
    Ok(result)
}

fn check_unused(object: &NodeObject, released: bool) -> Result<(), CallError> {
    let refs = object.refs() - i64::from(object.owner && released);
    if refs > 0 {
        return Err(CallError::busy(format!("it has {refs} references")));
    }
    Ok(())
}

/// Ends a deletion without success.
async fn refuse(core: &Core, id: i64, event: Event) {
    core.apply(id, event);
    if core.update_object(id, NodeObject::collect_if_unused) == Some(true) {
        core.collect.notify_one();
    }
    if let Ok(object) = core.object(id) {
        // If this cannot be written either, the deletion is finished after a restart.
        let record = object.to_record(object.phase());
        let _logged = core.commit(vec![Change::Put(Box::new(record))]).await;
    }
}

/// A deletion that a crash interrupted.
#[derive(Debug)]
pub(crate) struct Interrupted {
    pub(crate) id: i64,
    /// The call and the result that it has if the deletion succeeds.
    pub(crate) deletion: CallRecord,
    /// Takes the result for callers that repeat the call meanwhile.
    pub(crate) sender: Option<watch::Sender<Option<ImageResult>>>,
    /// The lock of the object.
    pub(crate) guard: OwnedMutexGuard<()>,
}

/// Finishes a deletion that a crash interrupted.
pub(crate) async fn resume(core: Arc<Core>, interrupted: Interrupted) {
    let Interrupted { id, mut deletion, sender, guard } = interrupted;
    let torn_down = tear_down(&core, id, core.step_deadline()).await;
    let mut changes = Vec::new();
    match &torn_down {
        Ok(()) => changes.push(Change::Remove(id)),
        Err(error) => {
            tracing::warn!(object.id = id, %error, "an interrupted deletion was not finished");
            refuse(&core, id, Event::Refused).await;
            deletion.result = Some(error.clone().into());
        }
    }
    let result = deletion.result.clone();
    if let (Some(sender), Some(result)) = (&sender, &result) {
        changes.push(Change::PutResult(deletion.clone()));
        core.lock_results().end(&deletion.call_id, result, deletion.ended);
        sender.send_replace(Some(result.clone()));
    }
    let committed = core.commit(changes).await.is_ok();
    if torn_down.is_ok() {
        match committed {
            true => drop(core.update(|registry| registry.remove(id))),
            false => refuse(&core, id, Event::Vanished).await,
        }
    }
    drop(guard);
    core.collect.notify_one();
}
