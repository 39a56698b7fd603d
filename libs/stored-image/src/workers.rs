//! Threads that compress and hash blocks.

use std::io;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use zstd::bulk::Compressor;

use crate::digest::Digest;
use crate::frame;

/// A block with its frame and digest. Its buffers are used again for other blocks.
#[derive(Debug)]
pub(crate) struct Work {
    /// Content of the block.
    pub(crate) raw: Vec<u8>,
    /// Frame of the block.
    pub(crate) frame: Vec<u8>,
    /// SHA-256 of the content.
    pub(crate) digest: Digest,
}

impl Default for Work {
    fn default() -> Self {
        Self { raw: Vec::new(), frame: Vec::new(), digest: Digest([0; 32]) }
    }
}

/// Threads that take turns: the caller receives results in the order of its blocks.
///
/// Channels have no limit. The caller limits the number of blocks in them.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    next_in: usize,
    next_out: usize,
}

impl Workers {
    /// Starts `threads` threads that compress at `level`.
    pub(crate) fn start(threads: NonZero<usize>, level: i32) -> io::Result<Self> {
        let workers = (0..threads.get()).map(|_| Worker::start(level)).collect::<Result<_, _>>()?;
        Ok(Self { workers, next_in: 0, next_out: 0 })
    }

    /// Gives a block to the next thread.
    pub(crate) fn send(&mut self, work: Work) -> io::Result<()> {
        let jobs = self.workers.get(self.next_in).and_then(|worker| worker.jobs.as_ref());
        self.next_in = (self.next_in + 1) % self.workers.len();
        jobs.and_then(|jobs| jobs.send(work).ok()).ok_or_else(ended)
    }

    /// Waits for the oldest block that was sent and not yet received.
    pub(crate) fn receive(&mut self) -> io::Result<Work> {
        let worker = self.workers.get(self.next_out);
        self.next_out = (self.next_out + 1) % self.workers.len();
        worker.and_then(|worker| worker.results.recv().ok()).ok_or_else(ended)?
    }
}

fn ended() -> io::Error {
    io::Error::other("a compression thread ended early")
}

/// A thread. It ends when its worker is dropped, after the blocks that it already has.
#[derive(Debug)]
struct Worker {
    jobs: Option<Sender<Work>>,
    results: Receiver<io::Result<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(level: i32) -> io::Result<Self> {
        let mut compressor = frame::compressor(level)?;
        let (jobs, inbox) = channel();
        let (outbox, results) = channel();
        let run = move || {
            inbox
                .into_iter()
                .map(|work| compress(&mut compressor, work))
                .try_for_each(|result| outbox.send(result))
                .unwrap_or_default() // Nobody waits for the result.
        };
        let thread = std::thread::Builder::new().name("compress".into()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), results, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        // A panic of the thread was already seen as a missing result.
        self.thread.take().map(JoinHandle::join);
    }
}

fn compress(compressor: &mut Compressor<'_>, mut work: Work) -> io::Result<Work> {
    frame::compress(compressor, &work.raw, &mut work.frame)?;
    work.digest = Digest::of(&work.raw);
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_blocks() {
        let mut workers = Workers::start(NonZero::new(3).unwrap(), 1).unwrap();
        let raw = |index: u8| vec![index; if index.is_multiple_of(3) { 1 << 20 } else { 1 }];
        for index in 0..20 {
            workers.send(Work { raw: raw(index), ..Work::default() }).unwrap();
        }
        for index in 0..20 {
            let work = workers.receive().unwrap();
            assert!(work.raw == raw(index), "{index}");
            assert_eq!(work.digest, Digest::of(&work.raw));
        }
    }
}
