//! Refused calls as events: at most one for each caller and call in a minute. The metric `grpc_server_handled_total` counts them
//! all.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use runtime::rate_limit::{Rate, RateLimiter};
use runtime::{Caller, Clock, access};
use store::events::EventLog;
use tinwright::event::v1::{Event, EventKind};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::origin;

/// One event for each caller and call in this time.
const INTERVAL: Duration = Duration::from_secs(60);
/// Callers and calls that are told apart at a time. While there are more, further ones are not recorded.
const MAX_KEYS: usize = 4096;
/// Refusals that wait to be stored. While there are more, further ones are not recorded.
const MAX_QUEUED: usize = 256;

/// The record of refused calls.
#[derive(Clone, Debug)]
pub(crate) struct Refusals(Arc<SharedRefusals>);

#[derive(Debug)]
struct SharedRefusals {
    limiter: RateLimiter<(Option<Arc<str>>, &'static str)>,
    clock: Clock,
    queue: mpsc::Sender<Refusal>,
    queued: Mutex<mpsc::Receiver<Refusal>>,
}

#[derive(Debug)]
struct Refusal {
    path: &'static str,
    event: Event,
}

impl Refusals {
    /// Nothing is stored before [`run`](Self::run). Intervals are measured with `clock`.
    pub(crate) fn new(clock: Clock) -> Self {
        let limiter = RateLimiter::new(Rate::new(INTERVAL, 1)).with_max_keys(MAX_KEYS);
        let (queue, queued) = mpsc::channel(MAX_QUEUED);
        Self(Arc::new(SharedRefusals { limiter, clock, queue, queued: Mutex::new(queued) }))
    }

    /// Records that the call `path` of `caller` was refused, unless it was recorded in the last minute.
    fn record(&self, path: &'static str, caller: Option<&Caller>, status: &Status) {
        let origin = origin::of_call(path, caller);
        let key = (origin.subject.clone(), origin.call);
        if self.0.limiter.take(key, self.0.clock.monotonic()).is_err() {
            return;
        }
        let tenant = caller.and_then(Caller::tenant).map(|tenant| tenant.as_str().to_owned());
        let (kind, text) = (EventKind::Refusal.into(), status.message().to_owned());
        let mut event =
            Event { kind, text, tenant: tenant.unwrap_or_default(), ..Event::default() };
        origin.write(&mut event);
        // A full queue is a flood of refusals, which the metrics show.
        let _queued = self.0.queue.try_send(Refusal { path, event });
    }

    /// Stores refusals in the log of the service that was called, or else in the first one of `logs`, until `stop`.
    pub(crate) async fn run(
        self,
        logs: Vec<EventLog>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut queued = self.0.queued.lock().await;
        while let Some(Some(refusal)) = stop.run_until_cancelled(queued.recv()).await {
            let Refusal { path, event } = refusal;
            let is_called =
                |log: &&EventLog| path.starts_with(&format!("/tinwright.{}.", log.owner()));
            let Some(log) = logs.iter().find(is_called).or(logs.first()) else { continue };
            if let Err(error) = log.append(event).await {
                tracing::warn!(
                    target: "tinwright",
                    error = &error as &dyn std::error::Error,
                    call = path,
                    "refused call not recorded"
                );
            }
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// Makes a call with `next`, and records it if it is answered `PERMISSION_DENIED` or `UNAUTHENTICATED`. A call that is not in the
/// table of calls is not recorded: its name is text of the caller.
pub(crate) async fn record<F: Future<Output = Response>>(
    refusals: &Refusals,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let path = access::known_path(access::call_path(&request));
    let caller = request.extensions().get::<Caller>().cloned();
    let response = next(request).await;
    // A refused call has no message, so its status is in the header.
    if let Some(path) = path
        && let Some(status) = Status::from_header_map(response.headers())
        && matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
    {
        // The caller that a door forwarded is known to access control only.
        let client = response.extensions().get::<Caller>();
        refusals.record(path, client.or(caller.as_ref()), &status);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use runtime::Role;
    use store::ScopedStore;
    use store::memory::MemoryStore;
    use tinwright::event::v1::EventFilter;

    use super::*;

    const CREATE: &str = "/tinwright.hardware.v1.HardwareService/CreateHardware";
    const DELETE: &str = "/tinwright.hardware.v1.HardwareService/DeleteHardware";

    #[tokio::test]
    async fn a_refusal_is_recorded_once_a_minute_for_each_caller_and_call() {
        let store: Arc<MemoryStore> = Arc::default();
        let log = |owner: &str| EventLog::new(ScopedStore::new(store.clone(), owner), owner);
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let refusals = Refusals::new(clock.clone());
        let anna = Caller::new(Role::Viewer, "person:anna").unwrap();
        let refuse = |path, caller: Option<&Caller>| {
            refusals.record(path, caller, &Status::permission_denied("no"));
        };
        for path in [CREATE, CREATE, DELETE] {
            refuse(path, Some(&anna));
            refuse(path, None);
        }
        clock.advance(Duration::from_secs(59));
        refuse(CREATE, Some(&anna));
        clock.advance(Duration::from_secs(2));
        refuse(CREATE, Some(&anna));
        let (stop, logs) = (CancellationToken::new(), vec![log("instance"), log("hardware")]);
        let run = tokio::spawn(refusals.run(logs, stop.clone()));
        let filter = EventFilter { kind: EventKind::Refusal.into(), ..EventFilter::default() };
        let found = loop {
            let found = log("hardware").list(&filter, "", 100).await.unwrap().records;
            if found.len() >= 5 {
                break found;
            }
            tokio::task::yield_now().await;
        };
        stop.cancel();
        run.await.unwrap().unwrap();
        let short = |event: &Event| format!("{} {} {}", event.subject, event.call, event.text);
        let expected = [
            "person:anna HardwareService/CreateHardware no",
            " HardwareService/CreateHardware no",
            "person:anna HardwareService/DeleteHardware no",
            " HardwareService/DeleteHardware no",
            "person:anna HardwareService/CreateHardware no",
        ];
        assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    }
}
