//! Reading a machine's lines of syslog, and on as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{Stream, stream};
use tinwright::netboot::v1 as pb;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::syslog::Lines;
use crate::syslog::lines::Line;

/// What is read.
#[derive(Debug)]
pub(super) struct Reader {
    /// The lines of all.
    pub(super) lines: Arc<Lines>,
    /// Whose; empty for those of nobody known.
    pub(super) machine: String,
    /// After which.
    pub(super) after: u64,
    /// How many of those that are there already.
    pub(super) most: usize,
    /// Whether to wait for more.
    pub(super) follow: bool,
}

/// Reads as `reader` says, until `stop`.
pub(super) fn read(
    reader: Reader,
    stop: CancellationToken,
) -> impl Stream<Item = Result<pb::ReadBootLogResponse, Status>> {
    let news = reader.lines.follow();
    let state = (reader, news, stop, VecDeque::new());
    stream::unfold(Some(state), |state| async {
        let (mut reader, mut news, stop, mut waiting) = state?;
        loop {
            if let Some(line) = waiting.pop_front() {
                return Some((Ok(told(line)), Some((reader, news, stop, waiting))));
            }
            // What comes from here on wakes us, so nothing is missed between looking and waiting.
            news.mark_unchanged();
            waiting.extend(reader.lines.after(&reader.machine, reader.after, reader.most));
            if let Some(last) = waiting.back() {
                (reader.after, reader.most) = (last.sequence, usize::MAX);
                continue;
            }
            if !reader.follow {
                return None;
            }
            if !matches!(stop.run_until_cancelled(news.changed()).await, Some(Ok(()))) {
                return Some((Err(Status::unavailable("the server is ending")), None));
            }
        }
    })
}

fn told(line: Line) -> pb::ReadBootLogResponse {
    let Line { sequence, received, source, message } = line;
    pb::ReadBootLogResponse {
        sequence,
        receive_time: Some(received.into()),
        send_time: message.sent.map(Into::into),
        source: source.to_string(),
        facility: message.priority.facility().into(),
        severity: message.priority.severity().into(),
        hostname: message.hostname,
        app: message.app,
        process: message.process,
        message: message.text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::syslog::message::Message;
    use futures_util::StreamExt as _;
    use std::time::SystemTime;

    #[tokio::test]
    async fn a_follower_gets_what_is_there_then_what_comes_and_an_end() {
        let lines = Arc::new(Lines::new(SystemTime::UNIX_EPOCH));
        let say = |machine: &str, text: &str| {
            let message = Message::parse(text.as_bytes());
            lines.keep(Some(machine), [192, 0, 2, 1].into(), message, SystemTime::now());
        };
        say("a", "one");
        say("a", "two");
        let stop = CancellationToken::new();
        let (machine, follow) = ("a".to_owned(), true);
        let reader = Reader { lines: lines.clone(), machine, after: 0, most: 1, follow };
        let mut told = std::pin::pin!(read(reader, stop.clone()));
        assert_eq!(told.next().await.unwrap().unwrap().message, "two");
        say("b", "not ours");
        say("a", "three");
        say("a", "four");
        assert_eq!(told.next().await.unwrap().unwrap().message, "three");
        assert_eq!(told.next().await.unwrap().unwrap().message, "four");
        stop.cancel();
        assert!(told.next().await.unwrap().is_err());
        assert!(told.next().await.is_none());
    }
}
