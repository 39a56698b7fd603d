//! The call that the present task carries out.

use std::sync::Arc;

use tinwright::event::v1::Event;

tokio::task_local! {
    static ORIGIN: Arc<Origin>;
}

/// A call, and its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The call, such as `InstanceService/CreateInstance`.
    pub call: &'static str,
    /// The caller's subject; none for a caller without a role.
    pub subject: Option<Arc<str>>,
    /// The caller's role; empty for a caller without one.
    pub role: &'static str,
    /// The subject of the door that forwarded the call; none if none did.
    pub via: Option<Arc<str>>,
    /// True if the call asks for a change: then every change that it makes is an event. Else only changes of state are, such as
    /// those that a worker's reports lead to.
    pub is_change_request: bool,
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
