//! What an action writes: kept whole until its end, and sent in pieces.
//!
//! All of it stays in memory, up to the 1 MiB that the site keeps of an action: a server that lost the end of it, by a
//! power cut or a restored backup, is sent that end again.

use std::sync::{Mutex, PoisonError};

/// The most that is kept of one try's log.
const KEPT: usize = 1 << 20;
/// The most that is sent at once.
const PIECE: usize = 16 << 10;
/// How much of its end goes with a result.
const TAIL: usize = 4 << 10;
/// How often in a row a server may want an earlier piece before it is given up on.
const RESUMPTIONS: u32 = 8;

/// The last line of a log that was too long.
const CUT: &[u8] = b"\n(the rest is left out)\n";

/// A log that is being written.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    tail: Vec<u8>,
}

impl Log {
    /// Adds what was written.
    pub(crate) fn write(&self, written: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.append(written);
    }

    /// What follows `offset`, as much as is sent at once; nothing at the end.
    pub(crate) fn piece(&self, offset: usize) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.iter().skip(offset).take(PIECE).copied().collect()
    }

    /// The last whole lines, 4 KiB at most.
    pub(crate) fn tail(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A byte that is no UTF-8 becomes three.
        let text = String::from_utf8_lossy(&kept.tail);
        let begin = text.ceil_char_boundary(text.len().saturating_sub(TAIL));
        let begun = kept.tail.len() == TAIL || begin > 0;
        let end = text.get(begin..).unwrap_or_default();
        let whole = end.split_once('\n').filter(|_| begun).map_or(end, |(_, whole)| whole);
        whole.to_owned()
    }
}

impl Kept {
    fn append(&mut self, written: &[u8]) {
        self.tail.extend_from_slice(written);
        let old = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..old);
        let room = KEPT.saturating_sub(CUT.len()).saturating_sub(self.bytes.len());
        let cut = room < written.len();
        self.bytes.extend(written.iter().take(room));
        if cut && self.bytes.len() <= KEPT.saturating_sub(CUT.len()) {
            self.bytes.extend_from_slice(CUT);
        }
    }
}

/// How far a log has been sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    offset: usize,
    resumptions: u32,
    refused: bool,
}

impl Sent {
    /// Where the next piece begins.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Whether sending goes on at all.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// A piece of so many bytes was taken.
    pub(crate) fn taken(&mut self, bytes: usize) {
        (self.offset, self.resumptions) = (self.offset.saturating_add(bytes), 0);
    }

    /// The server lost bytes before the piece: continues from `next_offset`, which is less than the present offset.
    pub(crate) fn missing(&mut self, next_offset: u64) {
        self.offset = usize::try_from(next_offset).unwrap_or(0).min(self.offset);
        self.resumptions = self.resumptions.saturating_add(1);
        self.refused = self.resumptions > RESUMPTIONS;
    }

    /// The server wants none of it.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
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
        let log = written(&[b'x'; PIECE + 5]);
        assert_eq!((log.piece(0).len(), log.piece(PIECE).len()), (PIECE, 5));
        assert!(log.piece(PIECE + 5).is_empty() && log.piece(usize::MAX).is_empty());
    }

    #[test]
    fn too_long_a_log_says_so_once_and_still_has_its_tail() {
        let log = Log::default();
        for line in 0..200_000 {
            log.write(format!("line {line}\n").as_bytes());
        }
        let kept = log.0.lock().unwrap().bytes.clone();
        assert!(kept.len() <= KEPT && kept.ends_with(CUT));
        assert_eq!(kept.windows(CUT.len()).filter(|bytes| *bytes == CUT).count(), 1);
        assert!(log.tail().ends_with("line 199999\n"));
    }

    #[test]
    fn the_tail_is_of_whole_lines_unless_it_is_one() {
        let lines: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
        let tail = written(lines.as_bytes()).tail();
        assert!(tail.len() <= TAIL && tail.starts_with("line ") && tail.ends_with("line 9999\n"));
        assert_eq!(written(b"one\ntwo").tail(), "one\ntwo");
        assert_eq!(written(&[b'x'; 2 * TAIL]).tail().len(), TAIL);
    }

    #[test]
    fn missing_bytes_are_sent_again() {
        let mut sent = Sent::default();
        sent.taken(3 * PIECE);
        sent.missing(PIECE as u64);
        assert_eq!(sent.offset(), PIECE);
    }

    #[test]
    fn a_server_that_never_has_enough_is_given_up_on() {
        let mut sent = Sent::default();
        for _ in 0..=RESUMPTIONS {
            assert!(!sent.is_refused());
            sent.missing(0);
        }
        assert!(sent.is_refused());
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_log_and_no_tail_is_too_long(
            writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 0..9),
        ) {
            let log = Log::default();
            writes.iter().for_each(|bytes| log.write(bytes));
            let mut all = Vec::new();
            while let piece @ [_, ..] = &log.piece(all.len())[..] {
                all.extend_from_slice(piece);
            }
            prop_assert_eq!(all, writes.concat());
            prop_assert!(log.tail().len() <= TAIL);
        }
    }
}
