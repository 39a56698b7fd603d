//! Steps in a thread of their own, so that a device or server that does not answer holds up nobody else.

use std::{
    sync::mpsc::{self, RecvTimeoutError, SendError},
    thread,
};

use crate::{Deadline, Error, Result};

/// Runs `work` in a thread, and returns its result or, at the deadline, the failure of `step`.
///
/// A system call that waits for a device cannot be interrupted. The thread therefore stays until the call returns; a value
/// that it then has is handed to `undo`.
pub(crate) fn bounded<T: Send + 'static>(
    step: &str,
    deadline: Deadline,
    work: impl FnOnce() -> Result<T> + Send + 'static,
    undo: impl FnOnce(T) + Send + 'static,
) -> Result<T> {
    // Without a buffer, a value is either received or comes back to the sender: it is never both returned and undone.
    let (sender, receiver) = mpsc::sync_channel(0);
    let name = step.to_owned();
    let run = move || {
        if let Err(SendError(Ok(value))) = sender.send(work()) {
            tracing::warn!(step = name, "step completed after its time limit: undoing it");
            undo(value);
        }
    };
    thread::Builder::new()
        .name("mounts-step".into())
        .spawn(run)
        .map_err(|e| Error::failed(step, e))?;
    match receiver.recv_timeout(deadline.remaining()) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(Error::expired(step)),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::failed_because(step, "its thread ended without a result"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_value_that_comes_after_the_deadline_is_undone_and_not_returned() {
        let (release, released) = mpsc::channel::<()>();
        let (undone, undo) = mpsc::channel();
        let work = move || {
            released.recv().unwrap();
            Ok(7)
        };
        let result = bounded("slow step", Deadline::after(Duration::ZERO), work, move |value| {
            undone.send(value).unwrap();
        });
        assert_eq!(result, Err(Error::expired("slow step")));
        release.send(()).unwrap();
        assert_eq!(undo.recv(), Ok(7));
    }

    #[test]
    fn a_value_in_time_is_returned_and_not_undone() {
        let limit = Deadline::after(Duration::from_secs(60));
        let result = bounded("quick step", limit, || Ok(7), |_| panic!("undone"));
        assert_eq!(result, Ok(7));
    }
}
