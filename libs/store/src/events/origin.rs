//! The call that the present task carries out.

use std::sync::{Arc, Mutex, PoisonError};

use tinwright::event::v1::Event;

tokio::task_local! {
    static ORIGIN: Arc<Origin>;
}

/// Objects that are named for one call. A call that changes more than this changes many at once.
const MAX_CHANGED_OBJECTS: usize = 10;

/// A call, and its caller.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The call, such as `InstanceService/CreateInstance`.
    pub call: &'static str,
    /// The caller's subject; none for a caller without a role.
    pub subject: Option<Arc<str>>,
    /// The caller's role; empty for a caller without one.
    pub role: &'static str,
    /// The subject of the door that forwarded the call; none if none did.
    pub via: Option<Arc<str>>,
    /// True for a call that asks for a change. It emits an event for each change, unless the record's
    /// kind excludes the change. Other calls, such as a worker's reports, only emit events for changes
    /// of state.
    pub is_change_request: bool,
    /// The objects that the call has changed so far.
    pub changed: ChangedObjects,
}

/// The objects that a call changed, for the log: the noun, the name if there is one, and the id of each. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct ChangedObjects(Arc<Mutex<Vec<String>>>);

impl ChangedObjects {
    /// Returns the first objects, in the order of their changes.
    pub fn get(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds `objects`, unless they are in the list already, or the list is full.
    fn extend(&self, objects: impl IntoIterator<Item = String>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for object in objects {
            if list.len() < MAX_CHANGED_OBJECTS && !list.contains(&object) {
                list.push(object);
            }
        }
    }
}

impl Origin {
    /// Writes the origin into `event`.
    pub fn write(&self, event: &mut Event) {
        let text = |name: &Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
        event.call = self.call.to_owned();
        event.subject = text(&self.subject);
        event.role = self.role.to_owned();
        event.via = text(&self.via);
    }
}

/// Carries out `work`; the commits that it makes have `origin`. A task that it spawns does not inherit the origin: it needs
/// `with_origin` again.
pub async fn with_origin<F: Future>(origin: Option<Arc<Origin>>, work: F) -> F::Output {
    match origin {
        Some(origin) => ORIGIN.scope(origin, work).await,
        None => work.await,
    }
}

/// Returns the origin of the present task's commits; none for work that no call asked for.
pub fn current_origin() -> Option<Arc<Origin>> {
    ORIGIN.try_with(Arc::clone).ok()
}

/// Records that a commit of the present call changed `objects`, if the call asks for changes.
pub(crate) fn record_changed(objects: Vec<String>) {
    if let Some(origin) = current_origin().filter(|origin| origin.is_change_request) {
        origin.changed.extend(objects);
    }
}
