//! Streams stored and new syslog lines of a machine.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{Stream, stream};
use tinwright::netboot::v1 as pb;
use tinwright::watch::SERVER_STOPS;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::syslog::Lines;
use crate::syslog::lines::Line;

/// A request for lines.
#[derive(Debug)]
pub(super) struct Reader {
    /// The lines of all machines.
    pub(super) lines: Arc<Lines>,
    /// The id of the machine; empty for lines from addresses of no machine.
    pub(super) machine: String,
    /// The sequence number after which lines are read.
    pub(super) after: u64,
    /// The maximum number of lines that are already stored.
    pub(super) most: usize,
    /// True to wait for new lines.
    pub(super) follow: bool,
}

/// Streams the lines of `reader` until `stop`.
pub(super) fn read(
    reader: Reader,
    stop: CancellationToken,
) -> impl Stream<Item = Result<pb::ReadBootLogResponse, Status>> {
    let news = reader.lines.latest.subscribe();
    let state = (reader, news, stop, VecDeque::new());
    stream::unfold(Some(state), |state| async {
        let (mut reader, mut news, stop, mut waiting) = state?;
        loop {
            if let Some(line) = waiting.pop_front() {
                return Some((Ok(to_proto(line)), Some((reader, news, stop, waiting))));
            }
            // Lines that arrive after this call wake the stream, so none is missed between reading and waiting.
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
                return Some((Err(Status::unavailable(SERVER_STOPS)), None));
            }
        }
    })
}

fn to_proto(line: Line) -> pb::ReadBootLogResponse {
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
    use futures_util::StreamExt as _;
    use std::time::SystemTime;

    #[tokio::test]
    async fn a_follower_gets_stored_lines_then_new_ones_and_an_end() {
        let lines = Arc::new(Lines::new(SystemTime::UNIX_EPOCH));
        let store = |machine: &str, text: &str| {
            let message = syslog::parse(text.as_bytes());
            lines.store(Some(machine), [192, 0, 2, 1].into(), message, SystemTime::now());
        };
        store("a", "one");
        store("a", "two");
        let stop = CancellationToken::new();
        let (machine, follow) = ("a".to_owned(), true);
        let reader = Reader { lines: lines.clone(), machine, after: 0, most: 1, follow };
        let mut stream = std::pin::pin!(read(reader, stop.clone()));
        assert_eq!(stream.next().await.unwrap().unwrap().message, "two");
        store("b", "not ours");
        store("a", "three");
        store("a", "four");
        assert_eq!(stream.next().await.unwrap().unwrap().message, "three");
        assert_eq!(stream.next().await.unwrap().unwrap().message, "four");
        stop.cancel();
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }
}
