//! The blocks that are under way, as packets one behind the other: as the kernel takes them, however many at once.

use std::ops::Range;

use super::packet::data_head;

/// DATA packets, oldest first; all but the file's last are of one length.
#[derive(Clone, Debug)]
pub(super) struct Window {
    octets: Vec<u8>,
    packet: usize,
}

/// Packets to send: all of `each` octets but the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst<'a> {
    /// One behind the other.
    pub octets: &'a [u8],
    /// Octets of each.
    pub each: usize,
}

impl<'a> Burst<'a> {
    /// One packet.
    pub fn one(packet: &'a [u8]) -> Self {
        Self { octets: packet, each: packet.len() }
    }

    /// Packet by packet.
    pub fn packets(self) -> impl Iterator<Item = &'a [u8]> {
        self.octets.chunks(self.each.max(1))
    }
}

impl Window {
    /// Of blocks of `block` octets; none yet.
    pub(super) fn new(block: usize) -> Self {
        Self { octets: Vec::new(), packet: data_head(0).len() + block }
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.octets.len().div_ceil(self.packet)
    }

    /// Adds `block`, whose number is `number`.
    pub(super) fn push(&mut self, number: u16, block: &[u8]) {
        self.octets.extend_from_slice(&data_head(number));
        self.octets.extend_from_slice(block);
    }

    /// Takes the `count` oldest blocks away.
    pub(super) fn drop_first(&mut self, count: usize) {
        self.octets.drain(..self.offset(count));
    }

    /// The packets of the blocks at `places`, as far as there are any.
    pub(super) fn burst(&self, places: Range<usize>) -> Burst<'_> {
        let octets = self.octets.get(self.offset(places.start)..self.offset(places.end));
        Burst { octets: octets.unwrap_or_default(), each: self.packet }
    }

    /// Where the packet at `place` begins.
    fn offset(&self, place: usize) -> usize {
        self.octets.len().min(place.saturating_mul(self.packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_as_their_blocks_went_in() {
        let mut window = Window::new(3);
        for (number, block) in [(65_535, &b"abc"[..]), (0, b"def"), (1, b"")] {
            window.push(number, block);
        }
        let packets = |window: &Window, places: Range<usize>| -> Vec<Vec<u8>> {
            window.burst(places).packets().map(<[u8]>::to_vec).collect()
        };
        let all = [&b"\0\x03\xff\xffabc"[..], b"\0\x03\0\0def", b"\0\x03\0\x01"];
        assert_eq!((window.len(), packets(&window, 0..3)), (3, all.map(<[u8]>::to_vec).into()));
        assert_eq!(packets(&window, 1..9), all[1..]);
        window.drop_first(2);
        assert_eq!((window.len(), packets(&window, 0..1)), (1, vec![all[2].to_vec()]));
        window.drop_first(9);
        assert_eq!((window.len(), packets(&window, 0..1)), (0, vec![]));
    }
}
