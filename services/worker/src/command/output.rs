//! Output of a command: forwarded as it arrives. The last lines are stored for the failure report.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::progress::Progress;

/// Maximum number of bytes that are stored.
const TAIL_BYTES: usize = 4096;

/// Time to wait for more output after a command has ended: a daemon that it started may hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time to read output after a command has ended: a daemon that it started may write without end.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(10);

/// The last bytes of a command's output.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Arc<Mutex<BytesMut>>,
    readers: JoinSet<()>,
    ended: CancellationToken,
}

impl Tail {
    /// Reads `output`, one of the command's pipes, until it is closed.
    pub(super) fn follow(
        &mut self,
        output: Option<impl AsyncRead + Unpin + Send + 'static>,
        progress: &Arc<dyn Progress>,
    ) {
        if let Some(output) = output {
            let mut reader =
                Reader { output, tail: self.bytes.clone(), progress: progress.clone() };
            let ended = self.ended.clone();
            self.readers.spawn(async move { reader.read(&ended).await });
        }
    }

    /// Reads what is left in the pipes of a command that has ended. Returns the last whole lines.
    pub(super) async fn last(mut self) -> String {
        self.ended.cancel();
        while self.readers.join_next().await.is_some() {}
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let truncated = text.split_once('\n').filter(|_| bytes.len() == TAIL_BYTES);
        truncated.map_or_else(|| text.clone(), |(_, whole)| whole.to_owned())
    }
}

/// Forwards one pipe.
struct Reader<O> {
    output: O,
    tail: Arc<Mutex<BytesMut>>,
    progress: Arc<dyn Progress>,
}

impl<O: AsyncRead + Unpin> Reader<O> {
    /// Reads until the pipe is closed; after `ended` only while there is output.
    async fn read(&mut self, ended: &CancellationToken) {
        while let Some(more) = ended.run_until_cancelled(self.read_once()).await {
            if !more {
                return;
            }
        }
        let rest =
            async { while timeout(DRAIN_TIMEOUT, self.read_once()).await.unwrap_or(false) {} };
        let _written_without_end = timeout(MAX_DRAIN_TIME, rest).await;
    }

    /// Reads once. Returns false at the end of the pipe. A read error is treated like its end.
    async fn read_once(&mut self) -> bool {
        let mut printed = BytesMut::with_capacity(TAIL_BYTES);
        if !self.output.read_buf(&mut printed).await.is_ok_and(|read| read > 0) {
            return false;
        }
        self.progress.output(&printed);
        append(&mut self.tail.lock().unwrap_or_else(PoisonError::into_inner), &printed);
        true
    }
}

fn append(tail: &mut BytesMut, printed: &[u8]) {
    tail.extend_from_slice(printed);
    tail.advance(tail.len().saturating_sub(TAIL_BYTES));
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::progress::Silent;

    async fn last(printed: String) -> String {
        let mut tail = Tail::default();
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        tail.follow(Some(std::io::Cursor::new(printed)), &silent);
        tail.last().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_that_is_held_open_is_read_until_nothing_is_written_for_a_second() {
        let (mut daemon, pipe) = tokio::io::duplex(8);
        let mut tail = Tail::default();
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        tail.follow(Some(pipe), &silent);
        tokio::spawn(async move {
            for pause in [0, 600, 600, 3000] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                daemon.write_all(b"a line\n").await.unwrap();
            }
        });
        assert_eq!(tail.last().await, "a line\n".repeat(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_that_is_written_to_without_end_is_read_for_ten_seconds() {
        let (mut daemon, pipe) = tokio::io::duplex(8);
        let mut tail = Tail::default();
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        tail.follow(Some(pipe), &silent);
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(Duration::from_millis(600));
            while daemon.write_all(b"a line\n").await.is_ok() {
                interval.tick().await;
            }
        });
        let lines = tail.last().await.lines().count();
        assert!((16..=18).contains(&lines), "{lines}");
    }

    #[tokio::test]
    async fn short_output_is_stored_whole() {
        assert_eq!(last("one\ntwo".into()).await, "one\ntwo");
    }

    #[tokio::test]
    async fn the_last_whole_lines_of_long_output_are_stored() {
        let tail = last((0..10_000).map(|line| format!("line {line}\n")).collect()).await;
        assert!(
            tail.len() <= TAIL_BYTES && tail.starts_with("line ") && tail.ends_with("line 9999\n"),
            "{tail}"
        );
    }
}
