//! The journal: what survives the process.
//!
//! Changes are appended by one task, in the order of the calls of [`Journal::append`]. All that wait at the same moment are
//! written as one batch and synchronized once. A change is durable when `append` returns. If a write fails, the changes of its batch are
//! refused, and the next batch goes to a new file, because the end of the old one is uncertain.

mod file;
mod record;
mod table;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::options::NodeOptions;
use file::JournalFile;
pub use file::OpenError;
pub(crate) use record::{CallRecord, Change, ObjectBody, ObjectRecord, Phase};
pub(crate) use table::Table;

/// A failed write.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal cannot be written: {0}")]
pub(crate) struct WriteError(Arc<str>);

/// The handle of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    batches: mpsc::UnboundedSender<Append>,
}

/// Changes of one caller.
#[derive(Debug)]
struct Append {
    changes: Vec<Change>,
    done: oneshot::Sender<Result<(), WriteError>>,
}

impl Journal {
    /// Opens or creates the journal, and returns what it has. The task that writes it ends when the last handle is dropped.
    pub(crate) async fn open(options: &NodeOptions) -> Result<(Self, Table), OpenError> {
        let path = options.journal.clone();
        let opened = tokio::task::spawn_blocking(move || JournalFile::open(&path)).await;
        let file = opened.map_err(|error| OpenError::Task(error.to_string()))??;
        let table = file.table().clone();
        let (batches, received) = mpsc::unbounded_channel();
        let writer = Writer {
            received,
            #[cfg(test)]
            crash: options.crash.clone(),
            #[cfg(test)]
            refuse: options.refuse_writes.clone(),
        };
        tokio::spawn(writer.run(file));
        Ok((Self { batches }, table))
    }

    /// Appends `changes` as a whole: after a crash there are all of them or none.
    pub(crate) async fn append(&self, changes: Vec<Change>) -> Result<(), WriteError> {
        let (done, durable) = oneshot::channel();
        let stopped = || WriteError("its task has ended".into());
        self.batches.send(Append { changes, done }).map_err(|_| stopped())?;
        durable.await.map_err(|_| stopped())?
    }
}

/// The task that writes the journal.
struct Writer {
    received: mpsc::UnboundedReceiver<Append>,
    #[cfg(test)]
    crash: Option<crate::tests::CrashPoint>,
    #[cfg(test)]
    refuse: Arc<std::sync::atomic::AtomicBool>,
}

impl Writer {
    async fn run(mut self, mut file: JournalFile) {
        while let Some(first) = self.received.recv().await {
            let mut batch = vec![first];
            while let Ok(next) = self.received.try_recv() {
                batch.push(next);
            }
            #[cfg(test)]
            crate::tests::pass(&self.crash, "before a journal write").await;
            let (changes, waiting): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|append| (append.changes, append.done)).unzip();
            #[cfg(test)]
            if self.refuse.load(std::sync::atomic::Ordering::SeqCst) {
                let refused = || Err(WriteError("no space left".into()));
                waiting.into_iter().for_each(|done| drop(done.send(refused())));
                continue;
            }
            let write = move || {
                let result = file.append(changes.into_iter().flatten().collect());
                (file, result)
            };
            // Blocking: the write is synchronized with the disk.
            let Ok((returned, result)) = tokio::task::spawn_blocking(write).await else { return };
            file = returned;
            #[cfg(test)]
            crate::tests::pass(&self.crash, "after a journal write").await;
            let result = result.map_err(|error| WriteError(error.to_string().into()));
            for done in waiting {
                // A caller that is gone needs no answer.
                let _gone = done.send(result.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
