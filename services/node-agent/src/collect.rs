//! Removal of what nobody uses, and of creations that failed.
//!
//! An object with count 0 is torn down at once; if that fails, again after 1, 2, 4, … 60 s. A sweep looks for objects that
//! were missed. The dependencies of a removed object follow it, so a stack goes from its top to its bottom.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until};

use crate::core::{Core, backoff};
use crate::error::CallError;
use crate::journal::Change;
use crate::objects::{Event, ObjectState};
use crate::teardown::tear_down;

/// Collects until the node stops.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let now = core.now();
        let (due, next) = due(&core, now);
        for id in due {
            core.spawn(collect_if_free(core.clone(), id));
        }
        let sweep = now + core.options.sweep_period;
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.collect.notified() => {}
            () = sleep_until(next.map_or(sweep, |next| next.min(sweep))) => {}
        }
    }
}

/// Returns the objects to be collected now, the newest first, and the time of the next one.
fn due(core: &Core, now: Instant) -> (Vec<i64>, Option<Instant>) {
    let missed = core.read(|registry| {
        let unused = |state| matches!(state, ObjectState::Ready | ObjectState::Vanished);
        let missed = registry.iter().filter(|(_, o)| o.refs() == 0 && unused(o.state));
        missed.map(|(id, _)| id).collect::<Vec<_>>()
    });
    for id in missed {
        core.update_object(id, |object| object.collect_if_unused());
    }
    core.read(|registry| {
        let collecting = registry.iter().filter(|(_, o)| o.state == ObjectState::Collecting);
        let (mut due, mut next) = (Vec::new(), None::<Instant>);
        for (id, object) in collecting {
            match object.retry.not_before.filter(|&time| time > now) {
                None => due.push(id),
                Some(time) => next = Some(next.map_or(time, |next| next.min(time))),
            }
        }
        due.reverse();
        (due, next)
    })
}

/// Collects the object `id`, unless something else works on it.
async fn collect_if_free(core: Arc<Core>, id: i64) {
    let Ok(object) = core.object(id) else { return };
    if let Ok(guard) = object.lock.try_lock_owned() {
        attempt(&core, id, guard).await;
    }
}

/// Gives up the objects `held`, the last one first, and collects those that nobody uses then.
pub(crate) async fn release(core: &Arc<Core>, held: &[i64]) {
    for &id in held.iter().rev() {
        if core.update(|registry| registry.release(id)) {
            collect(core, id).await;
        }
    }
}

/// Undoes the creation of the object `id`, whose lock the caller holds, and gives up its dependencies.
pub(crate) async fn undo(core: &Arc<Core>, id: i64, guard: OwnedMutexGuard<()>) {
    core.update_object(id, |object| (object.owner, object.holds) = (false, 0));
    core.apply(id, Event::Failed);
    core.update(|registry| registry.free_name(id));
    attempt(core, id, guard).await;
}

/// Collects the object `id` as soon as nothing else works on it.
fn collect(core: &Arc<Core>, id: i64) -> BoxFuture<'_, ()> {
    async move {
        if let Ok(guard) = core.lock(id).await {
            attempt(core, id, guard).await;
        }
    }
    .boxed()
}

/// Tries once to remove the object `id`, whose lock is held by `guard`, and then its dependencies that nobody uses.
async fn attempt(core: &Arc<Core>, id: i64, guard: OwnedMutexGuard<()>) {
    let collecting = core.object(id).is_ok_and(|object| object.state == ObjectState::Collecting);
    if !collecting {
        return;
    }
    if let Err(error) = remove(core, id).await {
        retry_later(core, id, &error);
        return;
    }
    let unused = core.update(|registry| registry.remove(id));
    tracing::info!(object.id = id, "collected");
    // A lock of a dependency is never waited for while this one is held.
    drop(guard);
    for dependency in unused {
        collect(core, dependency).await;
    }
}

async fn remove(core: &Core, id: i64) -> Result<(), CallError> {
    tear_down(core, id, core.step_deadline()).await?;
    core.commit(vec![Change::Remove(id)]).await
}

fn retry_later(core: &Core, id: i64, error: &CallError) {
    let now = core.now();
    let delay = core.update_object(id, |object| {
        object.retry.attempts += 1;
        let delay = backoff(object.retry.attempts);
        object.retry.not_before = Some(now + delay);
        object.retry.last_error = error.to_string();
        delay
    });
    tracing::warn!(object.id = id, %error, retry_after = ?delay, "collection failed");
    core.collect.notify_one();
}
