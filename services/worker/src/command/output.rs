//! What a command prints: handed on as it comes, its end kept for the failure.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;

use crate::progress::Progress;

/// How much of the end is kept.
const KEPT: usize = 4096;

/// How long to wait for the rest once a command has ended: a daemon that it started may hold on to its output.
const REST: Duration = Duration::from_secs(1);

/// The end of what a command prints.
#[derive(Debug, Default)]
pub(super) struct Tail {
    kept: Arc<Mutex<BytesMut>>,
    readers: JoinSet<()>,
}

impl Tail {
    /// Reads `output`, one of the command's, until it is closed.
    pub(super) fn follow(
        &mut self,
        output: Option<impl AsyncRead + Unpin + Send + 'static>,
        progress: &Arc<dyn Progress>,
    ) {
        if let Some(output) = output {
            self.readers.spawn(read(output, self.kept.clone(), progress.clone()));
        }
    }

    /// The last whole lines of it, once the command has ended.
    pub(super) async fn last(mut self) -> String {
        let closed = async { while self.readers.join_next().await.is_some() {} };
        let _held_open = tokio::time::timeout(REST, closed).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).into_owned();
        let begun = text.split_once('\n').filter(|_| kept.len() == KEPT);
        begun.map_or_else(|| text.clone(), |(_, whole)| whole.to_owned())
    }
}

async fn read(
    mut output: impl AsyncRead + Unpin,
    kept: Arc<Mutex<BytesMut>>,
    progress: Arc<dyn Progress>,
) {
    let mut printed = BytesMut::with_capacity(KEPT);
    // A pipe has no errors that say more than its end does.
    while output.read_buf(&mut printed).await.is_ok_and(|read| read > 0) {
        progress.output(&printed);
        keep(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), &printed);
        printed.clear();
    }
}

fn keep(kept: &mut BytesMut, printed: &[u8]) {
    kept.extend_from_slice(printed);
    kept.advance(kept.len().saturating_sub(KEPT));
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
    async fn short_output_is_kept_whole() {
        assert_eq!(last("one\ntwo".into()).await, "one\ntwo");
    }

    #[tokio::test]
    async fn of_long_output_the_last_whole_lines_are_kept() {
        let tail = last((0..10_000).map(|line| format!("line {line}\n")).collect()).await;
        assert!(
            tail.len() <= KEPT && tail.starts_with("line ") && tail.ends_with("line 9999\n"),
            "{tail}"
        );
    }
}
