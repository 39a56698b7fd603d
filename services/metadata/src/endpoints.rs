//! Paths of the site's own: what is found there is what a jq filter makes of the machine's document.
//!
//! Filters are the operator's, documents are partly a tenant's. So a filter is looked at when the program starts, and what
//! could run or grow without end is not offered (`offered`); and each answer is made in a thread of its own, for which
//! nobody waits longer than a second. Few run at once, so that one that takes long takes nothing from anybody else.

mod filter;
mod offered;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use crate::path::Path;
use crate::tree::Body;
pub(crate) use filter::Filter;

/// How long a filter may take. A millisecond is usual; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many run at once.
const RUNNING: usize = 4;
/// What Hegel answers where nobody said anything else. Ours at that path says all of it, and more.
const HEGELS_OWN: (&str, &str) = ("/metadata", ".metadata.instance");

/// The site's own paths.
#[derive(Clone, Debug)]
pub struct Endpoints {
    filters: BTreeMap<Vec<String>, Arc<Filter>>,
    running: Arc<Semaphore>,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self { filters: BTreeMap::new(), running: Arc::new(Semaphore::new(RUNNING)) }
    }
}

/// An endpoint that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Refused {
    path: String,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("is not a path that begins with /")]
    NoPath,
    #[error("is answered by the service itself")]
    Taken,
    #[error("is given twice")]
    Twice,
    #[error("filter: {0}")]
    Filter(filter::Wrong),
}

/// Why a filter made nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The document is not what the filter is for.
    #[error("the filter failed")]
    Failed,
    /// It would have been too long.
    #[error("the filter's answer is too long")]
    TooLong,
    /// It took too long, or others did.
    #[error("the filter took too long")]
    TooLate,
}

impl Endpoints {
    /// Creates the endpoints of `filters`, by path; none may be at a path that `is_reserved`.
    pub fn new(
        filters: &BTreeMap<String, String>,
        is_reserved: fn(&[&str]) -> bool,
    ) -> Result<Self, Refused> {
        let mut endpoints = Self::default();
        for (path, code) in filters {
            endpoints
                .add(path, code, is_reserved)
                .map_err(|reason| Refused { path: path.clone(), reason })?;
        }
        Ok(endpoints)
    }

    fn add(
        &mut self,
        path: &str,
        code: &str,
        is_reserved: fn(&[&str]) -> bool,
    ) -> Result<(), Reason> {
        if (path, code.trim()) == HEGELS_OWN {
            return Ok(());
        }
        let parsed = Path::parse(path).filter(|_| path.starts_with('/')).ok_or(Reason::NoPath)?;
        let parsed = parsed.segments();
        if is_reserved(&parsed) {
            return Err(Reason::Taken);
        }
        let filter = Arc::new(Filter::new(code).map_err(Reason::Filter)?);
        match self.filters.insert(owned(&parsed), filter) {
            None => Ok(()),
            Some(_) => Err(Reason::Twice),
        }
    }

    /// The filter at `path`.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Arc<Filter>> {
        // Most sites have none.
        if self.filters.is_empty() { None } else { self.filters.get(&owned(path)) }
    }

    /// What `filter` makes of `document`; `None` where that is nothing.
    pub(crate) async fn answer(
        &self,
        filter: &Arc<Filter>,
        document: String,
    ) -> Result<Option<Body>, Failure> {
        let (filter, running) = (filter.clone(), self.running.clone());
        let until = Instant::now() + PATIENCE;
        let made = async {
            let place = running.acquire_owned().await.map_err(|_| Failure::TooLate)?;
            let (tell, told) = oneshot::channel();
            // A thread that nobody waits for at the end, as the runtime would for one of its own.
            let run = move || {
                let made = filter.run(document.as_bytes(), until);
                drop(place);
                let _gave_up = tell.send(made);
            };
            let begun = thread::Builder::new().name("filter".into()).spawn(run);
            begun.map_err(|_| Failure::TooLate)?;
            told.await.unwrap_or(Err(Failure::Failed))
        };
        tokio::time::timeout(PATIENCE, made).await.unwrap_or(Err(Failure::TooLate))
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|&segment| segment.to_owned()).collect()
}

#[cfg(test)]
mod tests;
