//! Output of a command: forwarded as it arrives.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::progress::Progress;

/// Maximum number of bytes that are read at once.
const READ_BYTES: usize = 4096;
/// Time to wait for more output after a command has ended: a daemon that it started may hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time to read output after a command has ended: a daemon that it started may write without end.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(10);

/// The readers of a command's pipes.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    readers: JoinSet<()>,
    ended: CancellationToken,
}

impl Pipes {
    /// Forwards `output`, one of the command's pipes, until it is closed.
    pub(super) fn follow(
        &mut self,
        output: Option<impl AsyncRead + Unpin + Send + 'static>,
        progress: &Arc<dyn Progress>,
    ) {
        if let Some(output) = output {
            let (progress, ended) = (progress.clone(), self.ended.clone());
            self.readers.spawn(forward(output, progress, ended));
        }
    }

    /// Forwards what is left in the pipes of a command that has ended.
    pub(super) async fn drain(mut self) {
        self.ended.cancel();
        while self.readers.join_next().await.is_some() {}
    }
}

/// Forwards `output` until it is closed; after `ended` only while there is output.
async fn forward(
    mut output: impl AsyncRead + Unpin,
    progress: Arc<dyn Progress>,
    ended: CancellationToken,
) {
    while let Some(more) = ended.run_until_cancelled(forward_once(&mut output, &*progress)).await {
        if !more {
            return;
        }
    }
    let rest = async {
        while timeout(DRAIN_TIMEOUT, forward_once(&mut output, &*progress)).await.unwrap_or(false) {
        }
    };
    let _written_without_end = timeout(MAX_DRAIN_TIME, rest).await;
}

/// Reads once. Returns false at the end of the pipe. A read error is treated like its end.
async fn forward_once(output: &mut (impl AsyncRead + Unpin), progress: &dyn Progress) -> bool {
    let mut printed = BytesMut::with_capacity(READ_BYTES);
    let is_open = output.read_buf(&mut printed).await.is_ok_and(|read| read > 0);
    if is_open {
        progress.output(&printed);
    }
    is_open
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::progress::Report;

    #[derive(Debug, Default)]
    struct Printed(Mutex<String>);

    impl Progress for Printed {
        fn report(&self, _: Report) {}

        fn output(&self, bytes: &[u8]) {
            self.0.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
        }
    }

    fn follow(pipe: tokio::io::DuplexStream) -> (Pipes, Arc<Printed>) {
        let (mut pipes, printed) = (Pipes::default(), Arc::new(Printed::default()));
        let progress: Arc<dyn Progress> = printed.clone();
        pipes.follow(Some(pipe), &progress);
        (pipes, printed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_that_is_held_open_is_read_until_nothing_is_written_for_a_second() {
        let (mut daemon, pipe) = tokio::io::duplex(8);
        let (pipes, printed) = follow(pipe);
        tokio::spawn(async move {
            for pause in [0, 600, 600, 3000] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                daemon.write_all(b"a line\n").await.unwrap();
            }
        });
        pipes.drain().await;
        assert_eq!(*printed.0.lock().unwrap(), "a line\n".repeat(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_that_is_written_to_without_end_is_read_for_ten_seconds() {
        let (mut daemon, pipe) = tokio::io::duplex(8);
        let (pipes, printed) = follow(pipe);
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(Duration::from_millis(600));
            while daemon.write_all(b"a line\n").await.is_ok() {
                interval.tick().await;
            }
        });
        pipes.drain().await;
        let lines = printed.0.lock().unwrap().lines().count();
        assert!((16..=18).contains(&lines), "{lines}");
    }
}
