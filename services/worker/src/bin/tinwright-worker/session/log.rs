//! The log of an attempt. It is stored in memory until the attempt ends, and sent in pieces.
//!
//! Up to 1 MiB is stored, as much as the control plane stores of an action. If a power cut or a restored backup loses the end
//! of the log on the server, it is sent again.

use std::sync::{Mutex, PoisonError};

/// Maximum size of an attempt's log in bytes.
const MAX_LOG_BYTES: usize = 1 << 20;
/// Maximum number of bytes in one AppendLog call.
const MAX_PIECE_BYTES: usize = 16 << 10;
/// Maximum number of bytes of the tail in a result.
const TAIL_BYTES: usize = 4 << 10;
/// Maximum number of consecutive responses that request an earlier piece. After more of them, the log is not sent any more.
const MAX_RESUMPTIONS: u32 = 8;

/// The last line of a truncated log.
const TRUNCATED: &[u8] = b"\n(the rest is truncated)\n";

/// The log of a running action.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<LogBuffer>);

#[derive(Debug, Default)]
struct LogBuffer {
    bytes: Vec<u8>,
    tail: Vec<u8>,
}

impl Log {
    /// Appends output.
    pub(crate) fn write(&self, written: &[u8]) {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.append(written);
    }

    /// Returns the next piece after `offset`; empty at the end.
    pub(crate) fn piece(&self, offset: usize) -> Vec<u8> {
        let buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.bytes.iter().skip(offset).take(MAX_PIECE_BYTES).copied().collect()
    }

    /// Returns the last whole lines, at most 4 KiB.
    pub(crate) fn tail(&self) -> String {
        let buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A byte that is not UTF-8 becomes three.
        let text = String::from_utf8_lossy(&buffer.tail);
        let begin = text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES));
        let begun = buffer.tail.len() == TAIL_BYTES || begin > 0;
        let end = text.get(begin..).unwrap_or_default();
        let whole = end.split_once('\n').filter(|_| begun).map_or(end, |(_, whole)| whole);
        whole.to_owned()
    }
}

impl LogBuffer {
    fn append(&mut self, written: &[u8]) {
        self.tail.extend_from_slice(written);
        let old = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..old);
        let room = MAX_LOG_BYTES.saturating_sub(TRUNCATED.len()).saturating_sub(self.bytes.len());
        let cut = room < written.len();
        self.bytes.extend(written.iter().take(room));
        if cut && self.bytes.len() <= MAX_LOG_BYTES.saturating_sub(TRUNCATED.len()) {
            self.bytes.extend_from_slice(TRUNCATED);
        }
    }
}

/// The position up to which a log is sent.
#[derive(Debug, Default)]
pub(crate) struct LogPosition {
    /// Bytes that an earlier process of the worker has sent, which precede this log.
    pub(crate) stored_before: u64,
    /// Offset of the next piece in this log.
    pub(crate) offset: usize,
    resumptions: u32,
    /// True if the log is not sent any more.
    pub(crate) refused: bool,
}

impl LogPosition {
    /// Advances by `bytes`, the length of an accepted piece.
    pub(crate) fn advance(&mut self, bytes: usize) {
        (self.offset, self.resumptions) = (self.offset.saturating_add(bytes), 0);
    }

    /// Goes back to `next_offset`, because the server lost bytes before the last piece.
    pub(crate) fn missing(&mut self, next_offset: u64) {
        self.offset = usize::try_from(next_offset).unwrap_or(0).min(self.offset);
        self.resumptions = self.resumptions.saturating_add(1);
        self.refused = self.resumptions > MAX_RESUMPTIONS;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(bytes: &[u8]) -> Log {
        let log = Log::default();
        log.write(bytes);
        log
    }

    #[test]
    fn a_log_is_sent_in_pieces_until_its_end() {
        let log = written(&[b'x'; MAX_PIECE_BYTES + 5]);
        assert_eq!((log.piece(0).len(), log.piece(MAX_PIECE_BYTES).len()), (MAX_PIECE_BYTES, 5));
        assert!(log.piece(MAX_PIECE_BYTES + 5).is_empty() && log.piece(usize::MAX).is_empty());
    }

    #[test]
    fn a_truncated_log_is_marked_once_and_has_its_tail() {
        let log = Log::default();
        for line in 0..200_000 {
            log.write(format!("line {line}\n").as_bytes());
        }
        let bytes = log.0.lock().unwrap().bytes.clone();
        assert!(bytes.len() <= MAX_LOG_BYTES && bytes.ends_with(TRUNCATED));
        assert_eq!(bytes.windows(TRUNCATED.len()).filter(|bytes| *bytes == TRUNCATED).count(), 1);
        assert!(log.tail().ends_with("line 199999\n"));
    }

    #[test]
    fn the_tail_has_whole_lines_unless_it_is_a_single_line() {
        let lines: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
        let tail = written(lines.as_bytes()).tail();
        assert!(
            tail.len() <= TAIL_BYTES && tail.starts_with("line ") && tail.ends_with("line 9999\n")
        );
        assert_eq!(written(b"one\ntwo").tail(), "one\ntwo");
        assert_eq!(written(&[b'x'; 2 * TAIL_BYTES]).tail().len(), TAIL_BYTES);
    }

    #[test]
    fn missing_bytes_are_sent_again() {
        let mut position = LogPosition::default();
        position.advance(3 * MAX_PIECE_BYTES);
        position.missing(MAX_PIECE_BYTES as u64);
        assert_eq!(position.offset, MAX_PIECE_BYTES);
    }

    #[test]
    fn the_log_is_not_sent_any_more_after_too_many_resumptions() {
        let mut position = LogPosition::default();
        for _ in 0..=MAX_RESUMPTIONS {
            assert!(!position.refused);
            position.missing(0);
        }
        assert!(position.refused);
    }

    proptest! {
        #[test]
        fn the_pieces_together_are_the_log_and_no_tail_is_too_long(
            writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 0..9),
        ) {
            let log = Log::default();
            writes.iter().for_each(|bytes| log.write(bytes));
            let mut all = Vec::new();
            while let piece @ [_, ..] = &log.piece(all.len())[..] {
                all.extend_from_slice(piece);
            }
            prop_assert_eq!(all, writes.concat());
            prop_assert!(log.tail().len() <= TAIL_BYTES);
        }
    }
}
