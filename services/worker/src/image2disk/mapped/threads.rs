//! Threads of the processors.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

/// Maximum number of threads that decode or compare blocks. Each holds blocks in memory.
const MAX_THREADS: usize = 8;

/// Returns the number of threads for work that needs a processor for each block.
pub(super) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Waits for the end of a thread. Passes a panic on.
pub(super) fn outcome<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
