//! An origin in memory that fails on request, and counts how often it sent each byte.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::Semaphore;

use super::random::Random;
use super::sim_disk::BLOCK;
use crate::origin::{OriginError, OriginResponse, RangeOrigin};

/// The origin. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SimOrigin(Arc<Mutex<OriginState>>);

/// Faults of the origin, and what it sent.
#[derive(Debug)]
pub(crate) struct OriginState {
    pub(crate) random: Random,
    /// Kinds of faults, and the percentage of requests that have one.
    pub(crate) faults: (Vec<OriginFault>, u64),
    /// Permits to send a piece. None: all are sent.
    pub(crate) gate: Option<Arc<Semaphore>>,
    /// How often each byte of each file was sent.
    pub(crate) sent: BTreeMap<String, Vec<u32>>,
    /// Bytes that were sent.
    pub(crate) sent_bytes: u64,
}

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginFault {
    Unavailable,
    /// The connection breaks.
    Broken,
    TooShort,
    TooLong,
    /// The size of the file is wrong.
    OtherSize,
    /// Nothing comes any more.
    Silent,
}

/// All faults but silence.
pub(crate) const ALL_FAULTS: [OriginFault; 5] = [
    OriginFault::Unavailable,
    OriginFault::Broken,
    OriginFault::TooShort,
    OriginFault::TooLong,
    OriginFault::OtherSize,
];

impl SimOrigin {
    pub(crate) fn new(random: Random) -> Self {
        Self(Arc::new(Mutex::new(OriginState {
            random,
            faults: (Vec::new(), 0),
            gate: None,
            sent: BTreeMap::new(),
            sent_bytes: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, OriginState> {
        self.0.lock().unwrap()
    }

    /// Returns how often each byte of `name` was sent: the least and the most.
    pub(crate) fn times(&self, name: &str) -> (u32, u32) {
        let state = self.state();
        let Some(times) = state.sent.get(name) else { return (0, 0) };
        (*times.iter().min().unwrap(), *times.iter().max().unwrap())
    }

    /// Lets `pieces` more be sent.
    pub(crate) fn send(&self, pieces: usize) {
        self.state().gate.as_ref().unwrap().add_permits(pieces);
    }

    fn count(&self, name: &str, range: Range<u64>) {
        let state = &mut *self.state();
        state.sent_bytes += range.end - range.start;
        let all = vec![0; size(name) as usize];
        let times = state.sent.entry(name.to_owned()).or_insert(all);
        times[range.start as usize..range.end as usize].iter_mut().for_each(|times| *times += 1);
    }

    /// Returns the next piece of a response, and the position after it.
    async fn piece(self, name: String, at: u64, plan: Plan) -> Option<(Sent, u64)> {
        let gate = self.state().gate.clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        for _ in 0..self.turns() {
            tokio::task::yield_now().await;
        }
        if at >= plan.end {
            return match plan.fault {
                Some(OriginFault::Broken) => {
                    let broken = OriginError::Unavailable("broken".into());
                    Some((Err(broken), at))
                }
                Some(OriginFault::Silent) => std::future::pending().await,
                _ => None,
            };
        }
        let length = 1 + self.state().random.below(300);
        let end = plan.end.min(at + length);
        self.count(&name, at..end.min(size(&name)));
        Some((Ok(content(&name, at..end).into()), end))
    }

    fn turns(&self) -> u64 {
        self.state().random.below(4)
    }
}

type Sent = Result<Bytes, OriginError>;

/// End of a response.
#[derive(Clone, Copy)]
struct Plan {
    end: u64,
    fault: Option<OriginFault>,
}

#[async_trait]
impl RangeOrigin for SimOrigin {
    async fn size(&self, name: &str) -> Result<u64, OriginError> {
        match name.starts_with("none") {
            true => Err(OriginError::NotFound),
            false => Ok(size(name)),
        }
    }

    async fn fetch(&self, name: &str, range: Range<u64>) -> Result<OriginResponse, OriginError> {
        for _ in 0..self.turns() {
            tokio::task::yield_now().await;
        }
        let (fault, cut) = {
            let state = &mut *self.state();
            let (faults, percent) = &state.faults;
            let is_wrong = !faults.is_empty() && state.random.chance(*percent);
            let fault = is_wrong.then(|| state.random.pick(faults));
            (fault, range.start + state.random.below(range.end - range.start))
        };
        let end = match fault {
            Some(OriginFault::Unavailable) => return Err(OriginError::Unavailable("off".into())),
            Some(OriginFault::Broken | OriginFault::TooShort | OriginFault::Silent) => cut,
            Some(OriginFault::TooLong) => range.end + 1,
            Some(OriginFault::OtherSize) | None => range.end,
        };
        let (origin, name) = (self.clone(), name.to_owned());
        let size = size(&name) + u64::from(fault == Some(OriginFault::OtherSize));
        let bytes = stream::unfold(range.start, move |at| {
            origin.clone().piece(name.clone(), at, Plan { end, fault })
        });
        Ok(OriginResponse { size, bytes: Box::pin(bytes) })
    }
}

/// Returns the size of the file `name`: whole blocks, of which its last letters are the number.
pub(crate) fn size(name: &str) -> u64 {
    name.split_once('-').map_or(0, |(_, blocks)| blocks.parse::<u64>().unwrap()) * BLOCK
}

/// Returns bytes of the file `name`. None of them is zero.
pub(crate) fn content(name: &str, range: Range<u64>) -> Vec<u8> {
    let first = u64::from(name.as_bytes()[0]);
    range.map(|at| (Random(first << 32 | at).next() as u8).max(1)).collect()
}
