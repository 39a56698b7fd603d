//! Output of a command: forwarded as it arrives. The last lines are stored for the failure report.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;

use crate::progress::Progress;

/// Maximum number of bytes that are stored.
const TAIL_BYTES: usize = 4096;

/// Time to wait for the remaining output after a command has ended: a daemon that it started may hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The last bytes of a command's output.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Arc<Mutex<BytesMut>>,
    readers: JoinSet<()>,
}

impl Tail {
    /// Reads `output`, one of the command's pipes, until it is closed.
    pub(super) fn follow(
        &mut self,
        output: Option<impl AsyncRead + Unpin + Send + 'static>,
        progress: &Arc<dyn Progress>,
    ) {
        if let Some(output) = output {
            self.readers.spawn(read(output, self.bytes.clone(), progress.clone()));
        }
    }

    /// Returns the last whole lines, once the command has ended.
    pub(super) async fn last(mut self) -> String {
        let closed = async { while self.readers.join_next().await.is_some() {} };
        let _held_open = tokio::time::timeout(DRAIN_TIMEOUT, closed).await;
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let truncated = text.split_once('\n').filter(|_| bytes.len() == TAIL_BYTES);
        truncated.map_or_else(|| text.clone(), |(_, whole)| whole.to_owned())
    }
}

async fn read(
    mut output: impl AsyncRead + Unpin,
    tail: Arc<Mutex<BytesMut>>,
    progress: Arc<dyn Progress>,
) {
    let mut printed = BytesMut::with_capacity(TAIL_BYTES);
    // A read error is treated like the end of the pipe.
    while output.read_buf(&mut printed).await.is_ok_and(|read| read > 0) {
        progress.output(&printed);
        append(&mut tail.lock().unwrap_or_else(PoisonError::into_inner), &printed);
        printed.clear();
    }
}

fn append(tail: &mut BytesMut, printed: &[u8]) {
    tail.extend_from_slice(printed);
    tail.advance(tail.len().saturating_sub(TAIL_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    async fn last(printed: String) -> String {
        let mut tail = Tail::default();
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        tail.follow(Some(std::io::Cursor::new(printed)), &silent);
        tail.last().await
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
