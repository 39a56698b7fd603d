//! Custom endpoints: paths of the site that serve the result of a jq filter over the machine's document.
//!
//! Filters are the operator's, documents are partly a tenant's. So filters are checked when the program starts: functions
//! without a bound on time or size are not allowed (`allowed`). Each filter runs in a thread of its own, for at most a second,
//! and few run at the same time.

mod allowed;
mod filter;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use runtime::Clock;
use tokio::sync::{Semaphore, oneshot};

use crate::path::Path;
use crate::tree::Body;
pub(crate) use filter::Filter;

/// The limit for one filter. A millisecond is usual; the rest is for a busy host.
const FILTER_TIMEOUT: Duration = Duration::from_secs(1);
/// The most filters that run at the same time.
const MAX_RUNNING_FILTERS: usize = 4;
/// Hegel's default endpoint. Our document at that path contains all of it.
const HEGEL_DEFAULT: (&str, &str) = ("/metadata", ".metadata.instance");

/// The custom endpoints of the site.
#[derive(Clone, Debug)]
pub struct Endpoints {
    filters: BTreeMap<String, Arc<Filter>>,
    running: Arc<Semaphore>,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self { filters: BTreeMap::new(), running: Arc::new(Semaphore::new(MAX_RUNNING_FILTERS)) }
    }
}

/// An invalid endpoint.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct InvalidEndpoint {
    path: String,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("is not a path that begins with /")]
    NoPath,
    #[error("is reserved for the service itself")]
    Reserved,
    #[error("is configured twice")]
    Duplicate,
    #[error("filter: {0}")]
    Filter(#[from] filter::InvalidFilter),
}

/// A failed run of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The filter does not fit the document.
    #[error("the filter failed")]
    Failed,
    /// The result is longer than allowed.
    #[error("the filter's answer is too long")]
    TooLong,
    /// The filter did not end in time, or could not start in time.
    #[error("the filter took too long")]
    TooLate,
}

impl Endpoints {
    /// Creates the endpoints of `filters`, by path. No path may be reserved.
    pub fn new(
        filters: &BTreeMap<String, String>,
        is_reserved: fn(&[&str]) -> bool,
    ) -> Result<Self, InvalidEndpoint> {
        let mut endpoints = Self::default();
        for (path, code) in filters {
            let added = endpoints.add(path, code, is_reserved);
            added.map_err(|reason| InvalidEndpoint { path: path.clone(), reason })?;
        }
        Ok(endpoints)
    }

    fn add(
        &mut self,
        path: &str,
        code: &str,
        is_reserved: fn(&[&str]) -> bool,
    ) -> Result<(), Reason> {
        if (path, code.trim()) == HEGEL_DEFAULT {
            return Ok(());
        }
        let parsed = Path::parse(path).filter(|_| path.starts_with('/')).ok_or(Reason::NoPath)?;
        let parsed = parsed.segments();
        if is_reserved(&parsed) {
            return Err(Reason::Reserved);
        }
        match self.filters.insert(parsed.join("/"), Arc::new(Filter::new(code)?)) {
            None => Ok(()),
            Some(_) => Err(Reason::Duplicate),
        }
    }

    /// Returns the filter at `path`, if there is one.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Arc<Filter>> {
        // Most sites have none.
        if self.filters.is_empty() { None } else { self.filters.get(&path.join("/")) }
    }

    /// Runs `filter` over `document`. Returns none if the result is empty.
    pub(crate) async fn answer(
        &self,
        filter: &Arc<Filter>,
        document: String,
    ) -> Result<Option<Body>, Failure> {
        let (filter, running) = (filter.clone(), self.running.clone());
        let deadline = Clock::system().monotonic() + FILTER_TIMEOUT;
        let result = async {
            let permit = running.acquire_owned().await.map_err(|_| Failure::TooLate)?;
            let (sender, receiver) = oneshot::channel();
            // A plain thread: at its end the process does not wait for it, as it would for a blocking task of the runtime.
            let run = move || {
                let result = filter.run(document.as_bytes(), deadline);
                drop(permit);
                let _timed_out = sender.send(result);
            };
            let thread = thread::Builder::new().name("filter".into()).spawn(run);
            thread.map_err(|_| Failure::TooLate)?;
            receiver.await.unwrap_or(Err(Failure::Failed))
        };
        tokio::time::timeout(FILTER_TIMEOUT, result).await.unwrap_or(Err(Failure::TooLate))
    }
}

#[cfg(test)]
mod tests;
