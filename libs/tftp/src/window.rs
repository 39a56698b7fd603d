//! The blocks that are sent and not yet acknowledged, as consecutive packets: the kernel takes several of them in one call.

use std::ops::Range;

use crate::packet::data_header;

/// DATA packets, oldest first; all but the file's last have one length.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    packet_bytes: usize,
}

/// Consecutive packets to send: all of `packet_bytes` but the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst<'a> {
    /// The packets.
    pub bytes: &'a [u8],
    /// The length of each packet.
    pub packet_bytes: usize,
}

impl Window {
    /// An empty window for blocks of `block_bytes`.
    pub(crate) fn new(block_bytes: usize) -> Self {
        Self { bytes: Vec::new(), packet_bytes: data_header(0).len() + block_bytes }
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().div_ceil(self.packet_bytes)
    }

    /// Adds `block` with its `number`.
    pub(crate) fn push(&mut self, number: u16, block: &[u8]) {
        self.bytes.extend_from_slice(&data_header(number));
        self.bytes.extend_from_slice(block);
    }

    /// Removes the `count` oldest blocks.
    pub(crate) fn remove_first(&mut self, count: usize) {
        self.bytes.drain(..self.offset(count));
    }

    /// The packets of the blocks at `positions`, as far as there are any.
    pub(crate) fn burst(&self, positions: Range<usize>) -> Burst<'_> {
        let bytes = self.bytes.get(self.offset(positions.start)..self.offset(positions.end));
        Burst { bytes: bytes.unwrap_or_default(), packet_bytes: self.packet_bytes }
    }

    /// The offset of the packet at `position`.
    fn offset(&self, position: usize) -> usize {
        self.bytes.len().min(position.saturating_mul(self.packet_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_in_the_order_of_their_blocks() {
        let mut window = Window::new(3);
        for (number, block) in [(65_535, &b"abc"[..]), (0, b"def"), (1, b"")] {
            window.push(number, block);
        }
        let packets = |window: &Window, positions: Range<usize>| -> Vec<Vec<u8>> {
            let burst = window.burst(positions);
            burst.bytes.chunks(burst.packet_bytes).map(<[u8]>::to_vec).collect()
        };
        let all = [&b"\0\x03\xff\xffabc"[..], b"\0\x03\0\0def", b"\0\x03\0\x01"];
        assert_eq!((window.len(), packets(&window, 0..3)), (3, all.map(<[u8]>::to_vec).into()));
        assert_eq!(packets(&window, 1..9), all[1..]);
        window.remove_first(2);
        assert_eq!((window.len(), packets(&window, 0..1)), (1, vec![all[2].to_vec()]));
        window.remove_first(9);
        assert_eq!((window.len(), packets(&window, 0..1)), (0, vec![]));
    }
}
